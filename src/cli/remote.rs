//! The client of the running service: finds its address and token, sends requests, and maps answers to exit codes.
//!
//! Not here: how an answer is shown.

use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use zeroize::Zeroizing;

use crate::app::data_directory::{ADDRESS_FILE, INTAKE_FILE, TOKEN_FILE};
use crate::base::headers::RECEIPT;
use crate::cli::exit::{self, Failure};
use crate::cli::input::{not_running, start_command};
use crate::cli::out::{self, Format};
use crate::cli::show;
use crate::config::{Environment, Settings, Sources, environment};
use crate::http::client::{Call, CallError, Client, ClientSettings};
use crate::model::address::AddressPolicy;
use crate::model::json::carried;
use crate::sys::files::{self, directory_of, is_missing};
use crate::sys::user;

/// Time to connect. The service is near, so a longer wait would only hide that it is not running.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for a whole exchange: more than 1,000 events on a slow disk take.
pub(super) const TIMEOUT: Duration = Duration::from_mins(1);
/// Largest answer that is read: more than the largest payload in base64.
const MAX_ANSWER_BYTES: u64 = 64 << 20;
/// Characters that are shown of an answer that is not JSON.
const EXCERPT_CHARS: usize = 200;
/// Characters of a path segment or a query value that are encoded: all but the unreserved ones.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Flags every command has.
#[derive(Clone, Debug, Args)]
pub(super) struct GlobalArgs {
    // With `env`, clap would show the flag in usage as if it were required.
    #[arg(
        long,
        short,
        global = true,
        value_name = "FILE",
        display_order = 900,
        help = "Settings file [default: $ONCEBOX_CONFIG, else ./oncebox.toml, else /etc/oncebox/oncebox.toml, else none]"
    )]
    config: Option<PathBuf>,
    /// Directory of the database, the key and the first token
    #[arg(long, short, global = true, value_name = "DIR", display_order = 901)]
    data: Option<PathBuf>,
}

impl GlobalArgs {
    /// The sources of settings: flags, then environment, then file, then defaults.
    pub(super) fn sources(&self) -> Sources {
        let mut sources = Sources {
            file: self.config.clone().or_else(|| environment("ONCEBOX_CONFIG").map(Into::into)),
            environment: Environment::of_process(),
            flags: Vec::new(),
        };
        if let Some(data) = &self.data {
            sources.flag("database.directory", "--data", data.display());
        }
        sources
    }

    /// Loads the settings.
    pub(super) fn settings(&self) -> Result<Settings, Failure> {
        Ok(self.sources().load()?.settings)
    }
}

/// Flags of every command that talks to the service.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Service")]
pub(super) struct ConnectArgs {
    #[arg(
        long,
        global = true,
        value_name = "URL",
        help = "URL of the service [default: $ONCEBOX_SERVER, else the address it wrote into the data directory]"
    )]
    server: Option<String>,
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        help = "File that holds the token [default: $ONCEBOX_TOKEN, else admin.token in the data directory]"
    )]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    format: Format,
}

/// The service.
#[derive(Debug)]
pub(super) struct Remote {
    client: Client,
    settings: Settings,
    url: Option<String>,
    token: Option<Zeroizing<String>>,
    /// Where the token came from, for the message when it is refused.
    token_from: String,
    json: bool,
}

/// An answer, whatever its status.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// `Retry-After` in seconds.
    pub(super) retry_after: Option<Duration>,
    /// Whether it is the stored answer to an earlier request with the same idempotency key.
    pub(super) replayed: bool,
    /// Null if the body is empty or not JSON. Of an answer to a webhook that a provider reads: Oncebox's own.
    pub(super) body: Value,
    /// The body as it came.
    bytes: Vec<u8>,
    /// The beginning of a body that is not JSON.
    excerpt: String,
}

impl ConnectArgs {
    /// Whether to print JSON.
    pub(super) fn json(&self) -> bool {
        self.format.json
    }

    /// The service, with a token.
    pub(super) fn open(&self, global: &GlobalArgs) -> Result<Remote, Failure> {
        let mut remote = self.open_public(global)?;
        let (token, from) = self.token(&remote)?;
        remote.token = Some(token);
        remote.token_from = from;
        Ok(remote)
    }

    /// The service, with a token. Fails at once if systemd says that it does not get to run: a request would wait in the
    /// socket that systemd holds.
    pub(super) fn open_running(&self, global: &GlobalArgs) -> Result<Remote, Failure> {
        match self.open_public(global)?.not_running() {
            Some(why) => Err(Failure::failed(why)),
            None => self.open(global),
        }
    }

    /// The service, with a token if one is named (`--token-file`, `ONCEBOX_TOKEN`).
    pub(super) fn open_as_named(&self, global: &GlobalArgs) -> Result<Remote, Failure> {
        let named = self.token_file.is_some() || environment("ONCEBOX_TOKEN").is_some();
        if named { self.open(global) } else { self.open_public(global) }
    }

    /// The service, for paths that need no token.
    pub(super) fn open_public(&self, global: &GlobalArgs) -> Result<Remote, Failure> {
        let settings = global.settings()?;
        let server = self.server.clone().or_else(|| environment("ONCEBOX_SERVER"));
        let url = server.as_deref().map(base).transpose()?;
        let client = unrestricted_client()?;
        let token_from = String::new();
        Ok(Remote { client, settings, url, token: None, token_from, json: self.json() })
    }

    fn token(&self, remote: &Remote) -> Result<(Zeroizing<String>, String), Failure> {
        let (text, from) = if let Some(path) = &self.token_file {
            let read = user::in_directory(directory_of(path), || files::read_text(path));
            (Zeroizing::new(token_of(path, read)?), path.display().to_string())
        } else if let Some(token) = environment("ONCEBOX_TOKEN") {
            (Zeroizing::new(token), "ONCEBOX_TOKEN".to_owned())
        } else {
            let path = remote.settings.directory().join(TOKEN_FILE);
            // The token of this machine's service is not sent to another machine.
            if let Some(url) = remote.url.as_deref().filter(|url| !is_here(url)) {
                let help = "set ONCEBOX_TOKEN or give --token-file";
                let why = format!("there is no token for {url}: {help}");
                return Err(Failure::new(exit::NOT_PERMITTED, why));
            }
            let data = remote.settings.directory();
            let never_ran = is_missing(&path) && is_missing(&data.join(ADDRESS_FILE));
            if remote.url.is_none() && never_ran {
                let why = format!("no oncebox has run in {}", data.display());
                let start = start_command(&remote.settings);
                return Err(Failure::new(exit::UNREACHABLE, why).and(format_args!(
                    "Start it with: {start}. Or name the service's data directory with --data."
                )));
            }
            let token = token_of(&path, files::read_own(data, TOKEN_FILE)).map_err(|failure| {
                failure.and(if is_missing(&path) {
                    "Set ONCEBOX_TOKEN, give --token-file, or name the service's data directory with --data."
                } else {
                    "Run it as root or as the service's user (sudo -u oncebox …), or with a token of your own: \
                     set ONCEBOX_TOKEN, or give --token-file."
                })
            })?;
            (Zeroizing::new(token), path.display().to_string())
        };
        let token = Zeroizing::new(text.trim().to_owned());
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            let why = format!("{from} holds no token: a token is one word like obx_…");
            return Err(Failure::new(exit::NOT_PERMITTED, why));
        }
        Ok((token, from))
    }
}

/// A client that may call every address: the URL comes from the user or from the data directory.
pub(super) fn unrestricted_client() -> Result<Client, Failure> {
    let all = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
    let settings = ClientSettings {
        policy: AddressPolicy::new(all.map(|ip| ipnet::IpNet::new_assert(ip, 0)).to_vec()),
        ca_pem: None,
        connect_timeout: CONNECT_TIMEOUT,
        idle_connections: 1,
        proxy: None,
    };
    Client::new(settings).map_err(Failure::failed)
}

fn token_of(path: &Path, read: std::io::Result<String>) -> Result<String, Failure> {
    read.map_err(|error| {
        let what = if is_missing(path) { "there is no token" } else { "the token cannot be read" };
        Failure::new(exit::NOT_PERMITTED, format!("{what}: {}: {error}", path.display()))
    })
}

/// Checks a service's URL, removes the last slash, and adds `http://` if there is no scheme.
fn base(text: &str) -> Result<String, Failure> {
    let text = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let wrong = || {
        let example = "give a URL like http://127.0.0.1:8710";
        Failure::new(exit::USAGE, format!("{text:?} is not the URL of a service: {example}"))
    };
    let url: http::Uri = text.parse().map_err(|_why| wrong())?;
    if !matches!(url.scheme_str(), Some("http" | "https"))
        || url.host().is_none_or(str::is_empty)
        || url.query().is_some()
    {
        return Err(wrong());
    }
    Ok(text.trim_end_matches('/').to_owned())
}

/// Whether a URL's host is `localhost` or a loopback address.
fn is_here(url: &str) -> bool {
    let Ok(url) = url.parse::<http::Uri>() else { return false };
    let host = url.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Percent-encodes a path segment or a query value.
pub(super) fn percent_encoded(text: &str) -> String {
    utf8_percent_encode(text, PLAIN).to_string()
}

/// A path with its query.
pub(super) fn with_query<N: AsRef<str>>(path: &str, query: &[(N, String)]) -> String {
    let pairs: Vec<String> = query
        .iter()
        .map(|(name, value)| format!("{}={}", name.as_ref(), percent_encoded(value)))
        .collect();
    if pairs.is_empty() { path.to_owned() } else { format!("{path}?{}", pairs.join("&")) }
}

impl Remote {
    /// Whether to print JSON.
    pub(super) fn json(&self) -> bool {
        self.json
    }

    /// Prints `answer` with `--json`, otherwise `text`.
    pub(super) fn answer(&self, answer: &Value, text: impl Display) -> Result<(), Failure> {
        if self.json { out::json(answer) } else { out::line(text) }
    }

    /// The settings of this machine.
    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The service's URL, read on each call: after a restart it may listen on another port.
    pub(super) fn base(&self) -> String {
        if let Some(url) = &self.url {
            return url.clone();
        }
        let written = self.written(ADDRESS_FILE);
        // Without the file, no service runs here: use the configured address.
        http_url(written.unwrap_or(self.settings.listen.api))
    }

    /// The URL of the intake, which may have its own address.
    pub(super) fn intake_base(&self) -> String {
        match (&self.url, self.written(INTAKE_FILE)) {
            (None, Some(address)) => http_url(address),
            _ => self.base(),
        }
    }

    /// Whether requests carry a token.
    pub(super) fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// The intake of this service, called without the token.
    pub(super) fn at_intake(mut self) -> Self {
        self.url = Some(self.intake_base());
        self.token = None;
        self
    }

    /// An address that the running service wrote into the data directory.
    fn written(&self, name: &str) -> Option<SocketAddr> {
        let written = files::read_own(self.settings.directory(), name).ok()?;
        written.trim().parse().ok()
    }

    /// `GET`; returns the answer's JSON.
    pub(super) fn get(&self, path: &str) -> Result<Value, Failure> {
        self.send("GET", path, None)
    }

    /// `GET` of a text, such as the metrics.
    pub(super) fn text(&self, path: &str) -> Result<String, Failure> {
        let answer = self.exchange("GET", path, Vec::new(), b"", TIMEOUT);
        let answer = answer.map_err(|error| self.unreachable(&error))?;
        if answer.status != 200 {
            return Err(self.refusal(&answer));
        }
        Ok(String::from_utf8_lossy(&answer.bytes).into_owned())
    }

    /// `POST` with a body of JSON, or none.
    pub(super) fn post(&self, path: &str, body: Option<&Value>) -> Result<Value, Failure> {
        self.send("POST", path, body)
    }

    /// A request with a body of JSON, or none.
    pub(super) fn send(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Failure> {
        self.send_within(method, path, body, TIMEOUT)
    }

    /// A request that may take longer than others.
    pub(super) fn send_within(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
        timeout: Duration,
    ) -> Result<Value, Failure> {
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        let headers = if body.is_some() { headers } else { Vec::new() };
        let text = Zeroizing::new(body.map(carried::written).unwrap_or_default());
        match self.exchange(method, path, headers, text.as_bytes(), timeout) {
            Err(error) => Err(self.unreachable(&error)),
            Ok(answer) if !(200..=299).contains(&answer.status) => Err(self.refusal(&answer)),
            Ok(answer) if answer.excerpt.is_empty() => Ok(answer.body),
            Ok(answer) => Err(Failure::failed(format!(
                "{} answers, but is not oncebox: {}",
                self.base(),
                answer.excerpt
            ))),
        }
    }

    /// Sends one request and returns the answer, whatever its status.
    pub(super) fn exchange(
        &self,
        method: &str,
        path: &str,
        mut headers: Vec<(String, String)>,
        body: &[u8],
        timeout: Duration,
    ) -> Result<Answer, CallError> {
        if let Some(token) = &self.token {
            headers.push(("authorization".to_owned(), format!("Bearer {}", token.as_str())));
        }
        let url = format!("{}{path}", self.base());
        let call = Call { method, url: &url, headers: &headers, body, timeout, ..Call::default() };
        let response = self.client.exchange(&call, MAX_ANSWER_BYTES)?;
        let field = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        let retry_after = field("retry-after").and_then(|text| text.parse().ok());
        let replayed = field("idempotency-replayed").is_some();
        let status = response.status().as_u16();
        let receipt = field(RECEIPT).and_then(|text| serde_json::from_str(text).ok());
        let bytes = response.into_body();
        // Payloads, filters and schemas are shown with the digits that they have.
        let parsed = receipt.or_else(|| carried::read(&bytes).ok());
        let excerpt = match parsed {
            Some(_) => String::new(),
            None => show::clean(&show::cut(&String::from_utf8_lossy(&bytes), EXCERPT_CHARS)),
        };
        let body = parsed.unwrap_or(Value::Null);
        let retry_after = retry_after.map(Duration::from_secs);
        Ok(Answer { status, retry_after, replayed, body, bytes, excerpt })
    }

    /// What systemd says if the service of this machine does not get to run.
    fn not_running(&self) -> Option<String> {
        self.url.is_none().then(|| not_running(&self.settings)).flatten()
    }

    /// The failure for a request that got no answer.
    pub(super) fn unreachable(&self, error: &CallError) -> Failure {
        match error {
            CallError::Unbuildable(why) => Failure::input(format!("this cannot be sent: {why}")),
            CallError::Blocked(why) | CallError::Failed(_, why) => {
                let failure =
                    Failure::new(exit::UNREACHABLE, format!("cannot reach {}: {why}", self.base()));
                failure.and(self.not_running().unwrap_or_else(|| {
                    format!("Is it running? Start it with: {}", start_command(&self.settings))
                }))
            }
        }
    }

    /// The failure for a refusal: the problem's detail, and the exit code of its status.
    pub(super) fn refusal(&self, answer: &Answer) -> Failure {
        let code = match answer.status {
            401 | 403 => exit::NOT_PERMITTED,
            404 => exit::NOT_FOUND,
            409 => exit::CONFLICT,
            400 | 413 | 422 | 431 => exit::BAD_INPUT,
            408 | 429 | 503 | 507 => exit::TEMPORARY,
            _ => exit::FAILED,
        };
        let failure = Failure::new(code, detail(answer));
        if answer.status == 401 && !self.token_from.is_empty() {
            return failure.and(format_args!("The token is from {}.", self.token_from));
        }
        failure
    }
}

/// The `detail` of a problem.
pub(super) fn detail(answer: &Answer) -> String {
    match answer.body.get("detail").and_then(Value::as_str) {
        Some(detail) => show::clean(detail),
        None if answer.excerpt.is_empty() => format!("the service answered {}", answer.status),
        None => format!("the service answered {}: {}", answer.status, answer.excerpt),
    }
}

/// The token or secret of an answer. The service shows it only once.
pub(super) fn once<'a>(answer: &'a Value, field: &str) -> Result<&'a str, Failure> {
    let found = answer.get(field).and_then(Value::as_str);
    found.ok_or_else(|| Failure::failed(format!("the service answered without {field}")))
}

/// The URL of a service that listens on this address of this machine.
fn http_url(mut address: SocketAddr) -> String {
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    format!("http://{address}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_with_and_without_its_scheme() {
        assert_eq!(base("127.0.0.1:8710").unwrap(), "http://127.0.0.1:8710");
        assert_eq!(base("https://box.example/once/").unwrap(), "https://box.example/once");
        for wrong in ["", "ftp://x", "http://", "http://x/?a=b", "a b"] {
            assert_eq!(base(wrong).unwrap_err().code, exit::USAGE, "{wrong:?}");
        }
    }

    #[test]
    fn the_token_of_this_machine_stays_on_it() {
        assert!(is_here("http://127.0.0.1:8710") && is_here("http://[::1]:1"));
        assert!(is_here("http://localhost/x"));
        assert!(!is_here("http://127.0.0.1.example:80") && !is_here("http://10.0.0.7:8710"));
    }

    #[test]
    fn values_are_encoded() {
        assert_eq!(percent_encoded("a/b?c=d&e"), "a%2Fb%3Fc%3Dd%26e");
        let query = [("event_type", "a b".to_owned()), ("limit", "5".to_owned())];
        assert_eq!(with_query("/v1/events", &query), "/v1/events?event_type=a%20b&limit=5");
        assert_eq!(with_query::<&str>("/v1/events", &[]), "/v1/events");
    }
}
