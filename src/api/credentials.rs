//! `/v1/credentials`: what subscriptions sign with and log on with, and what providers' webhooks are checked with.

use std::time::Duration;

use zeroize::Zeroizing;

use crate::api::audited::ChangeResult;
use crate::api::claimed::check_not_rotating;
use crate::api::kind::Kind as ProblemKind;
use crate::api::prelude::*;
use crate::api::sealing::to_seal;
use crate::api::{sources, subscription_terms as terms, subscriptions};
use crate::http::identity::Identity;
use crate::model::credential::{
    ClientAuth, CredentialKind, CredentialState, MAX_SECRET_BYTES, Oauth2, Purpose, Settings,
};
use crate::model::subscription::{Subscription, Target};
use crate::signatures::signing_key::SigningKey;
use crate::sources::{Settings as SourceSettings, tables};
use crate::store::credentials::{self, Credential, CredentialFilter, Owner};
use crate::store::settlement;

pub(super) const ID: Param =
    Param::path::<Uuid>("id", "The credential's id.", "0198c5a0-0000-7000-8000-000000000000");
const SUBSCRIPTION: Param =
    Param::query::<SomeText>("subscription", "Only this subscription's: its name or id.", "erp");
const PROVIDER: Param =
    Param::query::<SomeText>("provider", "Only this provider's, by its name.", "stripe");
const SOURCE: Param =
    Param::query::<SomeText>("source", "Only this source's, by its name.", "stripe-list");
const STATE: Param = Param::query::<CredentialState>(
    "state",
    "Only those in this state; if absent, those in force.",
    "active",
);

/// What subscriptions sign with and log on with, and what providers' webhooks are checked with.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Credentials",
    about: "What subscriptions sign with and log on with, and what providers' webhooks are checked with. The secrets \
            themselves are never shown again.",
    routes: &[
        get("/v1/credentials", Read, Listed(list))
            .doc(
                "listCredentials",
                "List the credentials",
                &[SUBSCRIPTION, PROVIDER, SOURCE, STATE, LIMIT, AFTER],
            )
            .about("Without their secrets. Revoked ones are listed only where `state` asks for them.")
            .returns(&[Returns::page::<CredentialAnswer<'_>>("A page of credentials, the oldest first.")]),
        get("/v1/credentials/{id}", Read, Now(show))
            .doc("getCredential", "Show a credential", &[ID])
            .about("Without its secret.")
            .returns(&[Returns::json::<CredentialAnswer<'_>>(200, "The credential.")]),
        post("/v1/subscriptions/{id}/credentials", Admin, Act("credential.set", set))
            .doc("setCredential", "Set a credential of a subscription", &[subscriptions::ID])
            .about(
                "It is used from the answer on, and takes the place of those that serve the same purpose: signing, \
                 logging on (bearer, basic, api_key, oauth2) or the client certificate. They are revoked. Holds that \
                 were due to refused requests end. A signing secret is made where none is given, and shown this once.",
            )
            .returns(&[Returns::json::<NewCredentialAnswer<'_>>(201, "The credential.")])
            .body::<CredentialSetting>(r#"{"kind":"basic","user":"oncebox","secret":"an example password"}"#),
        post("/v1/sources/{name}/credentials", Admin, Act("credential.set_for_source", set_of_source))
            .doc("setSourceCredential", "Set a credential of a source", &[sources::NAME])
            .about(
                "For the kind `http`: its list is read with it from the answer on. It takes the place of the one that serves \
                 the same purpose: logging on (bearer, basic, api_key, oauth2) or the client certificate.",
            )
            .returns(&[Returns::json::<NewCredentialAnswer<'_>>(201, "The credential.")])
            .body::<CredentialSetting>(r#"{"kind":"bearer","secret":"rk_live_an_example"}"#)
            .problems(&[ProblemKind::Conflict]),
        post("/v1/credentials/{id}/revoke", Admin, Act("credential.revoke", revoke))
            .doc("revokeCredential", "Revoke a credential", &[ID])
            .about(
                "Nothing is signed, sent or checked with it from the answer on. The last one that signs a \
                 subscription's requests, and a provider's last secret, stay.",
            )
            .returns(&[Returns::json::<CredentialAnswer<'_>>(200, "The credential as it is now.")])
            .problems(&[ProblemKind::Conflict]),
    ],
};

values! {
    /// A secret: one line, or the PEM of a client certificate.
    SecretText = { "type": "string", "minLength": 1, "maxLength": MAX_SECRET_BYTES }
    /// `whsec_` or `whsk_` and base64.
    KeyText = { "type": "string", "pattern": "^(whsec|whsk)_[A-Za-z0-9+/]+={0,2}$" }
}

/// A credential to set, by its kind.
#[derive(Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
enum CredentialSetting {
    /// Signs with an HMAC (`v1`).
    Signing {
        /// `whsec_…`; a new one is made if it is absent.
        #[schemars(with = "Option<KeyText>")]
        secret: Option<String>,
    },
    /// Signs with ed25519 (`v1a`). The answer has the public key for the receiver.
    SigningEd25519 {
        /// `whsk_…`; a new one is made if it is absent.
        #[schemars(with = "Option<KeyText>")]
        secret: Option<String>,
    },
    /// `authorization: Bearer …`
    Bearer {
        /// The token, without the word `Bearer`.
        #[schemars(with = "SecretText")]
        secret: String,
    },
    /// `authorization: Basic …`
    Basic {
        #[schemars(with = "Text<1, 8000>")]
        user: String,
        /// The password.
        #[schemars(with = "SecretText")]
        secret: String,
    },
    /// A key in a header field.
    ApiKey {
        /// The field's name, like `X-API-Key`.
        #[schemars(with = "Text<1, 255>")]
        header: String,
        /// The field's whole value.
        #[schemars(with = "SecretText")]
        secret: String,
    },
    /// OAuth 2.0 client credentials: a token is fetched with them, and sent as `authorization: Bearer …`.
    Oauth2 {
        /// The token endpoint.
        #[schemars(with = "Text<1, 2048>")]
        token_url: String,
        #[schemars(with = "Text<1, 1000>")]
        client_id: String,
        /// Words with a space between them.
        #[schemars(with = "Option<Text<1, 1000>>")]
        scope: Option<String>,
        /// Whom the token is for, where the endpoint wants to know.
        #[schemars(with = "Option<Text<1, 1000>>")]
        audience: Option<String>,
        /// How the client authenticates: `basic` (a header field, the default) or `body` (form fields).
        client_auth: Option<ClientAuth>,
        /// The client's secret.
        #[schemars(with = "SecretText")]
        secret: String,
    },
    /// A TLS client certificate.
    ClientCertificate {
        /// PEM: the certificate, those that issued it, and the unencrypted key.
        #[schemars(with = "SecretText")]
        secret: String,
    },
}

/// A credential that can be stored.
struct StorableCredential {
    settings: Settings,
    secret: Zeroizing<String>,
    valid_until: Option<Timestamp>,
    /// Whether it was made here, and has to be shown.
    is_new: bool,
}

impl CredentialSetting {
    /// Whether it can be used.
    /// Fails with 422 with what is wrong.
    fn check(self, api: &Api) -> Result<StorableCredential, Problem> {
        let (settings, secret) = match self {
            Self::Signing { secret } => return signing(api, CredentialKind::Signing, secret),
            Self::SigningEd25519 { secret } => {
                return signing(api, CredentialKind::SigningEd25519, secret);
            }
            Self::ClientCertificate { secret } => return certificate(api, secret),
            Self::Bearer { secret } => (Settings::Bearer {}, secret),
            Self::Basic { user, secret } => (Settings::Basic { user }, secret),
            Self::ApiKey { header, secret } => {
                terms::check_not_ours(&header)?;
                (Settings::ApiKey { header }, secret)
            }
            Self::Oauth2 { token_url, client_id, scope, audience, client_auth, secret } => {
                terms::address(api, &token_url)?;
                let client_auth = client_auth.unwrap_or_default();
                let client = Oauth2 { token_url, client_id, scope, audience, client_auth };
                (Settings::Oauth2(client), secret)
            }
        };
        settings.check(&secret).map_err(unusable)?;
        Ok(StorableCredential {
            settings,
            secret: Zeroizing::new(secret),
            valid_until: None,
            is_new: false,
        })
    }
}

fn signing(
    api: &Api,
    kind: CredentialKind,
    secret: Option<String>,
) -> Result<StorableCredential, Problem> {
    let is_new = secret.is_none();
    let key = match secret {
        Some(text) => SigningKey::parse(&text).map_err(|error| unusable(error.to_string()))?,
        None => SigningKey::generate(kind, &*api.env.draw)
            .ok_or_else(|| unusable("none was made".to_owned()))?,
    };
    let settings = key.settings();
    if settings.kind() != kind {
        return Err(unusable(format!("it is a secret of the kind {}", settings.kind().as_str())));
    }
    Ok(StorableCredential { settings, secret: key.to_text(), valid_until: None, is_new })
}

fn certificate(api: &Api, pem: String) -> Result<StorableCredential, Problem> {
    let pem = Zeroizing::new(pem);
    if pem.len() > MAX_SECRET_BYTES {
        return Err(unusable(format!("it has more than {MAX_SECRET_BYTES} bytes")));
    }
    let identity = Identity::read(&pem).map_err(unusable)?;
    let valid_until = identity.valid_until;
    let fingerprint = identity.fingerprint;
    if valid_until <= api.env.clock.wall() {
        return Err(unusable(format!("the certificate expired at {valid_until}")));
    }
    let settings = Settings::ClientCertificate { fingerprint };
    Ok(StorableCredential { settings, secret: pem, valid_until: Some(valid_until), is_new: false })
}

pub(super) fn unusable(why: String) -> Problem {
    Problem::unprocessable(format!("The credential cannot be used: {why}."))
}

/// A credential, without its secret.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Credential")]
pub(super) struct CredentialAnswer<'a> {
    id: Is<Uuid, &'a str>,
    tenant: Is<NameText, &'a str>,
    kind: CredentialKind,
    /// The subscription that sends with it; null where it is another owner's.
    subscription: Option<&'a str>,
    /// The provider whose webhooks are checked with it; null where it is another owner's.
    provider: Option<&'a str>,
    /// The source whose list is read with it; null where it is another owner's.
    source: Option<&'a str>,
    /// Its number among its owner's.
    version: Is<u64, i64>,
    state: CredentialState,
    /// What of it is no secret.
    settings: Is<CredentialSettings, Value>,
    created_at: Timestamp,
    /// A client certificate: when it expires. `retiring`: when it ends.
    valid_until: Option<Timestamp>,
    /// Its last use, to the minute.
    last_used_at: Option<Timestamp>,
    /// `next`: when it is verified next.
    verify_at: Option<Timestamp>,
    /// `next`: until when it is verified.
    verify_until: Option<Timestamp>,
    /// Why its last verification failed.
    verify_error: Option<&'a str>,
    /// How often it is rotated by itself.
    rotate_every: Option<String>,
    /// The command of the settings that gives the next one.
    rotate_command: Option<&'a str>,
}

/// What of a credential is no secret; which of the fields there are follows from its kind.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "describes the settings of all kinds, which write themselves")]
struct CredentialSettings {
    /// `signing_ed25519`: what receivers check with.
    #[serde(skip_serializing_if = "Option::is_none")]
    public_key: Option<String>,
    /// `basic`
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    /// `api_key`
    #[serde(skip_serializing_if = "Option::is_none")]
    header: Option<String>,
    /// `oauth2`
    #[serde(skip_serializing_if = "Option::is_none")]
    token_url: Option<String>,
    /// `oauth2`
    #[serde(skip_serializing_if = "Option::is_none")]
    client_id: Option<String>,
    /// `oauth2`
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<String>,
    /// `oauth2`
    #[serde(skip_serializing_if = "Option::is_none")]
    audience: Option<String>,
    /// `oauth2`
    #[serde(skip_serializing_if = "Option::is_none")]
    client_auth: Option<ClientAuth>,
    /// `client_certificate`: the SHA-256 of the certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    fingerprint: Option<String>,
}

/// A credential just set.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "NewCredential")]
struct NewCredentialAnswer<'a, T = CredentialAnswer<'a>> {
    #[serde(flatten)]
    made: T,
    /// The signing secret, where it was made here. It is shown this once.
    secret: Option<Is<KeyText, &'a str>>,
}

/// Shows a credential.
pub(super) fn shown(one: &Credential) -> Value {
    let name = one.owner_name.as_str();
    value(CredentialAnswer {
        id: one.id.as_str().into(),
        tenant: one.tenant.as_str().into(),
        kind: one.kind(),
        subscription: matches!(one.owner, Owner::Subscription(_)).then_some(name),
        provider: matches!(one.owner, Owner::Provider(_)).then_some(name),
        source: matches!(one.owner, Owner::Source(_)).then_some(name),
        version: one.version.into(),
        state: one.state,
        settings: one.settings.to_json().into(),
        created_at: one.created_at,
        valid_until: one.valid_until,
        last_used_at: one.last_used_at,
        verify_at: one.verify_at,
        verify_until: one.verify_until,
        verify_error: one.verify_error.as_deref(),
        rotate_every: one.rotation.every.map(span),
        rotate_command: one.rotation.command.as_deref(),
    })
}

/// A span as people write it: whole days as such, because a month is 30.44 of them to the library.
fn span(every: Duration) -> String {
    const DAY: u64 = 24 * 60 * 60;
    match every.as_secs() {
        secs if secs > 0 && secs.is_multiple_of(DAY) => format!("{}d", secs / DAY),
        _ => humantime::format_duration(every).to_string(),
    }
}

/// `GET /v1/credentials`
fn list(api: &Api, call: &Call) -> Result<Response, Problem> {
    let page = call.query.page()?;
    let filter = CredentialFilter {
        provider: call.query.get("provider"),
        subscription: call.query.get("subscription"),
        source: call.query.get("source"),
        state: call.query.one_of("state", CredentialState::ALL, CredentialState::as_str)?,
    };
    let after = page.after.unwrap_or(0);
    let found = lists::read(api, call, |tx| {
        credentials::page(tx, &call.tenant, filter, after, page.limit)
    })?;
    Ok(page_of(&found, page, |one| one.seq, shown))
}

/// `GET /v1/credentials/{id}`
fn show(api: &Api, call: &Call) -> Result<Response, Problem> {
    let found = api.env.store.read(|tx| credentials::by_id(tx, &call.tenant, call.param(0)))?;
    found.map(|one| ok(&shown(&one))).or_not_found("credential")
}

/// `POST /v1/subscriptions/{id}/credentials`
fn set(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let subscription = subscriptions::find(api, call)?;
    let setting = call.json::<CredentialSetting>()?.check(api)?;
    check_fits(&subscription, &setting.settings)?;
    let now = api.env.clock.wall();
    let seq = subscription.seq;
    replace(api, call, Owner::Subscription(seq), setting, move |tx| {
        // The target may accept the new one.
        Ok(settlement::end_holds_by_change(tx, seq, now)?)
    })
}

/// `POST /v1/sources/{name}/credentials`
fn set_of_source(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let source = sources::find(api, call)?;
    let setting = call.json::<CredentialSetting>()?.check(api)?;
    if !matches!(source.new.settings, SourceSettings::Http(_)) {
        return Err(Problem::conflict(
            "Only a source of the kind http has a credential: a file has none, and that of a database is in the settings.",
        ));
    }
    if setting.settings.kind().purpose() == Purpose::Sign {
        return Err(Problem::unprocessable(
            "A list is read without a signature: give a credential of the kind bearer, basic, api_key, oauth2 or \
             client_certificate.",
        ));
    }
    let now = api.env.clock.wall();
    replace(api, call, Owner::Source(source.seq), setting, move |tx| {
        let named = tables::by_name(tx, &source.new.tenant, source.new.name.as_str())?;
        let row = named.or_not_found("source")?;
        // The list may accept the new one: it is read at once.
        tables::update(tx, &row, now)?;
        sources::resolve_escalations(tx, &row.new.tenant, row.new.name.as_str(), now)?;
        Ok(())
    })
}

/// Stores a credential in the place of those that serve the same purpose. `then` runs in the same transaction.
fn replace(
    api: &Api,
    call: &Call,
    owner: Owner,
    setting: StorableCredential,
    mut then: impl FnMut(&WriteTx<'_>) -> ChangeResult<()> + Send + 'static,
) -> Result<Audited<Value>, Problem> {
    let StorableCredential { settings, secret, valid_until, is_new } = setting;
    let now = api.env.clock.wall();
    let mut sealed = to_seal(api, now, settings, &secret);
    sealed.valid_until = valid_until;
    let tenant = call.tenant.clone();
    change(api, call, move |tx| {
        let mut new = sealed.of(&tenant, owner, now);
        let purpose = new.settings.kind().purpose();
        let in_force = credentials::in_force(tx, owner)?;
        let replaced = in_force.into_iter().filter(|one| one.purpose() == purpose);
        let replaced: Vec<Credential> = replaced.collect();
        for one in &replaced {
            check_not_rotating(tx, &one.id)?;
        }
        let mut revoked = Vec::new();
        for one in replaced {
            credentials::revoke(tx, owner, &one.id)?;
            if one.state == CredentialState::Active && one.kind() == new.settings.kind() {
                new.rotation = one.rotation;
            }
            revoked.push(one.id);
        }
        credentials::insert(tx, &new)?;
        then(tx)?;
        let row = credentials::by_id(tx, &tenant, &new.id)?.or_not_found("credential")?;
        let made = Change::made("credential", &new.id, &shown(&row)).and("revoked", revoked);
        let secret = is_new.then(|| secret.as_str().into());
        Ok(made.shown(|made| NewCredentialAnswer { made, secret }))
    })
}

/// Whether the subscription's requests can carry it.
/// Fails with 422 with what hinders them.
fn check_fits(subscription: &Subscription, settings: &Settings) -> Result<(), Problem> {
    let kind = settings.kind();
    let carries = match subscription.new.target {
        Target::Http(_) => true,
        Target::Kafka(_) => !matches!(kind, CredentialKind::Bearer | CredentialKind::ApiKey),
        _ => kind.purpose() == Purpose::Sign,
    };
    if !carries {
        let word = kind.as_str();
        let target = subscription.new.target.kind();
        let detail = format!("To the target {target} no {word} is sent.");
        return Err(Problem::unprocessable(detail));
    }
    let carries =
        |name: &str| subscription.new.headers.keys().any(|own| own.eq_ignore_ascii_case(name));
    match settings {
        Settings::ApiKey { header } if carries(header) => Err(Problem::unprocessable(format!(
            "The subscription has a header {header} of its own: remove that one first."
        ))),
        _ => Ok(()),
    }
}

/// `POST /v1/credentials/{id}/revoke`
fn revoke(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let tenant = call.tenant.clone();
    let id = call.param(0).to_owned();
    change(api, call, move |tx| {
        let before = credentials::by_id(tx, &tenant, &id)?.or_not_found("credential")?;
        if before.state == CredentialState::Revoked {
            return Err(Problem::conflict("The credential was revoked before.").into());
        }
        let others = credentials::in_force(tx, before.owner)?;
        let detail = match before.owner {
            Owner::Subscription(_)
                if before.purpose() == Purpose::Sign && before.state == CredentialState::Active =>
            {
                "It signs the subscription's requests: set another one, which revokes it."
            }
            Owner::Provider(_) if others.len() == 1 => {
                "It is the provider's last secret: add another first, or delete the provider."
            }
            _ => "",
        };
        if !detail.is_empty() {
            return Err(Problem::conflict(detail).into());
        }
        check_not_rotating(tx, &id)?;
        credentials::revoke(tx, before.owner, &id)?;
        let after = credentials::by_id(tx, &tenant, &id)?.or_not_found("credential")?;
        Ok(Change::changed("credential", &id, &shown(&before), &shown(&after)))
    })
}
