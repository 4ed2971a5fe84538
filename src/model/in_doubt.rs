//! In doubt: which deliveries may have been sent before a restore, so that they are not sent again unasked.
//!
//! What was open at the backup may have been sent between the backup and the loss. What comes in after
//! the restore may be something that had come in before the loss and was sent then. Pure: the moments are
//! kept in `store::meta`, the deliveries in `store::deliveries`.

use std::time::Duration;

use crate::base::clock::Timestamp;
use crate::model::pointer::{raw_at, text_at};

/// How far another clock may be ahead of ours.
const MAX_AHEAD: Duration = Duration::from_mins(5);

/// What a file remembers of its latest restore.
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
    /// When the lost file was last in use at the latest: what happened later cannot have been sent by it.
    pub lost_at: Timestamp,
    /// From then on new events are not held any more.
    pub until: Timestamp,
}

impl Fence {
    /// Whether an event that comes in for the first time may have been sent before the loss.
    ///
    /// An event that says when it happened is in doubt if that was before the loss. One that does not say is in doubt
    /// while the window is open.
    ///
    /// ```
    /// use oncebox::base::clock::Timestamp;
    /// use oncebox::model::in_doubt::{Fence, Window};
    /// let at = Timestamp::from_secs;
    /// let fence = Fence { epoch: 1, window: Some(Window { lost_at: at(100), until: at(200) }) };
    /// assert!(fence.doubts(Some(at(90)), at(150)));
    /// assert!(!fence.doubts(Some(at(110)), at(150)));
    /// assert!(fence.doubts(None, at(150)));
    /// assert!(!fence.doubts(Some(at(90)), at(200)));
    /// assert!(fence.doubts(Some(at(9_000)), at(150)), "a time that has not come yet says nothing");
    /// assert!(!Fence::default().doubts(None, at(150)));
    /// ```
    pub fn doubts(&self, happened_at: Option<Timestamp>, received_at: Timestamp) -> bool {
        self.window.is_some_and(|window| {
            // A time that has not come yet is no time at which anything happened.
            let happened_at = happened_at.filter(|at| *at <= received_at.plus(MAX_AHEAD));
            received_at < window.until && happened_at.is_none_or(|at| at <= window.lost_at)
        })
    }
}

/// When a webhook event happened, where its provider says so: Shopify in a header, Stripe in `created`,
/// Standard Webhooks in `timestamp`. The time in a signature is that of the sending, and says nothing.
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
    fn a_webhook_says_when_it_happened_in_its_providers_way() {
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
