//! What is wrong with a URL, and what to write instead.

use crate::model::address::PortRefused;
use crate::model::target_url::placeholders::NAMES;

/// The longest template, in bytes.
pub(super) const MAX_TEXT_BYTES: usize = 2048;
/// The longest filled URL, in bytes: what servers accept by default.
pub(super) const MAX_FILLED_BYTES: usize = 8000;

/// Why a text is not accepted as a target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Too long.
    #[error("the URL has {0} bytes; at most {MAX_TEXT_BYTES} are allowed")]
    Long(usize),
    /// A character that is not allowed in URLs.
    #[error(
        "the URL contains {0:?}, which is not allowed in URLs; write it percent-encoded, or the host in Punycode"
    )]
    Letter(char),
    /// A percent sign that encodes nothing.
    #[error("the URL has a `%` without two hex digits after it; write `%25` for the sign itself")]
    Percent,
    /// Not HTTP.
    #[error("the URL does not begin with `https://` or `http://`")]
    Scheme,
    /// A user name or password.
    #[error(
        "the URL contains a user name or an `@` before its path; leave it out, and give user and password as a credential \
         of the kind basic"
    )]
    UserInfo,
    /// A fragment, which would never be sent.
    #[error("the URL contains a `#`; fragments are not sent, leave it out or write `%23`")]
    Fragment,
    /// No host.
    #[error("the URL names no host")]
    NoHost,
    /// A host that no name service resolves.
    #[error(
        "`{0}` is not a host name; it has labels of letters, digits, `-` and `_`, and no dot at its end"
    )]
    Host(String),
    /// An address in one of the forms that programs read differently.
    #[error("`{0}` is an address in an unusual form; write four decimal numbers, like 192.0.2.1")]
    OddAddress(String),
    /// The text in brackets is not an IPv6 address.
    #[error("`[{0}]` is not an IPv6 address")]
    NotV6(String),
    /// A port that is no number from 1 to 65535.
    #[error("`{0}` is not a port; write a number from 1 to 65535, or nothing")]
    Port(String),
    /// A port of another service.
    #[error(transparent)]
    PortRefused(#[from] PortRefused),
    /// A placeholder where none is allowed.
    #[error(
        "`{{` in the scheme, host or port: an event must not choose which host is called; use placeholders after the host"
    )]
    PlaceholderInHost,
    /// A placeholder that does not exist.
    #[error("`{{{0}}}` is not a placeholder of URLs; there are {NAMES}")]
    Unknown(String),
    /// A brace without its partner.
    #[error("the URL has a brace without its partner; write `%7B` and `%7D` for braces themselves")]
    Brace,
    /// A path with `.` or `..` in it.
    #[error("the path contains the segment `{0}`; write the path that it leads to")]
    DotSegment(String),
    /// Our HTTP client would read it differently.
    #[error("the HTTP client reads this URL differently; write it in a simpler form")]
    Client,
}

/// Why a template could not be filled for one event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FillError {
    /// The event has no such value, or an empty one in the path, which would name another resource.
    #[error("the URL needs {{{0}}}, and the event has none")]
    Missing(&'static str),
    /// A path segment became `.` or `..`, which leads to another path.
    #[error("a value makes `{0}` a segment of the URL's path, which leads to another path")]
    DotSegment(String),
    /// The result is too long to be sent.
    #[error("the filled URL has {0} bytes; at most {MAX_FILLED_BYTES} are sent")]
    Long(usize),
}
