//! A provider: an external system that posts webhooks to this service.

use std::time::Duration;

use crate::base::clock::Timestamp;
use crate::model::name::Name;
use crate::model::provider::{KeyPlace, PublicUrl};
use crate::privacy::policy::Pii;
use crate::signatures::Scheme;

/// The default of [`NewProvider::body_bytes_max`].
pub const BODY_BYTES_DEFAULT: u32 = 1 << 20;
/// The largest limit for bodies that can be set: 25 MiB, GitHub's own limit for what it sends.
pub const MAX_BODY_BYTES: u32 = 25 << 20;
/// The longest tolerance that can be set.
pub const MAX_TOLERANCE: Duration = Duration::from_hours(7 * 24);

/// The default of [`NewProvider::replay_window`].
pub const REPLAY_WINDOW_DEFAULT: Duration = Duration::from_hours(24);
/// The longest replay window that can be set.
pub const MAX_REPLAY_WINDOW: Duration = Duration::from_hours(30 * 24);

/// A provider to be stored.
#[derive(Clone, Debug)]
pub struct NewProvider {
    /// A fresh UUIDv7.
    pub id: String,
    /// The tenant that owns it.
    pub tenant: String,
    /// Unique per tenant; the last part of its intake path.
    pub name: Name,
    /// How it signs.
    pub scheme: Scheme,
    /// The address that it posts to, if that differs from this machine's own; a signature may cover it.
    pub public_url: Option<PublicUrl>,
    /// The policy on personal data in its webhooks.
    pub pii: Pii,
    /// The largest body it may send.
    pub body_bytes_max: u32,
    /// How far its signed timestamp may be from our clock.
    pub tolerance: Duration,
    /// For how long equal signed bytes under another, unsigned id count as a repetition; zero: each id is an event.
    /// See [`Scheme::fingerprint`].
    pub replay_window: Duration,
    /// Where its webhooks have their ordering key.
    pub ordering_key: Option<KeyPlace>,
}

/// A stored provider.
#[derive(Clone, Debug)]
pub struct Provider {
    /// Its number in the file.
    pub seq: i64,
    /// Its settings.
    pub new: NewProvider,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
}
