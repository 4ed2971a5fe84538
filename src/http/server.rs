//! The HTTP/1.1 server: starts and stops the listener thread and the handler threads.
//!
//! Not here: routes, and everything else that the [`Service`] knows.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle, ThreadId};
use std::time::Duration;

use parking_lot::Mutex;
use socket2::{Domain, Protocol, Socket, Type};

use crate::http::connection::{Connection, Job, Jobs};
use crate::http::core::{Core, Stats};
use crate::http::listener::Listener;
use crate::http::message::{Request, Response};
use crate::http::service::{Reply, Service, WayBack};

pub use crate::http::core::Setup;

/// Connections the kernel keeps for us while the listener thread is busy or accepting rests.
const BACKLOG: i32 = 1024;

/// A running server. Dropped, it stops without grace.
pub struct Server {
    core: Arc<Core>,
    jobs: Arc<Jobs>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Server {
    /// Answers connections to `listeners` with `service`, on threads of its own.
    ///
    /// The sockets may come from [`bind`] or from outside; they become non-blocking.
    ///
    /// # Errors
    /// No thread could be started, or no socket watched.
    pub fn start(
        listeners: Vec<TcpListener>,
        setup: Setup,
        service: Arc<dyn Service>,
    ) -> io::Result<Self> {
        let handlers = setup.limits.handlers.max(1);
        let jobs = Arc::new(Jobs::new(setup.limits.pending));
        let core = Arc::new(Core::new(setup, service)?);
        let listener = Listener::new(Arc::clone(&core), Arc::clone(&jobs), listeners)?;
        // Dropped by an early return, the server ends the threads that were started.
        let server = Self { core, jobs, threads: Mutex::default() };
        for number in 0..handlers {
            let (core, jobs) = (Arc::clone(&server.core), Arc::clone(&server.jobs));
            server.spawn(format!("http-{number}"), move || handle(&core, &jobs))?;
        }
        server.spawn("http-listen".to_owned(), move || listener.run())?;
        Ok(server)
    }

    /// Stops accepting, closes idle connections, lets requests that are begun or in hand be answered,
    /// for `grace` at most, and joins the threads. A call that does not return holds this up.
    pub fn stop(&self, grace: Duration) {
        self.core.ask_stop(grace);
        let threads = std::mem::take(&mut *self.threads.lock());
        // Last in, first out: with the listener thread gone nothing more comes in, and the handlers end
        // when the jobs are closed.
        for thread in threads.into_iter().rev() {
            if thread.join().is_err() {
                tracing::error!("a thread of the HTTP server had panicked");
            }
            self.jobs.close();
        }
    }

    /// Asks the listener thread for a sign of life, and wakes it to give one.
    pub fn ask_heartbeat(&self) {
        self.core.pulse.ask();
        self.core.wake();
    }

    /// Whether the listener thread has come round since it was asked.
    pub fn has_heartbeat(&self) -> bool {
        self.core.pulse.has_answered()
    }

    /// The counters as they are now.
    pub fn stats(&self) -> Stats {
        self.core.stats()
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "this and flow are the places that start threads"
    )]
    fn spawn(&self, name: String, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let thread = thread::Builder::new().name(name).spawn(work);
        // Handlers end with the jobs, and without a listener thread nobody else would close them.
        let thread = thread.inspect_err(|_| self.jobs.close())?;
        self.threads.lock().push(thread);
        Ok(())
    }
}

/// Reads a server's counters from elsewhere, without keeping the server alive. Clones share it.
#[derive(Clone, Default)]
pub struct StatsHandle(Arc<Mutex<Weak<Core>>>);

impl StatsHandle {
    /// From now on it is this server's.
    pub fn follow(&self, server: &Server) {
        *self.0.lock() = Arc::downgrade(&server.core);
    }

    /// The counters as they are now; zero without a server.
    pub fn stats(&self) -> Stats {
        let core = self.0.lock().upgrade();
        core.map_or_else(Stats::default, |core| core.stats())
    }
}

impl std::fmt::Debug for StatsHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("StatsHandle").field(&self.stats()).finish()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

/// Opens a listening socket; port 0 lets the system choose one.
///
/// # Errors
/// The address is in use, not this machine's, or not allowed to this user.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // Without it a restart would wait a minute for the connections of the last run to be forgotten.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// No status at all: the answer of a reply that was dropped. Made per request and hardly ever sent,
/// so its text is only written when it is.
const UNANSWERED: u16 = 0;

/// A handler thread: calls the service and writes answers until the jobs are closed. It never waits for a commit
/// or for a slow socket.
fn handle(core: &Arc<Core>, jobs: &Arc<Jobs>) {
    while let Some(job) = jobs.take() {
        match job {
            Job::Call(connection, request) => call(core, jobs, connection, request),
            Job::Answer(connection, response) => answer(core, &connection, response),
        }
    }
}

fn answer(core: &Core, connection: &Arc<Connection>, response: Response) {
    connection.with(core, core.now(), |locked| locked.answer(response));
}

fn call(core: &Arc<Core>, jobs: &Arc<Jobs>, connection: Arc<Connection>, request: Request) {
    core.counters.requests.add();
    let (core_of, jobs) = (Arc::clone(core), Arc::clone(jobs));
    let way_back = ToConnection { home: thread::current().id(), core: core_of, jobs, connection };
    let reply = Reply::new(Box::new(way_back), Response::new(UNANSWERED));
    let span = tracing::info_span!("request", request_id = request.request_id());
    // A panic drops the reply while it unwinds, which answers 500.
    let _entered = span.enter();
    core.caught(|| core.service.call(request, reply));
}

/// The way back to the connection that a request came on.
struct ToConnection {
    /// The handler that took it.
    home: ThreadId,
    core: Arc<Core>,
    jobs: Arc<Jobs>,
    connection: Arc<Connection>,
}

impl WayBack for ToConnection {
    fn deliver(self: Box<Self>, response: Response) {
        let Self { home, core, jobs, connection } = *self;
        // On this thread the answer is written at once. Elsewhere a system call could hold up somebody
        // who has better things to do, the database writer for one; and while a panic unwinds, a
        // second one would end the process.
        if thread::current().id() == home && !thread::panicking() {
            answer(&core, &connection, response);
        } else {
            jobs.answer(connection, response);
        }
    }

    fn is_left(&self) -> bool {
        self.connection.is_left()
    }
}
