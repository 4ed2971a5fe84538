//! What came of a turn at a source, and what stood in its way.

use crate::base::id;
use crate::model::escalation::{Class, NewEscalation};
use crate::model::source::Source;
use crate::pipeline::sources::shared::Shared;
use crate::store::error::Error;

/// What came of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// There may be more.
    Again,
    /// Nothing more for now.
    Done,
}

/// What stands in the way.
#[derive(Clone, Debug)]
pub(super) struct Snag {
    pub(super) why: String,
    pub(super) kind: SnagKind,
}

/// What kind of thing that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SnagKind {
    /// It may pass by itself, such as a lock.
    Passing,
    /// Somebody has to do something.
    Lasting,
    /// What is read is not what was read before; somebody has to decide.
    Replaced,
    /// It is ours: the writer is busy, or stops. Nothing is noted.
    Ours,
}

impl Snag {
    pub(super) fn lasting(why: impl ToString) -> Self {
        Self { why: why.to_string(), kind: SnagKind::Lasting }
    }
}

impl From<Error> for Snag {
    fn from(error: Error) -> Self {
        let kind = if error.passes() { SnagKind::Ours } else { SnagKind::Passing };
        Self { why: error.to_string(), kind }
    }
}

/// What escalations about a source are about.
pub(super) fn subject(source: &Source) -> String {
    format!("source:{}", source.new.name)
}

/// An escalation about a source.
pub(super) fn escalation(
    shared: &Shared,
    source: &Source,
    class: Class,
    detail: &str,
) -> NewEscalation {
    NewEscalation {
        id: id::uuid7(shared.clock.wall(), &*shared.draw),
        tenant: source.new.tenant.clone(),
        class,
        subject: subject(source),
        detail: detail.to_owned(),
    }
}
