//! One view over the database and the archive: what is asked for is found wherever it is.

use std::cmp::Ordering;
use std::time::Duration;

use crate::api::audited::ChangeResult;
use crate::api::lists;
use crate::api::prelude::*;
use crate::archive::tables::moves::{self, Wanted};
use crate::archive::{Archive, ArchivedKind, Batch, Month};
use crate::base::id;
use crate::env::Env;
use crate::model::delivery::Delivery;
use crate::model::event::Event;
use crate::model::webhook_event::WebhookEvent;
use crate::store::error::{Error, Result as StoreResult};
use crate::store::page::RowPage;
use crate::store::search::{self, Hit, HitKind};
use crate::store::tx::{ReadTx, WriteTx};
use crate::store::{OwnReader, Store, read_only, seen_keys};

/// What can be in the archive.
pub(super) trait Archived {
    /// Where its numbers are among those of a file.
    const AT: usize;

    /// Its number, by which lists are ordered.
    fn number(&self) -> i64;
    /// Notes the month in whose file it is.
    fn note(&mut self, month: &Month);
}

macro_rules! archived {
    ($($type:ty = $at:literal => $seq:expr),+) => {$(
        impl Archived for $type {
            const AT: usize = $at;

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

archived!(Event = 0 => |one| one.seq, WebhookEvent = 1 => |one| one.seq, Delivery = 2 => |one| one.seq.0);

/// By what one thing is found.
#[derive(Clone, Copy)]
pub(super) enum By<'a> {
    /// The id of an event.
    Id(&'a str),
    /// A number.
    Number(i64),
}

pub(super) fn names(archive: &Archive) -> Result<Vec<Month>, Problem> {
    archive.months().map_err(|error| Problem::internal(error.to_string()))
}

/// The months with a file of audit events, the latest first, each with an API for its file: those that are wanted, and the
/// one after them, at whose start their rows end. One that cannot be read is left out: the log says so.
pub(super) fn audit_months(
    api: &Api,
    is_wanted: impl Fn(&Month) -> bool,
) -> Result<impl Iterator<Item = Api>, Problem> {
    let own = api.clone();
    let read = move |month: Month| match own.flow.archiving.audit.read(&month, &own.env.store) {
        Ok(store) => Some(over(&own, store)),
        Err(error) => {
            tracing::error!(%error, %month, "a month of audit events cannot be read");
            None
        }
    };
    let mut names = names(&api.flow.archiving.audit)?;
    let later = names.iter().take_while(|month| !is_wanted(month)).count();
    names.drain(..later.saturating_sub(1));
    let names = names.into_iter().enumerate();
    let wanted = names.filter(move |(n, month)| *n == 0 || is_wanted(month));
    Ok(wanted.filter_map(move |(_, month)| read(month)))
}

/// The months, those first that may have an event: it finished after it got its id.
fn names_by(api: &Api, by: By<'_>) -> Result<Vec<Month>, Problem> {
    let mut names = names(&api.flow.archiving.archive)?;
    if let By::Id(id) = by
        && let Some(at) = id::made_at(id)
    {
        let from = Month::at(at);
        names.sort_by_key(|month| (*month < from, month.clone()));
    }
    Ok(names)
}

/// An API for the file of a month, if the range of numbers of type `T` in the file overlaps the wanted range. One that
/// cannot be read is left out: the log says so.
fn open<T: Archived>(
    api: &Api,
    month: &Month,
    is_needed: impl Fn(i64, i64) -> bool,
) -> Option<Api> {
    let archive = &api.flow.archiving.archive;
    let read = || {
        let numbers =
            archive.numbers(month, &api.env.store)?.get(T::AT).copied().unwrap_or_default();
        if !is_needed(numbers.0, numbers.1) {
            return Ok(None);
        }
        let store = archive.read(month, &api.env.store)?;
        Ok(Some(over(api, store)))
    };
    let failed =
        |error: &Error| tracing::error!(%error, %month, "a month of the archive cannot be read");
    read().inspect_err(failed).ok().flatten()
}

/// APIs that read the files of the months, the latest first.
pub(super) fn each(api: &Api) -> Result<impl Iterator<Item = Api>, Problem> {
    let months = names(&api.flow.archiving.archive)?;
    Ok(months.into_iter().filter_map(|name| month(api, &name)))
}

/// An API that reads the file of a month. `None`: it cannot be read, and the log says so.
pub(super) fn month(api: &Api, month: &Month) -> Option<Api> {
    open::<Event>(api, month, |_, _| true)
}

/// An API that reads the file of a month; without one, the database.
pub(super) fn reading(api: &Api, month: Option<&str>) -> Result<Api, Problem> {
    file(api, month.and_then(Month::parse).as_ref())
}

/// An API that reads the file of a month; `None` is the database. Fails if the file cannot be read.
pub(super) fn file(api: &Api, month: Option<&Month>) -> Result<Api, Problem> {
    let Some(month) = month else { return Ok(api.clone()) };
    let store = api.flow.archiving.archive.read(month, &api.env.store)?;
    Ok(over(api, store))
}

/// The order in which files are read: the database, which is `None`, then months, the latest first.
pub(super) fn order_of_files(one: Option<&Month>, other: Option<&Month>) -> Ordering {
    match (one, other) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Less,
        (Some(_), None) => Ordering::Greater,
        (Some(one), Some(other)) => other.cmp(one),
    }
}

/// The files that may have what was received since a time: the database, which is `None`, then months, the latest first.
pub(super) fn files_since(
    api: &Api,
    since: Timestamp,
) -> Result<impl Iterator<Item = Option<Month>>, Problem> {
    // What finished in a month was received in it or before.
    let first = Month::at(since);
    let months = names(&api.flow.archiving.archive)?;
    let months = months.into_iter().filter(move |month| *month >= first).map(Some);
    Ok(std::iter::once(None).chain(months))
}

/// The API over another file.
fn over(api: &Api, store: Store) -> Api {
    let env = Env { store, ..api.env.clone() };
    Api { env, ..api.clone() }
}

/// Reads one thing from the database, or else from the archive.
pub(super) fn find<T: Archived>(
    api: &Api,
    by: By<'_>,
    read: impl Fn(&ReadTx<'_>) -> StoreResult<Option<T>>,
) -> Result<Option<T>, Problem> {
    Ok(find_with(api, by, |tx| Ok(read(tx)?.map(|one| (one, ()))))?.map(|(one, ())| one))
}

/// As [`find`], with what belongs to it.
pub(super) fn find_with<T: Archived, U>(
    api: &Api,
    by: By<'_>,
    read: impl Fn(&ReadTx<'_>) -> StoreResult<Option<(T, U)>>,
) -> Result<Option<(T, U)>, Problem> {
    if let Some(found) = api.env.store.read(&read)? {
        return Ok(Some(found));
    }
    for month in names_by(api, by)? {
        let has = |low, high| match by {
            By::Number(number) => (low..=high).contains(&number),
            By::Id(_) => true,
        };
        let Some(of_month) = open::<T>(api, &month, has) else { continue };
        if let Some((mut found, more)) = of_month.env.store.read(&read)? {
            found.note(&month);
            return Ok(Some((found, more)));
        }
    }
    Ok(None)
}

/// Reads a page, the newest first, from the database and the archive together. Rows keep their numbers, so a page is the
/// same wherever its rows are. `key`: the only one that its rows have.
pub(super) fn page<T: Archived>(
    api: &Api,
    call: &Call,
    limit: u32,
    key: Option<(ArchivedKind, &str)>,
    read: impl Fn(&ReadTx<'_>) -> StoreResult<RowPage<T>>,
) -> Result<RowPage<T>, Problem> {
    let end = lists::end(api);
    let below = call.query.page()?.after;
    let mut all = lists::read_until(api, call, end, &read)?;
    let mut months = names(&api.flow.archiving.archive)?;
    if let Some((kind, key)) = key {
        let known = |tx: &ReadTx<'_>| seen_keys::months_of(tx, kind.as_str(), &call.tenant, key);
        let known = lists::read_until(api, call, end, known)?;
        // If nothing is known of it, a month may have it all the same: it may have come from elsewhere.
        if !known.is_empty() || !all.rows.is_empty() {
            months.retain(|month| known.contains(&month.to_string()));
        }
    }
    for month in months {
        // The page ends before what the file has, or begins behind it.
        let has = |low, high| {
            all.next.is_none_or(|next| high >= next) && below.is_none_or(|below| below > low)
        };
        let Some(of_month) = open::<T>(api, &month, has) else { continue };
        let mut found = lists::read_until(&of_month, call, end, &read)?;
        found.rows.iter_mut().for_each(|row| row.note(&month));
        all = all.merge(found, limit, T::number);
    }
    Ok(all)
}

/// Searches the database, then the months, the latest first, until `end`. Then there may be more.
pub(super) fn search(
    api: &Api,
    call: &Call,
    end: Duration,
    find: impl Fn(&ReadTx<'_>) -> StoreResult<(Vec<Hit>, bool)>,
) -> Result<(Vec<Hit>, bool), Problem> {
    let (mut all, mut more) = lists::read_until(api, call, end, &find)?;
    for month in names(&api.flow.archiving.archive)? {
        let Some(of_month) = self::month(api, &month) else { continue };
        let Ok((found, has_more)) = lists::read_until(&of_month, call, end, &find) else {
            return Ok((all, true));
        };
        more |= has_more;
        for mut hit in found {
            let is_known = all.iter().any(|known| (known.kind, known.seq) == (hit.kind, hit.seq));
            // A file has copies of subscriptions.
            let can_move =
                matches!(hit.kind, HitKind::Event | HitKind::WebhookEvent | HitKind::Delivery);
            if can_move && !is_known {
                hit.archived_in = Some(month.to_string());
                all.push(hit);
            }
        }
    }
    Ok((all, more))
}

/// The event with a `webhook-id` that is in the archive: the API that reads its month, and its number. Lists look only
/// among the newest events for one.
pub(super) fn of_webhook_id(
    api: &Api,
    call: &Call,
    webhook_id: &str,
) -> Result<Option<(Month, Api, i64)>, Problem> {
    let seen = api.env.store.read(|tx| seen_keys::by_webhook_id(tx, webhook_id))?;
    let Some((month, id)) = seen.and_then(|seen| Some((Month::parse(&seen.month)?, seen.id)))
    else {
        return Ok(None);
    };
    let Some(of_month) = self::month(api, &month) else { return Ok(None) };
    let wanted = Wanted::Id(call.tenant.clone(), id);
    let place = of_month.env.store.read(|tx| moves::place(tx, ArchivedKind::Event, &wanted))?;
    Ok(place.map(|place| (month, of_month, place.seq)))
}

/// The event or webhook event with a `webhook-id` that is in the archive.
pub(super) fn hit_of_webhook_id(
    api: &Api,
    call: &Call,
    webhook_id: &str,
) -> Result<Option<Hit>, Problem> {
    let seen = api.env.store.read(|tx| seen_keys::by_webhook_id(tx, webhook_id))?;
    let month_of = |seen: &seen_keys::Seen| Month::parse(&seen.month);
    let Some((month, seen)) = seen.and_then(|seen| Some((month_of(&seen)?, seen))) else {
        return Ok(None);
    };
    let Some(of_month) = self::month(api, &month) else { return Ok(None) };
    let found = of_month.env.store.read(|tx| search::find(tx, &call.tenant, &seen.id, false))?;
    let can_have = |hit: &Hit| matches!(hit.kind, HitKind::Event | HitKind::WebhookEvent);
    let hit = found.0.into_iter().find(|hit| can_have(hit) && hit.id == seen.id);
    let archived_in = Some(month.to_string());
    let value = webhook_id.to_owned();
    Ok(hit.map(|hit| Hit { matched: "webhook_id", value, archived_in, ..hit }))
}

/// Events that come back from the archive, the parents before their children, each with the file of its month.
type Back = Vec<(OwnReader, Batch)>;

/// Changes an event. If it is in the archive, it comes back within the change.
pub(super) fn change_event<R>(
    api: &Api,
    call: &Call,
    kind: ArchivedKind,
    mut run: R,
) -> Result<Audited<Value>, Problem>
where
    R: FnMut(&WriteTx<'_>) -> ChangeResult + Send + 'static,
{
    let wanted = Wanted::Id(call.tenant.clone(), call.param(0).to_owned());
    let back = to_bring_back(api, kind, wanted)?;
    let comes_back = !back.is_empty();
    let done = change(api, call, move |tx| {
        back.iter().try_for_each(|(from, batch)| moves::bring_back(tx, &from.tx(), batch))?;
        run(tx)
    });
    if comes_back {
        api.flow.archiving.note_back();
    }
    done
}

/// Finds what has to come back from the archive before an event is sent again: itself and its parents. Nothing if the
/// database has it, or nobody does.
fn to_bring_back(api: &Api, kind: ArchivedKind, wanted: Wanted) -> Result<Back, Problem> {
    let archive = &api.flow.archiving.archive;
    let mut next = Some(wanted);
    let mut found = Vec::new();
    while let Some(wanted) = next.take() {
        if api.env.store.read(|tx| moves::place(tx, kind, &wanted))?.is_some() {
            break;
        }
        let by = match &wanted {
            Wanted::Id(_, id) => By::Id(id),
            Wanted::Number(number) => By::Number(*number),
        };
        for month in names_by(api, by)? {
            let from = read_only(&archive.path(&month))?;
            if let Some(place) = moves::place(&from.tx(), kind, &wanted)? {
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
