//! OAuth 2.0 client credentials: the token of a client, fetched when it is needed and kept until shortly before it
//! expires.
//!
//! Tokens are in memory alone: a restart fetches them again. No text made here holds one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use data_encoding::BASE64;
use parking_lot::Mutex;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::http::client::{Answer, Call, CallError};
use crate::model::credential::{ClientAuth, Oauth2};
use crate::model::outcome::{AttemptClass, ClassTable};
use crate::model::target_url::TargetUrl;
use crate::targets::http::wire::{NotSent, Wire};

/// A token is fetched again this long before it expires, or at nine tenths of its life.
const MARGIN: Duration = Duration::from_mins(1);
/// How long a token is kept whose endpoint does not say.
const LIFE_DEFAULT: Duration = Duration::from_mins(5);
/// The longest token; it has to fit into the head of a request.
const MAX_TOKEN_BYTES: usize = 12_000;
/// Characters that are kept of what an endpoint says about a refusal.
const MAX_ERROR_CHARS: usize = 300;

/// A token of an OAuth 2.0 client. Cheap to clone.
#[derive(Clone)]
pub(in crate::targets) struct Token {
    pub(in crate::targets) value: Arc<Zeroizing<String>>,
    /// When it has to be fetched again (monotonic).
    pub(in crate::targets) until: Duration,
}

impl Token {
    /// Whether the token is still good, and another than the refused token.
    fn serves(&self, wire: &Wire<'_>, refused: Option<&Self>) -> bool {
        let was_refused = refused.is_some_and(|refused| Arc::ptr_eq(&refused.value, &self.value));
        self.until > wire.monotonic() && !was_refused
    }
}

/// A client, and the token it has now.
pub(crate) struct TokenSource {
    client: Oauth2,
    secret: Zeroizing<String>,
    /// Counts fetches, so that whoever waited for one takes its result.
    fetches: AtomicU64,
    /// The result of the last fetch. The lock is held while a token is fetched: one fetch serves all who wait.
    last: Mutex<Option<Result<Token, NotSent>>>,
}

impl std::fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TokenSource({})", self.client.client_id)
    }
}

/// What an endpoint answers. Source: RFC 6749, sections 5.1 and 5.2.
#[derive(Deserialize)]
struct Granted {
    access_token: String,
    #[serde(default)]
    token_type: Option<String>,
    #[serde(default)]
    expires_in: Option<serde_json::Value>,
}

#[derive(Default, Deserialize)]
struct Refused {
    #[serde(default)]
    error: String,
    #[serde(default)]
    error_description: String,
}

impl TokenSource {
    pub(super) fn new(client: Oauth2, secret: Zeroizing<String>) -> Self {
        Self { client, secret, fetches: AtomicU64::new(0), last: Mutex::default() }
    }

    /// The client's secret. No answer is kept with it.
    pub(super) fn secret(&self) -> &str {
        &self.secret
    }

    /// The token to send; another than the one that was `refused`.
    pub(in crate::targets) fn token(
        &self,
        wire: &Wire<'_>,
        refused: Option<&Token>,
    ) -> Result<Token, NotSent> {
        let before = self.fetches.load(Ordering::SeqCst);
        let mut last = self.last.lock();
        let is_new = self.fetches.load(Ordering::SeqCst) != before;
        match &*last {
            Some(Ok(token)) if token.serves(wire, refused) => return Ok(token.clone()),
            Some(Err(why)) if is_new => return Err(why.clone()),
            _ => {}
        }
        let fetched = self.fetch(wire);
        self.fetches.fetch_add(1, Ordering::SeqCst);
        *last = Some(fetched.clone());
        fetched
    }

    fn fetch(&self, wire: &Wire<'_>) -> Result<Token, NotSent> {
        let started = wire.monotonic();
        let mut form = vec![("grant_type", "client_credentials")];
        form.extend(self.client.scope.as_deref().map(|scope| ("scope", scope)));
        form.extend(self.client.audience.as_deref().map(|audience| ("audience", audience)));
        let mut headers = vec![
            ("content-type".to_owned(), "application/x-www-form-urlencoded".to_owned()),
            ("accept".to_owned(), "application/json".to_owned()),
        ];
        match self.client.client_auth {
            ClientAuth::Body => {
                form.push(("client_id", &self.client.client_id));
                form.push(("client_secret", &self.secret));
            }
            ClientAuth::Basic => headers.push(("authorization".to_owned(), self.basic())),
        }
        let body = Zeroizing::new(encoded(&form));
        let call = Call {
            method: "POST",
            url: &self.client.token_url,
            headers: &headers,
            body: body.as_bytes(),
            // What is left of the attempt's.
            timeout: Duration::MAX,
            ..Call::default()
        };
        let answer = wire.ask(&call).map_err(|error| self.unreachable(error))?;
        let granted = self.granted(answer)?;
        let life = granted.expires_in.as_ref().and_then(seconds).unwrap_or(LIFE_DEFAULT);
        let margin = MARGIN.min(life / 10);
        let until = started.saturating_add(life.saturating_sub(margin));
        Ok(Token { value: Arc::new(Zeroizing::new(granted.access_token)), until })
    }

    /// User and password are form-encoded first. Source: RFC 6749, section 2.3.1.
    fn basic(&self) -> String {
        let both = Zeroizing::new(format!(
            "{}:{}",
            form_value(&self.client.client_id),
            form_value(&self.secret)
        ));
        format!("Basic {}", BASE64.encode(both.as_bytes()))
    }

    fn granted(&self, answer: Answer) -> Result<Granted, NotSent> {
        let Answer { status, retry_after, body, .. } = answer;
        if !(200..=299).contains(&status) {
            return Err(self.refused(status, retry_after, &body));
        }
        let wrong = |why: &str| NotSent::NoToken {
            class: AttemptClass::Transient,
            retry_after: None,
            reason: format!(
                "{} answered {status} without a token that can be used: {why}",
                self.name()
            ),
        };
        let body = Zeroizing::new(body);
        let granted: Granted = serde_json::from_slice(&body)
            .map_err(|_why| wrong("it is no JSON object with an access_token"))?;
        let is_visible = |b: u8| (b'!'..=b'~').contains(&b);
        if !(1..=MAX_TOKEN_BYTES).contains(&granted.access_token.len())
            || !granted.access_token.bytes().all(is_visible)
        {
            return Err(wrong("a header field cannot carry it"));
        }
        let is_bearer = |kind: &String| kind.eq_ignore_ascii_case("bearer");
        if !granted.token_type.as_ref().is_none_or(is_bearer) {
            return Err(wrong("it is not of the type bearer"));
        }
        Ok(granted)
    }

    /// An endpoint answers 400 to a client that it does not accept. Source: RFC 6749, section 5.2.
    fn refused(&self, status: u16, retry_after: Option<String>, body: &[u8]) -> NotSent {
        let class = match status {
            400 => AttemptClass::Auth,
            _ => match ClassTable::default()
                .of_status(status, retry_after.as_ref().map(|_| Duration::ZERO))
            {
                class @ (AttemptClass::Auth | AttemptClass::RateLimited) => class,
                _ => AttemptClass::Transient,
            },
        };
        let said: Refused = serde_json::from_slice(body).unwrap_or_default();
        let said = format!("{} {}", said.error, said.error_description);
        let shown: String =
            said.trim().chars().filter(|c| !c.is_control()).take(MAX_ERROR_CHARS).collect();
        // As it is, as a form has it, and as the header field has it.
        let basic = Zeroizing::new(self.basic());
        let field = basic.trim_start_matches("Basic ").trim_end_matches('=');
        let secrets = [self.secret.as_str(), &form_value(&self.secret), field];
        let is_clean = !shown.is_empty() && !secrets.iter().any(|secret| said.contains(secret));
        let why = if is_clean { format!(": {shown}") } else { String::new() };
        NotSent::NoToken {
            class,
            retry_after,
            reason: format!("{} answered {status}{why}", self.name()),
        }
    }

    fn unreachable(&self, error: NotSent) -> NotSent {
        let of = |why: String| format!("{}: {why}", self.name());
        match error {
            NotSent::Call(CallError::Blocked(why)) => NotSent::Call(CallError::Blocked(of(why))),
            NotSent::Call(CallError::Failed(cause, why)) => {
                NotSent::Call(CallError::Failed(cause, of(why)))
            }
            other => other,
        }
    }

    fn name(&self) -> String {
        let url = TargetUrl::parse(&self.client.token_url);
        let host = url.as_ref().map_or("", TargetUrl::authority);
        format!("the token endpoint at {host}")
    }
}

/// A number, or a text of digits as some endpoints write it.
fn seconds(value: &serde_json::Value) -> Option<Duration> {
    let secs = value.as_u64().or_else(|| value.as_str()?.parse().ok());
    secs.map(Duration::from_secs)
}

fn encoded(form: &[(&str, &str)]) -> String {
    let pairs = form.iter().map(|(name, value)| format!("{name}={}", form_value(value)));
    pairs.collect::<Vec<_>>().join("&")
}

/// A value of a form. What need not be encoded is not: some endpoints do not decode what is in a header field.
fn form_value(text: &str) -> String {
    const RESERVED: &AsciiSet =
        &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    utf8_percent_encode(text, RESERVED).to_string()
}
