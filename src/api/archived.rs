//! One view over the database and the archive: what is asked for is found wherever it is.

use crate::api::audited::Verdict;
use crate::api::lists;
use crate::api::prelude::*;
use crate::archive::store::{self, Wanted};
use crate::archive::{Batch, Kind, Month};
use crate::model::delivery::Delivery;
use crate::model::event::Event;
use crate::model::webhook_event::WebhookEvent;
use crate::store::OwnReader;
use crate::store::error::Result as StoreResult;
use crate::store::page::Found;
use crate::store::read_only;
use crate::store::tx::{ReadTx, WriteTx};

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

fn names(api: &Api) -> Result<Vec<Month>, Problem> {
    let months = api.flow.archiving.archive.months();
    months.map_err(|error| Problem::internal(error.to_string()))
}

/// The months of the archive, the latest first, each with an API that reads its file. One that cannot be read is left out:
/// the log says so.
fn months(api: &Api) -> Result<impl Iterator<Item = (Month, Api)>, Problem> {
    let own = api.clone();
    Ok(names(api)?.into_iter().filter_map(move |month| {
        match own.flow.archiving.archive.read(&month, &own.store) {
            Ok(store) => Some((month, Api { store, ..own.clone() })),
            Err(error) => {
                tracing::error!(%error, %month, "a month of the archive cannot be read");
                None
            }
        }
    }))
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

/// Events that come back from the archive, the parents before their children, each with the file of its month.
type Back = Vec<(OwnReader, Batch)>;

/// Changes an event. If it is in the archive, it comes back within the change.
pub(super) fn change_event<R>(
    api: &Api,
    call: &Call,
    kind: Kind,
    mut run: R,
) -> Result<Audited<Value>, Problem>
where
    R: FnMut(&WriteTx<'_>) -> Verdict + Send + 'static,
{
    let wanted = Wanted::Id(call.tenant.clone(), call.param(0).to_owned());
    let back = to_bring_back(api, kind, wanted)?;
    let comes_back = !back.is_empty();
    let done = change(api, call, move |tx| {
        back.iter().try_for_each(|(from, batch)| store::bring_back(tx, &from.tx(), batch))?;
        run(tx)
    });
    if comes_back {
        api.flow.archiving.note_back();
    }
    done
}

/// Finds what has to come back from the archive before an event is sent again: itself and its parents. Nothing if the
/// database has it, or nobody does.
fn to_bring_back(api: &Api, kind: Kind, wanted: Wanted) -> Result<Back, Problem> {
    let archive = &api.flow.archiving.archive;
    let mut next = Some(wanted);
    let mut found = Vec::new();
    while let Some(wanted) = next.take() {
        if api.store.read(|tx| store::place(tx, kind, &wanted))?.is_some() {
            break;
        }
        for month in names(api)? {
            let from = read_only(&archive.path(&month))?;
            if let Some(place) = store::place(&from.tx(), kind, &wanted)? {
                next = place.parent.map(Wanted::Number);
                found.push((from, Batch { kind, month, seqs: vec![place.seq], bytes: 0 }));
                break;
            }
        }
    }
    found.reverse();
    Ok(found)
}

/// What is asked of a delivery in the archive that cannot be done there.
pub(super) fn unchangeable(month: &str) -> Problem {
    Problem::conflict(format!(
        "It is in the archive of {month}: replay its event, which brings it back."
    ))
}
