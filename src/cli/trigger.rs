//! `oncebox trigger`: posts a signed sample webhook to this installation's intake.
//!
//! A provider's secret is encrypted and the API never shows it. The user of this command owns the data directory with
//! the database and the master key, so the secret is decrypted here, in memory only. Not here: the samples
//! (`signatures::sample`).

use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use data_encoding::BASE64;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};
use zeroize::Zeroizing;

use crate::app::data_directory::DATABASE;
use crate::app::master_key;
use crate::base::clock::Clock;
use crate::base::id::{Draw, SystemDraw};
use crate::cli::prelude::*;
use crate::cli::remote::{Answer, TIMEOUT};
use crate::cli::secrets;
use crate::cli::secrets::unwritable;
use crate::config::Settings;
use crate::model::name::DEFAULT_TENANT;
use crate::signatures::sample::{self, SampleError, Subject};
use crate::signatures::{Scheme, kinds};
use crate::store::{self, credentials, providers};
use crate::sys::files::{self, is_missing};

#[derive(Debug, Args)]
#[command(
    after_help = "The secret is read from the database and decrypted with the master key, both in the data \
    directory;\nwith --secret-file neither is needed. The provider belongs to the tenant of the token named with\n\
    --token-file or ONCEBOX_TOKEN (any role that may read), otherwise to the tenant default."
)]
pub(super) struct Trigger {
    /// Scheme of the provider that the sample imitates
    #[arg(value_parser = PossibleValuesParser::new(kinds()))]
    scheme: String,
    /// Name of the provider that receives it [default: the scheme's name]
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// The event's type, such as invoice.paid
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<String>,
    /// The event's id; reuse an id to post a duplicate [default: a new one]
    #[arg(long)]
    id: Option<String>,
    /// File with the provider's secret, or with a private key made by --new-key
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Only make a key pair, FILE and FILE.pub, for a scheme that signs with a private key
    #[arg(long, value_name = "FILE", conflicts_with = "secret_file")]
    new_key: Option<PathBuf>,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// What signs the sample: the provider's scheme, its secret, and the URL that it posts to.
struct Signer {
    scheme: Scheme,
    secret: Zeroizing<String>,
    public_url: Option<String>,
}

/// A signed sample.
pub(super) struct Signed {
    remote: Remote,
    path: String,
    id: String,
    event_type: String,
    sample: sample::Sample,
}

/// A sample that was posted and taken.
pub(super) struct Sent {
    /// Where it was posted.
    pub(super) url: String,
    pub(super) event_type: String,
    /// Its id, as the provider gives it.
    id: String,
    /// Id of the stored event, or of the batch.
    pub(super) stored: String,
    pub(super) is_batch: bool,
    answer: Value,
}

impl Trigger {
    /// A sample of a scheme for the provider of the same name.
    pub(super) fn of(scheme: &str, connect: ConnectArgs) -> Self {
        Self {
            scheme: scheme.to_owned(),
            provider: None,
            event_type: None,
            id: None,
            secret_file: None,
            new_key: None,
            connect,
        }
    }

    pub(super) fn run(&self, global: &GlobalArgs) -> Result<(), Failure> {
        if let Some(path) = &self.new_key {
            return self.make_key(path, self.provider());
        }
        let sent = self.post(self.signed(global)?)?;
        if self.connect.json() { out::json(&sent.answer) } else { self.print(&sent) }
    }

    /// The provider's name.
    fn provider(&self) -> &str {
        self.provider.as_deref().unwrap_or(&self.scheme)
    }

    /// Signs the sample. Fails with `BAD_INPUT` where no sample of the scheme can be signed.
    pub(super) fn signed(&self, global: &GlobalArgs) -> Result<Signed, Failure> {
        let provider = self.provider();
        let remote = self.connect.open_as_named(global)?;
        let Intake { tenant, path, url: known_url } = intake_of(&remote, provider, &self.scheme)?;
        let remote = remote.at_intake();
        let Signer { scheme, secret, public_url } = match &self.secret_file {
            Some(path) => Signer {
                scheme: Scheme::of(&self.scheme).ok_or_else(|| self.needs_settings())?,
                secret: secrets::one_line(path)?,
                public_url: stored_public_url(remote.settings(), &tenant, provider),
            },
            None => stored_signer(remote.settings(), &tenant, provider, &self.scheme)?,
        };
        let public_url = known_url.or(public_url);
        let base = remote.settings().listen.public_url.clone().unwrap_or_else(|| remote.base());
        let url = public_url.unwrap_or_else(|| format!("{}{path}", base.trim_end_matches('/')));
        let at = Clock::machine().wall();
        let id = self.id.clone().unwrap_or_else(|| sample::new_id(&scheme, at, &SystemDraw::new()));
        let event_type =
            self.event_type.as_deref().unwrap_or_else(|| sample::type_default(&scheme)).to_owned();
        let subject = Subject { id: &id, event_type: &event_type, at, url: &url };
        let sample = match KeyPair::read(&scheme, &secret).ok().flatten() {
            Some(pair) => sample::sample_by_key(&scheme, subject, |message| pair.sign(message)),
            None => sample::sample(&scheme, &secret, subject),
        };
        let sample = sample.map_err(|error| match &error {
            SampleError::NoSuch { .. } if scheme.public_text(&[]).is_some() => {
                Failure::input(error).and(new_key_hint(&scheme))
            }
            _ => Failure::input(error),
        })?;
        Ok(Signed { remote, path, id, event_type, sample })
    }

    /// Posts a sample. Fails if the intake refuses it.
    pub(super) fn post(&self, signed: Signed) -> Result<Sent, Failure> {
        let Signed { remote, path, id, event_type, sample } = signed;
        let answer = remote
            .exchange("POST", &path, sample.headers, &sample.body, TIMEOUT)
            .map_err(|error| remote.unreachable(&error))?;
        if !(200..300).contains(&answer.status) {
            return Err(refused(&remote, &answer, self.provider(), &self.scheme));
        }
        let answer = answer.body;
        let is_batch = answer.get("batch_id").is_some();
        let stored = text(&answer, if is_batch { "batch_id" } else { "id" });
        let url = format!("{}{path}", remote.base());
        Ok(Sent { url, event_type, id, stored, is_batch, answer })
    }

    /// Makes a key pair for samples, and prints how to use it.
    fn make_key(&self, path: &Path, provider: &str) -> Result<(), Failure> {
        let scheme = Scheme::of(&self.scheme).ok_or_else(|| self.needs_settings())?;
        let public = KeyPair::create(&scheme, path)?;
        let kind = scheme.kind();
        let path = path.display();
        let public = public.display();
        let of =
            self.provider.as_ref().map(|name| format!(" --provider {name}")).unwrap_or_default();
        out::line(format_args!("created: {path} (the private key) and {public}"))?;
        out::line(format_args!(
            "Next, for a test provider:\n  oncebox provider create {provider} --scheme {kind} \
             --pii allow --secret-file {public}\n  oncebox trigger {kind}{of} --secret-file {path}"
        ))
    }

    fn needs_settings(&self) -> Failure {
        let why = format!("a secret file does not hold the settings of {}", self.scheme);
        Failure::input(why).and("Leave --secret-file out: the database has secret and settings.")
    }

    fn print(&self, sent: &Sent) -> Result<(), Failure> {
        let Sent { url, event_type, id, stored, is_batch, answer } = sent;
        out::line(format_args!("POST {url}  {event_type}  {id}"))?;
        let is_duplicate = answer.get("already_processed").and_then(Value::as_bool) == Some(true)
            || answer.get("repeated").and_then(Value::as_u64).is_some_and(|count| count > 0);
        if is_duplicate {
            out::line(format_args!(
                "200 already processed: {stored} was stored before; nothing was stored again"
            ))?;
        } else if *is_batch {
            out::line(format_args!("200 ok: stored as the batch {stored}"))?;
        } else {
            out::line(format_args!("200 ok: stored as {stored}"))?;
        }
        if *is_batch {
            let name = self.provider();
            out::line(format_args!("Next:\n  oncebox webhook list --provider {name}"))?;
        } else {
            out::line(format_args!("Next:\n  oncebox webhook show {stored}"))?;
        }
        if is_duplicate {
            return Ok(());
        }
        let kind = &self.scheme;
        let provider = self.provider.as_ref();
        let of = provider.map(|name| format!(" --provider {name}")).unwrap_or_default();
        out::line(format_args!("  oncebox trigger {kind}{of} --id {id}   (posts a duplicate)"))
    }
}

fn refused(remote: &Remote, answer: &Answer, provider: &str, kind: &str) -> Failure {
    let failure = remote.refusal(answer);
    match answer.status {
        401 => failure.and(
            "Is this the provider's secret, and is the provider of this service? The service's log has the reason.",
        ),
        404 => failure.and(create_hint(provider, kind)),
        _ => failure,
    }
}

fn create_hint(provider: &str, kind: &str) -> String {
    format!(
        "Create it: oncebox provider create {provider} --scheme {kind} --pii allow --generate-secret"
    )
}

/// Where the provider posts to.
struct Intake {
    /// That of the token, or without a token the tenant default.
    tenant: String,
    path: String,
    /// The public URL, if the service knows it: some signatures cover it.
    url: Option<String>,
}

fn intake_of(remote: &Remote, provider: &str, kind: &str) -> Result<Intake, Failure> {
    if !remote.has_token() {
        let path = format!("/in/{}", percent_encoded(provider));
        return Ok(Intake { tenant: DEFAULT_TENANT.to_owned(), path, url: None });
    }
    let found = remote.get(&format!("/v1/providers/{}", percent_encoded(provider)));
    let found = found.map_err(|failure| match failure.code {
        exit::NOT_FOUND => failure.and(create_hint(provider, kind)),
        _ => failure,
    })?;
    let url = found.get("url").and_then(Value::as_str).map(str::to_owned);
    Ok(Intake { tenant: text(&found, "tenant"), path: text(&found, "path"), url })
}

/// The advice if the database or the master key is missing.
const NO_KEY: &str =
    "Name the service's data directory with --data, or give the secret with --secret-file.";

/// The public URL of a stored provider, if it has its own; `None` also where the database cannot be read.
fn stored_public_url(settings: &Settings, tenant: &str, provider: &str) -> Option<String> {
    let reader = store::read_only(&settings.directory().join(DATABASE)).ok()?;
    let found = providers::by_name(&reader.tx(), tenant, provider).ok()??;
    found.new.public_url.map(|url| url.as_str().to_owned())
}

/// The stored provider's scheme, and its newest valid secret, decrypted with the master key.
fn stored_signer(
    settings: &Settings,
    tenant: &str,
    provider: &str,
    kind: &str,
) -> Result<Signer, Failure> {
    let database = settings.directory().join(DATABASE);
    // Checked first, because the search for the master key creates one if there is no database.
    if is_missing(&database) {
        let why = format!("there is no database {}", database.display());
        return Err(Failure::input(why).and(NO_KEY));
    }
    let key = master_key::find_or_create(settings, &SystemDraw::new())
        .map_err(|error| Failure::input(error).and(NO_KEY))?;
    let broken =
        |error: store::error::Error| Failure::failed(format!("{}: {error}", database.display()));
    let reader = store::read_only(&database).map_err(broken)?;
    let tx = reader.tx();
    let found = providers::by_name(&tx, tenant, provider).map_err(broken)?;
    let Some(found) = found else {
        let missing = format!("there is no provider {provider} in {}", database.display());
        return Err(Failure::new(exit::NOT_FOUND, missing).and(create_hint(provider, kind)));
    };
    let signs = found.new.scheme.kind();
    if signs != kind {
        let why = format!("the scheme of the provider {provider} is {signs}, not {kind}");
        return Err(Failure::input(why));
    }
    let secrets = credentials::of_provider(&tx, found.seq).map_err(broken)?;
    if !found.new.scheme.has_secret() {
        // The error comes where the sample is made.
        return Ok(Signer {
            scheme: found.new.scheme,
            secret: Zeroizing::default(),
            public_url: None,
        });
    }
    let newest = secrets
        .first()
        .ok_or_else(|| Failure::failed(format!("the provider {provider} has no valid secret")))?;
    let opened = key
        .key
        .open(&credentials::context(&newest.id), &newest.sealed)
        .map_err(|error| Failure::failed(format!("the secret of {provider}: {error}")))?;
    let text = opened
        .expose_text()
        .ok_or_else(|| Failure::failed(format!("the secret of {provider} is not text")))?;
    Ok(Signer {
        scheme: found.new.scheme,
        secret: Zeroizing::new(text.to_owned()),
        public_url: found.new.public_url.map(|url| url.as_str().to_owned()),
    })
}

/// Prefix of `v1a` private keys. 32 bytes of the private and 32 of the public key follow, in base64.
const PREFIX: &str = "whsk_";
const SEED_BYTES: usize = 32;

/// A private key that signs samples.
enum KeyPair {
    /// For Standard Webhooks `v1a`.
    Ed25519(Ed25519KeyPair),
    /// For SendGrid, in PKCS#8.
    P256(EcdsaKeyPair),
}

impl KeyPair {
    /// Reads a private key; `None` if the scheme does not sign with a key pair.
    fn read(scheme: &Scheme, text: &str) -> Result<Option<Self>, Failure> {
        let pair = match scheme {
            Scheme::Standard => {
                let Some(text) = text.strip_prefix(PREFIX) else { return Ok(None) };
                let bytes = BASE64.decode(text.as_bytes()).map(Zeroizing::new).ok();
                let halves = bytes.as_ref().and_then(|bytes| bytes.split_at_checked(SEED_BYTES));
                halves
                    .and_then(|(seed, key)| {
                        Ed25519KeyPair::from_seed_and_public_key(seed, key).ok()
                    })
                    .map(Self::Ed25519)
            }
            Scheme::Sendgrid => {
                let bytes = BASE64.decode(text.as_bytes()).map(Zeroizing::new).ok();
                bytes.as_ref().and_then(|bytes| p256(bytes)).map(Self::P256)
            }
            _ => return Ok(None),
        };
        pair.map(Some).ok_or_else(|| {
            Failure::input("the secret file holds no private key").and(new_key_hint(scheme))
        })
    }

    /// Makes a pair and writes the private key to `path` and the public key to `path`.pub. Returns the latter path.
    fn create(scheme: &Scheme, path: &Path) -> Result<PathBuf, Failure> {
        let public_path = path.with_added_extension("pub");
        for path in [path, &public_path] {
            if path.exists() {
                let why = format!("{} already exists; nothing was overwritten", path.display());
                return Err(Failure::new(exit::CONFLICT, why));
            }
        }
        let (private, public) = match scheme {
            Scheme::Standard => {
                let mut seed = Zeroizing::new([0_u8; SEED_BYTES]);
                SystemDraw::new().fill(seed.as_mut_slice());
                let pair = Ed25519KeyPair::from_seed_unchecked(seed.as_slice())
                    .map_err(Failure::failed)?;
                let public = pair.public_key().as_ref().to_vec();
                let both = Zeroizing::new([seed.as_slice(), &public].concat());
                (Zeroizing::new(format!("{PREFIX}{}", BASE64.encode(&both))), public)
            }
            Scheme::Sendgrid => {
                let made = EcdsaKeyPair::generate_pkcs8(
                    &ECDSA_P256_SHA256_ASN1_SIGNING,
                    &SystemRandom::new(),
                );
                let made = made.map_err(Failure::failed)?;
                let pair = p256(made.as_ref()).ok_or_else(|| Failure::failed("no key was made"))?;
                let private = Zeroizing::new(BASE64.encode(made.as_ref()));
                (private, pair.public_key().as_ref().to_vec())
            }
            _ => {
                let why = format!("{} signs with a secret, not with a key pair", scheme.kind());
                return Err(Failure::usage(why));
            }
        };
        let public = scheme.public_text(&public).unwrap_or_default();
        for (path, line) in [(path, private.as_str()), (&public_path, &public)] {
            let line = Zeroizing::new(format!("{line}\n"));
            files::write_private(path, line.as_bytes())
                .map_err(|error| unwritable(path, &error))?;
        }
        Ok(public_path)
    }

    /// The signature of a message.
    fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Ed25519(pair) => Some(pair.sign(message).as_ref().to_vec()),
            Self::P256(pair) => pair
                .sign(&SystemRandom::new(), message)
                .ok()
                .map(|signature| signature.as_ref().to_vec()),
        }
    }
}

/// The advice how to make a key pair.
fn new_key_hint(scheme: &Scheme) -> String {
    format!("Sign with your own key pair: oncebox trigger {} --new-key FILE", scheme.kind())
}

fn p256(pkcs8: &[u8]) -> Option<EcdsaKeyPair> {
    EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8, &SystemRandom::new()).ok()
}
