//! The handler threads: call the service, write answers.
//!
//! Not here: waiting. A handler never waits for a commit or for a slow socket; both come back later.

use std::sync::Arc;
use std::thread::{self, ThreadId};

use crate::http::connection::Connection;
use crate::http::core::Core;
use crate::http::jobs::Job;
use crate::http::message::{Request, Response};
use crate::http::service::{Reply, WayBack};

/// No status at all: the answer of a reply that was dropped. Made per request and hardly ever sent,
/// so its text is only written when it is.
const UNANSWERED: u16 = 0;

/// Works until the jobs are closed.
pub(crate) fn run(core: &Arc<Core>) {
    while let Some(job) = core.jobs.take() {
        match job {
            Job::Call(connection, request) => call(core, connection, request),
            Job::Answer(connection, response) => connection.answer(core, response),
        }
    }
}

fn call(core: &Arc<Core>, connection: Arc<Connection>, request: Request) {
    core.counters.requests.add();
    let way_back =
        ToConnection { home: thread::current().id(), core: Arc::clone(core), connection };
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
    connection: Arc<Connection>,
}

impl WayBack for ToConnection {
    fn deliver(self: Box<Self>, response: Response) {
        let Self { home, core, connection } = *self;
        // On this thread the answer is written at once. Elsewhere a system call could hold up somebody
        // who has better things to do, the database writer for one; and while a panic unwinds, a
        // second one would end the process.
        if thread::current().id() == home && !thread::panicking() {
            connection.answer(&core, response);
        } else {
            core.jobs.answer(connection, response);
        }
    }

    fn is_left(&self) -> bool {
        self.connection.is_left()
    }
}
