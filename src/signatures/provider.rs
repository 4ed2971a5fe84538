//! A provider: an external system that posts webhooks to us.

use std::time::Duration;

use crate::base::clock::Timestamp;
use crate::model::name::Name;
use crate::model::public_url::PublicUrl;
use crate::privacy::policy::Pii;
use crate::signatures::Scheme;

/// The most a provider may send in one body unless it is told otherwise: 1 MiB.
pub const BODY_BYTES_DEFAULT: u32 = 1 << 20;
/// The most that may be set: 25 MiB (GitHub's own limit for what it sends).
pub const MAX_BODY_BYTES: u32 = 25 << 20;
/// The longest that may be set.
pub const MAX_TOLERANCE: Duration = Duration::from_hours(7 * 24);

/// For how long the same signed bytes count once, where their signature does not cover the id.
pub const REPLAY_WINDOW_DEFAULT: Duration = Duration::from_hours(24);
/// The longest that may be set.
pub const MAX_REPLAY_WINDOW: Duration = Duration::from_hours(30 * 24);

/// A provider to be stored.
#[derive(Clone, Debug)]
pub struct NewProvider {
    /// A fresh UUIDv7.
    pub id: String,
    /// Whose it is.
    pub tenant: String,
    /// Unique per tenant; the last part of its intake path.
    pub name: Name,
    /// How it signs.
    pub scheme: Scheme,
    /// The address it posts to, where it is another than this machine's own: its signature may cover it.
    pub public_url: Option<PublicUrl>,
    /// What happens to personal data in what it sends.
    pub pii: Pii,
    /// The largest body it may send.
    pub body_bytes_max: u32,
    /// How far its signed timestamp may be from our clock.
    pub tolerance: Duration,
    /// For how long the same signed bytes count once; zero: each id is an event. See
    /// [`Scheme::fingerprint`].
    pub replay_window: Duration,
}

/// A provider as kept.
#[derive(Clone, Debug)]
pub struct Provider {
    /// Its number in the file.
    pub seq: i64,
    /// What it was stored with.
    pub new: NewProvider,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
}
