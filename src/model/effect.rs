//! Effects outside the file: their kinds, and who asked for one.
//!
//! Not here: the table of those that are under way (`store::claimed_effects`), and what claims, resumes and ends them
//! (`pipeline::claims`).

use serde::{Deserialize, Serialize};

use crate::base::clock::Timestamp;
use crate::base::words::words;
use crate::model::audit::{Actor, ActorType, NewAuditEvent, Origin};

words! {
    /// The kind of an effect. It is also the action of its audit event.
    pub enum EffectKind {
        /// A month of the archive is deleted.
        ArchiveDelete = "archive.delete",
        /// Finished events are moved into the archive.
        ArchiveRun = "archive.run",
        /// A backup is made because somebody asked for it.
        BackupMake = "backup.make",
        /// A command of the settings makes a new secret.
        CredentialRotate = "credential.rotate",
        /// A lost master key is given up. The row keeps what was lost until a person has been told.
        MasterKeyAbandon = "master_key.abandon",
        /// The file of the master key gets a new key, and every secret is sealed again.
        MasterKeyRotate = "master_key.rotate",
        /// The keys of a subject are noted as erased beside the database and the backups, then destroyed.
        SubjectErase = "subject.erase",
        /// A request is sent to the target of a subscription to test it.
        SubscriptionTest = "subscription.test",
    }
}

impl EffectKind {
    /// The kinds that upkeep resumes or ends after the process that worked on them has ended. The thread of the archive
    /// resumes its own. What was lost with a master key stays until a person has been told.
    pub const OF_UPKEEP: [Self; 5] = [
        Self::BackupMake,
        Self::CredentialRotate,
        Self::MasterKeyRotate,
        Self::SubjectErase,
        Self::SubscriptionTest,
    ];
}

/// The person or program that asked for an effect, and the call. It is kept as JSON with the claim, so that the audit
/// event of an effect that is finished after a restart names them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedBy {
    kind: Option<ActorType>,
    id: String,
    display: String,
    action: String,
    address: Option<String>,
    user_agent: Option<String>,
    request_id: Option<String>,
    correlation_id: Option<String>,
    method: Option<String>,
    path: Option<String>,
}

/// The methods of calls that change something.
const METHODS: [&str; 4] = ["POST", "PUT", "PATCH", "DELETE"];

impl AskedBy {
    /// Takes over the actor, the action and the call of an audit event.
    pub fn of(event: &NewAuditEvent) -> Self {
        let NewAuditEvent { actor, origin, action, .. } = event;
        Self {
            kind: Some(actor.kind),
            id: actor.id.clone(),
            display: actor.display.clone(),
            action: action.clone(),
            address: origin.address.clone(),
            user_agent: origin.user_agent.clone(),
            request_id: origin.request_id.clone(),
            correlation_id: origin.correlation_id.clone(),
            method: origin.method.map(str::to_owned),
            path: origin.path.clone(),
        }
    }

    /// An audit event about this call, without its resource and its changes.
    pub fn event(&self, at: Timestamp, tenant: &str) -> NewAuditEvent {
        let actor = Actor {
            kind: self.kind.unwrap_or(ActorType::System),
            id: self.id.clone(),
            display: self.display.clone(),
        };
        let is_named = |method: &&str| Some(*method) == self.method.as_deref();
        let origin = Origin {
            address: self.address.clone(),
            user_agent: self.user_agent.clone(),
            request_id: self.request_id.clone(),
            correlation_id: self.correlation_id.clone(),
            method: METHODS.into_iter().find(is_named),
            path: self.path.clone(),
            status: None,
        };
        NewAuditEvent { origin, ..NewAuditEvent::local(at, tenant, actor, &self.action) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_audit_event_of_a_resumed_effect_names_who_asked_for_it() {
        let actor = Actor { kind: ActorType::Token, id: "1".to_owned(), display: "erp".to_owned() };
        let mut event = NewAuditEvent::local(Timestamp::default(), "acme", actor, "backup.make");
        event.origin.method = Some("POST");
        event.origin.path = Some("/v1/backups".to_owned());
        event.origin.address = Some("127.0.0.1".to_owned());
        let kept = serde_json::to_string(&AskedBy::of(&event)).unwrap();
        let read: AskedBy = serde_json::from_str(&kept).unwrap();
        assert_eq!(read.event(event.at, "acme"), event);
    }
}
