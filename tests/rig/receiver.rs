//! A scripted receiver: records every request whole, and answers as it is told.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{BufReader, ErrorKind, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::http::{Message, read_message};

/// What the receiver does with a request.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// Answers, with header fields of its own.
    Answer(u16, Vec<(&'static str, String)>, Vec<u8>),
    /// Reads it and answers only when it is released.
    Hang,
    /// Hangs up without reading it.
    CutUnread,
    /// Reads it and hangs up.
    CutRead,
}

impl Reply {
    pub(crate) fn status(status: u16) -> Self {
        Self::Answer(status, Vec::new(), Vec::new())
    }

    pub(crate) fn with(status: u16, name: &'static str, value: &str) -> Self {
        Self::Answer(status, vec![(name, value.to_owned())], Vec::new())
    }
}

/// Has a receiver on word answer so many requests with this status.
pub(crate) fn answer_all(tell: &mpsc::Sender<u16>, count: usize, status: u16) {
    (0..count).for_each(|_| tell.send(status).unwrap());
}

type Decide = Box<dyn FnMut(&Message) -> Reply + Send>;
type Cut = Box<dyn FnMut() -> bool + Send>;

struct Shared {
    seen: Mutex<Vec<Message>>,
    script: Mutex<VecDeque<Reply>>,
    decide: Mutex<Decide>,
    cut: Mutex<Cut>,
    held: Mutex<bool>,
    /// What is answered to a request that hung.
    after_hanging: AtomicU16,
    released: Condvar,
    stopped: AtomicBool,
}

/// A receiver that listens on a port of its own.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

impl Receiver {
    /// Answers 200 to everything until it is told otherwise.
    pub(crate) fn new() -> Self {
        Self::scripted([])
    }

    /// Answers this to everything.
    pub(crate) fn with(reply: Reply) -> Self {
        let receiver = Self::new();
        receiver.always(reply);
        receiver
    }

    /// Answers with these, one after the other, then 200.
    pub(crate) fn scripted(script: impl IntoIterator<Item = Reply>) -> Self {
        Self::listening(Ipv4Addr::LOCALHOST.into(), script)
    }

    /// Answers each request when it is told to, and with what.
    pub(crate) fn on_word() -> (Self, mpsc::Sender<u16>) {
        let (tell, told) = mpsc::channel();
        let receiver = Self::new();
        receiver.decide(move |_| Reply::status(told.recv().unwrap_or(200)));
        (receiver, tell)
    }

    /// Answers 200 at another address of this machine.
    pub(crate) fn at(address: IpAddr) -> Self {
        Self::listening(address, [])
    }

    fn listening(address: IpAddr, script: impl IntoIterator<Item = Reply>) -> Self {
        let listener = TcpListener::bind((address, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            seen: Mutex::default(),
            script: Mutex::new(script.into_iter().collect()),
            decide: Mutex::new(Box::new(|_| Reply::status(200))),
            cut: Mutex::new(Box::new(|| false)),
            held: Mutex::new(true),
            after_hanging: AtomicU16::new(200),
            released: Condvar::new(),
            stopped: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if accepting.stopped.load(Ordering::SeqCst) {
                    break;
                }
                let (Ok(stream), shared) = (stream, Arc::clone(&accepting)) else { continue };
                thread::spawn(move || shared.serve(stream));
            }
        });
        Self { address, shared }
    }

    /// Answers whatever the script does not say.
    pub(crate) fn decide(&self, decide: impl FnMut(&Message) -> Reply + Send + 'static) {
        *self.shared.decide.lock().unwrap() = Box::new(decide);
    }

    /// Answers this to whatever the script does not say.
    pub(crate) fn always(&self, reply: Reply) {
        self.decide(move |_| reply.clone());
    }

    /// Asked before each request is read: whether to hang up on it.
    pub(crate) fn cut_unread(&self, cut: impl FnMut() -> bool + Send + 'static) {
        *self.shared.cut.lock().unwrap() = Box::new(cut);
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// The requests so far.
    pub(crate) fn seen(&self) -> Vec<Message> {
        self.shared.seen.lock().unwrap().clone()
    }

    /// What was sent, in the order it came; of JSON texts without the quotes.
    pub(crate) fn bodies(&self) -> Vec<String> {
        let body =
            |request: &Message| String::from_utf8_lossy(&request.body).trim_matches('"').to_owned();
        self.seen().iter().map(body).collect()
    }

    /// What the request of this number carried.
    #[track_caller]
    pub(crate) fn json(&self, n: usize) -> Value {
        serde_json::from_slice(&self.seen()[n].body).unwrap()
    }

    /// Waits for as many requests as these, and compares.
    #[track_caller]
    pub(crate) fn gets(&self, wanted: &[&str]) {
        super::until("the next is sent", || self.count() >= wanted.len());
        assert_eq!(self.bodies(), wanted);
    }

    pub(crate) fn count(&self) -> usize {
        self.shared.seen.lock().unwrap().len()
    }

    /// Answers this to what hangs, and to whatever would hang from now on.
    pub(crate) fn release_with(&self, status: u16) {
        self.shared.after_hanging.store(status, Ordering::SeqCst);
        self.release();
    }

    /// Answers what hangs, and whatever would hang from now on.
    pub(crate) fn release(&self) {
        *self.shared.held.lock().unwrap() = false;
        self.shared.released.notify_all();
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.release();
        self.shared.stopped.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts.
        drop(TcpStream::connect_timeout(&self.address, Duration::from_secs(1)));
    }
}

impl Shared {
    fn serve(&self, mut stream: TcpStream) {
        while self.wait_for_request(&stream) {
            let cut = (self.cut.lock().unwrap())();
            let scripted = self.script.lock().unwrap().pop_front();
            if cut || matches!(scripted, Some(Reply::CutUnread)) {
                return;
            }
            // Nothing follows a request before it is answered.
            let Ok(Some(request)) = read_message(&mut BufReader::new(&stream)) else { return };
            self.seen.lock().unwrap().push(request.clone());
            let reply = scripted.unwrap_or_else(|| (self.decide.lock().unwrap())(&request));
            let (status, fields, body) = match reply {
                Reply::Answer(status, fields, body) => (status, fields, body),
                Reply::Hang => {
                    let held = self.held.lock().unwrap();
                    drop(self.released.wait_while(held, |held| *held).unwrap());
                    (self.after_hanging.load(Ordering::SeqCst), Vec::new(), Vec::new())
                }
                Reply::CutUnread | Reply::CutRead => {
                    drop(stream.shutdown(Shutdown::Both));
                    return;
                }
            };
            let mut answer = format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\n", body.len());
            for (name, value) in fields {
                write!(answer, "{name}: {value}\r\n").unwrap();
            }
            answer.push_str("\r\n");
            let mut answer = answer.into_bytes();
            answer.extend_from_slice(&body);
            if stream.write_all(&answer).is_err() {
                return;
            }
        }
    }

    /// Whether a request begins on this connection before the receiver is stopped.
    fn wait_for_request(&self, stream: &TcpStream) -> bool {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        loop {
            match stream.peek(&mut [0]) {
                Ok(0) => return false,
                Ok(_) => break,
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    if self.stopped.load(Ordering::SeqCst) {
                        return false;
                    }
                }
                Err(_) => return false,
            }
        }
        stream.set_read_timeout(Some(Duration::from_secs(20))).is_ok()
    }
}
