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
}

impl Bug {
    pub(crate) const ALL: [Self; 10] = [
        Self::SettledBeforeCommit,
        Self::RetryAfterIgnored,
        Self::HoldNotTold,
        Self::ClampWithOldTime,
        Self::ProbeGateOpen,
        Self::OfflineCounts,
        Self::HoldNotEnded,
        Self::HoldsNotClamped,
        Self::BlockNotSeen,
        Self::FunnelNotTold,
    ];
}
