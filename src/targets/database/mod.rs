//! Targets that are databases of others: guard and effect are one transaction of the database.
//!
//! Each delivery claims its `webhook-id` in the table `processed_events`, and does its effect only if the id is new. An
//! answer that was lost at the commit costs nothing: the next attempt finds the claim. Deliveries of a subscription that wait
//! at the same time share a transaction; after an error each has its own, so that one that the database refuses is one
//! dead letter.

mod store;
mod together;
mod transaction;

use std::sync::Arc;

use crate::base::clock::Timestamp;
use crate::databases::connection::{Connection, Error};
use crate::databases::database::{Database as Served, Databases};
use crate::databases::failure::{Class, Failure};
use crate::model::database_product::Product;
use crate::model::database_target::Effect;
use crate::model::outcome::{AttemptClass, Outcome};
use crate::model::subscription::Target;
use crate::targets::database::store::EventValues;
use crate::targets::database::together::Together;
use crate::targets::database::transaction::{Done, End, Work};
use crate::targets::parcel::{Parcel, Sends};

/// The most deliveries of one transaction.
const MAX_TOGETHER: usize = 50;
/// How often a transaction is tried at once that another one was in the way of.
const MAX_TRIES: u32 = 4;

/// Writes into databases of others.
#[derive(Debug)]
pub struct Database {
    databases: Databases,
    /// By the number of the subscription.
    together: Together<i64, Work, Outcome>,
}

/// A delivery that is ready to be done.
struct Ready {
    database: Arc<Served>,
    work: Work,
}

impl Database {
    /// Writes into these.
    pub fn new(databases: Databases) -> Self {
        Self { databases, together: Together::new(MAX_TOGETHER) }
    }

    /// What a delivery does and where. The error is an outcome without an attempt.
    fn ready(&self, parcel: &Parcel<'_>) -> Result<Ready, Outcome> {
        let unbuildable = |reason: String| Outcome::Unbuildable { reason };
        let new = &parcel.subscription.new;
        let Target::Database(target) = &new.target else {
            return Err(unbuildable("its target is no database".to_owned()));
        };
        let Some(database) = self.databases.of_tenant(target.name(), &new.tenant) else {
            return Err(Outcome::Blocked { reason: not_there(target.name(), &new.tenant) });
        };
        let effect = Effect::of(new.template.as_ref()).map_err(unbuildable)?;
        let product = database.product();
        let values = values(parcel, product).map_err(unbuildable)?;
        let effect = match &effect {
            Effect::Statement(statement) => store::effect(statement, &values),
            Effect::Inbox(table) => store::inbox_row(product, table, &values),
        };
        let work = Work { group: new.name.to_string(), webhook_id: values.webhook_id, effect };
        Ok(Ready { database: Arc::clone(database), work })
    }
}

impl Sends for Database {
    fn send(&self, parcel: &Parcel<'_>) -> Outcome {
        let Ready { database, work } = match self.ready(parcel) {
            Ok(ready) => ready,
            Err(outcome) => return outcome,
        };
        let run = |works: Vec<Work>| run_all(&database, &works);
        let outcome = self.together.join(&parcel.subscription.seq.0, work, run);
        outcome.unwrap_or_else(|| Outcome::Unacknowledged {
            class: AttemptClass::Transient,
            is_away: false,
            code: "in_doubt".to_owned(),
            reason: "the thread that wrote it together with others has failed".to_owned(),
        })
    }

    fn look(&self, parcel: &Parcel<'_>) -> Outcome {
        let Ready { database, work } = match self.ready(parcel) {
            Ok(ready) => ready,
            Err(outcome) => return outcome,
        };
        match run(&database, &[&work], End::RollBack) {
            Ok(done) => accepted(done.first().copied(), "; rolled back, as this is a test"),
            Err(error) => failed(&database.judge(&error)),
        }
    }
}

/// Why a database cannot be used.
pub fn not_there(name: &str, tenant: &str) -> String {
    format!(
        "there is no database {name:?} for the tenant {tenant} in the settings; add it under [databases.{name}], with the \
         tenant in tenants"
    )
}

/// The values that statements may use. The error says which is no text.
fn values(parcel: &Parcel<'_>, product: Product) -> Result<EventValues, String> {
    let outgoing = parcel.outgoing;
    let payload = String::from_utf8(outgoing.payload.clone()).map_err(|error| {
        format!(
            "the payload is no text: not UTF-8 from byte {} on",
            error.utf8_error().valid_up_to()
        )
    })?;
    if payload.contains('\0') {
        return Err(
            "the payload has the character NUL, which databases do not take in a text".to_owned()
        );
    }
    let at = outgoing.occurred_at.unwrap_or(outgoing.accepted_at);
    Ok(EventValues {
        webhook_id: outgoing.webhook_id.clone(),
        event_type: outgoing.event_type.clone(),
        aggregate_type: outgoing.aggregate_type.clone(),
        aggregate_id: outgoing.aggregate_id.clone(),
        payload,
        occurred_at: time_text(at, product),
        tenant: outgoing.tenant.clone(),
    })
}

/// A time as the database reads it: RFC 3339, and for `MariaDB` the same moment in UTC without `T` and `Z`.
fn time_text(at: Timestamp, product: Product) -> String {
    let text = at.to_string();
    match product {
        Product::Postgresql | Product::SqlServer => text,
        Product::Mariadb => text.replace('T', " ").replace('Z', ""),
    }
}

/// Does all of it together, or each alone if something fails.
fn run_all(database: &Arc<Served>, works: &[Work]) -> Vec<Outcome> {
    let together: Vec<&Work> = works.iter().collect();
    let error = match run(database, &together, End::Commit) {
        Ok(done) => return done.into_iter().map(|done| accepted(Some(done), "")).collect(),
        Err(error) => error,
    };
    let failure = database.judge(&error);
    let concerns_all = !matches!(failure.class, Class::Refused | Class::Unknown | Class::Again);
    if works.len() <= 1 || concerns_all {
        return works.iter().map(|_| failed(&failure)).collect();
    }
    works.iter().map(|work| run_one(database, work)).collect()
}

fn run_one(database: &Arc<Served>, work: &Work) -> Outcome {
    match run(database, &[work], End::Commit) {
        Ok(done) => accepted(done.first().copied(), ""),
        Err(error) => failed(&database.judge(&error)),
    }
}

/// Runs a transaction; at once again where another one was in the way.
fn run(database: &Arc<Served>, works: &[&Work], end: End) -> Result<Vec<Done>, Error> {
    let mut connection = database.connection()?;
    let mut tries = 1;
    loop {
        let connection: &mut dyn Connection = &mut connection;
        let error = match transaction::run(connection, database.product(), works, end) {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        if tries >= MAX_TRIES || database.judge(&error).class != Class::Again {
            return Err(error);
        }
        tries += 1;
    }
}

fn accepted(done: Option<Done>, also: &str) -> Outcome {
    let what = match done {
        Some(Done::Now(Some(1))) => "1 row".to_owned(),
        Some(Done::Now(Some(rows))) => format!("{rows} rows"),
        Some(Done::Now(None)) | None => "done; the database does not say how many rows".to_owned(),
        Some(Done::Before) => "already done".to_owned(),
    };
    Outcome::Accepted { excerpt: format!("{what}{also}") }
}

fn failed(failure: &Failure) -> Outcome {
    let (class, is_away, code) = match failure.class {
        Class::Away => (AttemptClass::Transient, true, "database_away"),
        // Nobody can write until a person has changed it, so it costs no attempts.
        Class::SchemaHold => (AttemptClass::Transient, true, "database_schema"),
        Class::AuthHold => (AttemptClass::Auth, false, "database_not_permitted"),
        Class::Refused => (AttemptClass::Validation, false, "database_refused"),
        Class::Again => (AttemptClass::Transient, false, "database_busy"),
        Class::Unknown => (AttemptClass::Transient, false, "database_failed"),
    };
    Outcome::Unacknowledged { class, is_away, code: code.to_owned(), reason: failure.words.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_each_database_reads_them() {
        let at = Timestamp::from_ms(1_800_000_000_123);
        assert_eq!(time_text(at, Product::Postgresql), "2027-01-15T08:00:00.123Z");
        assert_eq!(time_text(at, Product::Mariadb), "2027-01-15 08:00:00.123");
    }

    #[test]
    fn what_follows_from_an_error() {
        let rows = [
            (Class::Away, AttemptClass::Transient, true),
            (Class::SchemaHold, AttemptClass::Transient, true),
            (Class::AuthHold, AttemptClass::Auth, false),
            (Class::Refused, AttemptClass::Validation, false),
            (Class::Again, AttemptClass::Transient, false),
            (Class::Unknown, AttemptClass::Transient, false),
        ];
        for (judged, expected_class, expected_away) in rows {
            let failure = Failure { class: judged, words: "no".to_owned() };
            let Outcome::Unacknowledged { class, is_away, .. } = failed(&failure) else {
                panic!("{judged:?}");
            };
            assert_eq!((class, is_away), (expected_class, expected_away), "{judged:?}");
        }
    }
}
