//! Bugs that are planted in a simulated world, each at a seam. The simulation must find every one of them.

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// The dispatcher is told of a settlement before it is committed.
    SettledBeforeCommit,
    /// `Retry-After` is not read.
    RetryAfterIgnored,
    /// The dispatcher is not told that a hold was put or ended.
    HoldNotTold,
    /// Due times are pulled in by a time that was read before the transaction began.
    ClampWithOldTime,
    /// A hold that lets a single probe through lets everything through.
    ProbeGateOpen,
    /// What fails while the site has no line counts.
    OfflineCounts,
    /// What has succeeded is not remembered: a probe's success does not end its hold.
    HoldNotEnded,
    /// Holds that were put while the clock was ahead stay when it is set back.
    HoldsNotClamped,
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
    /// A call that the end of the process interrupted is repeated as if it had not been made.
    InterruptedCallForgotten,
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
    pub(crate) const ALL: [(Self, u32); 19] = [
        (Self::SettledBeforeCommit, 0),
        (Self::RetryAfterIgnored, 0),
        (Self::HoldNotTold, 0),
        (Self::ClampWithOldTime, 51),
        (Self::ProbeGateOpen, 0),
        (Self::OfflineCounts, 2),
        (Self::HoldNotEnded, 0),
        (Self::HoldsNotClamped, 1042),
        (Self::BlockNotSeen, 68),
        (Self::FunnelNotTold, 1),
        (Self::WaitingDoesNotHold, 222),
        (Self::ConfirmedByOldUrl, 353),
        (Self::FunnelNotRung, 96),
        (Self::InterruptedCallForgotten, 2157),
        (Self::OlderCallMade, 3),
        (Self::HeldCallMade, 497),
        (Self::SameStateForgotten, 63),
        (Self::ParentNotTold, 6),
        (Self::HeadNotAsked, 0),
    ];
}
