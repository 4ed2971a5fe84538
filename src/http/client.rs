//! The HTTP client. It follows no redirects, uses no proxies of the environment, and reads only a bounded part of an
//! answer.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ureq::Agent;
use ureq::config::Config;
use ureq::unversioned::transport::Connector as _;

use crate::base::clock::Clock;
use crate::base::fair::Payer;
use crate::base::headers::CUSTOM_DATA;
use crate::http::answer_head::{MAX_GROWTH, MAX_HEAD_BYTES, ODDITIES, Oddity};
use crate::http::ca_file::{CaFileError, certificates};
use crate::http::exchange::{Exchanges, KeptConnectionClosed};
use crate::http::identity::Identity;
use crate::http::resolver::{GuardedResolver, LookupFailed, Refused};
use crate::http::socket::Opener;
use crate::http::tls::{TlsConnector, Trust, explained};
use crate::http::trace::{StepName, Trace};
use crate::http::tunnel::{Proxy, ProxyFailed};
use crate::model::address::AddressPolicy;
use crate::model::outcome::Cause;
use crate::sys::host;

/// How much of an answer is read. A connection can be reused if its answer was read to the end.
const MAX_ANSWER_BYTES: u64 = 64 * 1024;
/// How long a probe of the line waits for each address.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// The library's buffers per connection: 16 KiB instead of its 128 KiB. The library reads a head into one buffer, and
/// takes a read into a full one for the end of the connection.
const BUFFER_BYTES: usize = MAX_HEAD_BYTES + 1;
/// How long an idle connection is kept. Shorter than the 5 s of Node's servers, because a request on a connection that
/// the server just closes is sent twice.
const IDLE: Duration = Duration::from_secs(4);
/// The same, counted in calls of [`Sender::close_idle`].
const IDLE_LOOKS: u32 = 4;

/// Settings of a client.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// The addresses that may be called.
    pub policy: AddressPolicy,
    /// CA certificates to trust beside the machine's, as PEM.
    pub ca_pem: Option<Vec<u8>>,
    /// Time to connect, TLS included.
    pub connect_timeout: Duration,
    /// Most idle connections that are kept, in total and per host.
    pub idle_connections: usize,
    /// What stands between this site and the Internet.
    pub proxy: Option<Arc<Proxy>>,
}

/// Why a client could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The CA file cannot be read.
    #[error("delivery.ca_file: {path}: {source}")]
    Unreadable {
        /// The file.
        path: String,
        /// The cause.
        source: std::io::Error,
    },
    /// The CA file cannot be used.
    #[error("delivery.ca_file: {0}")]
    CaFile(#[from] CaFileError),
    /// The proxy's password cannot be read.
    #[error("{0}")]
    Proxy(String),
}

/// A request to be sent.
#[derive(Clone, Debug, Default)]
pub struct Call<'a> {
    /// `POST`, `GET` …
    pub method: &'a str,
    /// The complete URL.
    pub url: &'a str,
    /// Header fields besides `host` and `content-length`.
    pub headers: &'a [(String, String)],
    /// The body.
    pub body: &'a [u8],
    /// Time for the whole exchange.
    pub timeout: Duration,
    /// The client certificate.
    pub identity: Option<&'a Identity>,
    /// The tenant that it is sent for. No connection serves two tenants.
    pub tenant: Option<&'a str>,
    /// Whether it must not be written twice. It then goes over a new connection, which no server has just closed; any other
    /// request is written again, over a new connection, if a kept one ends before anything of the answer came.
    pub is_once: bool,
    /// How much of the answer's body is read, if that is not 64 KiB.
    pub max_body_bytes: Option<u64>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// Its `Retry-After`.
    pub retry_after: Option<String>,
    /// Its `oncebox-custom-data`.
    pub custom_data: Option<String>,
    /// Its `Link`; several fields as one.
    pub link: Option<String>,
    /// The first 64 KiB of its body, or as much as the request asks for.
    pub body: Vec<u8>,
    /// Whether its body broke off.
    pub is_broken_off: bool,
    /// What is wrong with its head, in words; the status counts all the same.
    pub oddity: Option<String>,
}

/// Why a request got no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The address may not be called.
    #[error("{0}")]
    Blocked(String),
    /// The request cannot be written: the URL or a header field is not valid.
    #[error("{0}")]
    Unbuildable(String),
    /// No answer came.
    #[error("{1}")]
    Failed(Cause, String),
}

/// Sends one request. The real one is [`Client`]; tests put their own in its place.
pub trait Sender: Send + Sync {
    /// Sends it and reads the answer.
    fn send(&self, call: &Call<'_>) -> Result<Answer, CallError>;

    /// Sends it on a connection of its own, and notes the time of each step.
    fn send_traced(&self, call: &Call<'_>, trace: &Trace) -> Result<Answer, CallError> {
        let answer = self.send(call)?;
        trace.note(StepName::Answer, "");
        Ok(answer)
    }

    /// Closes connections that were idle for too long. Called each second.
    fn close_idle(&self) {}

    /// Whether a host has an address on a network of this machine; `None` if its name was not looked up lately.
    fn is_on_site(&self, host: &str) -> Option<bool>;

    /// Whether there is a line to the outside: one of the addresses can be reached or, where there are none, the machine
    /// has a default route.
    fn has_line(&self, probe: &[SocketAddr]) -> bool {
        has_line(probe)
    }
}

impl Sender for Client {
    fn send(&self, call: &Call<'_>) -> Result<Answer, CallError> {
        self.call(call)
    }

    fn send_traced(&self, call: &Call<'_>, trace: &Trace) -> Result<Answer, CallError> {
        let config = self.config();
        let tls = self.connections_of(call)?.tls;
        let agent = trace.agent(config, self.opener.clone(), tls, self.resolver.of(payer(call)));
        let answer = answer_of(self.judged(call, over(&agent, call, MAX_ANSWER_BYTES)));
        if answer.is_ok() {
            trace.note(StepName::Answer, "");
        }
        trace.look(call.url, &self.opener);
        answer
    }

    fn is_on_site(&self, host: &str) -> Option<bool> {
        self.resolver.is_on_site(host)
    }

    /// A machine whose only way out is a proxy needs no default route.
    fn has_line(&self, probe: &[SocketAddr]) -> bool {
        let is_proxy_there =
            || self.settings.proxy.as_ref().is_some_and(|proxy| proxy.is_there(PROBE_TIMEOUT));
        has_line(probe) || (probe.is_empty() && is_proxy_there())
    }

    /// An agent closes what is idle when it is used. One that is not used itself is dropped.
    fn close_idle(&self) {
        let mut agents = self.agents.lock();
        let unused = agents.extract_if(.., |_, connections| {
            connections.looks = connections.looks.saturating_add(1);
            connections.looks > IDLE_LOOKS
        });
        let unused: Vec<_> = unused.collect();
        drop(agents);
        drop(unused);
    }
}

/// The client. Cheap to clone; clones share their connections.
#[derive(Clone, Debug)]
pub struct Client {
    agents: Arc<Mutex<Agents>>,
    settings: ClientSettings,
    trust: Trust,
    resolver: GuardedResolver,
    opener: Opener,
}

/// The connections of each payer and client certificate.
type Agents = BTreeMap<(Payer, Option<String>), Connections>;

/// What sends, with its kept connections.
#[derive(Clone, Debug)]
struct Connections {
    agent: Agent,
    /// Puts TLS over a new connection.
    tls: TlsConnector,
    /// How often it was looked at since it was used.
    looks: u32,
}

/// Reads a file of CA certificates and checks each block of it.
pub fn check_ca_file(path: &Path) -> Result<(), SetupError> {
    certificates(&read_ca_file(path)?)?;
    Ok(())
}

/// Reads a file of CA certificates (PEM).
pub fn read_ca_file(path: &Path) -> Result<Vec<u8>, SetupError> {
    std::fs::read(path)
        .map_err(|source| SetupError::Unreadable { path: path.display().to_string(), source })
}

impl Client {
    /// A client with its own connections.
    pub fn new(settings: ClientSettings) -> Result<Self, SetupError> {
        let trust = Trust::new(settings.ca_pem.as_deref())?;
        let resolver = GuardedResolver::new(settings.policy.clone(), settings.proxy.clone());
        let opener = Opener { proxy: settings.proxy.clone(), ..Opener::default() };
        Ok(Self { agents: Arc::default(), settings, trust, resolver, opener })
    }

    /// Sends one request and reads its answer.
    pub fn call(&self, call: &Call<'_>) -> Result<Answer, CallError> {
        answer_of(self.exchange(call, call.max_body_bytes.unwrap_or(MAX_ANSWER_BYTES)))
    }

    /// Sends one request and reads its answer with all header fields, and up to `max_body_bytes` of its body.
    pub fn exchange(
        &self,
        call: &Call<'_>,
        max_body_bytes: u64,
    ) -> Result<http::Response<Vec<u8>>, CallError> {
        let connections = self.connections_of(call)?;
        let agent =
            if call.is_once { self.agent(call, &connections.tls) } else { connections.agent };
        let clock = Clock::machine();
        let begun = clock.monotonic();
        let kept_closed = match over(&agent, call, max_body_bytes) {
            Err(ureq::Error::Other(error)) if error.is::<KeptConnectionClosed>() => error,
            answer => return self.judged(call, answer),
        };
        tracing::debug!(error = %kept_closed, "the request is sent again over a new connection");
        let timeout = call.timeout.saturating_sub(clock.monotonic().saturating_sub(begun));
        let again = Call { timeout, ..call.clone() };
        let agent = self.agent(call, &connections.tls);
        self.judged(call, over(&agent, &again, max_body_bytes))
    }

    /// An answer, unless it is one of the proxy: only a proxy answers 407 (RFC 9110, section 15.5.8).
    fn judged(
        &self,
        call: &Call<'_>,
        answer: Result<http::Response<Vec<u8>>, ureq::Error>,
    ) -> Result<http::Response<Vec<u8>>, CallError> {
        let answer = answer.map_err(|error| call_error(error, call.url))?;
        let is_from_proxy = answer.status().as_u16() == 407 && call.url.starts_with("http:");
        let url = call.url.parse().ok();
        match url.as_ref().and_then(|url| self.opener.proxy_of(url)).filter(|_| is_from_proxy) {
            Some(proxy) => {
                let why = proxy.wants_user().to_string();
                Err(CallError::Failed(Cause::NoConnection, why))
            }
            None => Ok(answer),
        }
    }

    /// The connections that a request goes over: each tenant and each client certificate has its own.
    fn connections_of(&self, call: &Call<'_>) -> Result<Connections, CallError> {
        let fingerprint = call.identity.map(|identity| identity.fingerprint.clone());
        let key = (payer(call), fingerprint);
        let mut agents = self.agents.lock();
        if let Some(connections) = agents.get_mut(&key) {
            connections.looks = 0;
            return Ok(connections.clone());
        }
        let tls = self.trust.connector(call.identity);
        let tls = tls.map_err(|error| CallError::Unbuildable(error.to_string()))?;
        let connections = Connections { agent: self.agent(call, &tls), tls, looks: 0 };
        agents.insert(key, connections.clone());
        Ok(connections)
    }

    /// An agent without connections.
    fn agent(&self, call: &Call<'_>, tls: &TlsConnector) -> Agent {
        let connector = ().chain(self.opener.clone()).chain(tls.clone()).chain(Exchanges);
        Agent::with_parts(self.config(), connector, self.resolver.of(payer(call)))
    }

    fn config(&self) -> Config {
        let ClientSettings { connect_timeout, idle_connections, .. } = self.settings;
        Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(None)
            .user_agent(concat!("oncebox/", env!("CARGO_PKG_VERSION")))
            .accept("*/*")
            .accept_encoding("identity")
            .timeout_connect(Some(connect_timeout))
            .input_buffer_size(BUFFER_BYTES + MAX_GROWTH)
            .output_buffer_size(BUFFER_BYTES)
            .max_response_header_size(BUFFER_BYTES)
            .max_idle_connections(idle_connections)
            .max_idle_connections_per_host(idle_connections)
            .max_idle_age(IDLE)
            .build()
    }
}

/// The mark of an answer whose body broke off.
#[derive(Clone, Copy)]
struct BrokenOff;

fn payer(call: &Call<'_>) -> Payer {
    call.tenant.map_or(Payer::Anonymous, Payer::tenant)
}

fn answer_of(answer: Result<http::Response<Vec<u8>>, CallError>) -> Result<Answer, CallError> {
    let answer = answer?;
    let retry_after = answer.headers().get("retry-after").and_then(|value| value.to_str().ok());
    let custom_data = answer.headers().get(CUSTOM_DATA);
    let links = answer.headers().get_all("link").iter().filter_map(|value| value.to_str().ok());
    let links: Vec<&str> = links.collect();
    Ok(Answer {
        status: answer.status().as_u16(),
        retry_after: retry_after.map(str::to_owned),
        custom_data: custom_data.map(|data| String::from_utf8_lossy(data.as_bytes()).into_owned()),
        link: (!links.is_empty()).then(|| links.join(", ")),
        oddity: answer.headers().get(ODDITIES).and_then(|words| oddity(words.to_str().ok()?)),
        is_broken_off: answer.extensions().get::<BrokenOff>().is_some(),
        body: answer.into_body(),
    })
}

/// What is wrong with a head, from the words of [`ODDITIES`].
fn oddity(words: &str) -> Option<String> {
    let oddities = words.split(',').filter_map(Oddity::parse).map(Oddity::says);
    let all: Vec<&str> = oddities.collect();
    (!all.is_empty()).then(|| format!("the head of the answer has {}", all.join(", ")))
}

fn over(
    agent: &Agent,
    call: &Call<'_>,
    max_body_bytes: u64,
) -> Result<http::Response<Vec<u8>>, ureq::Error> {
    let mut request = http::Request::builder().method(call.method).uri(call.url);
    if let Some(fields) = request.headers_mut() {
        // Room for all at once: a map that grows moves what it has.
        fields.reserve(call.headers.len());
    }
    for (name, value) in call.headers {
        request = request.header(name, value);
    }
    let request = request.body(call.body)?;
    let request = agent
        .configure_request(request)
        .timeout_global(Some(call.timeout))
        .allow_non_standard_methods(true)
        .build();
    let answer = agent.run(request)?;
    let (mut head, mut rest) = answer.into_parts();
    let mut body = Vec::new();
    let read = rest.as_reader().take(max_body_bytes).read_to_end(&mut body);
    if let Err(error) = read {
        // The status counts even if the body breaks off.
        tracing::debug!(%error, status = head.status.as_u16(), "the answer's body broke off");
        head.extensions.insert(BrokenOff);
    }
    Ok(http::Response::from_parts(head, body))
}

/// Whether one of the addresses can be reached. A refusal is an answer: the line works. Without addresses: whether the
/// machine has a default route.
pub fn has_line(probe: &[SocketAddr]) -> bool {
    if probe.is_empty() {
        return host::has_default_route();
    }
    probe.iter().any(|address| match TcpStream::connect_timeout(address, PROBE_TIMEOUT) {
        Ok(_connection) => true,
        Err(error) => error.kind() == ErrorKind::ConnectionRefused,
    })
}

fn call_error(error: ureq::Error, url: &str) -> CallError {
    let cause = cause(&error);
    match error {
        ureq::Error::Other(other) => match other.downcast::<Refused>() {
            Ok(refused) => CallError::Blocked(refused.to_string()),
            Err(other) => CallError::Failed(cause, other.to_string()),
        },
        ureq::Error::Timeout(phase) => CallError::Failed(cause, timed_out(phase).to_owned()),
        ureq::Error::BadUri(why) => CallError::Unbuildable(why),
        ureq::Error::Http(why) => CallError::Unbuildable(why.to_string()),
        ureq::Error::HostNotFound => {
            CallError::Failed(cause, "the host name has no address".to_owned())
        }
        ureq::Error::LargeResponseHeader(..) => {
            let why = format!("the head of the answer is larger than {MAX_HEAD_BYTES} bytes");
            CallError::Failed(cause, why)
        }
        ureq::Error::Protocol(why) => {
            CallError::Failed(cause, format!("the answer is not valid HTTP: {why}"))
        }
        ureq::Error::Io(why) if tls_error(&why).is_some() => {
            CallError::Failed(cause, tls_error(&why).map(explained).unwrap_or_default())
        }
        ureq::Error::Io(why) if url.starts_with("https:") && is_hangup(&why) => {
            let hint = "a server that wants a client certificate, or another one, ends a connection like this";
            CallError::Failed(cause, format!("{why}; {hint}"))
        }
        ureq::Error::Io(why) => CallError::Failed(cause, why.to_string()),
        other => CallError::Failed(cause, other.to_string()),
    }
}

fn tls_error(error: &std::io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// Whether the other side ended the connection while we wrote.
fn is_hangup(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}

/// How far a request came that has no answer.
fn cause(error: &ureq::Error) -> Cause {
    match error {
        ureq::Error::HostNotFound
        | ureq::Error::ConnectionFailed
        | ureq::Error::Timeout(ureq::Timeout::Resolve | ureq::Timeout::Connect) => {
            Cause::NoConnection
        }
        ureq::Error::Other(other) if other.is::<LookupFailed>() || other.is::<ProxyFailed>() => {
            Cause::NoConnection
        }
        ureq::Error::Timeout(_) => Cause::Timeout,
        ureq::Error::Tls(_) => Cause::Tls,
        ureq::Error::Io(error) => match error.kind() {
            ErrorKind::ConnectionRefused => Cause::Refused,
            ErrorKind::NetworkUnreachable
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkDown
            | ErrorKind::AddrNotAvailable
            | ErrorKind::PermissionDenied => Cause::NoConnection,
            ErrorKind::InvalidData => Cause::Tls,
            ErrorKind::TimedOut => Cause::Timeout,
            _ => Cause::Broken,
        },
        _ => Cause::Broken,
    }
}

/// The message for a timeout.
fn timed_out(phase: ureq::Timeout) -> &'static str {
    match phase {
        ureq::Timeout::Resolve => "the host name was not resolved in time",
        ureq::Timeout::Connect => "no connection in time",
        _ => "no answer in time",
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::http::server::bind;

    fn client() -> Client {
        let settings = ClientSettings {
            policy: AddressPolicy::new(vec!["127.0.0.1/32".parse().unwrap()]),
            ca_pem: None,
            connect_timeout: Duration::from_mins(1),
            idle_connections: 8,
            proxy: None,
        };
        Client::new(settings).unwrap()
    }

    fn get(url: &str, timeout: Duration) -> Call<'_> {
        Call {
            method: "GET",
            url,
            headers: &[],
            body: &[],
            timeout,
            identity: None,
            tenant: Some("acme"),
            is_once: false,
            max_body_bytes: None,
        }
    }

    /// Each byte comes in time for a read of its own, the whole head never.
    #[test]
    fn a_head_that_drips_ends_with_the_time_limit() {
        for head in ["HTTP/1.1 200 OK\r\n", "HTTP/1.1 102 Processing\r\n\r\n", ""] {
            let client = client();
            let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
            let url = format!("http://{}/", listener.local_addr().unwrap());
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let (mut socket, _) = listener.accept().unwrap();
                    assert!(socket.read(&mut [0; 4096]).unwrap() > 0);
                    socket.write_all(head.as_bytes()).unwrap();
                    for _ in 0..1_000 {
                        crate::base::stop::Stop::new().wait(Duration::from_millis(10));
                        if socket.write_all(b"x").is_err() {
                            break;
                        }
                    }
                });
                let failed = client.send(&get(&url, Duration::from_millis(300))).unwrap_err();
                assert!(failed.to_string().contains("in time"), "{head:?}: {failed}");
            });
        }
    }

    #[test]
    fn a_connection_that_nobody_uses_is_closed() {
        let client = client();
        let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        std::thread::scope(|scope| {
            let server = scope.spawn(|| {
                let (mut socket, _) = listener.accept().unwrap();
                let mut scratch = [0; 4096];
                let mut requests = 0;
                while socket.read(&mut scratch).unwrap() > 0 {
                    requests += 1;
                    socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
                }
                requests
            });
            let call = get(&url, Duration::from_mins(1));
            for _ in 0..2 {
                assert_eq!(client.send(&call).unwrap().status, 200);
                (0..IDLE_LOOKS).for_each(|_| client.close_idle());
            }
            client.close_idle();
            assert_eq!(server.join().unwrap(), 2, "both went over one connection");
        });
    }
}
