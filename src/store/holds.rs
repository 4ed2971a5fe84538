//! Table `holds`: why subscriptions must not be called for now. Holding touches no delivery row.
//!
//! A suspended tenant holds its subscriptions as well. That is read from `tenants` here, so that one query says
//! whether a subscription may be called.

use crate::base::clock::Timestamp;
use crate::base::id::SubscriptionSeq;
use crate::model::subscription::{Hold, HoldReason};
use crate::store::column::word;
use crate::store::error::Result;
use crate::store::tx::{ReadTx, WriteTx, rows};

const PUT: &str = "
    INSERT INTO holds (subscription_seq, reason, since, detail)
    VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT DO NOTHING";

const RELEASE: &str = "
    DELETE FROM holds
     WHERE subscription_seq = ?1
       AND reason = ?2";

const OF: &str = "
    SELECT reason, since, detail
      FROM holds
     WHERE subscription_seq = ?1
     UNION ALL
    SELECT 'suspended', t.suspended_at, 'the tenant is suspended'
      FROM subscriptions AS s
      JOIN tenants AS t ON t.name = s.tenant
     WHERE s.seq = ?1
       AND t.suspended_at IS NOT NULL
     ORDER BY reason
     LIMIT 16";

/// Holds a subscription; an older hold for the same reason stays.
pub fn put(
    tx: &WriteTx<'_>,
    subscription: SubscriptionSeq,
    reason: HoldReason,
    detail: &str,
    now: Timestamp,
) -> Result<()> {
    tx.prepare(PUT)?.execute((subscription, reason.as_str(), now, detail))?;
    tx.subscriptions_changed();
    Ok(())
}

/// Ends a hold; nothing happens where there is none.
pub fn release(tx: &WriteTx<'_>, subscription: SubscriptionSeq, reason: HoldReason) -> Result<()> {
    tx.prepare(RELEASE)?.execute((subscription, reason.as_str()))?;
    tx.subscriptions_changed();
    Ok(())
}

/// The holds of a subscription.
pub fn of(tx: &ReadTx<'_>, subscription: SubscriptionSeq) -> Result<Vec<Hold>> {
    rows(&mut *tx.prepare(OF)?, [subscription], |row| {
        let reason: String = row.get(0)?;
        Ok(Hold {
            reason: word("holds.reason", &reason, HoldReason::parse)?,
            since: row.get(1)?,
            detail: row.get(2)?,
        })
    })
}
