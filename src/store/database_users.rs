//! What uses a database of the settings: sources that read it, and subscriptions that write into it.

use std::fmt;

use crate::store::prelude::*;

/// A source or a subscription that uses a database.
///
/// *Written as*: `source default/shop`, `subscription default/stock`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DatabaseUser {
    /// What it is.
    pub kind: UserKind,
    /// Its tenant.
    pub tenant: String,
    /// Its name.
    pub name: String,
}

/// What kind of user it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UserKind {
    /// A source, which reads.
    Source,
    /// A subscription, which writes.
    Subscription,
}

impl fmt::Display for DatabaseUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            UserKind::Source => "source",
            UserKind::Subscription => "subscription",
        };
        write!(f, "{kind} {}/{}", self.tenant, self.name)
    }
}

queries! {
    fn sources(database: &str) -> Vec<(String, String)> = rows as tuple "
        SELECT tenant, name FROM sources
         WHERE kind = 'database' AND settings ->> '$.database' = ?1 AND deleted_at IS NULL
         ORDER BY tenant, name LIMIT 1000";

    fn subscriptions(database: &str) -> Vec<(String, String)> = rows as tuple "
        SELECT tenant, name FROM subscriptions
         WHERE target_kind = 'database' AND url = 'database:' || ?1 AND deleted_at IS NULL
         ORDER BY tenant, name LIMIT 1000";
}

/// The users of a database, of all tenants: at most a thousand of each kind, sources first.
pub fn of(tx: &ReadTx<'_>, database: &str) -> Result<Vec<DatabaseUser>> {
    let user = |kind| move |(tenant, name)| DatabaseUser { kind, tenant, name };
    let sources = sources(tx, database)?.into_iter().map(user(UserKind::Source));
    let subscriptions = subscriptions(tx, database)?.into_iter().map(user(UserKind::Subscription));
    Ok(sources.chain(subscriptions).collect())
}
