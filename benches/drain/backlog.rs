//! The file of a box whose site was offline for a week: open deliveries of many subscriptions, a third of them in lanes.

use rusqlite::Connection;

/// Subscriptions that have something open.
pub(crate) const SUBSCRIPTIONS: u64 = 20;
/// Of so many deliveries of a subscription, the first is in a lane.
const IN_LANES: u64 = 3;
/// Deliveries of a lane, about.
const LANE_LENGTH: u64 = 33;
/// Rows of one transaction.
const CHUNK: u64 = 50_000;
const WEEK_MS: u64 = 7 * 24 * 3600 * 1000;

/// An open delivery by its number, and what it should come after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) subscription: u64,
    /// Its lane within the subscription.
    pub(crate) lane: Option<u64>,
    /// How many of the subscription without a lane are older.
    pub(crate) rank: u64,
}

/// How the deliveries are spread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backlog {
    pub(crate) open: u64,
}

impl Backlog {
    /// Lanes of each subscription.
    pub(crate) fn lanes(self) -> u64 {
        (self.open / SUBSCRIPTIONS / IN_LANES / LANE_LENGTH).max(1)
    }

    /// The place of the delivery with a number, from 0.
    pub(crate) fn place(self, number: u64) -> Place {
        let subscription = number % SUBSCRIPTIONS;
        let nth = number / SUBSCRIPTIONS;
        let in_lane = nth.is_multiple_of(IN_LANES);
        let lane = in_lane.then_some(nth / IN_LANES % self.lanes());
        Place { subscription, lane, rank: nth - nth.div_ceil(IN_LANES) }
    }

    /// Writes it into a file that has the subscriptions with the numbers 1 to 20, and no service.
    pub(crate) fn write(self, conn: &Connection, now_ms: u64) {
        let trigger =
            "SELECT sql FROM sqlite_master WHERE name = 'outbox_own_columns_are_left_out'";
        let trigger: String = conn.query_row(trigger, [], |row| row.get(0)).unwrap();
        // The trigger refuses events that are routed; the pragma saves an hour of syncs.
        conn.execute_batch(
            "PRAGMA synchronous = OFF; DROP TRIGGER outbox_own_columns_are_left_out",
        )
        .unwrap();
        let mut from = 0;
        while from < self.open {
            let to = (from + CHUNK).min(self.open);
            conn.execute_batch("BEGIN IMMEDIATE").unwrap();
            let gap_ms = WEEK_MS / self.open;
            let begun_ms = now_ms - WEEK_MS;
            let numbers = [from, to - 1, SUBSCRIPTIONS, begun_ms, gap_ms];
            conn.execute(EVENTS, numbers.map(u64::cast_signed)).unwrap();
            let numbers = [from, to - 1, SUBSCRIPTIONS, IN_LANES, self.lanes()];
            conn.execute(DELIVERIES, numbers.map(u64::cast_signed)).unwrap();
            conn.execute_batch("COMMIT").unwrap();
            from = to;
        }
        conn.execute_batch(&format!("{trigger}; PRAGMA synchronous = FULL")).unwrap();
        let emptied = "PRAGMA wal_checkpoint(TRUNCATE)";
        conn.query_row(emptied, [], |_| Ok(())).unwrap();
    }
}

// ?1 to ?2: numbers; ?3: subscriptions; ?4: when the first came; ?5: the gap. Event i has the seq i + 1.
const EVENTS: &str = "
    WITH RECURSIVE n (i) AS (SELECT ?1 UNION ALL SELECT i + 1 FROM n WHERE i < ?2)
    INSERT INTO outbox (seq, id, source_system, idempotency_key, event_type, payload, received_at,
                        routed_at, open_deliveries, own)
    SELECT i + 1, printf('0198%04x-%04x-7000-8000-%012x', i >> 16, i & 65535, i), 'drain',
           printf('%024d', i), 'bench.s-' || (1 + i % ?3),
           printf('{\"number\":%d,\"pad\":\"%s\"}', i, hex(randomblob(235))), ?4 + i * ?5, ?4 + i * ?5, 1, 1
      FROM n";

// ?4: of so many, the first is in a lane; ?5: lanes of a subscription.
const DELIVERIES: &str = "
    WITH RECURSIVE n (i) AS (SELECT ?1 UNION ALL SELECT i + 1 FROM n WHERE i < ?2)
    INSERT INTO deliveries (outbox_seq, subscription_seq, tenant, lane, order_at, head, due_at, created_at)
    SELECT o.seq, 1 + i % ?3, 'default',
           iif(i / ?3 % ?4 = 0, 1 + (i % ?3) * ?5 + i / ?3 / ?4 % ?5, NULL),
           o.received_at,
           i / ?3 % ?4 <> 0 OR i / ?3 / ?4 < ?5,
           o.received_at, o.received_at
      FROM n JOIN outbox AS o ON o.seq = i + 1";
