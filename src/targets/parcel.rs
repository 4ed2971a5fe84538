//! A parcel: one event on its way to one subscription, and what takes it there.

use crate::base::clock::Timestamp;
use crate::http::client::Call;
use crate::http::trace::Trace;
use crate::model::delivery::OutgoingRequest;
use crate::model::outcome::Outcome;
use crate::model::subscription::Subscription;
use crate::privacy::policy::ResponseScrub;
use crate::targets::http::access::Access;

/// One event on its way to one subscription.
#[derive(Clone, Debug)]
pub struct Parcel<'a> {
    /// For whom it is.
    pub subscription: &'a Subscription,
    /// What is sent: its payload is the body.
    pub outgoing: &'a OutgoingRequest,
    /// The name of its file and the subject of its mail, where it has them (`formats::FILE_NAME`, `formats::SUBJECT`).
    pub rendered: &'a [(String, String)],
    /// What is attached to its mail.
    pub attachment: Option<&'a Attachment>,
    /// Where it goes, with which header fields, and how long that may take.
    pub call: Call<'a>,
    /// How the subscription proves who it is.
    pub access: &'a Access,
    /// What may not be kept of an answer.
    pub echo: &'a ResponseScrub,
    /// When it is sent.
    pub at: Timestamp,
    /// Where a test notes its steps.
    pub trace: Option<&'a Trace>,
}

/// An event's payload as received, beside the text of a template.
#[derive(Clone, Debug)]
pub struct Attachment {
    /// Its media type.
    pub content_type: String,
    /// Its bytes.
    pub content: Vec<u8>,
}

/// What sends to targets of one kind.
pub trait Sends: Send + Sync {
    /// Sends it and waits for the outcome, at most as long as its call may take.
    fn send(&self, parcel: &Parcel<'_>) -> Outcome;

    /// Looks whether it could be sent. What can only be tried by sending is sent.
    fn look(&self, parcel: &Parcel<'_>) -> Outcome {
        self.send(parcel)
    }
}
