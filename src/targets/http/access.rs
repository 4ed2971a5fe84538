//! How a subscription proves who it is: what signs its requests, what logs it on, its client certificate.
//!
//! Not here: building the rest of a request, and what follows from an answer.

use std::sync::Arc;

use data_encoding::BASE64;
use zeroize::Zeroizing;

use crate::base::clock::Timestamp;
use crate::http::client::{Answer, Call};
use crate::http::identity::Identity;
use crate::keys::Keyring;
use crate::model::credential::{CredentialState, Purpose, Settings};
use crate::signatures::signing_key::SigningKey;
use crate::store::credential_uses::LastUse;
use crate::store::credentials::{self, Credential};
use crate::targets::http::oauth2::{Token, TokenSource};
use crate::targets::http::wire::{NetworkLine, NotSent, Wire};

/// What takes the place of a secret that an answer quotes.
const SCRUBBED: &str = "[credential]";

/// Cached state of an active credential: its connections, or its access token. Both are dropped when the credential changes.
#[derive(Clone, Debug)]
pub(crate) enum CachedCredential {
    Identity(Arc<Identity>),
    Tokens(Arc<TokenSource>),
}

/// Cached credentials by id.
pub(crate) type CredentialCache = Vec<(String, CachedCredential)>;

/// A header field that logs on.
struct Field {
    name: String,
    value: Zeroizing<String>,
    /// What of it no answer is kept with.
    secrets: Vec<Zeroizing<String>>,
}

impl Field {
    fn log_on(name: &str, value: String, secrets: &[&str]) -> LogOn {
        let secrets = secrets.iter().map(|secret| Zeroizing::new((*secret).to_owned())).collect();
        LogOn::Field(Self { name: name.to_owned(), value: Zeroizing::new(value), secrets })
    }
}

enum LogOn {
    Field(Field),
    Tokens(Arc<TokenSource>),
}

/// A subscription's credentials, opened.
pub struct Access {
    /// What signs, by credential: the active one first.
    signing: Vec<(String, SigningKey)>,
    log_on: Option<LogOn>,
    /// User and password, for what logs on otherwise than by a header field.
    #[cfg(feature = "kafka")]
    pub(in crate::targets) login: Option<(String, Zeroizing<String>)>,
    pub(in crate::targets) identity: Option<Arc<Identity>>,
    last_use: Arc<LastUse>,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access").finish_non_exhaustive()
    }
}

/// Credentials in force that sign or authorize a request. A credential passed as `chosen` replaces all others of its
/// purpose.
pub(crate) fn used_credentials<'a>(
    in_force: &'a [Credential],
    chosen: Option<&str>,
) -> Vec<&'a Credential> {
    let chosen = in_force.iter().find(|one| Some(one.id.as_str()) == chosen);
    let is_used = |one: &&Credential| match chosen {
        Some(chosen) if chosen.purpose() == one.purpose() => chosen.id == one.id,
        _ => one.state == CredentialState::Active || one.purpose() == Purpose::Sign,
    };
    let mut used: Vec<_> = in_force.iter().filter(is_used).collect();
    used.sort_by_key(|one| one.state != CredentialState::Active);
    used
}

impl Access {
    /// Opens credentials. Reuses cached tokens and certificates from `cache`, and stores new ones there.
    /// Fails when one cannot be opened or used; the text says which.
    pub(crate) fn open(
        used: &[&Credential],
        key: &Keyring,
        cache: &mut CredentialCache,
        last_use: Arc<LastUse>,
    ) -> Result<Self, String> {
        let access = Self::open_unsigned(used, key, cache, last_use)?;
        if access.signing.is_empty() {
            return Err("the subscription has no signing secret".to_owned());
        }
        Ok(access)
    }

    /// As [`Self::open`], for requests without a signature, such as those of a source.
    pub(crate) fn open_unsigned(
        used: &[&Credential],
        key: &Keyring,
        cache: &mut CredentialCache,
        last_use: Arc<LastUse>,
    ) -> Result<Self, String> {
        let before = std::mem::take(cache);
        let mut access = Self {
            signing: Vec::new(),
            log_on: None,
            #[cfg(feature = "kafka")]
            login: None,
            identity: None,
            last_use,
        };
        for one in used {
            let known =
                before.iter().find(|(id, _)| *id == one.id).map(|(_, cached)| cached.clone());
            let opened = access.add(one, key, known).map_err(|why| {
                format!("the {} credential {} cannot be used: {why}", one.kind().as_str(), one.id)
            })?;
            cache.extend(opened.map(|opened| (one.id.clone(), opened)));
        }
        Ok(access)
    }

    fn add(
        &mut self,
        one: &Credential,
        key: &Keyring,
        known: Option<CachedCredential>,
    ) -> Result<Option<CachedCredential>, String> {
        if let Some(known) = known {
            match &known {
                CachedCredential::Identity(identity) => self.identity = Some(Arc::clone(identity)),
                CachedCredential::Tokens(tokens) => {
                    self.log_on = Some(LogOn::Tokens(Arc::clone(tokens)));
                }
            }
            return Ok(Some(known));
        }
        let opened = key.open(&credentials::context(&one.id), &one.sealed);
        let opened = opened.map_err(|error| error.to_string())?;
        let secret = opened.expose_text().ok_or("it is no text")?;
        match &one.settings {
            Settings::Signing {} | Settings::SigningEd25519 { .. } => {
                let parsed = SigningKey::parse(secret).map_err(|error| error.to_string())?;
                self.signing.push((one.id.clone(), parsed));
            }
            Settings::Bearer {} => {
                self.log_on =
                    Some(Field::log_on("authorization", format!("Bearer {secret}"), &[secret]));
            }
            Settings::Basic { user } => {
                #[cfg(feature = "kafka")]
                (self.login = Some((user.clone(), Zeroizing::new(secret.to_owned()))));
                let both = Zeroizing::new(format!("{user}:{secret}"));
                let encoded = Zeroizing::new(BASE64.encode(both.as_bytes()));
                let value = format!("Basic {}", encoded.as_str());
                self.log_on = Some(Field::log_on("authorization", value, &[&encoded, secret]));
            }
            Settings::ApiKey { header } => {
                let parts: Vec<&str> = secret.split(' ').collect();
                self.log_on = Some(Field::log_on(header, secret.to_owned(), &parts));
            }
            Settings::Oauth2(client) => {
                let tokens = TokenSource::new(client.clone(), Zeroizing::new(secret.to_owned()));
                let tokens = Arc::new(tokens);
                self.log_on = Some(LogOn::Tokens(Arc::clone(&tokens)));
                return Ok(Some(CachedCredential::Tokens(tokens)));
            }
            Settings::ClientCertificate { .. } => {
                let identity = Arc::new(Identity::read(secret)?);
                self.identity = Some(Arc::clone(&identity));
                return Ok(Some(CachedCredential::Identity(identity)));
            }
        }
        Ok(None)
    }

    /// The first credential that signs.
    pub fn key_id(&self) -> &str {
        self.signing.first().map_or("", |(id, _)| id)
    }

    /// The value of `webhook-signature`: an entry for each signing credential in force.
    pub fn signatures(&self, webhook_id: &str, at: Timestamp, body: &[u8]) -> String {
        let entries = self.signing.iter().map(|(_, key)| key.sign(webhook_id, at, body));
        entries.collect::<Vec<_>>().join(" ")
    }

    /// Where its tokens come from, if it logs on by such.
    #[cfg(feature = "kafka")]
    pub(in crate::targets) fn token_source(&self) -> Option<&Arc<TokenSource>> {
        match &self.log_on {
            Some(LogOn::Tokens(source)) => Some(source),
            _ => None,
        }
    }

    /// The header field that logs on, if one does.
    pub fn log_on_field(&self) -> Option<&str> {
        self.log_on.as_ref().map(|log_on| match log_on {
            LogOn::Field(field) => field.name.as_str(),
            LogOn::Tokens(_) => "authorization",
        })
    }

    /// Sends a request that is signed already, with what logs on and the certificate. An OAuth2 token that is refused
    /// with 401 is fetched again, once. No secret is in what is returned.
    pub fn send(&self, line: NetworkLine<'_>, call: &Call<'_>) -> Result<Answer, NotSent> {
        let wire = Wire::new(line, self.identity.as_deref(), call);
        self.last_use.note(line.clock.wall());
        let certificate = if self.identity.is_some() { ", client certificate" } else { "" };
        match &self.log_on {
            None => {
                wire.carries(&format!("signature{certificate}"));
                wire.send(call)
            }
            Some(LogOn::Field(field)) => {
                wire.carries(&format!("signature, {}{certificate}", field.name));
                let answer = send_with(&wire, call, &field.name, &field.value)?;
                let secrets: Vec<&str> = field.secrets.iter().map(|one| one.as_str()).collect();
                Ok(scrubbed(answer, &secrets))
            }
            Some(LogOn::Tokens(tokens)) => {
                let token = tokens.token(&wire, None)?;
                wire.carries(&format!("signature, OAuth2 token{certificate}"));
                let answer = send_with_token(&wire, call, tokens, &token)?;
                if answer.status != 401 {
                    return Ok(answer);
                }
                let token = tokens.token(&wire, Some(&token))?;
                wire.carries("another OAuth2 token, after 401");
                send_with_token(&wire, call, tokens, &token)
            }
        }
    }
}

fn send_with_token(
    wire: &Wire<'_>,
    call: &Call<'_>,
    tokens: &TokenSource,
    token: &Token,
) -> Result<Answer, NotSent> {
    let value = Zeroizing::new(format!("Bearer {}", token.value.as_str()));
    let answer = send_with(wire, call, "authorization", &value)?;
    Ok(scrubbed(answer, &[token.value.as_str(), tokens.secret()]))
}

fn send_with(wire: &Wire<'_>, call: &Call<'_>, name: &str, value: &str) -> Result<Answer, NotSent> {
    let mut headers = call.headers.to_vec();
    // An event may bring a field of the same name.
    headers.retain(|(have, _)| !have.eq_ignore_ascii_case(name));
    headers.push((name.to_owned(), value.to_owned()));
    wire.send(&Call { headers: &headers, ..call.clone() })
}

/// An answer without the secrets that it quotes.
pub(super) fn scrubbed(mut answer: Answer, secrets: &[&str]) -> Answer {
    // Some programs write a slash in JSON as `\/`.
    for form in secrets.iter().flat_map(|secret| [(*secret).to_owned(), secret.replace('/', "\\/")])
    {
        let form = Zeroizing::new(form);
        let quotes = |part: &[u8]| part == form.as_bytes();
        if answer.body.windows(form.len().max(1)).any(quotes) {
            let text = String::from_utf8_lossy(&answer.body).replace(form.as_str(), SCRUBBED);
            answer.body = text.into_bytes();
        }
        // It would be stored and sent back as it is.
        answer.custom_data.take_if(|data| data.contains(form.as_str()));
    }
    answer
}
