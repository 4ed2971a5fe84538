//! Parent and child in the simulated file: the status of events (`store::families`, `outbox::refresh`).

use oncebox::model::delivery::State;
use oncebox::model::event::{Binding, DeliveryCounts, HardChildren, Status, derive, with_children};

use crate::bug::Bug;
use crate::file::{File, Row};

/// A row of `outbox`.
#[derive(Clone, Debug)]
pub(crate) struct EventRow {
    pub(crate) deliveries: Vec<i64>,
    /// What its body says.
    pub(crate) content: u8,
    pub(crate) parent: Option<(usize, Binding)>,
    pub(crate) hard_children: u32,
    pub(crate) status: Status,
}

impl EventRow {
    pub(crate) fn new(deliveries: Vec<i64>, content: u8, parent: Option<(usize, Binding)>) -> Self {
        Self { deliveries, content, parent, hard_children: 0, status: Status::Pending }
    }

    pub(crate) fn hard_parent(&self) -> Option<usize> {
        self.parent.filter(|(_, binding)| *binding == Binding::Hard).map(|(parent, _)| parent)
    }
}

impl File {
    /// `families::join`
    pub(crate) fn join(&mut self, event: usize) {
        if let Some(parent) = self.events[&event].hard_parent() {
            self.events.get_mut(&parent).unwrap().hard_children += 1;
            self.climb(parent, false);
        }
    }

    /// `outbox::refresh`
    pub(crate) fn refresh(&mut self, event: usize) {
        let status = derive(self.counts(event));
        let row = self.events.get_mut(&event).unwrap();
        row.status = status;
        match (row.hard_children > 0, row.hard_parent()) {
            (false, None) => {}
            (false, Some(parent)) => self.climb(parent, false),
            (true, _) => self.climb(event, true),
        }
    }

    /// `families::refresh`
    fn climb(&mut self, event: usize, has_changed: bool) {
        if self.bug == Some(Bug::ParentNotTold) {
            return;
        }
        let (mut next, mut has_changed) = (Some(event), has_changed);
        while let Some(event) = next {
            if self.events[&event].hard_children > 0 {
                let status = with_children(derive(self.counts(event)), self.children(event));
                let row = self.events.get_mut(&event).unwrap();
                has_changed |= status != row.status;
                row.status = status;
            }
            let parent = self.events[&event].hard_parent();
            next = parent.filter(|_| std::mem::take(&mut has_changed));
        }
    }

    /// `families::CHILDREN`
    fn children(&self, event: usize) -> HardChildren {
        let children: Vec<Status> = self.hard_children(event).collect();
        let has = |statuses: &[Status]| children.iter().any(|status| statuses.contains(status));
        HardChildren {
            any_open: has(&[Status::Pending, Status::Processing, Status::Failed]),
            any_dead: has(&[Status::DeadLetter]),
            any_completed: has(&[Status::Completed]),
        }
    }

    /// The statuses of an event's hard children.
    pub(crate) fn hard_children(&self, event: usize) -> impl Iterator<Item = Status> {
        let is_child = move |row: &&EventRow| row.hard_parent() == Some(event);
        self.events.values().filter(is_child).map(|row| row.status)
    }

    /// `deliveries::counts`
    pub(crate) fn counts(&self, event: usize) -> DeliveryCounts {
        let rows: Vec<&Row> =
            self.events[&event].deliveries.iter().filter_map(|seq| self.row(*seq)).collect();
        let count = |which: &dyn Fn(&Row) -> bool| {
            u32::try_from(rows.iter().filter(|row| which(row)).count()).unwrap()
        };
        let of = |state| count(&|row| row.state == state);
        DeliveryCounts {
            open: count(&|row| row.is_standing() || row.state == State::Parked),
            open_failed: count(&|row| row.is_open() && row.counted > 0),
            with_worker: of(State::Waiting),
            completed: of(State::Completed),
            dead: of(State::DeadLetter),
            cancelled: of(State::Cancelled),
            skipped: of(State::Skipped),
        }
    }
}
