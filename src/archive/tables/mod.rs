//! Rows of finished events, in the database and in the files of months. Which rows belong to an event stands here.
//!
//! The file of a month has the whole schema, so that what reads the database reads it as well. Rows keep their numbers.

pub mod check;
pub mod month_file;
pub mod moves;
mod rows;
pub mod space;
pub mod views;
pub mod walk;

use crate::archive::ArchivedKind;
use crate::store::legal_holds::is_held_by;
use crate::store::{outbox_lists, webhook_events};

/// Rows of a table that belong to events; ?1 of the condition has the events' numbers as JSON.
struct Part {
    table: &'static str,
    condition: &'static str,
}

/// What is done with one kind of event.
struct Statements {
    /// The event and all its rows, in the order of deletion.
    parts: [Part; 6],
    bodies: Part,
    /// What else a reader needs. It is copied and stays: subscriptions, and the latest calls about things, which keep older
    /// calls from being made.
    needed: [Part; 2],
    /// Numbers, months and bytes of rows, and whether they are old: finished before ?2, or before that of their tenant
    /// in ?5; ?1 < number < ?3.
    old: &'static str,
    identities: &'static str,
    bodies_of: &'static str,
    received_from: &'static str,
    by_id: &'static str,
    by_number: &'static str,
}

macro_rules! statements {
    ($events:tt, $of:literal, ($source:literal, $key:literal, $parent:literal, $sent:literal), $finished:literal, $from:expr) => {
        Statements {
            parts: [
                statements!(@ "renderings", $of),
                statements!(@ "past_renderings", $of),
                statements!(@ "failures", $of),
                statements!(@ "attempts", $of),
                Part { table: "deliveries", condition: concat!($of, " IN (SELECT value FROM json_each(?1))") },
                Part { table: $events, condition: "seq IN (SELECT value FROM json_each(?1))" },
            ],
            bodies: Part {
                table: "payloads",
                condition: concat!("seq IN (SELECT payload_seq FROM ", $events,
                                   " WHERE seq IN (SELECT value FROM json_each(?1)))"),
            },
            needed: [
                Part {
                    table: "subscriptions",
                    condition: concat!("seq IN (SELECT subscription_seq FROM deliveries WHERE ", $of,
                                       " IN (SELECT value FROM json_each(?1)))"),
                },
                // By the key of the index: a delivery has one subscription.
                Part {
                    table: "external_calls",
                    condition: concat!("(subscription_seq, delivery_seq) IN (
                                         SELECT subscription_seq, seq FROM deliveries WHERE ", $of,
                                       " IN (SELECT value FROM json_each(?1)))"),
                },
            ],
            // Beside its body, an attempt counts as long as the longest answer that is kept.
            old: concat!(
                "SELECT seq, coalesce(strftime('%Y-%m', completed_at / 1000, 'unixepoch'), ''),
                        coalesce(octet_length(payload),
                                 (SELECT octet_length(body) FROM payloads WHERE seq = e.payload_seq), 0)
                        + (SELECT coalesce(sum(2048 * d.attempt_count + coalesce(octet_length(r.body), 0)
                                               + (SELECT coalesce(sum(octet_length(body)), 0) FROM past_renderings
                                                   WHERE delivery_seq = d.seq)), 0)
                             FROM deliveries AS d LEFT JOIN renderings AS r ON r.delivery_seq = d.seq
                            WHERE d.", $of, " = e.seq),
                        completed_at < by AND ", $finished, "
                        AND NOT EXISTS (SELECT 1 FROM legal_holds AS h WHERE ", is_held_by!($events), ")
                        AND NOT EXISTS (SELECT 1 FROM deliveries AS d WHERE d.", $of, " = e.seq
                                           AND (state NOT IN ('completed', 'skipped', 'cancelled')
                                                OR finished_at >= by
                                                -- A person has to say whether this call was made.
                                                OR EXISTS (SELECT 1 FROM external_calls AS x
                                                            WHERE x.subscription_seq = d.subscription_seq
                                                              AND x.entity = coalesce(d.entity, d.seq)
                                                              AND d.seq IN (x.delivery_seq, x.made_seq)
                                                              AND (x.state = 'PROCESSING'
                                                                   OR (x.made_seq IS NOT NULL AND x.made_hash IS NULL)))))
                   FROM (SELECT *, coalesce(json_extract(?5, '$.\"' || tenant || '\"'), ?2) AS by
                           FROM ", $events, ") AS e
                  WHERE seq > ?1 AND seq < ?3 ORDER BY seq LIMIT ?4"),
            identities: concat!("SELECT tenant, ", $source, ", ", $key, ", id, status, ", $sent, " FROM ", $events,
                                " WHERE seq IN (SELECT value FROM json_each(?1))"),
            bodies_of: concat!("SELECT json_group_array(payload_seq) FROM ", $events,
                               " WHERE payload_seq IS NOT NULL AND seq IN (SELECT value FROM json_each(?1))"),
            received_from: $from,
            by_id: concat!("SELECT seq, id, ", $parent, " FROM ", $events, " WHERE tenant = ?1 AND id = ?2"),
            by_number: concat!("SELECT seq, id, ", $parent, " FROM ", $events, " WHERE seq = ?1"),
        }
    };
    (@ $table:literal, $of:literal) => {
        Part {
            table: $table,
            condition: concat!("delivery_seq IN (SELECT seq FROM deliveries WHERE ", $of,
                               " IN (SELECT value FROM json_each(?1)))"),
        }
    };
}

// A parent stays until its children are gone, since they refer to it. A child stays until its parent is finished, whose
// status depends on it.
const EVENTS: Statements = statements!(
    "outbox",
    "outbox_seq",
    ("source_system", "idempotency_key", "parent_seq", "1"),
    "status IN ('completed', 'skipped', 'cancelled')
     AND NOT EXISTS (SELECT 1 FROM outbox AS c WHERE c.parent_seq = e.seq)
     AND NOT EXISTS (SELECT 1 FROM outbox AS p WHERE p.seq = e.parent_seq
                        AND p.status NOT IN ('completed', 'skipped', 'cancelled'))",
    outbox_lists::RECEIVED_FROM
);

const WEBHOOK_EVENTS: Statements = statements!(
    "webhook_events",
    "webhook_seq",
    ("provider", "provider_event_id", "NULL", "origin = 'webhook' OR duplicate_count > 0"),
    // A captured request may be sent again under another id for 30 days (`replay_window_secs`).
    "status IN ('completed', 'skipped') AND (fingerprint IS NULL OR received_at < by - 2592000000)",
    webhook_events::RECEIVED_FROM
);

const fn of(kind: ArchivedKind) -> &'static Statements {
    match kind {
        ArchivedKind::Event => &EVENTS,
        ArchivedKind::WebhookEvent => &WEBHOOK_EVENTS,
    }
}
