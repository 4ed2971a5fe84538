//! The forward proxy: how a request goes through it.
//!
//! For an `https` URL the proxy opens a tunnel (`CONNECT`, RFC 9110, section 9.3.6), and TLS is agreed on with the target.
//! A request for an `http` URL is sent to the proxy with the whole URL in its first line (RFC 9112, section 3.2.2).

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

use data_encoding::BASE64;
use zeroize::Zeroizing;

use crate::base::clock::Clock;
use crate::model::forward_proxy::ForwardProxy;
use crate::sys::files;

/// The largest head of a proxy's answer.
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// Fields of a proxy's answer.
const MAX_FIELDS: usize = 128;

/// A forward proxy, and how to log on to it.
#[derive(Debug)]
pub struct Proxy {
    /// The proxy's address, and its exceptions.
    pub rules: ForwardProxy,
    /// The field `Proxy-Authorization` with its line end; empty without a user.
    authorization: Zeroizing<String>,
}

/// The proxy did not open a tunnel, or wants a user.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct ProxyFailed(String);

impl Proxy {
    /// A proxy with a user (Basic, RFC 7617), whose password is in a file. The error says what is wrong with the file.
    pub fn new(
        rules: ForwardProxy,
        user: Option<&str>,
        password_file: Option<&Path>,
    ) -> Result<Self, String> {
        let Some(user) = user else {
            return Ok(Self { rules, authorization: Zeroizing::default() });
        };
        let password = match password_file {
            Some(path) => files::read_secret(path).map_err(|error| {
                format!("delivery.proxy_password_file: {}: {error}", path.display())
            })?,
            None => Zeroizing::default(),
        };
        let both = Zeroizing::new(format!("{user}:{}", password.as_str()));
        let encoded = Zeroizing::new(BASE64.encode(both.as_bytes()));
        let line = format!("proxy-authorization: Basic {}\r\n", encoded.as_str());
        Ok(Self { rules, authorization: Zeroizing::new(line) })
    }

    /// Connects to the proxy. Fails with what its name or the connection says.
    pub fn connect(&self, timeout: Duration) -> io::Result<()> {
        let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        let ForwardProxy { host, port, .. } = &self.rules;
        for address in (host.as_str(), *port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, timeout) {
                Ok(_connection) => return Ok(()),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// Whether the proxy's host answers. A refusal is an answer: the line to it works.
    pub(super) fn is_there(&self, timeout: Duration) -> bool {
        let refused = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        self.connect(timeout).map_or_else(|error| refused(&error), |()| true)
    }

    /// The head of a request for an `http` URL, as the proxy wants it.
    pub(super) fn rewritten(&self, authority: &str, head: &[u8]) -> Vec<u8> {
        let target =
            head.iter().position(|byte| *byte == b' ').map_or(0, |at| at.saturating_add(1));
        let (method, rest) = head.split_at_checked(target).unwrap_or_default();
        let line = rest.iter().position(|byte| *byte == b'\n').map_or(0, |at| at.saturating_add(1));
        let (line, fields) = rest.split_at_checked(line).unwrap_or_default();
        let url = [b"http://", authority.as_bytes()].concat();
        [method, &url, line, self.authorization.as_bytes(), fields].concat()
    }

    /// Asks the proxy for a tunnel to `HOST:PORT`.
    pub(super) fn open_tunnel(
        &self,
        stream: &mut TcpStream,
        to: &str,
        timeout: Duration,
    ) -> io::Result<()> {
        let clock = Clock::machine();
        let deadline = clock.monotonic().saturating_add(timeout);
        let ask = Zeroizing::new(format!(
            "CONNECT {to} HTTP/1.1\r\nhost: {to}\r\n{}\r\n",
            self.authorization.as_str()
        ));
        stream.set_write_timeout(Some(timeout))?;
        stream.write_all(ask.as_bytes())?;
        let mut head = Vec::new();
        // Byte by byte of what is peeked: nothing after the head may be taken.
        while !head.ends_with(b"\r\n\r\n") {
            let left = deadline.saturating_sub(clock.monotonic());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if head.len() >= MAX_HEAD_BYTES {
                return Err(self.failed(to, "answers with a head of more than 16 KiB"));
            }
            stream.set_read_timeout(Some(left))?;
            let mut byte = [0];
            match stream.read(&mut byte) {
                Ok(0) => return Err(self.failed(to, "ended the connection without an answer")),
                Ok(_) => head.extend(byte),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        stream.set_read_timeout(None)?;
        stream.set_write_timeout(None)?;
        let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut answer = httparse::Response::new(&mut fields);
        match (answer.parse(&head), answer.code) {
            (_, Some(200..=299)) => Ok(()),
            (_, Some(407)) => Err(io::Error::other(self.wants_user())),
            (_, Some(status)) => {
                let reason: String = answer.reason.unwrap_or_default().chars().take(60).collect();
                Err(self.failed(to, format!("answers {status} {reason}").trim_end()))
            }
            (_, None) => Err(self.failed(to, "does not answer with HTTP")),
        }
    }

    /// What a 407 of the proxy means.
    pub(super) fn wants_user(&self) -> ProxyFailed {
        let what = if self.authorization.is_empty() { "wants a user" } else { "refuses the user" };
        ProxyFailed(format!(
            "the proxy {} {what} (407): set delivery.proxy_user and delivery.proxy_password_file",
            self.rules
        ))
    }

    fn failed(&self, to: &str, why: &str) -> io::Error {
        io::Error::other(ProxyFailed(format!("the proxy {}, asked for {to}, {why}", self.rules)))
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::http::server::bind;

    const LONG: Duration = Duration::from_mins(1);

    fn proxy(user: Option<&str>) -> Proxy {
        let rules =
            ForwardProxy { host: "proxy.test".to_owned(), port: 3128, ..ForwardProxy::default() };
        Proxy::new(rules, user, None).unwrap()
    }

    /// Asks a proxy that gives this answer; also returns what it was asked.
    fn asked(proxy: &Proxy, answer: &'static [u8]) -> (Result<Vec<u8>, String>, String) {
        let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let mut stream = TcpStream::connect_timeout(&listener.local_addr().unwrap(), LONG).unwrap();
        let (mut other, _) = listener.accept().unwrap();
        other.write_all(answer).unwrap();
        let opened = proxy.open_tunnel(&mut stream, "erp.example:443", LONG);
        let mut head = [0; 1024];
        let length = other.read(&mut head).unwrap();
        drop(other);
        let rest = opened.map_err(|error| error.to_string()).map(|()| {
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).unwrap();
            rest
        });
        (rest, String::from_utf8_lossy(&head[..length]).into_owned())
    }

    #[test]
    fn a_tunnel_is_asked_for_with_the_user() {
        let (rest, head) = asked(&proxy(Some("erp")), b"HTTP/1.1 200 OK\r\nvia: x\r\n\r\nTLS");
        assert_eq!(rest.unwrap(), b"TLS");
        assert_eq!(
            head,
            "CONNECT erp.example:443 HTTP/1.1\r\nhost: erp.example:443\r\n\
             proxy-authorization: Basic ZXJwOg==\r\n\r\n"
        );
    }

    #[test]
    fn a_refusal_of_the_proxy_says_what_to_do() {
        for (answer, why) in [
            (&b"HTTP/1.1 407 X\r\n\r\n"[..], "wants a user (407): set delivery.proxy_user"),
            (b"HTTP/1.1 403 Forbidden\r\n\r\n", "asked for erp.example:443, answers 403 Forbidden"),
            (b"SSH-2.0-x\r\n\r\n", "does not answer with HTTP"),
        ] {
            let error = asked(&proxy(None), answer).0.unwrap_err();
            assert!(error.contains(why) && error.contains("proxy.test:3128"), "{error}");
        }
        let error = asked(&proxy(Some("erp")), b"HTTP/1.1 407 X\r\n\r\n").0.unwrap_err();
        assert!(error.contains("refuses the user"), "{error}");
    }

    #[test]
    fn a_request_without_tls_names_the_whole_url() {
        let head = b"POST /a?b=c HTTP/1.1\r\nhost: erp.example\r\n\r\nbody";
        assert_eq!(
            String::from_utf8_lossy(&proxy(Some("erp")).rewritten("erp.example", head)),
            "POST http://erp.example/a?b=c HTTP/1.1\r\nproxy-authorization: Basic ZXJwOg==\r\n\
             host: erp.example\r\n\r\nbody"
        );
    }
}
