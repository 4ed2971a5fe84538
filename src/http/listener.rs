//! The listener thread: accepts, waits for sockets, and sweeps over deadlines.
//!
//! Nothing that goes wrong with one socket ends the loop. Not here: what a connection then does
//! (`connection`).

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use polling::{Event, Events};

use crate::base::faults::Stall;
use crate::http::connection::{Connection, ConnectionState, Jobs, Locked};
use crate::http::core::Core;
use crate::http::proxies::client_network;
use crate::http::readiness::Interest;
use crate::http::shares::Share;
use crate::telemetry::heartbeat::BEAT;

/// How often deadlines are looked at; a connection may live that much longer than its limit says.
const SWEEP: Duration = Duration::from_millis(200);

/// How often a stop looks whether the last request is answered.
const SWEEP_STOPPING: Duration = Duration::from_millis(10);

/// How long accepting rests when the system has no sockets left: long enough not to spin, short enough
/// to be there again when some are closed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How often it is logged that no connection could be accepted, and that a client has its whole share.
const WARN_EVERY: Duration = Duration::from_mins(1);

/// Logged with the address of a client that has its whole share.
const SHARE_REACHED: &str = "this address has as many connections, or holds as much memory, as one client \
    may; more is refused. If it is a proxy of yours, add it to listen.trusted_proxies. Otherwise more \
    connections can be allowed with limits.connections_per_address";

/// Connections accepted in a row, before those that are open get their turn.
const ACCEPTS: usize = 64;

/// When there are too many connections, this part of them (1/n) is closed at once, idle ones first.
const EVICTED_PART: usize = 100;

/// Bytes read from one socket in a row.
const SCRATCH_BYTES: usize = 64 * 1024;

/// The listener thread's own things.
pub(crate) struct Listener {
    core: Arc<Core>,
    jobs: Arc<Jobs>,
    doors: Vec<TcpListener>,
    /// The keys below are those of the doors, whether they are open or not.
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
        doors: Vec<TcpListener>,
    ) -> io::Result<Self> {
        for (key, door) in doors.iter().enumerate() {
            door.set_nonblocking(true)?;
            core.readiness.add(door, key)?;
        }
        Ok(Self {
            now: core.now(),
            core,
            jobs,
            first_key: doors.len(),
            doors,
            table: Table::default(),
            scratch: vec![0; SCRATCH_BYTES],
            sweep_at: Duration::ZERO,
            accept_at: None,
            warn_at: Duration::ZERO,
            warn_of_share_at: Duration::ZERO,
            stop_by: None,
        })
    }

    /// Works until the server is stopped and nothing is in hand, or its grace is over.
    pub(crate) fn run(mut self) {
        let mut events = Events::new();
        loop {
            self.core.faults.stand(Stall::Listener);
            self.core.pulse.tick();
            if let Err(error) = self.core.readiness.wait(&mut events, self.patience()) {
                tracing::error!(%error, "waiting for sockets failed");
                self.core.stop.wait(ACCEPT_PAUSE);
            }
            self.now = self.core.now();
            for event in events.iter() {
                self.take(event);
            }
            let busy = self.sweep();
            self.reopen();
            if self.core.stop.asked() && self.stopped(busy) {
                break;
            }
        }
        for slot in 0..self.table.slots() {
            self.with(slot, |connection| {
                connection.close();
            });
        }
    }

    /// How long to wait for a socket: until the next chore, or the next sign of life.
    fn patience(&self) -> Duration {
        let sweep = (self.table.len() > 0 || self.stop_by.is_some()).then_some(self.sweep_at);
        let next = sweep.into_iter().chain(self.accept_at).min();
        next.map_or(BEAT, |next| next.saturating_sub(self.now).min(BEAT))
    }

    fn take(&mut self, event: Event) {
        let Some(slot) = event.key.checked_sub(self.first_key) else {
            return self.accept(event.key);
        };
        let mut scratch = std::mem::take(&mut self.scratch);
        self.with(slot, |connection| connection.ready(&mut scratch));
        self.scratch = scratch;
        self.make_room();
    }

    /// Lets `act` change the connection in a slot, and drops it if it is closed then. `None`: the slot is empty.
    fn with(&mut self, slot: usize, act: impl FnOnce(&mut Locked<'_>)) -> Option<ConnectionState> {
        let state = self.table.get(slot)?.with(&self.core, self.now, act);
        if state == ConnectionState::Closed {
            self.forget(slot);
        }
        Some(state)
    }

    fn accept(&mut self, key: usize) {
        for _ in 0..ACCEPTS {
            let Some(door) = self.doors.get(key).filter(|_| self.accept_at.is_none()) else {
                return;
            };
            match door.accept() {
                Ok((socket, peer)) => self.welcome(socket, (key, peer)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if fleeting(&error) => (),
                Err(error) => self.pause(&error),
            }
        }
    }

    fn welcome(&mut self, socket: TcpStream, from: (usize, SocketAddr)) {
        self.core.counters.accepted.add();
        let address = from.1.ip();
        let full = self.table.len() >= self.core.limits.connections && !self.evict();
        let core = &self.core;
        let limits = &core.limits;
        // A proxy's connections are those of all its clients.
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
        if socket.set_nonblocking(true).and_then(|()| socket.set_nodelay(true)).is_err() {
            return;
        }
        let patience = (self.now, limits.idle_timeout);
        let (first_key, jobs) = (self.first_key, Arc::clone(&self.jobs));
        let connection = self.table.insert(|slot| {
            Connection::new(first_key.saturating_add(slot), from, socket, patience, jobs)
        });
        core.counters.connections.set(self.table.len());
        if let Err(error) = core.readiness.add(&connection.socket, connection.key) {
            tracing::warn!(%error, "a connection was refused because it could not be watched");
            self.forget(connection.key.saturating_sub(first_key));
        }
    }

    /// Closes connections that are idle, or else those of slow clients, so that there is room for one that
    /// may bring a request; tells whether there was any. Some at once, since looking for them is the work.
    fn evict(&mut self) -> bool {
        let spare = self.sorted(|connection| connection.spare(self.now));
        let most = self.core.limits.connections.div_ceil(EVICTED_PART);
        let slow = spare.first().is_some_and(|(_, (slow, _))| *slow);
        for (slot, _) in spare.iter().take_while(|(_, (other, _))| *other == slow).take(most) {
            self.with(*slot, |connection| {
                connection.close();
            });
            if slow {
                self.core.counters.timeouts.add();
            }
        }
        !spare.is_empty()
    }

    /// Ends the requests that have been sent for longest, in each share that is exceeded.
    fn make_room(&mut self) {
        for share in self.core.shares.take_exceeded() {
            if let Share::Client(address) = share {
                self.warn_of_share(address);
            }
            for (slot, _) in self.sorted(|connection| connection.holds(share)) {
                if !self.core.shares.wants_room(share) {
                    break;
                }
                self.with(slot, |connection| {
                    connection.make_room();
                });
            }
        }
    }

    /// Somebody's whole share may be that of all clients of a proxy which is not known to be one.
    fn warn_of_share(&mut self, address: IpAddr) {
        if self.now >= self.warn_of_share_at {
            self.warn_of_share_at = self.now.saturating_add(WARN_EVERY);
            let address = address.to_canonical();
            tracing::warn!(%address, "{SHARE_REACHED}");
        }
    }

    /// The slots of the connections of which something is known, in the order of that.
    fn sorted<T: Ord>(&self, know: impl Fn(&Connection) -> Option<T>) -> Vec<(usize, T)> {
        let slots = 0..self.table.slots();
        let mut sorted: Vec<(usize, T)> =
            slots.filter_map(|slot| Some((slot, know(self.table.get(slot)?.as_ref())?))).collect();
        sorted.sort_unstable_by(|(_, one), (_, other)| one.cmp(other));
        sorted
    }

    /// The system gives no more sockets, for now. What is open may close, so this ends by itself.
    fn pause(&mut self, error: &io::Error) {
        if self.now >= self.warn_at {
            self.warn_at = self.now.saturating_add(WARN_EVERY);
            let connections = self.table.len();
            tracing::warn!(%error, connections, "no connection can be accepted until others close");
        }
        self.core.counters.accept_pauses.add();
        self.accept_at = Some(self.now.saturating_add(ACCEPT_PAUSE));
        self.watch_doors(Interest::Nothing);
    }

    fn reopen(&mut self) {
        if self.accept_at.is_some_and(|at| self.now >= at) {
            self.accept_at = None;
            self.watch_doors(Interest::Read);
        }
    }

    fn watch_doors(&self, interest: Interest) {
        for (key, door) in self.doors.iter().enumerate() {
            if let Err(error) = self.core.readiness.set(door, key, interest) {
                tracing::error!(%error, ?interest, "a listening socket could not be watched");
            }
        }
    }

    /// Looks at all deadlines, if it is time; tells whether any request is begun or in hand.
    fn sweep(&mut self) -> Option<bool> {
        if self.now < self.sweep_at && !self.first_look_at_stop() {
            return None;
        }
        let mut busy = 0_usize;
        for slot in 0..self.table.slots() {
            if self.with(slot, |connection| {
                connection.overdue();
            }) == Some(ConnectionState::Busy)
            {
                busy = busy.saturating_add(1);
            }
        }
        self.make_room();
        let pace = if self.core.stop.asked() { SWEEP_STOPPING } else { SWEEP };
        self.sweep_at = self.now.saturating_add(pace);
        self.core.counters.busy.set(busy);
        Some(busy > 0)
    }

    fn first_look_at_stop(&self) -> bool {
        self.stop_by.is_none() && self.core.stop.asked()
    }

    /// Closes the doors at the first call; tells whether to end now.
    fn stopped(&mut self, busy: Option<bool>) -> bool {
        let stop_by =
            *self.stop_by.get_or_insert_with(|| self.now.saturating_add(self.core.grace()));
        for door in self.doors.drain(..) {
            if let Err(error) = self.core.readiness.remove(&door) {
                tracing::warn!(%error, "a listening socket could not be removed");
            }
        }
        self.accept_at = None;
        busy == Some(false) || self.now >= stop_by
    }

    /// Drops a connection. A reply that comes later still finds it, closed.
    fn forget(&mut self, slot: usize) {
        if let Some(connection) = self.table.remove(slot) {
            if let Err(error) = self.core.readiness.remove(&connection.socket) {
                tracing::debug!(%error, "a socket was not watched any more");
            }
            self.core.counters.connections.set(self.table.len());
        }
    }
}

/// Whether an error of `accept` is only about one connection, which is gone already.
fn fleeting(error: &io::Error) -> bool {
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
    /// Open connections.
    fn len(&self) -> usize {
        self.slots.len().saturating_sub(self.free.len())
    }

    /// Slots, empty ones included: every index is below.
    fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Open connections from where `address` is.
    fn count_from(&self, address: IpAddr) -> usize {
        self.by_network.get(&client_network(address)).copied().unwrap_or(0)
    }

    fn get(&self, slot: usize) -> Option<Arc<Connection>> {
        self.slots.get(slot).cloned().flatten()
    }

    /// Keeps the connection that `make` makes for the slot it is given. A slot is used again: an event
    /// of its last connection may then reach the next one, which only looks once for nothing.
    fn insert(&mut self, make: impl FnOnce(usize) -> Connection) -> Arc<Connection> {
        let slot = self.free.pop().unwrap_or(self.slots.len());
        let connection = Arc::new(make(slot));
        if slot == self.slots.len() {
            self.slots.push(None);
        }
        if let Some(place) = self.slots.get_mut(slot) {
            *place = Some(Arc::clone(&connection));
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
