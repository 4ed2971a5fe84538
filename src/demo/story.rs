//! How an invoice travels: over one Oncebox, or over a chain of two.

use serde::{Deserialize, Serialize};

use crate::demo::role::Role;

/// How an invoice travels from Finance to Logistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Story {
    /// Finance publishes over HTTP, and Oncebox tells Logistics.
    Direct,
    /// Finance writes into its own database and knows of nobody. Its Oncebox reads there and tells
    /// Logistics' Oncebox, over a line that loses things, and that one tells Logistics.
    Chain,
}

impl Story {
    /// The processes, in the order in which they are started.
    pub(super) const fn roles(self) -> &'static [Role] {
        match self {
            Self::Direct => &[Role::Oncebox, Role::Logistics, Role::Finance],
            Self::Chain => &[Role::Oncebox, Role::Downstream, Role::Logistics, Role::Finance],
        }
    }

    /// Those of them that are an Oncebox.
    pub(super) fn boxes(self) -> impl Iterator<Item = Role> {
        self.roles().iter().copied().filter(|role| role.is_oncebox())
    }

    /// The story in one line.
    pub(super) const fn told(self) -> &'static str {
        match self {
            Self::Direct => "Oncebox tells Logistics; Logistics ships.",
            Self::Chain => {
                "its Oncebox reads that in Finance's own database and tells Logistics' Oncebox; that one \
                 tells Logistics; Logistics ships."
            }
        }
    }

    /// The flag that asks for it, with a space before it.
    pub(super) const fn flag(self) -> &'static str {
        match self {
            Self::Direct => "",
            Self::Chain => " --chain",
        }
    }
}
