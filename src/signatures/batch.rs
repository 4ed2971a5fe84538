//! Splits a verified request into its events: one, or the items of a batch, each with its own id.

use super::check::{Incoming, MAX_ITEMS};
use super::naming::Identity;
use super::{Scheme, adyen, shared};
use crate::base::headers::Headers;
use crate::model::json_fields::Few;
use crate::model::pointer::list_at;

/// The events of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Events<'a> {
    /// In the request's order. A batch may be empty.
    pub items: Vec<Item<'a>>,
    /// Whether the request was a batch.
    pub is_batch: bool,
}

/// One event of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// Its id and type.
    pub identity: Identity,
    /// The exact bytes of this event: the body or a part of it.
    pub payload: &'a [u8],
}

/// Why a verified request cannot be used; sending it again does not help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// The list is missing.
    #[error("The body must be JSON with a list of events at {place}.")]
    NoList {
        /// Where it should be.
        place: String,
    },
    /// The list is too long.
    #[error("The batch has {count} events; at most {MAX_ITEMS} are taken at once.")]
    Many {
        /// How long it is.
        count: usize,
    },
    /// Its events would take too much of the file.
    #[error(
        "The batch has {bytes} bytes, with the header fields that are stored with each event; at most {most} are \
         stored at once. Send fewer events at once, or raise the provider's body_bytes_max."
    )]
    Bulky {
        /// Bytes to store.
        bytes: usize,
        /// Bytes that may be.
        most: usize,
    },
    /// An item is not an event.
    #[error("Item {number} of the batch is not a JSON object; nothing of the batch was stored.")]
    Item {
        /// Which, counted from 1.
        number: usize,
    },
}

impl Scheme {
    /// The events of a verified request. One broken item refuses the whole batch.
    pub fn events<'a>(&self, incoming: &Incoming<'a>) -> Result<Events<'a>, Unusable> {
        let Some(path) = self.list(incoming) else {
            let item = Item { identity: self.identify(incoming), payload: incoming.body };
            return Ok(Events { items: vec![item], is_batch: false });
        };
        let place =
            || if path.is_empty() { "its top".to_owned() } else { format!("/{}", path.join("/")) };
        let found = list_at::<_, MAX_ITEMS>(incoming.body, &path);
        let Few { kept: list, count } = found.ok_or_else(|| Unusable::NoList { place: place() })?;
        if count > MAX_ITEMS {
            return Err(Unusable::Many { count });
        }
        let no_headers = Headers::default();
        let mut items = Vec::with_capacity(list.len());
        for (index, raw) in list.iter().enumerate() {
            let payload = raw.get().as_bytes();
            if !payload.starts_with(b"{") {
                return Err(Unusable::Item { number: index.saturating_add(1) });
            }
            // A header cannot be the id of several events. In generic settings a header may name the type of all.
            let headers =
                if matches!(self, Self::Generic(_)) { incoming.headers } else { &no_headers };
            let identity = self.identify(&Incoming { body: payload, headers, ..*incoming });
            items.push(Item { identity, payload });
        }
        Ok(Events { items, is_batch: true })
    }

    /// The path of the list of events; `None` if the request is one event.
    fn list(&self, incoming: &Incoming<'_>) -> Option<Vec<&str>> {
        match self {
            Self::Sendgrid => Some(Vec::new()),
            Self::Adyen(_) => Some(adyen::ITEMS.to_vec()),
            Self::Dynamics => Some(shared::DYNAMICS_ITEMS.to_vec()),
            // Event Streams posts lists, everything else single events.
            Self::Twilio => incoming.body.trim_ascii_start().starts_with(b"[").then(Vec::new),
            Self::Generic(generic) => generic.items(),
            _ => None,
        }
    }
}
