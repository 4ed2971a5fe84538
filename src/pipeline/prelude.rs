//! What most stages need: time, the store, and what threads share.

pub(super) use std::sync::Arc;
pub(super) use std::time::Duration;

pub(super) use parking_lot::Mutex;

pub(super) use crate::base::clock::{Clock, Timestamp};
pub(super) use crate::base::id::{DeliverySeq, Draw, SubscriptionSeq};
pub(super) use crate::config::Live;
pub(super) use crate::env::Env;
pub(super) use crate::store::Store;
pub(super) use crate::store::error::{Error, Result};
pub(super) use crate::store::tx::WriteTx;
pub(super) use crate::store::writer::Queue;
