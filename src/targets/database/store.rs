//! The statements of one delivery: the claim of its id, and its effect.
//!
//! Not here: in which transactions they run (`transaction.rs`).

use crate::databases::connection::{Error, Refusal, Statement};
use crate::model::database_product::Product;
use crate::model::effect_statement::{EffectStatement, EffectValue};
use crate::model::inbox_table::InboxTable;

/// `MariaDB`: a row with this key is there.
const DUPLICATE_OF_MARIADB: i32 = 1062;

/// The values of an event that statements may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EventValues {
    pub(super) webhook_id: String,
    pub(super) event_type: String,
    pub(super) aggregate_type: Option<String>,
    pub(super) aggregate_id: Option<String>,
    pub(super) payload: String,
    /// As the database reads it.
    pub(super) occurred_at: String,
    pub(super) tenant: String,
}

impl EventValues {
    fn of(&self, value: EffectValue) -> Option<String> {
        match value {
            EffectValue::WebhookId => Some(self.webhook_id.clone()),
            EffectValue::EventType => Some(self.event_type.clone()),
            EffectValue::AggregateType => self.aggregate_type.clone(),
            EffectValue::AggregateId => self.aggregate_id.clone(),
            EffectValue::Payload => Some(self.payload.clone()),
            EffectValue::OccurredAt => Some(self.occurred_at.clone()),
            EffectValue::Tenant => Some(self.tenant.clone()),
        }
    }
}

/// The statement that claims an id for a group. It changes one row the first time: see [`is_first`].
pub(super) fn claim(product: Product, group: &str, webhook_id: &str) -> Statement {
    let insert = "INSERT INTO processed_events (consumer_group, event_id)";
    let sql = match product {
        // Without the names of columns, which would need the right to SELECT.
        Product::Postgresql => format!("{insert} VALUES (?, ?) ON CONFLICT DO NOTHING"),
        // A duplicate is an error, which ends neither the transaction nor needs another right.
        Product::Mariadb => format!("{insert} VALUES (?, ?)"),
        // Values are compared by the collation of the columns: nothing else stands between them and it.
        Product::SqlServer => format!(
            "{insert} SELECT ?, ? WHERE NOT EXISTS (SELECT 1 FROM processed_events WITH (UPDLOCK, HOLDLOCK) \
             WHERE consumer_group = ? AND event_id = ?)"
        ),
    };
    let statement = Statement::new(sql).with(group).with(webhook_id);
    match product {
        Product::Postgresql | Product::Mariadb => statement,
        Product::SqlServer => statement.with(group).with(webhook_id),
    }
}

/// Whether a claim found its id new. An error is one of the database.
pub(super) fn is_first(
    product: Product,
    claimed: Result<Option<u64>, Error>,
) -> Result<bool, Error> {
    match claimed {
        Ok(rows) => Ok(rows != Some(0)),
        Err(Error::Refused(refusal))
            if product == Product::Mariadb && refusal.native == DUPLICATE_OF_MARIADB =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Asks for the number of the transaction, where a statement may end it and nothing says so: a procedure of SQL Server
/// may, and what follows would be committed statement by statement.
pub(super) fn transaction_number(product: Product) -> Option<Statement> {
    match product {
        Product::Postgresql | Product::Mariadb => None,
        Product::SqlServer => {
            Some(Statement::new("SELECT CAST(CURRENT_TRANSACTION_ID() AS nvarchar(20))"))
        }
    }
}

/// The error of an effect that ended its transaction, with the state of the SQL standard.
pub(super) fn transaction_ended() -> Error {
    Error::Refused(Refusal {
        sqlstate: "2D000".to_owned(),
        native: 0,
        message: "the statement or its procedure has ended the transaction".to_owned(),
    })
}

/// The effect of an integrator's statement.
pub(super) fn effect(statement: &EffectStatement, values: &EventValues) -> Statement {
    let parameters = statement.values.iter().map(|value| values.of(*value)).collect();
    Statement { sql: statement.sql.clone(), parameters }
}

/// The effect of an inbox: a row for each event.
pub(super) fn inbox_row(product: Product, table: &InboxTable, values: &EventValues) -> Statement {
    let time = match product {
        Product::Postgresql => "CAST(? AS timestamptz)",
        Product::Mariadb => "?",
        Product::SqlServer => "CAST(? AS datetimeoffset)",
    };
    let sql = format!(
        "INSERT INTO {table} (webhook_id, tenant, event_type, aggregate_type, aggregate_id, payload, occurred_at) \
         VALUES (?, ?, ?, ?, ?, ?, {time})"
    );
    let columns = [
        EffectValue::WebhookId,
        EffectValue::Tenant,
        EffectValue::EventType,
        EffectValue::AggregateType,
        EffectValue::AggregateId,
        EffectValue::Payload,
        EffectValue::OccurredAt,
    ];
    Statement { sql, parameters: columns.into_iter().map(|value| values.of(value)).collect() }
}
