//! The entries of an action's form: the fields of its request that a person sees, in their order.

/// An entry of a form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FormEntry {
    /// A field of the request, or all fields of an object.
    Field {
        /// Its path in the request: `reason`, `filter.subscription`.
        path: &'static str,
        /// Whether it must be filled in, even if the API does without.
        is_required: bool,
    },
    /// A field with this value, which nobody types.
    Always {
        /// Its path in the request.
        path: &'static str,
        /// The value.
        value: bool,
    },
    /// The list of subscriptions that get an event again: boxes, of which those without it are checked.
    Receivers(&'static str),
    /// A secret that must be given, or is made.
    NewSecret(&'static str),
    /// A field of an object among the first ones that is folded away with the others.
    Later(&'static str),
    /// A part of the request's path.
    OfPath(&'static str),
    /// All fields of the request without an entry of their own.
    Others,
    /// A field that is not among the others.
    Without(&'static str),
}

/// All fields of the request without an entry of their own.
pub(super) const OTHERS: FormEntry = FormEntry::Others;

/// A field of the request, or all fields of an object.
pub(super) const fn field(path: &'static str) -> FormEntry {
    FormEntry::Field { path, is_required: false }
}

/// A field that must be filled in.
pub(super) const fn required(path: &'static str) -> FormEntry {
    FormEntry::Field { path, is_required: true }
}

/// A field with this value, which nobody types.
pub(super) const fn always(path: &'static str, value: bool) -> FormEntry {
    FormEntry::Always { path, value }
}

/// The list of subscriptions that get an event again.
pub(super) const fn receivers(path: &'static str) -> FormEntry {
    FormEntry::Receivers(path)
}

/// A secret that must be given, or is made.
pub(super) const fn new_secret(path: &'static str) -> FormEntry {
    FormEntry::NewSecret(path)
}

/// A field that is folded away with the others, though its object is not.
pub(super) const fn later(path: &'static str) -> FormEntry {
    FormEntry::Later(path)
}

/// A part of the request's path.
pub(super) const fn of_path(name: &'static str) -> FormEntry {
    FormEntry::OfPath(name)
}

/// A field that is not among the others.
pub(super) const fn without(path: &'static str) -> FormEntry {
    FormEntry::Without(path)
}

impl FormEntry {
    /// The field of the request's body that it names.
    pub(super) const fn path(self) -> Option<&'static str> {
        match self {
            Self::Field { path, .. }
            | Self::Always { path, .. }
            | Self::Receivers(path)
            | Self::NewSecret(path)
            | Self::Later(path)
            | Self::Without(path) => Some(path),
            Self::OfPath(_) | Self::Others => None,
        }
    }
}
