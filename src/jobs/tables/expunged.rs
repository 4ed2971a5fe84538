//! Tables of finished events: what a job removes of them, in the database or in the file of a month. Their identity,
//! states, times and hashes stay.
//!
//! Not here: finding them ([`super::events`]).

use crate::base::clock::Timestamp;
use crate::jobs::JobKind;
use crate::store::error::Result;
use crate::store::legal_holds::{can_be_expunged, is_held_by};
use crate::store::tx::{ReadTx, WriteTx};

/// What is done to the events of a kind whose numbers are ?1, as JSON.
struct Statements {
    which: &'static str,
    bodies: &'static str,
    /// ?2: now.
    events: &'static str,
    attempts: &'static str,
    deliveries: &'static str,
    renderings: [&'static str; 2],
}

macro_rules! statements {
    ($events:literal, $of:literal, $changes:literal, $can:expr) => {
        Statements {
            which: concat!(
                "SELECT seq FROM ", $events, " AS e WHERE seq IN (SELECT value FROM json_each(?1)) AND ",
                $can
            ),
            bodies: concat!(
                "SELECT json_group_array(payload_seq) FROM ", $events,
                " WHERE payload_seq IS NOT NULL AND seq IN (SELECT value FROM json_each(?1))"
            ),
            events: concat!(
                "UPDATE ", $events, " SET payload = x'', payload_seq = NULL, sealed_fields = 0, ", $changes,
                ", expunged_at = ?2 WHERE seq IN (SELECT value FROM json_each(?1))"
            ),
            attempts: statements!(@ "UPDATE attempts SET excerpt = NULL, fields = NULL", $of),
            deliveries: concat!(
                "UPDATE deliveries SET custom_data = NULL WHERE ", $of, " IN (SELECT value FROM json_each(?1))"
            ),
            renderings: [
                statements!(@ "DELETE FROM renderings", $of),
                statements!(@ "DELETE FROM past_renderings", $of),
            ],
        }
    };
    (@ $change:literal, $of:literal) => {
        concat!(
            $change, " WHERE delivery_seq IN (SELECT seq FROM deliveries WHERE ", $of,
            " IN (SELECT value FROM json_each(?1)))"
        )
    };
}

const EVENTS: Statements = statements!(
    "outbox",
    "outbox_seq",
    "headers = '{}', custom_data = NULL",
    can_be_expunged!("outbox")
);
const WEBHOOK_EVENTS: Statements = statements!(
    "webhook_events",
    "webhook_seq",
    "headers = '[]'",
    can_be_expunged!("webhook_events")
);

const FORGET_BODIES: &str = "DELETE FROM payloads WHERE seq IN (SELECT value FROM json_each(?1))";

const LAST: &str = "SELECT seq FROM sqlite_sequence WHERE name = ?1";

/// Removes the dependent rows of the events that are still finished: payloads, what was sent of them, and the answers.
/// Returns how many.
pub(super) fn expunge(
    tx: &WriteTx<'_>,
    kind: JobKind,
    seqs: &[i64],
    now: Timestamp,
) -> Result<u64> {
    let json = |seqs: &[i64]| serde_json::to_string(seqs).unwrap_or_default();
    let of = if kind == JobKind::ExpungeWebhookEvents { &WEBHOOK_EVENTS } else { &EVENTS };
    let which: Vec<i64> = tx.list(of.which, [json(seqs)])?;
    let seqs = json(&which);
    let bodies: String = tx.value(of.bodies, [&seqs])?;
    tx.execute(of.events, (&seqs, now))?;
    let [renderings, past_renderings] = of.renderings;
    for sql in [of.attempts, of.deliveries, renderings, past_renderings] {
        tx.execute(sql, [&seqs])?;
    }
    tx.execute(FORGET_BODIES, [bodies])?;
    Ok(u64::try_from(which.len()).unwrap_or(u64::MAX))
}

/// The last number that was given to a row, wherever the row is.
pub(super) fn last(tx: &ReadTx<'_>, table: &str) -> Result<i64> {
    Ok(tx.find(LAST, [table])?.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::unforgotten;

    const TABLES: [&str; 6] =
        ["deliveries", "attempts", "renderings", "past_renderings", "payloads", "outbox"];

    /// What is left of a row after the statements, whose numbers are all 1.
    fn left(table: &'static str, of: &Statements) -> Vec<String> {
        let tables = TABLES.map(|other| if other == "outbox" { table } else { other });
        unforgotten(&tables, |conn| {
            let run = |sql: &str| conn.execute(sql, ["[1]"]).unwrap();
            conn.execute(of.events, ("[1]", 1)).unwrap();
            let [renderings, past_renderings] = of.renderings;
            for sql in [of.attempts, of.deliveries, renderings, past_renderings, FORGET_BODIES] {
                assert_eq!(run(sql), 1, "{sql}");
            }
        })
    }

    /// What is left of each delivery and attempt: states, times, and where it went.
    const LEFT_OF_DELIVERIES: [&str; 12] = [
        "deliveries.tenant",
        "deliveries.state",
        "deliveries.last_class",
        "deliveries.lease_owner",
        "deliveries.reason",
        "attempts.url",
        "attempts.class",
        "attempts.failed_reason",
        "attempts.key_id",
        "attempts.span",
        "attempts.method",
        "attempts.body_sha256",
    ];

    fn left_of(table: &'static str, of: &Statements) -> Vec<String> {
        let mut left = left(table, of);
        let own = left.split_off(LEFT_OF_DELIVERIES.len());
        assert_eq!(left, LEFT_OF_DELIVERIES);
        own.into_iter().map(|column| column.replace(&format!("{table}."), "")).collect()
    }

    #[test]
    fn a_new_column_is_forgotten_or_said_to_stay() {
        let of_event = [
            "id",
            "tenant",
            "source_system",
            "idempotency_key",
            "event_type",
            "aggregate_type",
            "aggregate_id",
            "target",
            "content_type",
            "ordering_key",
            "funnel_point",
            "funnel_value",
            "parent_binding",
            "process_id",
            "trace_id",
            "replay_of",
            "status",
            "error_code",
            "last_error",
            "entity_type",
        ];
        let of_webhook_event = [
            "id",
            "tenant",
            "provider",
            "provider_event_id",
            "event_type",
            "content_type",
            "key_id",
            "trace_id",
            "batch_id",
            "status",
            "error_message",
            "fingerprint",
            "ordering_key",
            "type_field",
            "origin",
        ];
        assert_eq!(left_of("outbox", &EVENTS), of_event);
        assert_eq!(left_of("webhook_events", &WEBHOOK_EVENTS), of_webhook_event);
    }
}
