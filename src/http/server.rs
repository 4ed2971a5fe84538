//! The HTTP/1.1 server: starts and stops the listener thread and the handler threads.
//!
//! Not here: routes and answers, which are the [`Service`]'s.

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
use crate::http::service::{Reply, ResponseHandle, Service};

pub use crate::http::core::Setup;

/// Connections that the kernel queues while the listener thread is busy or accepting pauses.
const BACKLOG: i32 = 1024;

/// A running server. Dropping it stops it without grace.
pub struct Server {
    core: Arc<Core>,
    jobs: Arc<Jobs>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Server {
    /// Starts threads that answer connections to `listeners` with `service`. The sockets become non-blocking.
    pub fn start(
        listeners: Vec<TcpListener>,
        setup: Setup,
        service: Arc<dyn Service>,
    ) -> io::Result<Self> {
        let handlers = setup.limits.handlers.max(1);
        let jobs = Arc::new(Jobs::new(handlers, setup.limits.pending));
        let core = Arc::new(Core::new(setup, service)?);
        let listener = Listener::new(Arc::clone(&core), Arc::clone(&jobs), listeners)?;
        // An early return drops the server, which ends the threads that were started.
        let server = Self { core, jobs, threads: Mutex::default() };
        for number in 0..handlers {
            let core = Arc::clone(&server.core);
            let jobs = Arc::clone(&server.jobs);
            server.spawn(format!("http-{number}"), move || handle(&core, &jobs))?;
        }
        server.spawn("http-listen".to_owned(), move || listener.run())?;
        Ok(server)
    }

    /// Stops accepting, closes idle connections, waits up to `grace` for unfinished requests, and joins the threads. Waits
    /// longer if a call to the service does not return.
    pub fn stop(&self, grace: Duration) {
        self.core.ask_stop(grace);
        let threads = std::mem::take(&mut *self.threads.lock());
        // The listener thread is joined first: then no more requests come, and the handlers end when the jobs are
        // closed.
        for thread in threads.into_iter().rev() {
            if thread.join().is_err() {
                tracing::error!("a thread of the HTTP server had panicked");
            }
            self.jobs.close();
        }
    }

    /// Asks the listener thread for a heartbeat, and wakes it.
    pub fn ask_heartbeat(&self) {
        self.core.pulse.ask();
        self.core.wake();
    }

    /// Whether the listener thread has answered with a heartbeat.
    pub fn has_heartbeat(&self) -> bool {
        self.core.pulse.has_answered()
    }

    /// The current counters.
    pub fn stats(&self) -> Stats {
        self.core.stats()
    }

    #[expect(clippy::disallowed_methods, reason = "only this and the pipeline start threads")]
    fn spawn(&self, name: String, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let thread = thread::Builder::new().name(name).spawn(work);
        // Without a listener thread, only this closes the jobs, so that the handlers end.
        let thread = thread.inspect_err(|_| self.jobs.close())?;
        self.threads.lock().push(thread);
        Ok(())
    }
}

/// Reads a server's counters without keeping the server alive. Clones share the server.
#[derive(Clone, Default)]
pub struct StatsHandle(Arc<Mutex<Weak<Core>>>);

impl StatsHandle {
    /// Sets the server.
    pub fn follow(&self, server: &Server) {
        *self.0.lock() = Arc::downgrade(&server.core);
    }

    /// The current counters; zero without a server.
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

/// Opens a listening socket. Port 0 lets the system choose one.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // Otherwise a restart would wait up to a minute for the last run's connections to disappear.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Not an HTTP status: the answer of a dropped reply, which becomes a 500. Created for each request but hardly ever sent,
/// so its text is only made when it is sent.
const UNANSWERED: u16 = 0;

/// A handler thread: calls the service and writes answers until the jobs are closed. It never waits for a commit
/// or for a slow socket.
fn handle(core: &Arc<Core>, jobs: &Arc<Jobs>) {
    let mut ended = None;
    while let Some(job) = jobs.take(ended.as_ref()) {
        ended = match job {
            Job::Call(payer, connection, request) => {
                call(core, jobs, connection, request);
                Some(payer)
            }
            Job::Answer(connection, response) => {
                answer(core, &connection, response);
                None
            }
        };
    }
}

fn answer(core: &Core, connection: &Arc<Connection>, response: Response) {
    connection.with(core, core.now(), |locked| locked.answer(response));
}

fn call(core: &Arc<Core>, jobs: &Arc<Jobs>, connection: Arc<Connection>, request: Request) {
    core.counters.requests.add();
    let core_of = Arc::clone(core);
    let jobs = Arc::clone(jobs);
    let channel =
        ConnectionReply { handler: thread::current().id(), core: core_of, jobs, connection };
    let reply = Reply::new(Box::new(channel), Response::new(UNANSWERED));
    let span = tracing::info_span!("request", request_id = request.request_id());
    // A panic drops the reply, which answers 500.
    let _entered = span.enter();
    core.caught(|| core.service.call(request, reply));
}

/// Delivers an answer to its connection.
struct ConnectionReply {
    /// The handler thread of the request.
    handler: ThreadId,
    core: Arc<Core>,
    jobs: Arc<Jobs>,
    connection: Arc<Connection>,
}

impl ResponseHandle for ConnectionReply {
    fn deliver(self: Box<Self>, response: Response) {
        let Self { handler, core, jobs, connection } = *self;
        // The handler thread writes the answer at once. Other threads, such as the database writer, leave the system
        // call to a handler. During a panic, a second panic would abort the process, so it is left to a handler too.
        if thread::current().id() == handler && !thread::panicking() {
            answer(&core, &connection, response);
        } else {
            jobs.answer(connection, response);
        }
    }

    fn is_left(&self) -> bool {
        self.connection.is_left()
    }
}
