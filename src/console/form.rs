//! What a browser sends: a query or a form, as `application/x-www-form-urlencoded`.

use std::borrow::Cow;

use crate::http::message::{Head, Request};

/// Names and values, in the order they were sent.
#[derive(Clone, Debug, Default)]
pub(super) struct Form(Vec<(String, String)>);

impl Form {
    /// The query of a request.
    pub(super) fn of_query(head: &Head) -> Self {
        Self::parse(head.query.as_deref().unwrap_or_default().as_bytes())
    }

    /// The body of a request.
    pub(super) fn of_body(request: &Request) -> Self {
        Self::parse(&request.body)
    }

    fn parse(bytes: &[u8]) -> Self {
        Self(form_urlencoded::parse(bytes).into_owned().collect())
    }

    /// The first value of a name, without spaces around it; `None` if it is empty.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.raw(name).map(str::trim).filter(|value| !value.is_empty())
    }

    /// The first value of a name as it was sent.
    pub(super) fn raw(&self, name: &str) -> Option<&str> {
        self.pairs().find(|(have, _)| *have == name).map(|(_, value)| value)
    }

    /// All values of a name.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.pairs().filter(move |(have, _)| *have == name).map(|(_, value)| value)
    }

    /// All pairs.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// A path with a query, each value encoded. Empty values are left out.
pub(super) fn with_query<'a>(
    path: &str,
    pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(pairs.into_iter().filter(|(_, value)| !value.is_empty()));
    let query = query.finish();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

/// One segment of a path, encoded.
pub(super) fn segment(text: &str) -> Cow<'_, str> {
    const PLAIN: &percent_encoding::AsciiSet =
        &percent_encoding::NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
    percent_encoding::utf8_percent_encode(text, PLAIN).into()
}

/// One segment of a path, decoded.
pub(super) fn decode(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_encoded_and_empty_ones_left_out() {
        let path = with_query("/console/search", [("q", "a&b=ü"), ("state", "")]);
        assert_eq!(path, "/console/search?q=a%26b%3D%C3%BC");
        let form = Form::parse(b"q=+a%26b+&q=2&empty=");
        assert_eq!(form.get("q"), Some("a&b"));
        assert_eq!(form.all("q").count(), 2);
        assert_eq!(form.get("empty"), None);
        assert_eq!(segment("../a b"), "..%2Fa%20b");
        assert_eq!(decode(&segment("../a b/ü")), "../a b/ü");
    }
}
