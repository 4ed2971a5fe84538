//! Targets that are called over HTTP. What a request carries to prove who sends it is in [`access`].

pub mod access;
pub(super) mod oauth2;
pub mod wire;

use std::sync::Arc;

use zeroize::Zeroizing;

use crate::alerts::store;
use crate::base::headers::CONFIRM_URL;
use crate::env::Env;
use crate::http::client::{Call, Sender};
use crate::http::trace::StepName;
use crate::model::delivery::retry_after;
use crate::model::outcome::Outcome;
use crate::model::subscription::Subscription;
use crate::privacy::policy::ResponseScrub;
use crate::targets::http::access::scrubbed;
use crate::targets::http::wire::NetworkLine;
use crate::targets::parcel::{Parcel, Sends};

/// Characters of an answer that are kept.
const MAX_EXCERPT_CHARS: usize = 2048;

/// Calls targets.
pub struct Http {
    /// The environment.
    pub env: Env,
    /// The line to the outside.
    pub sender: Arc<dyn Sender>,
}

impl Sends for Http {
    fn send(&self, parcel: &Parcel<'_>) -> Outcome {
        let Parcel { call, at, trace, .. } = parcel;
        let sealed = match self.sealed_url(parcel.subscription) {
            Ok(sealed) => sealed,
            Err(reason) => return Outcome::Unbuildable { reason },
        };
        if let Some(trace) = trace {
            trace.note(StepName::Build, format!("{} of {} bytes", call.method, call.body.len()));
        }
        // The attempt keeps the other one, which has no secret in it.
        let url = sealed.as_ref().map_or(call.url, |url| url.as_str());
        let line = NetworkLine { sender: &*self.sender, clock: &self.env.clock, trace: *trace };
        match parcel.access.send(line, &Call { url, ..call.clone() }) {
            Ok(answer) => {
                // The path of such a URL is a secret, and programs quote it when they refuse a request.
                let path = sealed.as_ref().and_then(|url| url.splitn(4, '/').nth(3));
                let answer = scrubbed(answer, path.filter(|path| !path.is_empty()).as_slice());
                let excerpt = excerpt(&answer.body, parcel.echo);
                Outcome::Answered {
                    status: answer.status,
                    retry_after: answer.retry_after.and_then(|value| retry_after(&value, *at)),
                    custom_data: answer.custom_data,
                    excerpt: without_token(noted(answer.oddity, excerpt), call.headers),
                }
            }
            Err(not_sent) => not_sent.outcome(*at),
        }
    }
}

impl Http {
    /// The URL that an alert channel posts to; `None` for what is no channel. The subscription shows its host alone.
    fn sealed_url(&self, of: &Subscription) -> Result<Option<Zeroizing<String>>, String> {
        if !of.new.is_of_alerts() {
            return Ok(None);
        }
        let found = self.env.store.read(|tx| store::sealed_url(tx, of.seq));
        let Some((id, sealed)) = found.map_err(|error| error.to_string())? else { return Ok(None) };
        let opened = self.env.keyring.open(&store::context(&id), &sealed);
        let opened =
            opened.map_err(|error| format!("the channel's URL cannot be opened: {error}"))?;
        Ok(opened.expose_text().map(|url| Zeroizing::new(url.to_owned())))
    }
}

/// The beginning of an answer. What may not be kept of it is taken out before it is cut.
fn excerpt(body: &[u8], echo: &ResponseScrub) -> String {
    let text = String::from_utf8_lossy(body);
    if echo.is_idle() {
        return text.chars().take(MAX_EXCERPT_CHARS).collect();
    }
    echo.clean(text.into_owned()).chars().take(MAX_EXCERPT_CHARS).collect()
}

/// The beginning of an answer, after a note on what is wrong with its head.
fn noted(oddity: Option<String>, excerpt: String) -> String {
    match oddity {
        Some(oddity) => format!("[{oddity}] {excerpt}").chars().take(MAX_EXCERPT_CHARS).collect(),
        None => excerpt,
    }
}

/// An answer may repeat what was sent, but whoever reads it must not be able to confirm the delivery.
fn without_token(excerpt: String, headers: &[(String, String)]) -> String {
    let url = headers.iter().find(|(name, _)| name == CONFIRM_URL);
    match url.and_then(|(_, url)| url.rsplit_once('/')) {
        Some((_, token)) => excerpt.replace(token, "***"),
        None => excerpt,
    }
}
