//! The HTTP client. It follows no redirects, uses no proxies of the environment, and reads only a bounded part of an
//! answer.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustls_native_certs::load_native_certs;
use ureq::Agent;
use ureq::tls::{Certificate, ClientCert, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::unversioned::transport::{Connector as _, RustlsConnector};

use crate::base::fair::Payer;
use crate::base::headers::CUSTOM_DATA;
use crate::http::identity::Identity;
use crate::http::resolver::{GuardedResolver, LookupFailed, Refused};
use crate::http::socket::Opener;
use crate::http::trace::{StepName, Trace};
use crate::model::address::AddressPolicy;
use crate::model::outcome::Cause;
use crate::sys::host;

/// How much of an answer is read. A connection can be reused if its answer was read to the end.
const MAX_ANSWER_BYTES: u64 = 64 * 1024;
/// How long a probe of the line waits for each address.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// The library's buffers per connection: 16 KiB instead of its 128 KiB.
const BUFFER_BYTES: usize = 16 * 1024;
/// The largest head of an answer. The library reads a head into one buffer. A buffer that is full must already be too
/// large: the library takes a read into a full one for the end of the connection.
const MAX_HEAD_BYTES: usize = BUFFER_BYTES - 1;
/// How long an idle connection is kept. Shorter than the 5 s of Node's servers, because a request on a connection that
/// the server just closes is a failed attempt.
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
}

/// Why a client could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The CA file cannot be read.
    #[error("{path}: {source}")]
    Unreadable {
        /// The file.
        path: String,
        /// The cause.
        source: std::io::Error,
    },
    /// The CA file has no certificate.
    #[error("the ca_file holds no PEM certificate (-----BEGIN CERTIFICATE-----)")]
    NoCertificate,
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
    /// The first 64 KiB of its body.
    pub body: Vec<u8>,
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
        let config = self.agent_of(call).config().clone();
        let agent = trace.agent(config, self.resolver.of(payer(call)));
        let answer = answer_of(over(&agent, call, MAX_ANSWER_BYTES));
        if answer.is_ok() {
            trace.note(StepName::Answer, "");
        }
        trace.look(call.url);
        answer
    }

    fn is_on_site(&self, host: &str) -> Option<bool> {
        self.resolver.is_on_site(host)
    }

    /// An agent closes what is idle when it is used. One that is not used itself is dropped.
    fn close_idle(&self) {
        let mut agents = self.agents.lock();
        let unused = agents.extract_if(.., |_, (_, looks)| {
            *looks = looks.saturating_add(1);
            *looks > IDLE_LOOKS
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
    roots: RootCerts,
    resolver: GuardedResolver,
}

/// What sends: for each payer and client certificate one, with its connections; and how often it was looked at since it
/// was used.
type Agents = BTreeMap<(Payer, Option<String>), (Agent, u32)>;

/// Reads a file of CA certificates (PEM).
pub fn read_ca_file(path: &Path) -> Result<Vec<u8>, SetupError> {
    std::fs::read(path)
        .map_err(|source| SetupError::Unreadable { path: path.display().to_string(), source })
}

impl Client {
    /// A client with its own connections.
    pub fn new(settings: ClientSettings) -> Result<Self, SetupError> {
        let trusted = trusted(settings.ca_pem.as_deref()).ok_or(SetupError::NoCertificate)?;
        let roots = match trusted {
            none if none.is_empty() => RootCerts::WebPki,
            some => RootCerts::Specific(Arc::new(some)),
        };
        let resolver = GuardedResolver::new(settings.policy.clone());
        Ok(Self { agents: Arc::default(), settings, roots, resolver })
    }

    /// Sends one request and reads its answer.
    pub fn call(&self, call: &Call<'_>) -> Result<Answer, CallError> {
        answer_of(self.exchange(call, MAX_ANSWER_BYTES))
    }

    /// Sends one request and reads its answer with all header fields, and up to `max_body_bytes` of its body.
    pub fn exchange(
        &self,
        call: &Call<'_>,
        max_body_bytes: u64,
    ) -> Result<http::Response<Vec<u8>>, CallError> {
        over(&self.agent_of(call), call, max_body_bytes)
    }

    /// The connections that a request goes over: each tenant and each client certificate has its own.
    fn agent_of(&self, call: &Call<'_>) -> Agent {
        let (payer, identity) = (payer(call), call.identity);
        let resolver = || self.resolver.of(payer.clone());
        let new = || {
            let certificate = identity.map(|identity| identity.tls.clone());
            agent(&self.settings, resolver(), self.roots.clone(), certificate)
        };
        let key = (payer.clone(), identity.map(|identity| identity.fingerprint.clone()));
        let mut agents = self.agents.lock();
        let (agent, looks) = agents.entry(key).or_insert_with(|| (new(), 0));
        *looks = 0;
        agent.clone()
    }
}

fn payer(call: &Call<'_>) -> Payer {
    call.tenant.map_or(Payer::Anonymous, Payer::tenant)
}

fn answer_of(answer: Result<http::Response<Vec<u8>>, CallError>) -> Result<Answer, CallError> {
    let answer = answer?;
    let retry_after = answer.headers().get("retry-after").and_then(|value| value.to_str().ok());
    let custom_data = answer.headers().get(CUSTOM_DATA);
    Ok(Answer {
        status: answer.status().as_u16(),
        retry_after: retry_after.map(str::to_owned),
        custom_data: custom_data.map(|data| String::from_utf8_lossy(data.as_bytes()).into_owned()),
        body: answer.into_body(),
    })
}

fn over(
    agent: &Agent,
    call: &Call<'_>,
    max_body_bytes: u64,
) -> Result<http::Response<Vec<u8>>, CallError> {
    let mut request = http::Request::builder().method(call.method).uri(call.url);
    for (name, value) in call.headers {
        request = request.header(name, value);
    }
    let request =
        request.body(call.body).map_err(|error| CallError::Unbuildable(error.to_string()))?;
    let request = agent
        .configure_request(request)
        .timeout_global(Some(call.timeout))
        .allow_non_standard_methods(true)
        .build();
    let answer = agent.run(request).map_err(|error| call_error(error, call.url))?;
    let (head, mut rest) = answer.into_parts();
    let mut body = Vec::new();
    let read = rest.as_reader().take(max_body_bytes).read_to_end(&mut body);
    if let Err(error) = read {
        // The status counts even if the body breaks off.
        tracing::debug!(%error, status = head.status.as_u16(), "the answer's body broke off");
    }
    Ok(http::Response::from_parts(head, body))
}

/// Connections of their own, with or without a client certificate.
fn agent(
    settings: &ClientSettings,
    resolver: GuardedResolver,
    roots: RootCerts,
    certificate: Option<ClientCert>,
) -> Agent {
    let tls = TlsConfig::builder().root_certs(roots).client_cert(certificate).build();
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .proxy(None)
        .user_agent(concat!("oncebox/", env!("CARGO_PKG_VERSION")))
        .accept("*/*")
        .accept_encoding("identity")
        .timeout_connect(Some(settings.connect_timeout))
        .input_buffer_size(BUFFER_BYTES)
        .output_buffer_size(BUFFER_BYTES)
        .max_response_header_size(MAX_HEAD_BYTES)
        .max_idle_connections(settings.idle_connections)
        .max_idle_connections_per_host(settings.idle_connections)
        .max_idle_age(IDLE)
        .tls_config(tls)
        .build();
    Agent::with_parts(config, ().chain(Opener).chain(RustlsConnector::default()), resolver)
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
        ureq::Error::Io(why) if url.starts_with("https:") && is_hangup(&why) => {
            let hint = "a server that wants a client certificate, or another one, ends a connection like this";
            CallError::Failed(cause, format!("{why}; {hint}"))
        }
        ureq::Error::Io(why) => CallError::Failed(cause, why.to_string()),
        other => CallError::Failed(cause, other.to_string()),
    }
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
        ureq::Error::Other(other) if other.is::<LookupFailed>() => Cause::NoConnection,
        ureq::Error::Timeout(_) => Cause::Timeout,
        ureq::Error::Tls(_) | ureq::Error::Rustls(_) => Cause::Tls,
        ureq::Error::Io(error) => match error.kind() {
            ErrorKind::ConnectionRefused => Cause::Refused,
            ErrorKind::NetworkUnreachable
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkDown
            | ErrorKind::AddrNotAvailable => Cause::NoConnection,
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

/// The authorities to trust, each as DER: those of the machine, and those of a PEM text beside them. Empty: the machine
/// has none, and the web's that are compiled in count. `None`: the PEM text holds no certificate.
///
/// The machine's store is where an administrator puts the company's own authority (`update-ca-certificates`), and what
/// its distribution keeps up to date. The variables `SSL_CERT_FILE` and `SSL_CERT_DIR` name another.
pub fn trusted(own_pem: Option<&[u8]>) -> Option<Vec<Certificate<'static>>> {
    let own = own_pem.map_or_else(Vec::new, certificates);
    if own.is_empty() && own_pem.is_some() {
        return None;
    }
    let machine = load_native_certs();
    for error in machine.errors {
        tracing::warn!(%error, "a part of the machine's trusted certificates cannot be read");
    }
    let machine = machine.certs.iter().map(|der| Certificate::from_der(der).to_owned());
    Some(machine.chain(own).collect())
}

fn certificates(pem: &[u8]) -> Vec<Certificate<'static>> {
    let items = parse_pem(pem);
    let found = items.filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        Ok(_) | Err(_) => None,
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::http::server::bind;

    #[test]
    fn a_connection_that_nobody_uses_is_closed() {
        let policy = AddressPolicy::new(vec!["127.0.0.1/32".parse().unwrap()]);
        let connect_timeout = Duration::from_mins(1);
        let settings =
            ClientSettings { policy, ca_pem: None, connect_timeout, idle_connections: 8 };
        let client = Client::new(settings).unwrap();
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
            let call = Call {
                method: "GET",
                url: &url,
                headers: &[],
                body: &[],
                timeout: connect_timeout,
                identity: None,
                tenant: Some("acme"),
            };
            for _ in 0..2 {
                assert_eq!(client.send(&call).unwrap().status, 200);
                (0..IDLE_LOOKS).for_each(|_| client.close_idle());
            }
            client.close_idle();
            assert_eq!(server.join().unwrap(), 2, "both went over one connection");
        });
    }
}
