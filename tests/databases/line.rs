//! A line between the service and a database that can be cut at commits, fall silent, or be down for a while.

use std::net::Shutdown;

use crate::databases::erp::redirect;
use crate::databases::process::prelude::*;

/// How often a silent line looks whether it may go on.
const LOOK: Duration = ms(10);

/// Of so many commits one is cut.
const CUT_ONE_IN: u64 = 4;

/// A line. It goes with the test's process.
#[derive(Clone)]
pub(crate) struct Line {
    pub(crate) port: u16,
    state: Arc<State>,
}

struct State {
    /// The port of the database.
    to: u16,
    /// How often it is cut at most.
    most: u64,
    commits: AtomicU64,
    cuts: AtomicU64,
    connections: AtomicU64,
    kept: AtomicU64,
    is_silent: AtomicBool,
    is_down: AtomicBool,
    /// Both ends of each connection.
    open: Mutex<Vec<TcpStream>>,
}

impl Line {
    /// A line that is cut at each fourth commit, so that something goes on in between, until it was cut so often: each
    /// second time before the database gets the commit, else once it has answered, and its answer is lost.
    pub(crate) fn start(to: u16, most: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State {
            to,
            most,
            commits: AtomicU64::new(0),
            cuts: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            kept: AtomicU64::new(0),
            is_silent: AtomicBool::new(false),
            is_down: AtomicBool::new(false),
            open: Mutex::default(),
        });
        let line = Self { port, state: Arc::clone(&state) };
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                state.connections.fetch_add(1, Ordering::SeqCst);
                let state = Arc::clone(&state);
                thread::spawn(move || state.pass_on(client));
            }
        });
        line
    }

    /// How often it was cut.
    pub(crate) fn cuts(&self) -> u64 {
        self.state.cuts.load(Ordering::SeqCst)
    }

    /// Whether it was cut as often as it should be.
    pub(crate) fn is_done(&self) -> bool {
        self.cuts() >= self.state.most
    }

    /// How many connections it was asked for.
    pub(crate) fn connections(&self) -> u64 {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// How often something was said while it was silent.
    pub(crate) fn kept(&self) -> u64 {
        self.state.kept.load(Ordering::SeqCst)
    }

    /// It keeps its connections, takes new ones, and passes nothing.
    pub(crate) fn silence(&self, is_silent: bool) {
        self.state.is_silent.store(is_silent, Ordering::SeqCst);
    }

    /// All connections end, as if its process were killed, and there are no new ones for so long.
    pub(crate) fn break_down(&self, span: Duration) {
        self.state.is_down.store(true, Ordering::SeqCst);
        for stream in self.state.open.lock().unwrap().drain(..) {
            drop(stream.shutdown(Shutdown::Both));
        }
        thread::sleep(span);
        self.state.is_down.store(false, Ordering::SeqCst);
    }

    /// Puts this line between a service's settings and the database that they name.
    pub(crate) fn put_into(&self, home: &Path) {
        redirect(home, self.state.to, self.port);
    }
}

impl State {
    fn pass_on(self: Arc<Self>, mut client: TcpStream) {
        if self.is_down.load(Ordering::SeqCst) {
            return;
        }
        let Ok(mut server) = TcpStream::connect(("127.0.0.1", self.to)) else { return };
        for stream in [&client, &server] {
            stream.set_nodelay(true).unwrap();
            self.open.lock().unwrap().push(stream.try_clone().unwrap());
        }
        let back = client.try_clone().unwrap();
        let from = server.try_clone().unwrap();
        let is_lost = Arc::new(AtomicBool::new(false));
        let (tell, answered) = mpsc::channel();
        let lost = Arc::clone(&is_lost);
        let state = Arc::clone(&self);
        thread::spawn(move || state.pass_back(from, back, &lost, &tell));
        let mut buffer = vec![0; 1 << 16];
        while let Ok(count @ 1..) = client.read(&mut buffer) {
            self.wait_while_silent();
            let said = &buffer[..count];
            let cut = if is_commit(said) { self.next_cut() } else { None };
            let Some(n) = cut else {
                if server.write_all(said).is_err() {
                    break;
                }
                continue;
            };
            if n.is_multiple_of(2) {
                is_lost.store(true, Ordering::SeqCst);
                // The database may have ended meanwhile: then the commit is lost in another way.
                let is_sent = server.write_all(said).is_ok();
                let _has_answered = is_sent && answered.recv().is_ok();
            }
            break;
        }
        drop(client.shutdown(Shutdown::Both));
        drop(server.shutdown(Shutdown::Both));
    }

    /// The number of the cut at this commit, if there is to be one.
    fn next_cut(&self) -> Option<u64> {
        let commit = self.commits.fetch_add(1, Ordering::SeqCst) + 1;
        if !commit.is_multiple_of(CUT_ONE_IN) {
            return None;
        }
        let more = |cuts: u64| (cuts < self.most).then_some(cuts + 1);
        self.cuts.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).ok()
    }

    /// Passes answers back until one is to be lost.
    fn pass_back(
        &self,
        mut from: TcpStream,
        mut back: TcpStream,
        is_lost: &AtomicBool,
        tell: &mpsc::Sender<()>,
    ) {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            self.wait_while_silent();
            if is_lost.load(Ordering::SeqCst) {
                // Nobody listens any more if the connection has ended.
                let _is_heard = tell.send(()).is_ok();
                return;
            }
            if back.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        drop(back.shutdown(Shutdown::Both));
    }

    fn wait_while_silent(&self) {
        if self.is_silent.load(Ordering::SeqCst) {
            self.kept.fetch_add(1, Ordering::SeqCst);
        }
        while self.is_silent.load(Ordering::SeqCst) {
            thread::sleep(LOOK);
        }
    }
}

/// Whether these bytes are the whole statement, not a setting with the word in it.
fn is_commit(said: &[u8]) -> bool {
    let text = said.strip_suffix(b"\0").unwrap_or(said);
    text.to_ascii_uppercase().ends_with(b"COMMIT")
}
