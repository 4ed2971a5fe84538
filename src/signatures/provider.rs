//! A provider: an external system that posts webhooks to this service.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::base::clock::Timestamp;
use crate::model::name::Name;
use crate::model::provider::{KeyPlace, PublicUrl, ReconcileTerms};
use crate::privacy::policy::Pii;
use crate::signatures::{Scheme, SchemeError};

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

/// The longest time within which equal bytes may be a repetition, in seconds.
const MAX_REPEATS_SECS: u64 = MAX_REPLAY_WINDOW.as_secs();

/// Which requests are repetitions of an earlier one.
///
/// Some providers send equal bytes for different events, such as `id=tr_1` each time a payment changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Repeats {
    /// Those with an id that was there before; without an id, those with equal bytes, unless the body is a bare id.
    #[default]
    ById,
    /// None: each request is an event.
    Never,
    /// Those whose bytes and type are equal to those of a request of the last so many seconds.
    WithinSecs(#[schemars(range(min = 1, max = MAX_REPEATS_SECS))] u64),
}

/// How a provider signs, with what may be set for every scheme. Stored as JSON in `providers.scheme`.
///
/// *Shape*: that of [`Scheme`], with a member `repeats`: `"never"` or `{"within_secs":10}`.
///
/// ```
/// use oncebox::signatures::provider::{Repeats, SchemeSettings};
/// let text = r#"{"kind":"frappe","repeats":{"within_secs":10}}"#;
/// let read: SchemeSettings = serde_json::from_str(text)?;
/// assert_eq!(read.repeats, Repeats::WithinSecs(10));
/// assert_eq!(serde_json::to_string(&read)?, text);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Map<String, Value>", into = "Map<String, Value>")]
pub struct SchemeSettings {
    /// How it signs.
    pub scheme: Scheme,
    /// Which requests are repetitions.
    pub repeats: Repeats,
}

/// The member that every scheme may have.
const REPEATS: &str = "repeats";

impl TryFrom<Map<String, Value>> for SchemeSettings {
    type Error = SchemeError;

    fn try_from(mut settings: Map<String, Value>) -> Result<Self, SchemeError> {
        let repeats = settings.shift_remove(REPEATS);
        let scheme = Scheme::try_from(settings)?;
        let wrong = |why: String| SchemeError::Settings { kind: scheme.kind().to_owned(), why };
        let repeats = match repeats {
            None => Repeats::default(),
            Some(value) => serde_json::from_value(value).map_err(|error| {
                wrong(format!(
                    "`{REPEATS}` is \"by_id\", \"never\" or {{\"within_secs\":10}}: {error}"
                ))
            })?,
        };
        match repeats {
            Repeats::WithinSecs(secs) if !(1..=MAX_REPEATS_SECS).contains(&secs) => {
                Err(wrong(format!("`within_secs` must be 1 to {MAX_REPEATS_SECS}")))
            }
            _ => Ok(Self { scheme, repeats }),
        }
    }
}

impl From<SchemeSettings> for Map<String, Value> {
    fn from(SchemeSettings { scheme, repeats }: SchemeSettings) -> Self {
        let mut settings = Self::from(scheme);
        if repeats != Repeats::default()
            && let Ok(value) = serde_json::to_value(repeats)
        {
            settings.insert(REPEATS.to_owned(), value);
        }
        settings
    }
}

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
    /// Which of its requests are repetitions.
    pub repeats: Repeats,
    /// The address for its posts, if not this machine's own; a signature may cover it.
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
    /// When its list is compared with the webhooks that came.
    pub reconcile: ReconcileTerms,
}

impl NewProvider {
    /// How it signs, as it is stored and shown.
    pub fn scheme_settings(&self) -> SchemeSettings {
        SchemeSettings { scheme: self.scheme.clone(), repeats: self.repeats }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_can_be_set_for_each_scheme_and_only_to_what_can_be_kept() {
        let read = |text: &str| serde_json::from_str::<SchemeSettings>(text);
        for (text, wanted) in [
            (r#"{"kind":"stripe"}"#, Repeats::ById),
            (r#"{"kind":"stripe","repeats":"never"}"#, Repeats::Never),
            (
                r#"{"kind":"adyen","accepted":true,"repeats":{"within_secs":1}}"#,
                Repeats::WithinSecs(1),
            ),
        ] {
            let settings = read(text).unwrap();
            assert_eq!(settings.repeats, wanted, "{text}");
            assert_eq!(serde_json::to_string(&settings).unwrap(), text);
        }
        for (repeats, why) in [
            (r#""always""#, "`repeats` is"),
            (r#"{"within_secs":0}"#, "must be 1 to 2592000"),
            (r#"{"within_secs":2592001}"#, "must be 1 to 2592000"),
        ] {
            let text = format!(r#"{{"kind":"stripe","repeats":{repeats}}}"#);
            let refused = read(&text).unwrap_err().to_string();
            assert!(refused.contains(why), "{refused}");
        }
    }
}
