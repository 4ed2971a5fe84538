//! What a restore changes in the file that is put back, before anything serves it: its epoch, and every
//! delivery that may have been made after the backup.
//!
//! Nobody else has the file open, and it is worthless until all of it is done; the steps are many small
//! transactions all the same, so that a large file needs no large log.

use std::path::Path;

use crate::base::clock::Timestamp;
use crate::base::faults::Faults;
use crate::base::id::DeliverySeq;
use crate::model::audit::changes::Changes;
use crate::model::audit::{Actor, NewAuditEvent};
use crate::model::in_doubt::{Fence, Window};
use crate::model::tenant;
use crate::store::error::Result;
use crate::store::meta::{self, Restored};
use crate::store::schema::Steps;
use crate::store::subjects::KeyId;
use crate::store::tx::WriteTx;
use crate::store::{audit_events, in_doubt, schema, settlement, writer};

/// Deliveries moved in one transaction.
const MAX_ROWS: u32 = 2000;
/// How far each table's numbers jump, so that none that was given after the backup is given again to something
/// else. Events: years of what one box carries, because a program may keep `seq` as its cursor. Deliveries: people
/// read and type their numbers, and only notes of theirs name one of after the backup.
const NUMBERS_SKIPPED: [(&str, i64); 3] =
    [("webhook_events", 1_000_000_000), ("outbox", 1_000_000_000), ("deliveries", 1_000_000)];

const SKIP_NUMBERS: &str = "
    UPDATE sqlite_sequence
       SET seq = seq + ?2
     WHERE name = ?1";

// A table that never had a row has no number yet.
const BEGIN_NUMBERS: &str = "
    INSERT INTO sqlite_sequence (name, seq)
    VALUES (?1, ?2)";

/// What was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raised {
    /// The file's epoch now.
    pub epoch: u32,
    /// Deliveries that are in doubt now.
    pub doubted: u64,
    /// Keys of subjects that were destroyed after the backup, and are again.
    pub erased: u64,
}

/// Makes a copy of a backup the file that will be served: upgraded, of a new epoch, with everything open
/// in doubt.
///
/// # Errors
/// When the file cannot be written, or is newer than this version.
pub fn raise(
    path: &Path,
    restored: &Restored,
    window: Option<Window>,
    key_id: &str,
    (who, erasures): (&Actor, &[(KeyId, Timestamp)]),
) -> Result<Raised> {
    if schema::standing(path)?.is_some_and(|have| have < schema::VERSION) {
        let _from =
            schema::migrate(path, Steps::RELEASED, &(restored.at, who.clone()), &Faults::none())?;
    }
    let (_writer, mut file) = writer::pair(schema::open_writer(path)?, Faults::none());
    let epoch = file.direct(|tx| {
        let epoch = meta::fence(tx)?.epoch.saturating_add(1);
        meta::set_restored(tx, restored, Fence { epoch, window })?;
        if meta::master_key_id(tx)?.is_none() {
            meta::set_master_key_id(tx, key_id)?;
        }
        for (table, skipped) in NUMBERS_SKIPPED {
            if tx.prepare(SKIP_NUMBERS)?.execute((table, skipped))? == 0 {
                tx.prepare(BEGIN_NUMBERS)?.execute((table, skipped))?;
            }
        }
        Ok(epoch)
    })?;
    let (mut after, mut doubted) = (DeliverySeq(0), 0_u64);
    loop {
        let moved = file.direct(|tx| put_in_doubt(tx, after, restored))?;
        let Some(last) = moved.last() else { break };
        (after, doubted) = (*last, doubted + u64::try_from(moved.len()).unwrap_or(0));
    }
    let erased = file.erase_again(erasures)?;
    let changes = Changes::none()
        .and("from", restored.from.as_str())
        .and("epoch", epoch)
        .and("in_doubt", doubted)
        .and("keys_erased", erased);
    let event = NewAuditEvent::local(restored.at, tenant::DEFAULT, who.clone(), "database.restore");
    let event = event.of("database", "oncebox.db", changes);
    file.direct(|tx| audit_events::append(tx, &event))?;
    file.finish();
    Ok(Raised { epoch, doubted, erased })
}

fn put_in_doubt(
    tx: &WriteTx<'_>,
    after: DeliverySeq,
    restored: &Restored,
) -> Result<Vec<DeliverySeq>> {
    let found = in_doubt::unsent(tx, after, MAX_ROWS)?;
    for delivery in &found {
        settlement::doubt(tx, *delivery, restored.at)?;
    }
    Ok(found)
}
