//! Asks for a page of a list: with the client, the address policy and the credentials that deliveries have.
//!
//! Not here: which page is asked for ([`super::http_round`]), and what its answer means ([`super::http_list`]).

use std::sync::Arc;
use std::time::Duration;

use crate::env::Env;
use crate::http::client::{Answer, Call, CallError, Sender};
use crate::model::delivery::retry_after;
use crate::model::name::Name;
use crate::sources::Source;
use crate::sources::http_list::{AnsweredPage, ListRequest, PageMark};
use crate::sources::http_settings::ListTerms;
use crate::store::credential_uses::CredentialUses;
use crate::store::credentials::{self, Owner};
use crate::store::error::Error;
use crate::targets::http::access::{Access, CredentialCache, used_credentials};
use crate::targets::http::wire::{NetworkLine, NotSent};

/// Bytes of a page at most …
pub(super) const MAX_PAGE_BYTES: usize = 16 << 20;
/// … and of one for which little memory is taken.
pub(super) const SMALL_PAGE_BYTES: usize = 1 << 20;
/// Time for a page of a source.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);
/// Characters of an answer that an error quotes.
const MAX_QUOTED_CHARS: usize = 200;

/// What reads lists of providers.
#[derive(Clone)]
pub struct ListClient {
    pub env: Env,
    /// The line to the outside, as for deliveries.
    pub sender: Arc<dyn Sender>,
    pub uses: Arc<CredentialUses>,
}

impl std::fmt::Debug for ListClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ListClient").finish_non_exhaustive()
    }
}

/// Who reads a list, with credentials of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListReader<'a> {
    pub(super) owner: Owner,
    pub(super) tenant: &'a str,
    pub(super) name: &'a Name,
}

impl<'a> ListReader<'a> {
    /// A source that reads its list.
    pub(super) fn source(source: &'a Source) -> Self {
        Self {
            owner: Owner::Source(source.seq),
            tenant: &source.new.tenant,
            name: &source.new.name,
        }
    }

    /// The command that gives it a credential, with these flags.
    fn command(self, flags: &str) -> String {
        let name = self.name;
        match self.owner {
            Owner::Source(_) => {
                format!("oncebox source credential {name} {flags} --secret-file FILE")
            }
            Owner::Subscription(_) | Owner::Provider(_) => {
                format!("oncebox credential set {name} {flags} --secret-file FILE")
            }
        }
    }
}

/// A page that is asked for.
pub(super) struct WantedPage<'a> {
    pub(super) reader: ListReader<'a>,
    pub(super) terms: &'a ListTerms,
    pub(super) request: &'a ListRequest,
    /// Its bytes at most.
    pub(super) most: usize,
    /// Time for it.
    pub(super) timeout: Duration,
}

/// A page that came.
#[derive(Debug)]
pub(super) struct FetchedPage {
    pub(super) body: Vec<u8>,
    pub(super) link: Option<String>,
    /// Whether nothing is newer than the time that was asked for.
    pub(super) is_unchanged: bool,
}

impl FetchedPage {
    /// The page, as its list reads it.
    pub(super) fn answered<'a>(&'a self, mark: Option<&'a PageMark>) -> AnsweredPage<'a> {
        AnsweredPage {
            body: &self.body,
            link: self.link.as_deref(),
            is_unchanged: self.is_unchanged,
            mark,
        }
    }
}

/// Why there is no page.
#[derive(Debug)]
pub(super) enum NoPage {
    /// It may pass by itself, and is asked for again after this time, if the server says so.
    Passing(String, Option<Duration>),
    /// It has more bytes than were asked for.
    Large,
    /// The server does not have this page.
    Gone(String),
    /// A person has to act.
    Lasting(String),
    /// The source has no credential, and its list needs one. With the command that sets it.
    NoCredential(String),
    /// Something of ours failed.
    Ours(Error),
}

impl NoPage {
    /// What a person reads.
    pub(super) fn to_text(&self) -> String {
        match self {
            Self::Passing(why, _) | Self::Gone(why) | Self::Lasting(why) => why.clone(),
            Self::Large => format!(
                "a page has more than {MAX_PAGE_BYTES} bytes: ask for smaller pages in the url"
            ),
            Self::NoCredential(command) => format!("it has no credential: {command}"),
            Self::Ours(error) => error.to_string(),
        }
    }
}

impl ListClient {
    /// Asks for a page. `cache` keeps the tokens and certificates of the source.
    pub(super) fn fetch(
        &self,
        wanted: &WantedPage<'_>,
        cache: &mut CredentialCache,
    ) -> Result<FetchedPage, NoPage> {
        let WantedPage { reader, terms, request, most, timeout } = *wanted;
        let in_force = self.env.store.read(|tx| credentials::in_force(tx, reader.owner));
        let in_force = in_force.map_err(NoPage::Ours)?;
        if in_force.is_empty() && terms.needs_credential {
            return Err(NoPage::NoCredential(reader.command(terms.credential)));
        }
        let policy = self.env.settings.get().delivery.policy();
        let refused = |refused: String| NoPage::Lasting(format!("{refused}; url is {}", terms.url));
        terms.url.check(&policy).map_err(|why| refused(why.to_string()))?;
        let used = used_credentials(&in_force, None);
        let last_use = self.uses.track(used.iter().map(|one| one.id.clone()).collect());
        let access = Access::open_unsigned(&used, &self.env.keyring, cache, last_use);
        let access = access.map_err(NoPage::Lasting)?;
        let line = NetworkLine { sender: &*self.sender, clock: &self.env.clock, trace: None };
        let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let mut headers = vec![field("accept", "application/json")];
        headers.extend(request.body.as_ref().map(|_| field("content-type", "application/json")));
        headers.extend(request.headers.iter().cloned());
        let call = Call {
            method: if request.body.is_some() { "POST" } else { "GET" },
            url: &request.url,
            body: request.body.as_deref().unwrap_or_default().as_bytes(),
            headers: &headers,
            timeout,
            tenant: Some(reader.tenant),
            // One byte more shows that there is more.
            max_body_bytes: u64::try_from(most).ok().map(|most| most.saturating_add(1)),
            ..Call::default()
        };
        let answer = access.send(line, &call).map_err(|error| self.unanswered(error))?;
        if (200..=299).contains(&answer.status) && answer.body.len() > most {
            return Err(NoPage::Large);
        }
        self.judge(wanted, answer)
    }

    fn unanswered(&self, error: NotSent) -> NoPage {
        match error {
            NotSent::Call(CallError::Blocked(why) | CallError::Unbuildable(why)) => {
                NoPage::Lasting(why)
            }
            NotSent::Call(CallError::Failed(_, why)) => {
                NoPage::Passing(format!("the list does not answer: {why}"), None)
            }
            NotSent::NoToken { retry_after: wait, reason, .. } => {
                let now = self.env.clock.wall();
                NoPage::Passing(reason, wait.and_then(|value| retry_after(&value, now)))
            }
        }
    }

    /// The page of an answer, or what the answer means.
    fn judge(&self, wanted: &WantedPage<'_>, answer: Answer) -> Result<FetchedPage, NoPage> {
        let Answer { status, body, link, is_broken_off, .. } = answer;
        let said: String = String::from_utf8_lossy(&body)
            .chars()
            .map(|letter| if letter.is_control() { ' ' } else { letter })
            .take(MAX_QUOTED_CHARS)
            .collect();
        let wait = answer.retry_after.and_then(|value| retry_after(&value, self.env.clock.wall()));
        match status {
            200..=299 if is_broken_off => {
                Err(NoPage::Passing("a page broke off before its end".to_owned(), None))
            }
            200..=299 => Ok(FetchedPage { body, link, is_unchanged: false }),
            304 if wanted.terms.since.as_ref().is_some_and(|since| since.in_header) => {
                Ok(FetchedPage { body, link, is_unchanged: true })
            }
            300..=399 => Err(NoPage::Lasting(format!(
                "the list answers {status}, and redirects are not followed: set url to its new address"
            ))),
            401 | 403 => Err(NoPage::Lasting(format!(
                "the list answers {status}: {said}. Give it a credential that may read it: {}",
                wanted.reader.command(wanted.terms.credential)
            ))),
            408 | 429 | 500..=599 => {
                Err(NoPage::Passing(format!("the list answers {status}: {said}"), wait))
            }
            _ => Err(NoPage::Gone(format!(
                "the list answers {status}: {said}. Correct the settings"
            ))),
        }
    }
}
