//! The URL that is configured at a provider, byte for byte, because some signatures cover it.
//!
//! Not here: URLs that we send to ([`super::target_url`]).

/// The longest URL, in bytes. A longer one does not fit into a request's head.
const MAX_BYTES: usize = 2048;

/// Why a text cannot be such a URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublicUrlError {
    /// A provider cannot post to it.
    #[error("`{0}` is not a URL like https://edge.example/in/square")]
    NotHttp(String),
    /// It has a fragment, which is never sent.
    #[error("a public URL has no `#`: the part after it is never sent")]
    Fragment,
    /// It is too long.
    #[error("a public URL has at most {MAX_BYTES} bytes, this one has {0}")]
    Long(usize),
}

/// A URL with scheme, host and path, as configured at the provider.
///
/// ```
/// use oncebox::model::public_url::PublicUrl;
/// let url = PublicUrl::parse("https://edge.example/in/twilio").unwrap();
/// assert_eq!(url.with_query(Some("a=1")), "https://edge.example/in/twilio?a=1");
/// let fixed = PublicUrl::parse("https://edge.example/in/twilio?b=2").unwrap();
/// assert_eq!(fixed.with_query(Some("a=1")), "https://edge.example/in/twilio?b=2");
/// assert!(PublicUrl::parse("edge.example").is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicUrl(String);

impl PublicUrl {
    /// Reads it. Nothing in it is changed: a signature covers its bytes.
    /// Fails with [`PublicUrlError`], which says what is wrong.
    pub fn parse(text: &str) -> Result<Self, PublicUrlError> {
        if text.len() > MAX_BYTES {
            return Err(PublicUrlError::Long(text.len()));
        }
        if text.contains('#') {
            return Err(PublicUrlError::Fragment);
        }
        let begins = text.starts_with("https://") || text.starts_with("http://");
        let fits = begins && text.bytes().all(|byte| byte.is_ascii_graphic());
        let has_host = |uri: &http::Uri| uri.host().is_some_and(|host| !host.is_empty());
        let uri = text.parse::<http::Uri>().ok().filter(|uri| fits && has_host(uri));
        if uri.is_none() {
            return Err(PublicUrlError::NotHttp(text.escape_debug().to_string()));
        }
        Ok(Self(text.to_owned()))
    }

    /// As it was entered.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The URL of a request with this query, which is added unless the URL has its own query.
    pub fn with_query(&self, query: Option<&str>) -> String {
        match query {
            Some(query) if !self.0.contains('?') => format!("{}?{query}", self.0),
            Some(_) | None => self.0.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_that_no_provider_can_post_to_is_refused() {
        for text in
            ["", "/in/x", "ftp://a/b", "https://", "https://a b/", "https://a/\u{e4}", "a.example"]
        {
            assert!(matches!(PublicUrl::parse(text), Err(PublicUrlError::NotHttp(_))), "{text}");
        }
        assert_eq!(PublicUrl::parse("https://a/#b"), Err(PublicUrlError::Fragment));
        let long = format!("https://a/{}", "b".repeat(2048));
        assert_eq!(PublicUrl::parse(&long), Err(PublicUrlError::Long(2058)));
    }
}
