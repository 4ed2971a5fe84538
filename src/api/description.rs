//! What is to be known about a route: its parameters, what it takes, answers and refuses, and the shapes it speaks
//! of.
//!
//! Not here: how the descriptions become a document ([`crate::api::openapi`]).

use serde_json::Value;

use crate::api::kind::Kind;

/// What is to be known about a route. What follows from the route itself is not repeated here: the
/// problems of every request, of a token, of a variable path and of writing.
#[derive(Debug)]
pub struct Doc {
    /// The operation's name in generated clients: a verb and a noun.
    pub id: &'static str,
    /// What it does, as a heading.
    pub summary: &'static str,
    /// What it does, in sentences.
    pub about: &'static str,
    /// What it answers when it does it.
    pub returns: &'static [Returns],
    /// Its parameters.
    pub params: &'static [Param],
    /// Whether it also takes parameters in the query that nobody can list.
    pub any_query: bool,
    /// What it takes.
    pub body: Option<Body>,
    /// What else it refuses.
    pub problems: &'static [Kind],
}

/// The description of a route.
pub(super) const fn doc(
    id: &'static str,
    summary: &'static str,
    about: &'static str,
    returns: &'static [Returns],
) -> Doc {
    Doc { id, summary, about, returns, params: &[], any_query: false, body: None, problems: &[] }
}

impl Doc {
    /// The same with parameters.
    pub(super) const fn params(mut self, params: &'static [Param]) -> Self {
        self.params = params;
        self
    }

    /// The same with a query nobody can list.
    pub(super) const fn any_query(mut self) -> Self {
        self.any_query = true;
        self
    }

    /// The same with a body of JSON.
    pub(super) const fn body(mut self, shape: &'static str, example: fn() -> Value) -> Self {
        self.body = Some(Body::Json { shape, example });
        self
    }

    /// The same with a body of any bytes.
    pub(super) const fn any_body(mut self) -> Self {
        self.body = Some(Body::Any);
        self
    }

    /// The same with problems of its own.
    pub(super) const fn problems(mut self, problems: &'static [Kind]) -> Self {
        self.problems = problems;
        self
    }
}

/// What a route takes.
#[derive(Clone, Copy, Debug)]
pub enum Body {
    /// JSON of a shape.
    Json {
        /// The shape's name.
        shape: &'static str,
        /// A body that is accepted.
        example: fn() -> Value,
    },
    /// Any bytes.
    Any,
}

/// Where a parameter stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the path.
    Path,
    /// In the query.
    Query,
    /// In a header field.
    Header,
}

impl Place {
    /// The word in the document.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::Query => "query",
            Self::Header => "header",
        }
    }
}

/// A parameter.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// Where it stands.
    pub place: Place,
    /// Its name.
    pub name: &'static str,
    /// What it is for.
    pub about: &'static str,
    /// What it can be.
    pub schema: fn() -> Value,
    /// What it could be; empty where the schema lists its words.
    pub example: &'static str,
    /// Whether it may stand there without a value.
    pub bare: bool,
    /// Whether a list that is asked for by it is found by an index.
    pub quick: bool,
}

impl Param {
    /// A variable part of the path.
    pub(super) const fn path(
        name: &'static str,
        about: &'static str,
        schema: fn() -> Value,
        example: &'static str,
    ) -> Self {
        Self { place: Place::Path, name, about, schema, example, bare: false, quick: false }
    }

    /// A parameter of the query.
    pub(super) const fn query(
        name: &'static str,
        about: &'static str,
        schema: fn() -> Value,
        example: &'static str,
    ) -> Self {
        Self { place: Place::Query, name, about, schema, example, bare: false, quick: false }
    }

    /// The same, but it may stand there without a value.
    pub(super) const fn bare(mut self) -> Self {
        self.bare = true;
        self
    }

    /// The same, and a list that is asked for by it is found by an index.
    pub(super) const fn quick(mut self) -> Self {
        self.quick = true;
        self
    }

    /// A header field.
    pub(super) const fn header(
        name: &'static str,
        about: &'static str,
        schema: fn() -> Value,
        example: &'static str,
    ) -> Self {
        Self { place: Place::Header, name, about, schema, example, bare: false, quick: false }
    }
}

/// What a route answers when it does what it was asked.
#[derive(Clone, Copy, Debug)]
pub struct Returns {
    /// The status code.
    pub status: u16,
    /// What it means here.
    pub about: &'static str,
    /// What the body is.
    pub content: Content,
    /// Header fields that may come with it, and what they say.
    pub headers: &'static [(&'static str, &'static str)],
}

/// What the body of an answer is.
#[derive(Clone, Copy, Debug)]
pub enum Content {
    /// Nothing.
    Nothing,
    /// JSON of a shape.
    Json(&'static str),
    /// A page of things of a shape.
    Page(&'static str),
    /// Text of a media type.
    Text(&'static str),
    /// JSON of a shape, or plain text.
    JsonOrText(&'static str),
}

impl Returns {
    /// JSON of a shape.
    pub(super) const fn json(status: u16, about: &'static str, shape: &'static str) -> Self {
        Self { status, about, content: Content::Json(shape), headers: &[] }
    }

    /// JSON of a shape, or plain text.
    pub(super) const fn json_or_text(
        status: u16,
        about: &'static str,
        shape: &'static str,
    ) -> Self {
        Self { status, about, content: Content::JsonOrText(shape), headers: &[] }
    }

    /// 200 with a page of things of a shape.
    pub(super) const fn page(about: &'static str, shape: &'static str) -> Self {
        Self { status: 200, about, content: Content::Page(shape), headers: &[] }
    }

    /// 204.
    pub(super) const fn nothing(about: &'static str) -> Self {
        Self { status: 204, about, content: Content::Nothing, headers: &[] }
    }

    /// The same with header fields that may come with it.
    pub(super) const fn with_headers(
        mut self,
        headers: &'static [(&'static str, &'static str)],
    ) -> Self {
        self.headers = headers;
        self
    }
}

/// A shape of JSON with a name.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Its name in the document.
    pub name: &'static str,
    /// Its JSON Schema; other shapes are named by `schema::of`.
    pub schema: fn() -> Value,
}

/// A shape.
pub(super) const fn shape(name: &'static str, schema: fn() -> Value) -> Shape {
    Shape { name, schema }
}
