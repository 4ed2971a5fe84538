//! The mail server of the settings: one connection for each mail. The mail crate bounds neither a line nor the time of a
//! whole mail, so its connection is [`bounded`].

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lettre::Message as Mail;
use lettre::address::Envelope;
use lettre::transport::smtp::Error;
use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use lettre::transport::smtp::client::{
    Certificate, CertificateStore, SmtpConnection, Tls, TlsParameters,
};
use lettre::transport::smtp::commands::{Data, Mail as MailCommand, Rcpt};
use lettre::transport::smtp::extension::{ClientId, MailBodyParameter, MailParameter};
use lettre::transport::smtp::response::Response;
use zeroize::Zeroizing;

use crate::config::{CREDENTIALS, Settings, Smtp, SmtpTls, environment};
use crate::http::bounded::{Bounds, Exceeded, bounded};
use crate::http::client::read_ca_file;
use crate::http::tls::trusted;
use crate::model::outcome::{Cause, Outcome};
use crate::sys::files;

/// The systemd credential of the password.
const CREDENTIAL: &str = "oncebox-smtp-password";
/// Bytes that the server may send for one mail, its certificates included.
const MAX_SERVER_BYTES: usize = 256 * 1024;
/// A whole mail may take as many times as long as one answer.
const MAX_ANSWER_TIMES: u32 = 4;
/// What the reason of a failure begins with.
pub const MAIL_SERVER: &str = "the mail server: ";

/// Sends a mail.
pub(super) fn send(settings: &Settings, mail: &Mail) -> Outcome {
    let server = match check(settings) {
        Ok(server) => server,
        Err(reason) => return Outcome::Blocked { reason },
    };
    let connect = settings.smtp.timeout;
    let total = connect.saturating_mul(MAX_ANSWER_TIMES);
    let bounds = Bounds { connect, total, bytes: MAX_SERVER_BYTES };
    let sent = bounded(server, bounds, |address| {
        transport(settings, address).map(|transport| transport.send(mail))
    });
    match sent {
        Ok((Ok(Ok(sent)), _)) => Outcome::Accepted { excerpt: sent.said() },
        Ok((Ok(Err(_)), Some(exceeded))) => broken_off(exceeded, total),
        Ok((Ok(Err(error)), None)) => failed(&error),
        Ok((Err(reason), _)) => Outcome::Blocked { reason },
        Err(error) => {
            let is_late = error.kind() == io::ErrorKind::TimedOut;
            let cause = if is_late { Cause::Timeout } else { Cause::NoConnection };
            Outcome::Unreachable { cause, reason: format!("{MAIL_SERVER}{error}") }
        }
    }
}

fn broken_off(exceeded: Exceeded, total: Duration) -> Outcome {
    let (cause, why) = match exceeded {
        Exceeded::Time => {
            (Cause::Timeout, format!("the mail took more than {} s", total.as_secs()))
        }
        Exceeded::Bytes => (Cause::Broken, format!("it sent more than {MAX_SERVER_BYTES} bytes")),
    };
    Outcome::Unreachable { cause, reason: format!("{MAIL_SERVER}{why}") }
}

/// Checks the settings of the mail server; returns its name and port.
pub fn check(settings: &Settings) -> Result<(&str, u16), String> {
    transport(settings, (Ipv4Addr::LOCALHOST, 0).into())?;
    let usual = match settings.smtp.tls {
        SmtpTls::StartTls => 587,
        SmtpTls::Tls => 465,
        SmtpTls::None => 25,
    };
    let port = settings.smtp.port.and_then(|port| u16::try_from(port).ok()).unwrap_or(usual);
    Ok((host(&settings.smtp)?, port))
}

fn host(smtp: &Smtp) -> Result<&str, String> {
    let host = smtp.host.as_deref();
    host.ok_or_else(|| "no mail server is set; add host under [smtp] in the settings".to_owned())
}

/// How a mail goes to the server.
struct MailTransport {
    address: SocketAddr,
    timeout: Duration,
    tls: Tls,
    credentials: Option<Credentials>,
}

/// A mail that the server took.
struct Sent {
    response: Response,
    /// The addresses that it refused, each with its answer.
    refused: Vec<String>,
}

impl Sent {
    fn said(&self) -> String {
        let said = said(&self.response);
        match self.refused.as_slice() {
            [] => said,
            refused => format!("{said}; not to {}", refused.join("; not to ")),
        }
    }
}

impl MailTransport {
    /// Sends a mail to the addresses that the server accepts. Fails if it accepts none: with an error for later, if there
    /// is one, because then another attempt helps.
    fn send(&self, mail: &Mail) -> Result<Sent, Error> {
        let mut server = self.log_on()?;
        let sent = hand_over(&mut server, mail.envelope(), &mail.formatted());
        server.abort();
        sent
    }

    fn log_on(&self) -> Result<SmtpConnection, Error> {
        let hello = ClientId::default();
        let wrapper = match &self.tls {
            Tls::Wrapper(parameters) => Some(parameters),
            _ => None,
        };
        let timeout = Some(self.timeout);
        let mut server = SmtpConnection::connect(self.address, timeout, &hello, wrapper, None)?;
        if let Tls::Required(parameters) = &self.tls {
            server.starttls(parameters, &hello)?;
        }
        if let Some(credentials) = &self.credentials {
            server.auth(&[Mechanism::Plain, Mechanism::Login], credentials)?;
        }
        Ok(server)
    }
}

fn hand_over(server: &mut SmtpConnection, to: &Envelope, mail: &[u8]) -> Result<Sent, Error> {
    let mut options = Vec::new();
    let mut addresses = to.to().iter().chain(to.from());
    if !addresses.all(|address| AsRef::<str>::as_ref(address).is_ascii()) {
        options.push(MailParameter::SmtpUtfEight);
    }
    if !mail.is_ascii() {
        options.push(MailParameter::Body(MailBodyParameter::EightBitMime));
    }
    server.command(MailCommand::new(to.from().cloned(), options))?;
    let mut refused = Vec::new();
    let mut failed: Option<Error> = None;
    for address in to.to() {
        match server.command(Rcpt::new(address.clone(), Vec::new())) {
            Ok(_) => {}
            Err(error) if error.is_permanent() || error.is_transient() => {
                refused.push(format!("{address}: {}", all_causes(&error)));
                if failed.as_ref().is_none_or(Error::is_permanent) {
                    failed = Some(error);
                }
            }
            Err(error) => return Err(error),
        }
    }
    if let Some(error) = failed.filter(|_| refused.len() == to.to().len()) {
        return Err(error);
    }
    for address in &refused {
        tracing::warn!(%address, "the mail server refuses an address; the others get the mail");
    }
    server.command(Data)?;
    let response = server.message(mail)?;
    Ok(Sent { response, refused })
}

/// What sends mails over the connection at this address.
fn transport(settings: &Settings, address: SocketAddr) -> Result<MailTransport, String> {
    let Smtp { tls, user, timeout, .. } = &settings.smtp;
    let host = host(&settings.smtp)?;
    let is_here = matches!(host, "localhost" | "127.0.0.1" | "::1");
    let parameters = || parameters(host, settings.delivery.ca_file.as_deref());
    let tls = match tls {
        SmtpTls::StartTls => Tls::Required(parameters()?),
        SmtpTls::Tls => Tls::Wrapper(parameters()?),
        SmtpTls::None if is_here && user.is_none() => Tls::None,
        SmtpTls::None => {
            return Err(
                "smtp.tls is none, which is for localhost without a user; set starttls or tls"
                    .to_owned(),
            );
        }
    };
    let log_on = |user: &String| {
        let password = password(&settings.smtp)?;
        Ok::<_, String>(Credentials::new(user.clone(), password.as_str().to_owned()))
    };
    let credentials = user.as_ref().map(log_on).transpose()?;
    Ok(MailTransport { address, timeout: *timeout, tls, credentials })
}

/// The certificates to trust are those of deliveries.
fn parameters(host: &str, ca_file: Option<&Path>) -> Result<TlsParameters, String> {
    let mut builder = TlsParameters::builder(host.to_owned());
    let pem = ca_file.map(read_ca_file).transpose().map_err(|error| error.to_string())?;
    let trusted = trusted(pem.as_deref()).map_err(|error| error.to_string())?;
    let store =
        if trusted.is_empty() { CertificateStore::WebpkiRoots } else { CertificateStore::None };
    builder = builder.certificate_store(store);
    for certificate in trusted {
        let certificate = Certificate::from_der(certificate.to_vec());
        builder = builder.add_root_certificate(certificate.map_err(|error| error.to_string())?);
    }
    builder.build().map_err(|error| error.to_string())
}

fn password(smtp: &Smtp) -> Result<Zeroizing<String>, String> {
    let credential = || Some(PathBuf::from(environment(CREDENTIALS)?).join(CREDENTIAL));
    let path = smtp.password_file.clone().or_else(credential).ok_or_else(|| {
        format!("smtp.user has no password; set smtp.password_file or the systemd credential {CREDENTIAL}")
    })?;
    let wrong = |error: io::Error| format!("{}: {error}", path.display());
    if smtp.password_file.is_some() {
        return files::read_secret(&path).map_err(wrong);
    }
    // The service manager protects its credentials.
    let text = Zeroizing::new(files::read_text(&path).map_err(wrong)?);
    Ok(Zeroizing::new(text.trim_end_matches(['\r', '\n']).to_owned()))
}

fn said(response: &Response) -> String {
    let lines: Vec<&str> = response.message().collect();
    format!("{} {}", response.code(), lines.join(" "))
}

fn failed(error: &Error) -> Outcome {
    let reason = format!("{MAIL_SERVER}{}", all_causes(error));
    if error.is_permanent() {
        return Outcome::Refused { reason };
    }
    let cause = if error.is_timeout() {
        Cause::Timeout
    } else if error.is_tls() {
        Cause::Tls
    } else if error.is_transient() || error.is_response() {
        Cause::Broken
    } else {
        Cause::NoConnection
    };
    Outcome::Unreachable { cause, reason }
}

fn all_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        next = cause.source();
    }
    text
}
