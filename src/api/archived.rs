//! One view over the database and the archive: what is asked for is found wherever it is.

use crate::api::lists;
use crate::api::prelude::*;
use crate::archive::store::{self, Wanted};
use crate::archive::{Batch, Kind, Month};
use crate::model::delivery::Delivery;
use crate::model::event::Event;
use crate::model::webhook_event::WebhookEvent;
use crate::store::error::Result as StoreResult;
use crate::store::page::Found;
use crate::store::tx::ReadTx;
use crate::store::writer::Queue;

/// What can be in the archive.
pub(super) trait Archived {
    /// Its number, by which lists are ordered.
    fn number(&self) -> i64;
    /// Notes the month in whose file it is.
    fn note(&mut self, month: &Month);
}

macro_rules! archived {
    ($($type:ty => $seq:expr),+) => {$(
        impl Archived for $type {
            fn number(&self) -> i64 {
                let number: fn(&Self) -> i64 = $seq;
                number(self)
            }

            fn note(&mut self, month: &Month) {
                self.archived_in = Some(month.to_string());
            }
        }
    )+};
}

archived!(Event => |one| one.seq, WebhookEvent => |one| one.seq, Delivery => |one| one.seq.0);

/// The months of the archive, the latest first, each with an API that reads its file.
fn months(api: &Api) -> Result<Vec<(Month, Api)>, Problem> {
    let archive = &api.flow.archiving.archive;
    let months = archive.months().map_err(|error| Problem::internal(error.to_string()))?;
    let of = |month: Month| {
        let store = archive.read(&month, &api.store)?;
        Ok((month, Api { store, ..api.clone() }))
    };
    months.into_iter().map(of).collect()
}

/// An API that reads the file of a month; without one, the database.
pub(super) fn reading(api: &Api, month: Option<&str>) -> Result<Api, Problem> {
    let Some(month) = month.and_then(Month::parse) else { return Ok(api.clone()) };
    let store = api.flow.archiving.archive.read(&month, &api.store)?;
    Ok(Api { store, ..api.clone() })
}

/// Reads one thing from the database, or else from the archive.
pub(super) fn find<T: Archived>(
    api: &Api,
    read: impl Fn(&ReadTx<'_>) -> StoreResult<Option<T>>,
) -> Result<Option<T>, Problem> {
    Ok(find_with(api, |tx| Ok(read(tx)?.map(|one| (one, ()))))?.map(|(one, ())| one))
}

/// As [`find`], with what belongs to it.
pub(super) fn find_with<T: Archived, U>(
    api: &Api,
    read: impl Fn(&ReadTx<'_>) -> StoreResult<Option<(T, U)>>,
) -> Result<Option<(T, U)>, Problem> {
    if let Some(found) = api.store.read(&read)? {
        return Ok(Some(found));
    }
    for (month, of_month) in months(api)? {
        if let Some((mut found, more)) = of_month.store.read(&read)? {
            found.note(&month);
            return Ok(Some((found, more)));
        }
    }
    Ok(None)
}

/// Reads a page, the newest first, from the database and the archive together. Rows keep their numbers, so a page is the
/// same wherever its rows are.
pub(super) fn page<T: Archived>(
    api: &Api,
    call: &Call,
    limit: u32,
    read: impl Fn(&ReadTx<'_>) -> StoreResult<Found<T>>,
) -> Result<Found<T>, Problem> {
    let mut all = lists::read(api, call, &read)?;
    for (month, of_month) in months(api)? {
        let mut found = lists::read(&of_month, call, &read)?;
        found.rows.iter_mut().for_each(|row| row.note(&month));
        all = all.merge(found, limit, T::number);
    }
    Ok(all)
}

/// Brings an event back from the archive, with its parents, so that it can be sent again. Does nothing if the database has
/// it, or nobody does.
pub(super) fn bring_back(api: &Api, kind: Kind, wanted: Wanted) -> Result<(), Problem> {
    let mut next = Some(wanted);
    let mut back = Vec::new();
    while let Some(wanted) = next.take() {
        if api.store.read(|tx| store::place(tx, kind, &wanted))?.is_some() {
            break;
        }
        for (month, of_month) in months(api)? {
            if let Some(found) = of_month.store.read(|tx| store::place(tx, kind, &wanted))? {
                next = found.parent.map(Wanted::Number);
                let batch = Batch { kind, month, seqs: vec![found.seq], bytes: 0 };
                back.push((of_month.store, batch, found.id));
                break;
            }
        }
    }
    if back.is_empty() {
        return Ok(());
    }
    // A parent comes before its child, which refers to it.
    back.reverse();
    let done = api.store.writer().write(Queue::Accept, move |tx| {
        back.iter().try_for_each(|(month, batch, id)| {
            month.read(|from| store::bring_back(tx, from, batch, id))
        })
    });
    Ok(done?)
}

/// What is asked of a delivery in the archive that cannot be done there.
pub(super) fn unchangeable(month: &str) -> Problem {
    Problem::conflict(format!(
        "It is in the archive of {month}: replay its event, which brings it back."
    ))
}
