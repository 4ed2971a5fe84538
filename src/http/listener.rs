//! The listener thread: accepts connections, waits for sockets, and checks deadlines.
//!
//! An error of one socket never ends the loop. Not here: the connections themselves (`connection`).

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use polling::{Event, Events};

use crate::base::faults::Stall;
use crate::http::connection::{Accepted, Connection, ConnectionState, Jobs, Locked};
use crate::http::core::Core;
use crate::http::proxies::client_network;
use crate::http::readiness::Interest;
use crate::http::shares::Share;
use crate::telemetry::tally::BEAT;

/// How often deadlines are checked. A connection may live this much longer than its limit.
const SWEEP_EVERY: Duration = Duration::from_millis(200);

/// How often a stop checks whether the last request is answered.
const STOP_SWEEP_EVERY: Duration = Duration::from_millis(10);

/// How long accepting pauses when the system has no sockets left: long enough not to spin, short enough to go on soon
/// after some are closed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The pause between two log lines about refused connections or about a client at its share.
const WARN_EVERY: Duration = Duration::from_mins(1);

/// Logged with the address of a client that has reached its share.
const SHARE_REACHED: &str = "this address has reached a client's limit of connections or memory; more is \
    refused. If it is your proxy, add it to listen.trusted_proxies. Otherwise \
    limits.connections_per_address can allow more connections";

/// Connections accepted in a row, before open connections are served again.
const ACCEPTS: usize = 64;

/// When there are too many connections, 1/100 of them are closed at once, idle ones first.
const EVICTED_PART: usize = 100;

/// Bytes read from one socket in a row.
const SCRATCH_BYTES: usize = 64 * 1024;

/// The state of the listener thread.
pub(crate) struct Listener {
    core: Arc<Core>,
    jobs: Arc<Jobs>,
    sockets: Vec<TcpListener>,
    /// The first key of a connection. Lower keys are those of the listening sockets, open or not.
    first_key: usize,
    table: Table,
    scratch: Vec<u8>,
    now: Duration,
    sweep_at: Duration,
    accept_at: Option<Duration>,
    warn_at: Duration,
    warn_of_share_at: Duration,
    stop_by: Option<Duration>,
}

impl Listener {
    /// Watches the listening sockets, which become non-blocking.
    pub(crate) fn new(
        core: Arc<Core>,
        jobs: Arc<Jobs>,
        sockets: Vec<TcpListener>,
    ) -> io::Result<Self> {
        for (key, socket) in sockets.iter().enumerate() {
            socket.set_nonblocking(true)?;
            core.readiness.add(socket, key)?;
        }
        Ok(Self {
            now: core.now(),
            core,
            jobs,
            first_key: sockets.len(),
            sockets,
            table: Table::default(),
            scratch: vec![0; SCRATCH_BYTES],
            sweep_at: Duration::ZERO,
            accept_at: None,
            warn_at: Duration::ZERO,
            warn_of_share_at: Duration::ZERO,
            stop_by: None,
        })
    }

    /// Runs until the server is stopped and no request is unfinished, or the grace is over.
    pub(crate) fn run(mut self) {
        let mut events = Events::new();
        loop {
            self.core.faults.stand(Stall::Listener);
            self.core.pulse.tick();
            if let Err(error) = self.core.readiness.wait(&mut events, self.wait_span()) {
                tracing::error!(%error, "waiting for sockets failed");
                self.core.stop.wait(ACCEPT_PAUSE);
            }
            self.now = self.core.now();
            for event in events.iter() {
                self.handle(event);
            }
            let busy = self.sweep();
            self.resume_accepting();
            if self.core.stop.asked() && self.has_stopped(busy) {
                break;
            }
        }
        for slot in 0..self.table.slots() {
            self.with(slot, |connection| {
                connection.close();
            });
        }
    }

    /// How long to wait for sockets: until the next sweep or accept, or the next heartbeat.
    fn wait_span(&self) -> Duration {
        let sweep = (self.table.len() > 0 || self.stop_by.is_some()).then_some(self.sweep_at);
        let next = sweep.into_iter().chain(self.accept_at).min();
        next.map_or(BEAT, |next| next.saturating_sub(self.now).min(BEAT))
    }

    fn handle(&mut self, event: Event) {
        let Some(slot) = event.key.checked_sub(self.first_key) else {
            return self.accept(event.key);
        };
        let mut scratch = std::mem::take(&mut self.scratch);
        self.with(slot, |connection| connection.ready(&mut scratch));
        self.scratch = scratch;
        self.make_room();
    }

    /// Runs `act` on the connection in a slot, and removes it if it is then closed. `None`: the slot is empty.
    fn with(&mut self, slot: usize, act: impl FnOnce(&mut Locked<'_>)) -> Option<ConnectionState> {
        let state = self.table.get(slot)?.with(&self.core, self.now, act);
        if state == ConnectionState::Closed {
            self.remove(slot);
        }
        Some(state)
    }

    fn accept(&mut self, key: usize) {
        for _ in 0..ACCEPTS {
            let Some(socket) = self.sockets.get(key).filter(|_| self.accept_at.is_none()) else {
                return;
            };
            match socket.accept() {
                Ok((socket, peer)) => self.open(Accepted { socket, door: key, peer }),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if is_transient(&error) => (),
                Err(error) => self.pause_accepting(&error),
            }
        }
    }

    fn open(&mut self, accepted: Accepted) {
        self.core.counters.accepted.add();
        let address = accepted.peer.ip();
        let full = self.table.len() >= self.core.limits.connections && !self.evict();
        let core = &self.core;
        let limits = &core.limits;
        // A trusted proxy has the connections of all its clients.
        let crowded = !full
            && self.table.count_from(address) >= limits.connections_per_address
            && !core.proxies.trusts(address);
        if full || crowded {
            core.counters.refused.add();
            if crowded {
                core.counters.refused_for_address.add();
                self.warn_of_share(address);
            }
            return;
        }
        // Without TCP_NODELAY an answer of two packets waits 40 ms for the client's acknowledgement.
        let socket = &accepted.socket;
        if socket.set_nonblocking(true).and_then(|()| socket.set_nodelay(true)).is_err() {
            return;
        }
        let now = self.now;
        let patience = limits.idle_timeout;
        let first_key = self.first_key;
        let jobs = Arc::clone(&self.jobs);
        let connection = self.table.insert(|slot| {
            let key = first_key.saturating_add(slot);
            Connection::new(key, accepted, now, patience, jobs)
        });
        core.counters.connections.set(self.table.len());
        if let Err(error) = core.readiness.add(&connection.socket, connection.key) {
            tracing::warn!(%error, "a connection was refused because it could not be watched");
            self.remove(connection.key.saturating_sub(first_key));
        }
    }

    /// Closes idle connections, or those of slow clients, to make room for a new one. Returns whether there were any.
    /// Closes several at once, because finding them is expensive.
    fn evict(&mut self) -> bool {
        let evictable = self.sorted(|connection| connection.eviction_rank(self.now));
        let max = self.core.limits.connections.div_ceil(EVICTED_PART);
        let slow = evictable.first().is_some_and(|(_, (slow, _))| *slow);
        for (slot, _) in evictable.iter().take_while(|(_, (other, _))| *other == slow).take(max) {
            self.with(*slot, |connection| {
                connection.close();
            });
            if slow {
                self.core.counters.timeouts.add();
            }
        }
        !evictable.is_empty()
    }

    /// Ends the requests that have been sent for longest, in each share that is exceeded.
    fn make_room(&mut self) {
        for share in self.core.shares.take_exceeded() {
            if let Share::Client(address) = share {
                self.warn_of_share(address);
            }
            for (slot, _) in self.sorted(|connection| connection.evictable_since(share)) {
                if !self.core.shares.wants_room(share) {
                    break;
                }
                self.with(slot, |connection| {
                    connection.make_room();
                });
            }
        }
    }

    /// Logs that an address has reached its share: it may be a proxy that is not configured as trusted.
    fn warn_of_share(&mut self, address: IpAddr) {
        if self.now >= self.warn_of_share_at {
            self.warn_of_share_at = self.now.saturating_add(WARN_EVERY);
            let address = address.to_canonical();
            tracing::warn!(%address, "{SHARE_REACHED}");
        }
    }

    /// The slots of the connections that have a rank, in the order of their ranks.
    fn sorted<T: Ord>(&self, rank: impl Fn(&Connection) -> Option<T>) -> Vec<(usize, T)> {
        let slots = 0..self.table.slots();
        let mut sorted: Vec<(usize, T)> =
            slots.filter_map(|slot| Some((slot, rank(self.table.get(slot)?.as_ref())?))).collect();
        sorted.sort_unstable_by(|(_, one), (_, other)| one.cmp(other));
        sorted
    }

    /// Pauses accepting, because the system has no more sockets until some are closed.
    fn pause_accepting(&mut self, error: &io::Error) {
        if self.now >= self.warn_at {
            self.warn_at = self.now.saturating_add(WARN_EVERY);
            let connections = self.table.len();
            tracing::warn!(%error, connections, "no connection can be accepted until another closes");
        }
        self.core.counters.accept_pauses.add();
        self.accept_at = Some(self.now.saturating_add(ACCEPT_PAUSE));
        self.watch_listening_sockets(Interest::Nothing);
    }

    fn resume_accepting(&mut self) {
        if self.accept_at.is_some_and(|at| self.now >= at) {
            self.accept_at = None;
            self.watch_listening_sockets(Interest::Read);
        }
    }

    fn watch_listening_sockets(&self, interest: Interest) {
        for (key, socket) in self.sockets.iter().enumerate() {
            if let Err(error) = self.core.readiness.set(socket, key, interest) {
                tracing::error!(%error, ?interest, "a listening socket could not be watched");
            }
        }
    }

    /// Checks all deadlines if it is time. Returns whether any request is unfinished.
    fn sweep(&mut self) -> Option<bool> {
        if self.now < self.sweep_at && !self.is_stop_new() {
            return None;
        }
        let mut busy = 0_usize;
        for slot in 0..self.table.slots() {
            if self.with(slot, |connection| {
                connection.check_deadline();
            }) == Some(ConnectionState::Busy)
            {
                busy = busy.saturating_add(1);
            }
        }
        self.make_room();
        let every = if self.core.stop.asked() { STOP_SWEEP_EVERY } else { SWEEP_EVERY };
        self.sweep_at = self.now.saturating_add(every);
        self.core.counters.busy.set(busy);
        Some(busy > 0)
    }

    fn is_stop_new(&self) -> bool {
        self.stop_by.is_none() && self.core.stop.asked()
    }

    /// Closes the listening sockets at the first call. Returns whether to end now.
    fn has_stopped(&mut self, busy: Option<bool>) -> bool {
        let stop_by =
            *self.stop_by.get_or_insert_with(|| self.now.saturating_add(self.core.grace()));
        for socket in self.sockets.drain(..) {
            if let Err(error) = self.core.readiness.remove(&socket) {
                tracing::warn!(%error, "a listening socket could not be removed");
            }
        }
        self.accept_at = None;
        busy == Some(false) || self.now >= stop_by
    }

    /// Removes a connection. A later reply still has it, but closed.
    fn remove(&mut self, slot: usize) {
        if let Some(connection) = self.table.remove(slot) {
            if let Err(error) = self.core.readiness.remove(&connection.socket) {
                tracing::debug!(%error, "a socket was not watched any more");
            }
            self.core.counters.connections.set(self.table.len());
        }
    }
}

/// Whether an error of `accept` concerns only one connection, which is already gone.
fn is_transient(error: &io::Error) -> bool {
    use ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, TimedOut};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted | TimedOut)
}

/// The open connections of a server.
#[derive(Default)]
struct Table {
    slots: Vec<Option<Arc<Connection>>>,
    free: Vec<usize>,
    by_network: HashMap<IpAddr, usize>,
}

impl Table {
    /// Number of open connections.
    fn len(&self) -> usize {
        self.slots.len().saturating_sub(self.free.len())
    }

    /// Number of slots, empty ones included.
    fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Open connections from the network of `address`.
    fn count_from(&self, address: IpAddr) -> usize {
        self.by_network.get(&client_network(address)).copied().unwrap_or(0)
    }

    fn get(&self, slot: usize) -> Option<Arc<Connection>> {
        self.slots.get(slot).cloned().flatten()
    }

    /// Adds the connection that `make` makes for its slot. Slots are reused: a late event of the old connection may reach
    /// the new one, which then only reads nothing.
    fn insert(&mut self, make: impl FnOnce(usize) -> Connection) -> Arc<Connection> {
        let slot = self.free.pop().unwrap_or(self.slots.len());
        let connection = Arc::new(make(slot));
        if slot == self.slots.len() {
            self.slots.push(None);
        }
        if let Some(entry) = self.slots.get_mut(slot) {
            *entry = Some(Arc::clone(&connection));
        }
        let count = self.by_network.entry(client_network(connection.peer.ip())).or_default();
        *count = count.saturating_add(1);
        connection
    }

    fn remove(&mut self, slot: usize) -> Option<Arc<Connection>> {
        let connection = self.slots.get_mut(slot)?.take()?;
        self.free.push(slot);
        let from = client_network(connection.peer.ip());
        if let Some(count) = self.by_network.get_mut(&from) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.by_network.remove(&from);
            }
        }
        Some(connection)
    }
}
