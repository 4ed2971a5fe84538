//! Rows of a table as events, ready to be stored: those of an ERP's own file and of its own database alike.

use crate::privacy::NotAdmitted;
use crate::sources::Source;
use crate::sources::draft::{Draft, describe};
use crate::sources::shared::{Keys, ReadyRow, RelayServices, recognise};
use crate::store::error::Result;
use crate::store::outbox::UNUSABLE;

/// A row as it was read.
pub(super) struct ReadRow<'a> {
    /// Its id.
    pub(super) id: i64,
    /// Its values.
    pub(super) row: &'a Draft,
    /// Why its values could not be read, if so.
    pub(super) unreadable: Option<&'a str>,
}

impl ReadyRow {
    /// The row in quarantine, because our own file refuses it.
    pub(super) fn refused(self, why: &str) -> Self {
        let unusable = Some((UNUSABLE, format!("the database refuses it: {why}")));
        Self { unusable, ..self }
    }
}

/// Rows as events. One that cannot be used becomes an event in quarantine.
pub(super) fn ready(
    shared: &RelayServices,
    source: &Source,
    rows: &[ReadRow<'_>],
) -> Result<Vec<ReadyRow>> {
    let received_at = shared.env.clock.wall();
    let one = |ReadRow { id, row, unreadable }: &ReadRow<'_>| {
        let keys = keys(shared, source, *id, &row.fingerprint())?;
        let [key, _] = &keys;
        let facts = shared.context(source, key.clone(), received_at);
        let (event, why) = match (unreadable, row.event(&facts)) {
            (Some(why), _) => (row.unusable(&facts), format!("row {id} cannot be read: {why}")),
            (None, Ok(mut event)) => {
                recognise(shared, &mut event, &keys)?;
                let unusable = shared.misfit(&event)?;
                match shared.env.privacy.admit(std::slice::from_mut(&mut event)) {
                    Ok(()) => return Ok(ReadyRow { event, unusable }),
                    Err(NotAdmitted::Failed(error)) => return Err(error),
                    Err(NotAdmitted::Refused { why, .. }) => {
                        (event, format!("it is refused: {why}"))
                    }
                }
            }
            (None, Err(error)) => {
                let why = format!("row {id}: {}", describe(&error, source.new.settings.names()));
                (row.unusable(&facts), why)
            }
        };
        // It is quarantined without its content.
        let (event, why) = shared.env.privacy.withhold(event, why)?;
        Ok(ReadyRow { event, unusable: Some((UNUSABLE, why)) })
    };
    rows.iter().map(one).collect()
}

/// The keys of a row without its own. They contain type and payload, because after a restore of the ERP an id may be
/// given to another event. They do not depend on the source's settings: otherwise a row that is read again would become
/// a new event.
fn keys(shared: &RelayServices, source: &Source, id: i64, fingerprint: &str) -> Result<Keys> {
    let short = format!("0x{}", fingerprint.get(..32).unwrap_or(fingerprint));
    let hashed = shared.env.privacy.hashed(&source.new.tenant, &short)?;
    Ok(hashed.map(|hash| format!("{id}-{hash}")))
}
