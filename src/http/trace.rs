//! A call whose steps are noted, each with its time. It goes the way of every call, on a connection of its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use parking_lot::Mutex;
use ureq::config::Config;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{Buffers, ConnectionDetails, Connector, NextTimeout, Transport};
use ureq::{Agent, Error};

use crate::base::clock::Clock;
use crate::base::words::words;
use crate::http::certificate::{self, Seen};
use crate::http::exchange::Exchanges;
use crate::http::resolver::{GuardedResolver, Route};
use crate::http::socket::Opener;
use crate::http::tls::TlsConnector;

/// Addresses that are looked at for a certificate.
const MAX_LOOKS: usize = 2;

words! {
    /// A step on the way to an answer, in order.
    pub enum StepName as "StepName" {
        /// URL, header fields and body are built.
        Build = "build",
        /// Credentials are opened or fetched, and the request is signed.
        Credentials = "credentials",
        /// The host name is looked up.
        Lookup = "lookup",
        /// Its addresses are compared with the address policy.
        Policy = "policy",
        /// A connection is opened.
        Connect = "connect",
        /// TLS is agreed on.
        Tls = "tls",
        /// The request is sent.
        Request = "request",
        /// The answer is read.
        Answer = "answer",
    }
}

/// A step that was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Which.
    pub name: StepName,
    /// How long it took.
    pub took: Duration,
    /// What came of it, for a person.
    pub detail: String,
}

/// The steps of one call. Clones note into the same list.
#[derive(Clone, Debug)]
pub struct Trace {
    clock: Clock,
    sends: bool,
    noted: Arc<Mutex<Noted>>,
}

#[derive(Debug)]
struct Noted {
    /// When the last step ended.
    since: Duration,
    steps: Vec<Step>,
    route: Option<Route>,
    seen: Option<Seen>,
}

impl Trace {
    /// Begins with the first step.
    pub fn new(clock: Clock) -> Self {
        let since = clock.monotonic();
        let noted = Noted { since, steps: Vec::new(), route: None, seen: None };
        Self { clock, sends: true, noted: Arc::new(Mutex::new(noted)) }
    }

    /// One of a look, where `sends` is false: nothing is sent to a target that can be looked at.
    #[must_use]
    pub fn sending(self, sends: bool) -> Self {
        Self { sends, ..self }
    }

    /// Whether something is sent.
    pub fn sends(&self) -> bool {
        self.sends
    }

    /// Notes that a step is done. The next one begins.
    pub fn note(&self, name: StepName, detail: impl Into<String>) {
        let now = self.clock.monotonic();
        let mut noted = self.noted.lock();
        let took = now.saturating_sub(noted.since);
        noted.steps.push(Step { name, took, detail: detail.into() });
        noted.since = now;
    }

    /// The steps that were done.
    pub fn steps(&self) -> Vec<Step> {
        self.noted.lock().steps.clone()
    }

    /// The step that was not done, and how long it was tried.
    pub fn unfinished(&self, url: &str) -> (StepName, Duration) {
        let now = self.clock.monotonic();
        let noted = self.noted.lock();
        let last = noted.steps.last().map(|step| step.name);
        let mut rest = StepName::ALL.into_iter().filter(|name| Some(*name) > last);
        let next = rest.find(|name| match url.split_once(':') {
            Some(("kafka" | "mailto", _)) => matches!(name, StepName::Connect | StepName::Answer),
            Some(("folder", _)) => {
                matches!(name, StepName::Connect | StepName::Request | StepName::Answer)
            }
            Some(("https", _)) => true,
            _ => *name != StepName::Tls,
        });
        (next.unwrap_or(StepName::Answer), now.saturating_sub(noted.since))
    }

    /// What was seen of the server's certificate.
    pub fn seen(&self) -> Option<Seen> {
        self.noted.lock().seen.clone()
    }

    /// An agent of these settings, without connections, with a trace of its steps.
    pub(super) fn agent(
        &self,
        config: Config,
        opener: Opener,
        tls: TlsConnector,
        resolver: GuardedResolver,
    ) -> Agent {
        let connector =
            ().chain(opener)
                .chain(NoteConnect(self.clone()))
                .chain(tls)
                .chain(NoteTls(self.clone()))
                .chain(Exchanges);
        Agent::with_parts(config, connector, NoteLookup { resolver, trace: self.clone() })
    }

    /// Looks at the certificate of the server that was called.
    pub(super) fn look(&self, url: &str, opener: &Opener) {
        let Ok(url) = url.parse::<Uri>() else { return };
        if url.scheme_str() != Some("https") {
            return;
        }
        let Some(host) = url.host() else { return };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let route = self.noted.lock().route.clone();
        let Some(Route::Direct(mut addresses) | Route::Proxy(mut addresses)) = route else {
            return;
        };
        addresses.truncate(MAX_LOOKS);
        let stream = opener.open(&url, &addresses, certificate::TIMEOUT);
        let seen = stream.ok().and_then(|stream| certificate::look(stream, host, &self.clock));
        self.noted.lock().seen = seen;
    }
}

#[derive(Debug)]
struct NoteLookup {
    resolver: GuardedResolver,
    trace: Trace,
}

impl Resolver for NoteLookup {
    fn resolve(
        &self,
        uri: &Uri,
        _config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let found = self.resolver.find(uri, timeout)?;
        let (Route::Direct(addresses) | Route::Proxy(addresses)) = &found;
        if addresses.is_empty() {
            return Err(Error::HostNotFound);
        }
        let shown: Vec<String> = addresses.iter().map(|address| address.ip().to_string()).collect();
        let shown = shown.join(", ");
        let is_proxied = matches!(found, Route::Proxy(_));
        let looked_up = if is_proxied {
            format!("by the proxy (delivery.proxy), which is at {shown}")
        } else {
            shown
        };
        self.trace.note(StepName::Lookup, looked_up);
        let allowed = self.resolver.check(uri, &found)?;
        let checked =
            if is_proxied { "the proxy may be asked for this name" } else { "may be called" };
        self.trace.note(StepName::Policy, checked);
        self.trace.noted.lock().route = Some(found);
        Ok(allowed)
    }
}

#[derive(Debug)]
struct NoteConnect(Trace);

impl<In: Transport> Connector<In> for NoteConnect {
    type Out = In;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<In>, Error> {
        let port = details.addrs.first().map_or(0, SocketAddr::port);
        self.0.note(StepName::Connect, format!("port {port}"));
        Ok(chained)
    }
}

#[derive(Debug)]
struct NoteTls(Trace);

impl<In: Transport> Connector<In> for NoteTls {
    type Out = NoteRequest<In>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<NoteRequest<In>>, Error> {
        if details.needs_tls() {
            self.0.note(StepName::Tls, "");
        }
        let trace = Some(self.0.clone());
        Ok(chained.map(|inner| NoteRequest { inner, trace }))
    }
}

/// Notes the request when the answer is waited for.
#[derive(Debug)]
struct NoteRequest<T> {
    inner: T,
    /// `None` once it is noted.
    trace: Option<Trace>,
}

impl<T: Transport> Transport for NoteRequest<T> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.inner.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.inner.transmit_output(amount, timeout)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        if let Some(trace) = self.trace.take() {
            trace.note(StepName::Request, "");
        }
        self.inner.await_input(timeout)
    }

    fn is_open(&mut self) -> bool {
        self.inner.is_open()
    }

    fn is_tls(&self) -> bool {
        self.inner.is_tls()
    }
}
