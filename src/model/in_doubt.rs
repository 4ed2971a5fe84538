//! In doubt: which deliveries may have been sent before a restore. They are not sent again until a person decides.
//!
//! A delivery that is open in the backup may have been sent between the backup and the loss of the file. An event that
//! is received after the restore may have been received and sent before the loss, too. Not here: storing the times
//! (`store::meta`) and the deliveries (`store::deliveries`).

use std::time::Duration;

use crate::base::clock::Timestamp;
use crate::model::pointer::{raw_at, text_at};

/// How far another clock may be ahead of ours.
const MAX_AHEAD: Duration = Duration::from_mins(5);

/// What the database knows about its latest restore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fence {
    /// How often the file was restored.
    pub epoch: u32,
    /// When new events are held for review; `None`: never restored, or a person ended it.
    pub window: Option<Window>,
}

/// When new events are held for review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The latest time at which the lost file can have been in use. Events that happened later were not sent from it.
    pub lost_at: Timestamp,
    /// When new events are no longer held.
    pub until: Timestamp,
}

impl Fence {
    /// Whether an event that is received for the first time may have been sent before the loss.
    ///
    /// While the window is open, an event is in doubt if it happened before the loss, or does not say when it happened.
    ///
    /// ```
    /// use oncebox::base::clock::Timestamp;
    /// use oncebox::model::in_doubt::{Fence, Window};
    /// let at = Timestamp::from_secs;
    /// let fence = Fence { epoch: 1, window: Some(Window { lost_at: at(100), until: at(200) }) };
    /// assert!(fence.is_in_doubt(Some(at(90)), at(150)));
    /// assert!(!fence.is_in_doubt(Some(at(110)), at(150)));
    /// assert!(fence.is_in_doubt(None, at(150)));
    /// assert!(!fence.is_in_doubt(Some(at(90)), at(200)));
    /// assert!(fence.is_in_doubt(Some(at(9_000)), at(150)), "a time in the future is ignored");
    /// assert!(!Fence::default().is_in_doubt(None, at(150)));
    /// ```
    pub fn is_in_doubt(&self, happened_at: Option<Timestamp>, received_at: Timestamp) -> bool {
        self.window.is_some_and(|window| {
            // A time in the future cannot be right and is ignored.
            let happened_at = happened_at.filter(|at| *at <= received_at.plus(MAX_AHEAD));
            received_at < window.until && happened_at.is_none_or(|at| at <= window.lost_at)
        })
    }
}

/// When a webhook event happened, if its provider says so: Shopify in a header, Stripe in `created`,
/// Standard Webhooks in `timestamp`. The time in a signature is not used: it is when the webhook was sent.
pub fn happened_at(headers: &[(String, String)], body: &[u8]) -> Option<Timestamp> {
    let header = headers.iter().find(|(name, _)| name == "x-shopify-triggered-at");
    if let Some((_, text)) = header {
        return Timestamp::parse(text);
    }
    let created = raw_at(body, &["created"]).and_then(|raw| raw.parse().ok());
    let said = || text_at(body, &["timestamp"]).as_deref().and_then(Timestamp::parse);
    created.map(Timestamp::from_secs).or_else(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_an_event_is_read_for_each_provider() {
        let triggered = [("x-shopify-triggered-at".to_owned(), "2026-01-31T12:00:00Z".to_owned())];
        let at = Some(Timestamp::from_secs(1_769_860_800));
        assert_eq!(happened_at(&triggered, b"not json"), at);
        assert_eq!(happened_at(&[], br#"{"created":1769860800}"#), at);
        assert_eq!(happened_at(&[], br#"{"timestamp":"2026-01-31T12:00:00Z"}"#), at);
        for silent in [&b"{\"created\":true}"[..], b"[]", b"", b"{\"timestamp\":\"soon\"}"] {
            assert_eq!(happened_at(&[], silent), None);
        }
    }
}
