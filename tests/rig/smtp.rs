//! A small mail server: real SMTP over real sockets, in the clear, with STARTTLS or with TLS.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// How a connection is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encryption {
    None,
    StartTls,
    Tls,
}

/// A mail that the server took.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mail {
    pub(crate) from: String,
    pub(crate) to: Vec<String>,
    /// `user:password`; empty: nobody logged on.
    pub(crate) who: String,
    pub(crate) was_encrypted: bool,
    /// Header fields and body as they came.
    pub(crate) data: String,
}

/// A running mail server.
pub(crate) struct MailServer {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    encryption: Encryption,
    tls: Arc<ServerConfig>,
    mails: Mutex<Vec<Mail>>,
    /// What RCPT is answered.
    to_rcpt: Mutex<String>,
    /// Addresses that are refused, each with the answer.
    refused: Mutex<Vec<(String, String)>>,
}

impl MailServer {
    /// Starts one for the name `localhost`; writes the certificate of its authority to `ca_file`.
    pub(crate) fn start(encryption: Encryption, ca_file: &Path) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            encryption,
            tls: Arc::new(tls(ca_file)),
            mails: Mutex::default(),
            to_rcpt: Mutex::new("250 ok".to_owned()),
            refused: Mutex::default(),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let shared = Arc::clone(&accepting);
                thread::spawn(move || shared.serve(stream.unwrap()));
            }
        });
        Self { address, shared }
    }

    pub(crate) fn mails(&self) -> Vec<Mail> {
        self.shared.mails.lock().unwrap().clone()
    }

    /// Refuses an address from now on.
    pub(crate) fn refuse(&self, address: &str, answer: &str) {
        self.shared.refused.lock().unwrap().push((address.to_owned(), answer.to_owned()));
    }

    /// What every recipient is answered from now on.
    pub(crate) fn answer_rcpt(&self, line: &str) {
        line.clone_into(&mut self.shared.to_rcpt.lock().unwrap());
    }
}

/// TLS for `localhost`; writes the certificate of its authority to `ca_file`.
pub(crate) fn tls(ca_file: &Path) -> ServerConfig {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    std::fs::write(ca_file, authority.pem()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();
    let chain: Vec<CertificateDer<'static>> = vec![certificate.der().clone()];
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap()
}

impl Shared {
    fn serve(&self, stream: TcpStream) {
        if self.encryption == Encryption::Tls {
            return self.talk(self.encrypted(stream), true, true);
        }
        // What comes before STARTTLS is read byte by byte, so that nothing of the handshake is taken.
        let mut plain = stream.try_clone().unwrap();
        if self.encryption == Encryption::None {
            return self.talk(plain, true, false);
        }
        say(&mut plain, "220 localhost");
        loop {
            let line = slow_line(&mut plain);
            match line.split(' ').next().unwrap() {
                "EHLO" => say(&mut plain, "250-localhost\r\n250 STARTTLS"),
                "STARTTLS" => {
                    say(&mut plain, "220 go ahead");
                    return self.talk(self.encrypted(stream), false, true);
                }
                "" => return,
                _ => say(&mut plain, "530 STARTTLS first"),
            }
        }
    }

    fn encrypted(&self, stream: TcpStream) -> StreamOwned<ServerConnection, TcpStream> {
        StreamOwned::new(ServerConnection::new(Arc::clone(&self.tls)).unwrap(), stream)
    }

    fn talk<S: Read + Write>(&self, stream: S, greets: bool, was_encrypted: bool) {
        let mut stream = BufReader::new(stream);
        if greets {
            say(stream.get_mut(), "220 localhost");
        }
        let mut mail = Mail { was_encrypted, ..Mail::default() };
        let mut line = String::new();
        loop {
            line.clear();
            // A client that does not trust us ends the connection here.
            if stream.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            let said = line.trim_end();
            let (word, rest) = said.split_once(' ').unwrap_or((said, ""));
            match word {
                "EHLO" => say(stream.get_mut(), "250-localhost\r\n250 AUTH PLAIN"),
                "AUTH" => {
                    let plain = data_encoding::BASE64
                        .decode(rest.strip_prefix("PLAIN ").unwrap().as_bytes());
                    let plain = String::from_utf8(plain.unwrap()).unwrap();
                    mail.who = plain.trim_start_matches('\0').replace('\0', ":");
                    say(stream.get_mut(), "235 welcome");
                }
                "MAIL" => {
                    mail.from = rest.to_owned();
                    say(stream.get_mut(), "250 ok");
                }
                "RCPT" => {
                    let refused = self.refused.lock().unwrap();
                    let refused = refused.iter().find(|(address, _)| rest.contains(address));
                    let usual = self.to_rcpt.lock().unwrap().clone();
                    let answer = refused.map_or(usual, |(_, answer)| answer.clone());
                    if refused.is_none() {
                        mail.to.push(rest.to_owned());
                    }
                    say(stream.get_mut(), &answer);
                }
                "DATA" => {
                    say(stream.get_mut(), "354 go on");
                    while !mail.data.ends_with("\r\n.\r\n") {
                        assert_ne!(stream.read_line(&mut mail.data).unwrap(), 0);
                    }
                    self.mails.lock().unwrap().push(mail.clone());
                    say(stream.get_mut(), "250 taken as 4711");
                }
                "QUIT" => return say(stream.get_mut(), "221 bye"),
                _ => say(stream.get_mut(), "250 ok"),
            }
        }
    }
}

fn say(stream: &mut impl Write, line: &str) {
    drop(stream.write_all(format!("{line}\r\n").as_bytes()).and_then(|()| stream.flush()));
}

fn slow_line(stream: &mut TcpStream) -> String {
    let mut line = Vec::new();
    let mut byte = [0];
    while stream.read(&mut byte).unwrap_or(0) == 1 && byte != *b"\n" {
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap().trim_end().to_owned()
}
