//! Audit events: who changed what, from where, and with which result.
//!
//! [`chain`] checks the hashes of the rows; [`refusals`] limits the rows that refused calls write. Not here: deciding
//! what is audited (`api::audited`), and storing it (`store::audit_events`).

pub mod chain;
pub mod changes;
pub mod refusals;
mod row;

use crate::base::clock::Timestamp;
use crate::base::words::words;
use crate::model::audit::changes::{Changes, sanitize};
use crate::model::audit::row::Head;

pub use row::AuditEvent;
pub use row::Hash;

words! {
    /// The kind of actor. Stored in `audit_events.actor_type`.
    pub enum ActorType {
        /// A caller with a token, over the API.
        Token = "token",
        /// A person who is logged in to the console.
        User = "user",
        /// A user of this machine, with a command that opens the file directly.
        Cli = "cli",
        /// Oncebox itself.
        System = "system",
        /// An unknown caller: the token was missing or not valid.
        Anonymous = "anonymous",
    }
}

/// Who acted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// The kind of actor.
    pub kind: ActorType,
    /// The UUID of the token or user, or the user id on this machine; empty for the other kinds.
    pub id: String,
    /// The token's name or the user's name.
    pub display: String,
}

impl Actor {
    /// Oncebox itself.
    pub fn system() -> Self {
        Self { kind: ActorType::System, id: String::new(), display: "oncebox".to_owned() }
    }

    /// An unknown caller.
    pub fn anonymous() -> Self {
        Self { kind: ActorType::Anonymous, id: String::new(), display: String::new() }
    }
}

words! {
    /// The result of an action. Stored in `audit_events.result`.
    pub enum Outcome as "AuditResult" {
        /// It was done.
        Success = "SUCCESS",
        /// It was allowed, tried, and not done.
        Failure = "FAILURE",
        /// It was not allowed.
        Denied = "DENIED",
    }
}

/// The API call that caused the action; all `None` if there was none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The client's address.
    pub address: Option<String>,
    /// The client's `User-Agent`.
    pub user_agent: Option<String>,
    /// Our request id.
    pub request_id: Option<String>,
    /// The caller's correlation id.
    pub correlation_id: Option<String>,
    /// The method.
    pub method: Option<&'static str>,
    /// The path, without its query.
    pub path: Option<String>,
    /// The status of the answer.
    pub status: Option<u16>,
}

/// An audit event that has no place in the chain yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewAuditEvent {
    /// When.
    pub at: Timestamp,
    /// The tenant whose data it concerns.
    pub tenant: String,
    /// Who.
    pub actor: Actor,
    /// From where.
    pub origin: Origin,
    /// What was done, such as `subscription.pause`.
    pub action: String,
    /// The kind of resource.
    pub resource_type: String,
    /// The resource's id.
    pub resource_id: Option<String>,
    /// The result.
    pub outcome: Outcome,
    /// Which fields changed.
    pub changes: Changes,
}

impl NewAuditEvent {
    /// An action without an API call: by Oncebox itself, or by a local command.
    pub fn local(at: Timestamp, tenant: &str, actor: Actor, action: &str) -> Self {
        let resource_type = action.split('.').next().unwrap_or(action).to_owned();
        Self {
            at,
            tenant: tenant.to_owned(),
            actor,
            origin: Origin::default(),
            action: action.to_owned(),
            resource_type,
            resource_id: None,
            outcome: Outcome::Success,
            changes: Changes::none(),
        }
    }

    /// Sets the resource and its changes.
    #[must_use]
    pub fn of(mut self, resource_type: &str, resource_id: &str, changes: Changes) -> Self {
        resource_type.clone_into(&mut self.resource_type);
        self.resource_id = Some(resource_id.to_owned());
        self.changes = changes;
        self
    }

    /// The row that follows `head` in the chain.
    pub fn chained(&self, head: Head) -> AuditEvent {
        let Self {
            at,
            tenant,
            actor,
            origin,
            action,
            resource_type,
            resource_id,
            outcome,
            changes,
        } = self;
        let clean = |text: &Option<String>| text.as_deref().map(sanitize);
        let mut row = AuditEvent {
            seq: head.seq.saturating_add(1),
            at: at.ms(),
            tenant: tenant.clone(),
            actor_type: actor.kind.as_str().to_owned(),
            actor_id: actor.id.clone(),
            actor_display: actor.display.clone(),
            address: origin.address.clone(),
            user_agent: clean(&origin.user_agent),
            action: action.clone(),
            resource_type: resource_type.clone(),
            resource_id: clean(resource_id),
            result: outcome.as_str().to_owned(),
            request_id: clean(&origin.request_id),
            correlation_id: clean(&origin.correlation_id),
            method: origin.method.map(str::to_owned),
            path: clean(&origin.path),
            status: origin.status.map(i64::from),
            changes: changes.to_text(),
            previous_hash: head.hash,
            hash: Hash::ZERO,
        };
        row.hash = row::hash_of(&row);
        row
    }
}
