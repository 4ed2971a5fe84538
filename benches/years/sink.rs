//! The target: answers 200 and notes what came, or 503 while it is down.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::rig::wire;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const DOWN: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";

/// What came.
#[derive(Default)]
pub(crate) struct Came {
    /// The `webhook-id` of each event, by its number.
    ids: Vec<Option<Box<[u8]>>>,
    pub(crate) sends: u64,
    pub(crate) distinct: u64,
    /// Sent again, which is allowed after a kill: its outcome was not stored.
    pub(crate) repeated: u64,
    /// Sent again although no process was killed, or with another `webhook-id`.
    pub(crate) twice: u64,
    /// Answered 503.
    pub(crate) refused: u64,
    pub(crate) is_down: bool,
    pub(crate) may_repeat: bool,
}

impl Came {
    fn note(&mut self, n: usize, id: &[u8]) {
        self.sends += 1;
        if self.ids.len() <= n {
            self.ids.resize(n + 1, None);
        }
        match &self.ids[n] {
            None => {
                self.ids[n] = Some(id.into());
                self.distinct += 1;
            }
            Some(first) if **first == *id && self.may_repeat => self.repeated += 1,
            Some(_) => self.twice += 1,
        }
    }

    pub(crate) fn has(&self, n: u64) -> bool {
        self.ids.get(n as usize).is_some_and(Option::is_some)
    }
}

/// A target in this process.
pub(crate) struct Sink {
    pub(crate) url: String,
    pub(crate) came: Arc<Mutex<Came>>,
}

impl Sink {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let came = Arc::new(Mutex::new(Came::default()));
        let noted = Arc::clone(&came);
        thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let noted = Arc::clone(&noted);
                // A killed service breaks its connections.
                thread::spawn(move || drop(serve(socket, &noted)));
            }
        });
        Self { url, came }
    }
}

fn serve(mut socket: TcpStream, came: &Mutex<Came>) -> std::io::Result<()> {
    let (mut input, mut scratch) = (Vec::new(), [0; 16 * 1024]);
    loop {
        while let Some((head_end, whole)) = wire::ends(&input) {
            let (head, body) = (&input[..head_end], &input[head_end..whole]);
            let answer = {
                let mut came = came.lock().unwrap();
                if came.is_down {
                    came.refused += 1;
                    DOWN
                } else {
                    let n = wire::number_after(body, b"\"n\":").unwrap();
                    came.note(n as usize, wire::field(head, b"webhook-id:").unwrap());
                    OK
                }
            };
            socket.write_all(answer)?;
            input.drain(..whole);
        }
        let length = socket.read(&mut scratch)?;
        if length == 0 {
            return Ok(());
        }
        input.extend_from_slice(&scratch[..length]);
    }
}
