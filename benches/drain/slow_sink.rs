//! The targets: each request is answered 50 ms after it came. Checks the order, and counts by the second.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io::Write as _;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::backlog::{Backlog, Place, SUBSCRIPTIONS};
use crate::rig::epoll::{DOOR, Lines};
use crate::rig::{now_us, wire};

/// How long a target takes.
pub(crate) const TAKES: Duration = Duration::from_millis(50);
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// All targets, on a thread of this process.
pub(crate) struct SlowSink {
    pub(crate) address: String,
    tally: Arc<Mutex<Tally>>,
}

/// What came.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// Open deliveries of the file that came.
    pub(crate) old: u64,
    /// New events that came, and how long they were on their way.
    pub(crate) fresh_us: Vec<u32>,
    /// Requests of each second since 1970.
    pub(crate) seconds: HashMap<u64, u64>,
    pub(crate) twice: u64,
    /// Deliveries of a lane that came before an earlier one, or while one was not answered.
    pub(crate) out_of_order: u64,
    /// Most older ones of its subscription that had not come when a delivery without a lane came.
    pub(crate) most_overtaken: u64,
    /// Most requests at once.
    pub(crate) width: usize,
    seen: HashSet<u64>,
    last_of_lane: HashMap<Lane, u64>,
    taken: HashSet<Lane>,
    /// Deliveries without a lane that came, of each subscription.
    came: HashMap<u64, u64>,
}

/// A lane: its subscription, and its number there.
type Lane = (u64, u64);

/// An answer that is due.
struct Due {
    at: Instant,
    key: usize,
    lane: Option<Lane>,
}

impl SlowSink {
    pub(crate) fn start(backlog: Backlog) -> Self {
        let door = TcpListener::bind("127.0.0.1:0").unwrap();
        door.set_nonblocking(true).unwrap();
        let address = door.local_addr().unwrap().to_string();
        let tally = Arc::new(Mutex::new(Tally::default()));
        let theirs = Arc::clone(&tally);
        // Ends with the process.
        std::thread::spawn(move || serve(&door, backlog, &theirs));
        Self { address, tally }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Open deliveries of the file that came so far.
    pub(crate) fn old(&self) -> u64 {
        self.tally.lock().unwrap().old
    }

    /// New events that came so far.
    pub(crate) fn fresh(&self) -> u64 {
        self.tally.lock().unwrap().fresh_us.len() as u64
    }

    pub(crate) fn tally(&self) -> Tally {
        self.tally.lock().unwrap().clone()
    }
}

fn serve(door: &TcpListener, backlog: Backlog, tally: &Mutex<Tally>) {
    let mut lines = Lines::new();
    lines.watch(door, DOOR);
    let mut waiting: VecDeque<Due> = VecDeque::new();
    loop {
        let span = waiting.front().map(|due| due.at.saturating_duration_since(Instant::now()));
        for key in lines.wait(span) {
            if key == DOOR {
                lines.accept(door);
            } else if lines.read(key) {
                let mut tally = tally.lock().unwrap();
                waiting.extend(take(&mut lines, key, backlog, &mut tally));
                tally.width = tally.width.max(waiting.len());
            } else {
                lines.drop_line(key);
            }
        }
        while let Some(due) = waiting.pop_front_if(|due| due.at <= Instant::now()) {
            if let Some(lane) = due.lane {
                tally.lock().unwrap().taken.remove(&lane);
            }
            let line = lines.open.get_mut(&due.key);
            if line.is_some_and(|line| line.socket.write_all(ANSWER).is_err()) {
                lines.drop_line(due.key);
            }
        }
    }
}

/// Notes the request that is whole.
fn take(lines: &mut Lines, key: usize, backlog: Backlog, tally: &mut Tally) -> Option<Due> {
    let input = &mut lines.open.get_mut(&key)?.input;
    let (head, whole) = wire::ends(input)?;
    let body = &input[head..whole];
    let now = now_us();
    *tally.seconds.entry(now / 1_000_000).or_default() += 1;
    let lane = if let Some(number) = wire::number_after(body, b"\"number\":") {
        tally.note(number, backlog.place(number))
    } else {
        let sent = wire::number_after(body, b"\"sent_us\":").unwrap();
        tally.fresh_us.push(u32::try_from(now.saturating_sub(sent)).unwrap_or(u32::MAX));
        None
    };
    input.drain(..whole);
    Some(Due { at: Instant::now() + TAKES, key, lane })
}

impl Tally {
    /// Notes an open delivery of the file. Returns the lane that it takes.
    fn note(&mut self, number: u64, place: Place) -> Option<Lane> {
        if !self.seen.insert(number) {
            self.twice += 1;
            return None;
        }
        self.old += 1;
        let Some(lane) = place.lane else {
            let came = self.came.entry(place.subscription).or_default();
            self.most_overtaken = self.most_overtaken.max(place.rank.saturating_sub(*came));
            *came += 1;
            return None;
        };
        let lane = (place.subscription, lane);
        let before = self.last_of_lane.insert(lane, number);
        let is_taken = !self.taken.insert(lane);
        if is_taken || before.is_some_and(|before| before > number) {
            self.out_of_order += 1;
        }
        Some(lane)
    }

    /// How many of each subscription without a lane came; the least and the most.
    pub(crate) fn least_and_most(&self) -> [u64; 2] {
        let of = (0..SUBSCRIPTIONS).map(|n| self.came.get(&n).copied().unwrap_or(0));
        [of.clone().min().unwrap_or(0), of.max().unwrap_or(0)]
    }
}
