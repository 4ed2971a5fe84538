//! A stand-in for SQL Server: it speaks enough of its protocol (TDS 7.4, not encrypted) that `FreeTDS` works with it, notes
//! what it is sent, and answers by a script.
//!
//! It parses no SQL. What it proves is what the driver sends of what we mean, and what we make of what a server answers;
//! not that a real server takes our SQL.

mod answer;
mod packet;
mod request;

use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

pub(crate) use answer::Answer;
pub(crate) use request::{Request, Value};

use answer::Transaction;
use packet::Packets;

/// What a stand-in answers to a statement. `None` is one changed row.
type Script = dyn Fn(&Request) -> Option<Answer> + Send + Sync;

/// A server that runs until the tests end.
pub(crate) struct StandIn {
    pub(crate) port: u16,
    heard: Arc<Mutex<Vec<Request>>>,
}

impl StandIn {
    /// Starts one that answers by a script.
    pub(crate) fn start(
        script: impl Fn(&Request) -> Option<Answer> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let heard = Arc::<Mutex<Vec<Request>>>::default();
        let notes = Arc::clone(&heard);
        let script: Arc<Script> = Arc::new(script);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let session = Session::new(stream.unwrap(), &notes, &script);
                // A client that goes away ends its session.
                thread::spawn(move || session.serve().unwrap_or_default());
            }
        });
        Self { port, heard }
    }

    /// What came until now, in its order.
    pub(crate) fn heard(&self) -> Vec<Request> {
        self.heard.lock().unwrap().clone()
    }

    /// The statements that came, each with its values.
    pub(crate) fn statements(&self) -> Vec<(String, Vec<Value>)> {
        self.heard().into_iter().filter_map(Request::into_statement).collect()
    }

    /// What came since the log-on, in short: `begin`, `commit`, `roll back`, or the first words of a statement.
    pub(crate) fn story(&self) -> Vec<String> {
        self.heard().iter().filter_map(Request::short).collect()
    }
}

/// A connection of a client.
struct Session {
    packets: Packets,
    heard: Arc<Mutex<Vec<Request>>>,
    script: Arc<Script>,
    /// The number of the open transaction.
    transaction: Option<u64>,
    transactions: u64,
}

impl Session {
    fn new(stream: TcpStream, heard: &Arc<Mutex<Vec<Request>>>, script: &Arc<Script>) -> Self {
        Self {
            packets: Packets::new(stream),
            heard: Arc::clone(heard),
            script: Arc::clone(script),
            transaction: None,
            transactions: 0,
        }
    }

    fn serve(mut self) -> std::io::Result<()> {
        loop {
            let (kind, bytes) = self.packets.read()?;
            if kind == packet::PRELOGIN {
                self.packets.write(&answer::not_encrypted())?;
                continue;
            }
            let request = request::read(kind, &bytes);
            self.heard.lock().unwrap().push(request.clone());
            let Some(tokens) = self.answer(&request) else { return Ok(()) };
            self.packets.write(&tokens)?;
        }
    }

    /// The tokens that answer a request; `None` cuts the line.
    fn answer(&mut self, request: &Request) -> Option<Vec<u8>> {
        let scripted = (self.script)(request);
        if matches!(scripted, Some(Answer::Cut)) {
            return None;
        }
        if let Some(error @ Answer::Error { .. }) = &scripted {
            return Some(self.tokens(error, request));
        }
        match request {
            Request::LogIn { .. } => Some(answer::logged_in()),
            Request::Begin => Some(self.begin()),
            Request::Commit { begins } => Some(self.end(Transaction::Committed, *begins)),
            Request::RollBack { begins } => Some(self.end(Transaction::RolledBack, *begins)),
            Request::Attention => Some(self.attention()),
            Request::Statement { .. } => {
                let scripted = scripted.unwrap_or_else(|| default(request));
                Some(self.tokens(&scripted, request))
            }
        }
    }

    fn begin(&mut self) -> Vec<u8> {
        self.transactions += 1;
        self.transaction = Some(self.transactions);
        [Transaction::Begun.tokens(self.transactions), answer::done(None)].concat()
    }

    /// As a real server under `XACT_ABORT`: who stops a statement ends the transaction.
    fn attention(&mut self) -> Vec<u8> {
        let ended = self.transaction.take().map(|number| Transaction::RolledBack.tokens(number));
        [ended.unwrap_or_default(), answer::attention()].concat()
    }

    /// As a real server: without a transaction it is an error, and none begins.
    fn end(&mut self, how: Transaction, begins: bool) -> Vec<u8> {
        let Some(ended) = self.transaction.take() else {
            let (number, what) = match how {
                Transaction::Committed => (3902, "COMMIT"),
                _ => (3903, "ROLLBACK"),
            };
            let words =
                format!("The {what} TRANSACTION request has no corresponding BEGIN TRANSACTION.");
            return [answer::error(number, 16, &words), answer::failed()].concat();
        };
        let mut tokens = how.tokens(ended);
        if begins {
            tokens.extend(self.begin());
        } else {
            tokens.extend(answer::done(None));
        }
        tokens
    }

    fn tokens(&mut self, answer: &Answer, request: &Request) -> Vec<u8> {
        let ended = answer.ends_transaction().then(|| self.transaction.take()).flatten();
        answer.tokens(ended, request.runs_procedure())
    }
}

fn default(request: &Request) -> Answer {
    match request {
        Request::Statement { sql, .. } if sql.to_uppercase().starts_with("SET ") => Answer::Done,
        _ => Answer::Changed(1),
    }
}
