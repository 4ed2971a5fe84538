//! The description of a route: its parameters, body, answers and problems.

use schemars::JsonSchema;

use crate::api::described_value::SentType;
use crate::api::kind::Kind;
use crate::api::schema::{self, Cursor, Describe, Limit, ListPage};
use crate::base::clock::Timestamp;
use crate::base::words::words;

/// The description of a route. It does not list problems that follow from the route itself: [`crate::api::openapi`] adds
/// those.
#[derive(Debug)]
pub struct Doc {
    /// The operation's name in generated clients: a verb and a noun.
    pub id: &'static str,
    /// What it does, as a heading.
    pub summary: &'static str,
    /// What it does, in sentences.
    pub about: &'static str,
    /// Its answers when it succeeds.
    pub returns: &'static [Returns],
    /// Its parameters.
    pub params: &'static [Param],
    /// Whether it also takes parameters in the query that cannot be listed.
    pub any_query: bool,
    /// The body of its requests.
    pub body: Option<Body>,
    /// Problems that not all routes answer.
    pub problems: &'static [Kind],
}

impl Doc {
    /// An empty description.
    pub(super) const NONE: Self = Self {
        id: "",
        summary: "",
        about: "",
        returns: &[],
        params: &[],
        any_query: false,
        body: None,
        problems: &[],
    };

    /// What its JSON body is; `None`: it takes none.
    pub fn sent_body(&self) -> Option<SentType> {
        match self.body? {
            Body::Json { describe, .. } => Some(SentType::of(describe)),
            Body::Any => None,
        }
    }
}

/// The body of a request.
#[derive(Clone, Copy, Debug)]
pub enum Body {
    /// JSON.
    Json {
        /// Its schema.
        describe: Describe,
        /// A body that is accepted.
        example: &'static str,
        /// Whether it may be left out.
        is_optional: bool,
    },
    /// Any bytes.
    Any,
}

words! {
    /// Where in a request a parameter is.
    pub enum Place {
        /// In the path.
        Path = "path",
        /// In the query.
        Query = "query",
        /// In a header field.
        Header = "header",
    }
}

/// A parameter.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// Where in a request it is.
    pub place: Place,
    /// Its name.
    pub name: &'static str,
    /// What it is for.
    pub about: &'static str,
    /// Its schema.
    pub describe: Describe,
    /// An example; empty if the schema lists all values.
    pub example: &'static str,
    /// Whether it may be given without a value.
    pub bare: bool,
    /// Whether a list that is filtered by it reads an index.
    pub quick: bool,
}

impl Param {
    /// What its value is.
    pub fn sent(&self) -> SentType {
        SentType::of(self.describe)
    }

    const fn new<T: JsonSchema>(
        place: Place,
        name: &'static str,
        about: &'static str,
        example: &'static str,
    ) -> Self {
        Self { place, name, about, describe: schema::of::<T>, example, bare: false, quick: false }
    }

    /// A variable part of the path.
    pub(super) const fn path<T: JsonSchema>(
        name: &'static str,
        about: &'static str,
        example: &'static str,
    ) -> Self {
        Self::new::<T>(Place::Path, name, about, example)
    }

    /// A parameter of the query.
    pub(super) const fn query<T: JsonSchema>(
        name: &'static str,
        about: &'static str,
        example: &'static str,
    ) -> Self {
        Self::new::<T>(Place::Query, name, about, example)
    }

    /// A header field.
    pub(super) const fn header<T: JsonSchema>(
        name: &'static str,
        about: &'static str,
        example: &'static str,
    ) -> Self {
        Self::new::<T>(Place::Header, name, about, example)
    }

    /// Allows it to be given without a value.
    pub(super) const fn bare(mut self) -> Self {
        self.bare = true;
        self
    }

    /// Marks a filter that reads an index.
    pub(super) const fn quick(mut self) -> Self {
        self.quick = true;
        self
    }
}

/// An answer of a route that succeeds.
#[derive(Clone, Copy, Debug)]
pub struct Returns {
    /// The status code.
    pub status: u16,
    /// What it means here.
    pub about: &'static str,
    /// Its body.
    pub content: Content,
    /// Possible header fields, with their meaning.
    pub headers: &'static [(&'static str, &'static str)],
}

/// The body of an answer.
#[derive(Clone, Copy, Debug)]
pub enum Content {
    /// None.
    Nothing,
    /// JSON.
    Json(Describe),
    /// Text of a media type.
    Text(&'static str),
    /// JSON, or plain text.
    JsonOrText(Describe),
}

impl Returns {
    const fn new(status: u16, about: &'static str, content: Content) -> Self {
        Self { status, about, content, headers: &[] }
    }

    /// JSON.
    pub(super) const fn json<T: JsonSchema>(status: u16, about: &'static str) -> Self {
        Self::new(status, about, Content::Json(schema::of::<T>))
    }

    /// JSON, or plain text.
    pub(super) const fn json_or_text<T: JsonSchema>(status: u16, about: &'static str) -> Self {
        Self::new(status, about, Content::JsonOrText(schema::of::<T>))
    }

    /// 200 with text of a media type.
    pub(super) const fn text(about: &'static str, media_type: &'static str) -> Self {
        Self::new(200, about, Content::Text(media_type))
    }

    /// 200 with a page of a list.
    pub(super) const fn page<T: JsonSchema>(about: &'static str) -> Self {
        Self::json::<ListPage<T>>(200, about)
    }

    /// 204.
    pub(super) const fn nothing(about: &'static str) -> Self {
        Self::new(204, about, Content::Nothing)
    }

    /// Adds header fields that it may have.
    pub(super) const fn with_headers(
        mut self,
        headers: &'static [(&'static str, &'static str)],
    ) -> Self {
        self.headers = headers;
        self
    }
}

/// How long a page is.
pub(super) const LIMIT: Param =
    Param::query::<Limit>("limit", "Maximum number of items of the page.", "50");

/// The cursor at which a page starts.
pub(super) const AFTER: Param =
    Param::query::<Cursor>("after", "`next` of the previous page.", "17");

/// The start of a time range.
pub(super) const SINCE: Param =
    Param::query::<Timestamp>("since", "At or after this time.", "2026-01-31T12:00:00Z").quick();

/// The end of a time range.
pub(super) const UNTIL: Param =
    Param::query::<Timestamp>("until", "Before this time.", "2026-02-01T00:00:00Z").quick();
