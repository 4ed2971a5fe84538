//! Which connections are open, and how many come from where.
//!
//! Owned by the listener thread. Not here: what they do.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use crate::http::connection::Connection;
use crate::http::origin::origin;

/// The open connections of a server.
#[derive(Default)]
pub(crate) struct Table {
    slots: Vec<Option<Arc<Connection>>>,
    free: Vec<usize>,
    by_origin: HashMap<IpAddr, usize>,
}

impl Table {
    /// Open connections.
    pub(crate) fn len(&self) -> usize {
        self.slots.len().saturating_sub(self.free.len())
    }

    /// Slots, empty ones included: every index is below.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Open connections from where `address` is.
    pub(crate) fn count_from(&self, address: IpAddr) -> usize {
        self.by_origin.get(&origin(address)).copied().unwrap_or(0)
    }

    pub(crate) fn get(&self, slot: usize) -> Option<Arc<Connection>> {
        self.slots.get(slot).cloned().flatten()
    }

    /// Keeps the connection that `make` makes for the slot it is given. A slot is used again: an event
    /// of its last connection may then reach the next one, which only looks once for nothing.
    pub(crate) fn insert(&mut self, make: impl FnOnce(usize) -> Connection) -> Arc<Connection> {
        let slot = self.free.pop().unwrap_or(self.slots.len());
        let connection = Arc::new(make(slot));
        if slot == self.slots.len() {
            self.slots.push(None);
        }
        if let Some(place) = self.slots.get_mut(slot) {
            *place = Some(Arc::clone(&connection));
        }
        let count = self.by_origin.entry(origin(connection.peer.ip())).or_default();
        *count = count.saturating_add(1);
        connection
    }

    pub(crate) fn remove(&mut self, slot: usize) -> Option<Arc<Connection>> {
        let connection = self.slots.get_mut(slot)?.take()?;
        self.free.push(slot);
        let from = origin(connection.peer.ip());
        if let Some(count) = self.by_origin.get_mut(&from) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.by_origin.remove(&from);
            }
        }
        Some(connection)
    }
}
