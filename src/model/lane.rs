//! Lanes: which deliveries of a subscription go one after another.
//!
//! Not here: which delivery is first in a lane, which is SQL (`store::lanes`).

use crate::base::id::{SubscriptionSeq, identity_digest};

/// Which events of a subscription are kept in order. Stored in `subscriptions.ordering`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ordering {
    /// None.
    #[default]
    None,
    /// Events with the same key: the event's `ordering_key`, else its aggregate. An event without both waits for no
    /// other.
    Key,
    /// All of them.
    Strict,
}

impl Ordering {
    /// All.
    pub const ALL: [Self; 3] = [Self::None, Self::Key, Self::Strict];

    /// The word in SQL, API and console.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Key => "key",
            Self::Strict => "strict",
        }
    }

    /// Reads the word.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|ordering| ordering.as_str() == text)
    }
}

/// The fields of an event that decide its lane.
#[derive(Clone, Copy, Debug, Default)]
pub struct Key<'a> {
    /// The event's `ordering_key`.
    pub ordering_key: Option<&'a str>,
    /// The aggregate's type and id.
    pub aggregate: (Option<&'a str>, Option<&'a str>),
}

/// The lane of an event's delivery: 63 bits of a hash. Two keys with the same hash share a lane, which does no harm: it
/// only keeps more events in order than necessary.
///
/// ```
/// use oncebox::model::lane::{Key, Ordering, of};
/// use oncebox::base::id::SubscriptionSeq;
/// let (erp, shop) = (SubscriptionSeq(1), SubscriptionSeq(2));
/// let invoice = Key { ordering_key: None, aggregate: (Some("invoice"), Some("4711")) };
/// assert_eq!(of(erp, Ordering::None, invoice), None);
/// assert!(of(erp, Ordering::Key, invoice).is_some_and(|lane| lane >= 0));
/// assert_ne!(of(erp, Ordering::Key, invoice), of(shop, Ordering::Key, invoice));
/// assert_eq!(of(erp, Ordering::Strict, invoice), of(erp, Ordering::Strict, Key::default()));
/// assert_eq!(of(erp, Ordering::Key, Key::default()), None);
/// ```
pub fn of(subscription: SubscriptionSeq, ordering: Ordering, key: Key<'_>) -> Option<i64> {
    if ordering == Ordering::None {
        return None;
    }
    let subscription = subscription.0.to_string();
    let digest = match (ordering, key) {
        (Ordering::Strict, _) => identity_digest(&["strict", &subscription]),
        (Ordering::Key, Key { ordering_key: Some(own), .. }) => {
            identity_digest(&["key", &subscription, own])
        }
        (Ordering::Key, Key { aggregate: (kind, Some(id)), .. }) => {
            identity_digest(&["aggregate", &subscription, kind.unwrap_or_default(), id])
        }
        (Ordering::None | Ordering::Key, _) => return None,
    };
    let head = digest.first_chunk::<8>().copied().unwrap_or_default();
    Some(i64::from_be_bytes(head) & i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ordering_is_read_back_from_its_word() {
        for ordering in Ordering::ALL {
            assert_eq!(Ordering::parse(ordering.as_str()), Some(ordering));
        }
    }
}
