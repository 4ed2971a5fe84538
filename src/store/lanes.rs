//! Table `deliveries`, as lanes: who goes first.
//!
//! The head of a lane is the smallest of it that is not finished, unless a consumer has the head in hand:
//! then it stays. Whatever puts a delivery into a lane, ends one or brings one back calls [`elect_head`]; rows
//! without a lane never come here. The database enforces that there is one head.

use crate::base::clock::Timestamp;
use crate::base::id::{DeliverySeq, SubscriptionSeq};
use crate::store::error::Result;
use crate::store::tx::{WriteTx, first, one_row};

pub(super) const HEAD: &str = "
    SELECT seq, state = 'leased' OR state = 'waiting'
      FROM deliveries
     WHERE lane = ?1
       AND head = 1
       AND finished_at IS NULL";

pub(super) const SMALLEST: &str = "
    SELECT seq
      FROM deliveries
     WHERE lane = ?1
       AND finished_at IS NULL
     ORDER BY order_at, seq
     LIMIT 1";

pub(super) const DEMOTE: &str = "
    UPDATE deliveries
       SET head = 0
     WHERE seq = ?1
       AND head = 1
       AND finished_at IS NULL";

// Due times that a wrong clock put too far ahead are pulled in when the clock is set (`deliveries::PULL_IN`), but
// for those behind a head, which nobody looks for: theirs are when their turn comes.
pub(super) const PROMOTE: &str = "
    UPDATE deliveries
       SET head = 1,
           due_at = iif(due_at > ?2 + delay_ms, max(?2 + delay_ms, coalesce(
               (SELECT o.not_before FROM outbox AS o WHERE o.seq = deliveries.outbox_seq), 0)), due_at)
     WHERE seq = ?1
       AND head = 0
       AND finished_at IS NULL";

/// Lets the right one be the head of a lane.
pub(super) fn elect_head(
    tx: &WriteTx<'_>,
    lane: i64,
    subscription: SubscriptionSeq,
    now: Timestamp,
) -> Result<()> {
    let head = first(&mut *tx.prepare(HEAD)?, [lane], |row| {
        Ok((row.get::<_, DeliverySeq>(0)?, row.get::<_, bool>(1)?))
    })?;
    let smallest = first(&mut *tx.prepare(SMALLEST)?, [lane], |row| Ok(row.get(0)?))?;
    let Some(smallest): Option<DeliverySeq> = smallest else { return Ok(()) };
    if let Some((head, in_hand)) = head {
        if in_hand || head == smallest {
            return Ok(());
        }
        one_row(tx.prepare(DEMOTE)?.execute([head])?, "the delivery")?;
    }
    one_row(tx.prepare(PROMOTE)?.execute((smallest, now))?, "the delivery")?;
    tx.ring(subscription);
    Ok(())
}
