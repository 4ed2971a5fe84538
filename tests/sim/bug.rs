//! Bugs that are planted in a simulated world: in how the process calls the store, or as SQL that spoils what the store
//! writes. The simulation must find every one of them.

/// When the SQL of a bug is run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum When {
    /// Before the world begins: it spoils what the store writes from then on.
    Start,
    /// The process starts.
    Boot,
    /// After each commit.
    Committed,
}

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// The dispatcher is told of a settlement before it is committed.
    SettledBeforeCommit,
    /// `Retry-After` is not read.
    RetryAfterIgnored,
    /// The dispatcher is not told that a hold was put or ended.
    HoldNotTold,
    /// A hold that lets a single probe through lets everything through.
    ProbeGateOpen,
    /// What fails while the site has no line counts.
    OfflineCounts,
    /// A first try that was cut short counts.
    CutCounts,
    /// What has succeeded is not remembered: a probe's success does not end its hold.
    HoldNotEnded,
    /// The ends of waits stay when believed time moves.
    WaitsNotMoved,
    /// A dead letter that blocks its lane is not seen.
    BlockNotSeen,
    /// The dispatcher does not learn of funnels.
    FunnelNotTold,
    /// The lane of a delivery that waits for its confirmation goes on.
    WaitingDoesNotHold,
    /// A confirm URL of an earlier attempt still counts.
    ConfirmedByOldUrl,
    /// Nobody learns that a delivery no longer holds its funnel.
    FunnelNotRung,
    /// A call for an older state is made.
    OlderCallMade,
    /// A call is made although a person has paused its subscription before it was noted.
    HeldCallMade,
    /// A state that is not sent because the target has it from an older one does not count as sent.
    SameStateForgotten,
    /// A parent does not learn that its child has ended.
    ParentNotTold,
    /// What was fetched is sent, even if it is no longer the head of its lane.
    HeadNotAsked,
}

impl Bug {
    /// Each with a seed that finds it; when worlds change, another one does.
    pub(crate) const ALL: [(Self, u32); 18] = [
        (Self::SettledBeforeCommit, 1),
        (Self::RetryAfterIgnored, 0),
        (Self::HoldNotTold, 0),
        (Self::ProbeGateOpen, 0),
        (Self::OfflineCounts, 3),
        (Self::CutCounts, 42),
        (Self::HoldNotEnded, 0),
        (Self::WaitsNotMoved, 117),
        (Self::BlockNotSeen, 53),
        (Self::FunnelNotTold, 1),
        (Self::WaitingDoesNotHold, 1250),
        (Self::ConfirmedByOldUrl, 120),
        (Self::FunnelNotRung, 635),
        (Self::OlderCallMade, 3),
        (Self::HeldCallMade, 82),
        (Self::SameStateForgotten, 242),
        (Self::ParentNotTold, 0),
        (Self::HeadNotAsked, 66),
    ];

    /// SQL that is run then.
    pub(crate) const fn sql(self, when: When) -> &'static str {
        match (self, when) {
            (Self::HoldNotEnded, When::Start) => {
                "CREATE TRIGGER bug BEFORE DELETE ON holds WHEN OLD.reason IN ('auth', 'breaker', 'rejecting')
                 BEGIN SELECT RAISE(IGNORE); END"
            }
            (Self::BlockNotSeen, When::Start) => {
                "CREATE TRIGGER bug AFTER UPDATE OF head ON deliveries WHEN NEW.state = 'dead_letter' AND NEW.head = 1
                 BEGIN UPDATE deliveries SET head = 0 WHERE seq = NEW.seq AND lane IS NOT NULL; END"
            }
            (Self::SameStateForgotten, When::Start) => {
                "CREATE TRIGGER bug BEFORE UPDATE OF made_seq ON external_calls
                 WHEN OLD.state = NEW.state AND OLD.state <> 'PROCESSING'
                 BEGIN SELECT RAISE(IGNORE); END"
            }
            (Self::ParentNotTold, When::Start) => {
                "CREATE TRIGGER bug AFTER UPDATE OF status ON outbox
                 WHEN NEW.hard_children > 0 AND OLD.status = 'processing'
                 BEGIN
                   UPDATE outbox SET status = OLD.status, completed_at = OLD.completed_at WHERE seq = NEW.seq;
                 END"
            }
            (Self::WaitingDoesNotHold, When::Committed) => {
                "UPDATE deliveries SET head = 0 WHERE state = 'waiting' AND lane IS NOT NULL;
                 UPDATE deliveries SET head = 1
                  WHERE state = 'pending' AND head = 0
                    AND EXISTS (SELECT 1 FROM deliveries AS w WHERE w.lane = deliveries.lane AND w.state = 'waiting')
                    AND NOT EXISTS (SELECT 1 FROM deliveries AS p
                                     WHERE p.lane = deliveries.lane AND p.state = 'pending'
                                       AND (p.head = 1 OR p.seq < deliveries.seq))"
            }
            _ => "",
        }
    }
}
