//! Who takes part: the processes of a run by name.

use std::fmt;

/// Which process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    /// The ERP whose invoices are paid.
    Finance,
    /// What is demonstrated: the one Oncebox, or the first of a chain, beside Finance.
    Oncebox,
    /// The second Oncebox of a chain, beside Logistics.
    Downstream,
    /// The receiver that ships.
    Logistics,
}

impl Role {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Finance => "Finance",
            Self::Oncebox => "Oncebox",
            Self::Downstream => "Downstream",
            Self::Logistics => "Logistics",
        }
    }

    /// The same in the names of files.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Finance => "finance",
            Self::Oncebox => "oncebox",
            Self::Downstream => "downstream",
            Self::Logistics => "logistics",
        }
    }

    /// Whether it is what is demonstrated.
    pub(super) const fn is_oncebox(self) -> bool {
        matches!(self, Self::Oncebox | Self::Downstream)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
