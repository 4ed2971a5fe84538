//! `/v1/providers`: systems that send webhooks, and how they sign.

use std::sync::Arc;
use std::time::Duration;

use crate::api::audited::ChangeResult;
use crate::api::event_repairs::given;
use crate::api::list_sources;
use crate::api::prelude::*;
use crate::api::schema::as_sent;
use crate::api::sealing::{ToSeal, ids, to_seal};
use crate::api::what_if::WhatIfPeriod;
use crate::api::what_if::provider::{AskedProvider, OrPeriod};
use crate::base::id;
use crate::keys::Keyring;
use crate::model::credential::Settings;
use crate::model::json_fields;
use crate::model::name::Name;
use crate::model::provider::{KeyPlace, PublicUrl, ReconcileChange, ReconcileTerms};
use crate::privacy::policy::Pii;
use crate::signatures::Scheme;
use crate::signatures::provider::{
    BODY_BYTES_DEFAULT, MAX_BODY_BYTES, MAX_REPLAY_WINDOW, MAX_TOLERANCE, NewProvider, Provider,
    REPLAY_WINDOW_DEFAULT, SchemeSettings,
};
use crate::store::credentials::{self, Owner};
use crate::store::providers;

/// The longest tolerance that may be set.
const MAX_TOLERANCE_SECS: u64 = MAX_TOLERANCE.as_secs();
/// Secrets of a provider at most.
pub(super) const MAX_SECRETS: usize = 32;

pub(super) const NAME: Param = Param::path::<NameText>("name", "The provider's name.", "stripe");

/// Systems that send webhooks.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Providers",
    about: "External systems that post webhooks: how they sign, and with which secrets.",
    routes: &[
        get("/v1/providers", Read, Listed(list))
            .doc("listProviders", "List the providers", &[LIMIT, AFTER])
            .about("Without their secrets, which are never shown.")
            .returns(&[Returns::page::<ProviderAnswer<'_>>(
                "A page of providers, the oldest first.",
            )]),
        post("/v1/providers", Admin, Act("provider.create", create))
            .doc("createProvider", "Make a provider", &[])
            .about(
                "Its webhooks are accepted at `path` at once. `pii` is required: it says what happens \
                 to personal data.",
            )
            .returns(&[Returns::json::<ProviderAnswer<'_>>(201, "The provider.")])
            .body::<ProviderCreation>(
                r#"{"name":"stripe","scheme":{"kind":"stripe"},"pii":"allow",
                "secret":"whsec_an_example_secret_of_the_provider"}"#,
            ),
        get("/v1/providers/{name}", Read, Now(show))
            .doc("getProvider", "Show a provider", &[NAME])
            .about("Without its secrets.")
            .returns(&[Returns::json::<ProviderAnswer<'_>>(200, "The provider.")]),
        patch("/v1/providers/{name}", Admin, Act("provider.change", change_one))
            .doc("changeProvider", "Change a provider", &[NAME])
            .about(
                "Absent fields stay as they are. `secret` adds a secret; the others stay valid. With `what_if`, nothing is \
                 saved: the answer says what the changed terms would have done with the stored webhooks.",
            )
            .returns(&[Returns::json::<OrPeriod<ProviderAnswer<'_>>>(
                200,
                "The provider as it is now; with `what_if`, what would differ.",
            )])
            .body::<ProviderChange>(r#"{"tolerance_secs":600}"#),
        delete("/v1/providers/{name}", Admin, Act("provider.delete", remove))
            .doc("deleteProvider", "Delete a provider", &[NAME])
            .about("Its path answers 404 from then on. Its webhook events stay.")
            .returns(&[Returns::nothing("It is deleted.")]),
    ],
};

values! {
    /// A URL, or none.
    UrlText = { "type": "string", "maxLength": 2048, "pattern": "^(https?://.*)?$" }
    /// A secret that a provider signs with.
    SecretText = { "type": "string", "minLength": 1, "maxLength": 1024 }
    /// The largest body of a provider.
    BodyBytes = { "type": "integer", "minimum": 1, "maximum": MAX_BODY_BYTES }
    /// How long a repeated signature counts as the same event.
    ReplayWindow = { "type": "integer", "minimum": 0, "maximum": MAX_REPLAY_WINDOW.as_secs() }
}

/// `POST /v1/providers`. `pii` is required, so that personal data is not stored by accident.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ProviderCreation {
    name: Name,
    #[schemars(with = "SchemeSettings")]
    scheme: Value,
    /// What happens to personal data before it is stored: `allow` stores it unchanged, a policy applies its rules
    /// (docs/privacy.md). Required.
    #[schemars(with = "Pii")]
    pii: Option<Pii>,
    /// A secret that the provider signs with. It is stored sealed and never shown.
    secret: Option<Is<SecretText>>,
    /// Several secrets, while one replaces another; the newest first.
    #[serde(default)]
    #[schemars(with = "Vec<SecretText>", length(max = MAX_SECRETS))]
    secrets: Vec<String>,
    /// The exact URL for the provider's posts, if it differs from the settings: some signatures cover it.
    public_url: Option<Is<UrlText>>,
    /// The largest body it may send.
    #[serde(default, deserialize_with = "json_fields::whole")]
    #[schemars(with = "Option<BodyBytes>")]
    body_bytes_max: Option<u32>,
    /// By how many seconds the signed time may differ from this machine's clock.
    #[serde(default, deserialize_with = "json_fields::whole")]
    #[schemars(with = "Option<Whole<1, MAX_TOLERANCE_SECS>>")]
    tolerance_secs: Option<u64>,
    /// For how many seconds the same signed bytes and type count as one event, even under another id; 0: each id is an
    /// event. Only for schemes whose signature does not cover the id (docs/providers.md).
    #[serde(default, deserialize_with = "json_fields::whole")]
    #[schemars(with = "Option<ReplayWindow>")]
    replay_window_secs: Option<u64>,
    /// Where its webhooks have their ordering key; absent: they have none.
    #[schemars(with = "Option<KeyPlace>")]
    ordering_key: Option<Value>,
    /// When its list is compared with the webhooks that came, once a source reads it.
    reconcile: Option<ReconcileChange>,
}

/// `PATCH /v1/providers/{name}`. `secret` adds a secret; the others stay valid.
#[expect(clippy::option_option, reason = "absent, null and a value are three things")]
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ProviderChange {
    #[schemars(with = "Option<SchemeSettings>")]
    scheme: Option<Value>,
    pii: Option<Pii>,
    /// A secret that the provider signs with. It is stored sealed and never shown.
    secret: Option<Is<SecretText>>,
    /// The exact URL for the provider's posts, if it differs from the settings: some signatures cover it. An empty text
    /// removes it.
    public_url: Option<Is<UrlText>>,
    /// The largest body it may send.
    #[serde(default, deserialize_with = "json_fields::whole")]
    #[schemars(with = "Option<BodyBytes>")]
    body_bytes_max: Option<u32>,
    /// By how many seconds the signed time may differ from this machine's clock.
    #[serde(default, deserialize_with = "json_fields::whole")]
    #[schemars(with = "Option<Whole<1, MAX_TOLERANCE_SECS>>")]
    tolerance_secs: Option<u64>,
    /// For how many seconds the same signed bytes and type count as one event, even under another id; 0: each id is an
    /// event. Only for schemes whose signature does not cover the id (docs/providers.md).
    #[serde(default, deserialize_with = "json_fields::whole")]
    #[schemars(with = "Option<ReplayWindow>")]
    replay_window_secs: Option<u64>,
    /// Where webhooks that come from now on have their ordering key; null: they have none.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Option<KeyPlace>")]
    ordering_key: Option<Option<Value>>,
    /// When its list is compared with the webhooks that came. Answers 409 if no source reads it.
    reconcile: Option<ReconcileChange>,
    /// A span, such as `7d`: only show what `pii`, `ordering_key` and `body_bytes_max` would have done with the webhooks stored
    /// since then. The newest 10,000 are looked at, for two seconds; with `next` of the answer in place of the span, the older
    /// ones. The other fields are not asked about: what a signature is checked with is not stored.
    what_if: Option<Is<WhatIfPeriod>>,
}

impl ProviderChange {
    /// The provider as it would be. Fails with 422 if a field was given that stored webhooks say nothing about.
    fn tried(&self, stored: &NewProvider) -> Result<NewProvider, Problem> {
        let others = [
            self.scheme.is_some(),
            self.secret.is_some(),
            self.public_url.is_some(),
            self.tolerance_secs.is_some(),
            self.replay_window_secs.is_some(),
            self.reconcile.is_some(),
        ];
        if others.contains(&true) {
            return Err(Problem::unprocessable(
                "what_if goes with pii, ordering_key and body_bytes_max alone: what a signature is checked with is not stored.",
            ));
        }
        let mut wanted = stored.clone();
        if let Some(pii) = &self.pii {
            wanted.pii = pii.clone();
        }
        if let Some(place) = &self.ordering_key {
            wanted.ordering_key = read_key_place(place.clone())?;
        }
        wanted.body_bytes_max = self.body_bytes_max.unwrap_or(wanted.body_bytes_max);
        Ok(wanted)
    }
}

/// `POST /v1/providers`
pub(super) fn create(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let given: ProviderCreation = call.json()?;
    let Some(pii) = given.pii else {
        return Err(Problem::unprocessable(
            "Say what happens to personal data: `\"pii\": \"allow\"` stores it as the provider sends it; \
             a policy of rules changes it before it is stored (docs/privacy.md).",
        ));
    };
    let secrets: Vec<String> = bare(given.secret).into_iter().chain(given.secrets).collect();
    let SchemeSettings { scheme, repeats } = read_scheme(given.scheme)?;
    if (secrets.is_empty() && scheme.has_secret()) || secrets.len() > MAX_SECRETS {
        return Err(Problem::unprocessable(
            "Give the provider's signing secret as `secret`, or up to 32 as `secrets`.",
        ));
    }
    check_secrets(&scheme, &secrets)?;
    let public_url_default = public_base(api);
    let now = api.env.clock.wall();
    let default_tolerance = scheme.tolerance_default();
    let new = NewProvider {
        id: id::uuid7(now, &*api.env.draw),
        tenant: call.tenant.clone(),
        name: given.name,
        scheme,
        repeats,
        public_url: given.public_url.map(|url| read_url(&url)).transpose()?.flatten(),
        pii,
        body_bytes_max: given.body_bytes_max.unwrap_or(BODY_BYTES_DEFAULT),
        tolerance: given.tolerance_secs.map_or(default_tolerance, Duration::from_secs),
        replay_window: given.replay_window_secs.map_or(REPLAY_WINDOW_DEFAULT, Duration::from_secs),
        ordering_key: read_key_place(given.ordering_key)?,
        reconcile: reconciled(ReconcileTerms::default(), given.reconcile)?,
    };
    // Versions are numbered as they are stored, and the newest is tried first.
    let sealed: Vec<ToSeal> = secrets
        .iter()
        .rev()
        .map(|secret| to_seal(api, now, Settings::Signing {}, secret))
        .collect();
    change(api, call, move |tx| {
        let Some(seq) = providers::insert(tx, &new, now)? else {
            let detail = format!("There is a provider named {:?} already.", new.name.as_str());
            return Err(Problem::conflict(detail).into());
        };
        for secret in &sealed {
            credentials::insert(tx, &secret.of(&new.tenant, Owner::Provider(seq), now))?;
        }
        let provider = Provider { seq, new: new.clone(), created_at: now, updated_at: now };
        Ok(Change::made("provider", &new.id, &shown(&provider, public_url_default.as_deref()))
            .and("credentials", ids(&sealed)))
    })
}

/// `GET /v1/providers`
pub(super) fn list(api: &Api, call: &Call) -> Result<Response, Problem> {
    let page = call.query.page()?;
    let after = page.after.unwrap_or(0);
    let found = lists::read(api, call, |tx| providers::page(tx, &call.tenant, after, page.limit))?;
    let base = public_base(api);
    Ok(page_of(&found, page, |provider| provider.seq, |one| shown(one, base.as_deref())))
}

/// `GET /v1/providers/{name}`
pub(super) fn show(api: &Api, call: &Call) -> Result<Response, Problem> {
    Ok(ok(&shown(&find(api, call)?, public_base(api).as_deref())))
}

/// `PATCH /v1/providers/{name}`
pub(super) fn change_one(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let found = find(api, call)?;
    let given: ProviderChange = call.json()?;
    if let Some(period) = &given.what_if {
        let wanted = given.tried(&found.new)?;
        return AskedProvider { stored: &found.new, wanted: &wanted, period }.show(api, call);
    }
    let ProviderChange {
        scheme,
        pii,
        secret,
        public_url,
        body_bytes_max,
        tolerance_secs,
        replay_window_secs,
        ordering_key,
        reconcile,
        what_if: _,
    } = given;
    let secret = bare(secret);
    let public_url = public_url.map(|url| read_url(&url)).transpose()?;
    let base = public_base(api);
    let scheme = scheme.map(read_scheme).transpose()?;
    let tolerance = tolerance_secs.map(Duration::from_secs);
    let replay_window = replay_window_secs.map(Duration::from_secs);
    let ordering_key = ordering_key.map(read_key_place).transpose()?;
    let terms = reconciled(found.new.reconcile, reconcile)?;
    if terms.every_secs > 0 && reconcile.is_some() {
        list_sources::of(api, &found, None)?;
    }
    let scheme_now = scheme.as_ref().map_or(&found.new.scheme, |settings| &settings.scheme);
    check_secrets(scheme_now, secret.as_slice())?;
    let now = api.env.clock.wall();
    let key = Arc::clone(&api.env.keyring);
    let sealed = secret.as_deref().map(|secret| to_seal(api, now, Settings::Signing {}, secret));
    let tenant = call.tenant.clone();
    let name = call.param(0).to_owned();
    change(api, call, move |tx| {
        let before = providers::by_name(tx, &tenant, &name)?.or_not_found("provider")?;
        let mut row = before.clone();
        if let Some(settings) = &scheme {
            change_scheme(tx, &key, &mut row, settings)?;
        }
        if let Some(url) = &public_url {
            row.new.public_url.clone_from(url);
        }
        if let Some(pii) = &pii {
            row.new.pii = pii.clone();
        }
        row.new.body_bytes_max = body_bytes_max.unwrap_or(row.new.body_bytes_max);
        row.new.tolerance = tolerance.unwrap_or(row.new.tolerance);
        row.new.replay_window = replay_window.unwrap_or(row.new.replay_window);
        if let Some(place) = &ordering_key {
            row.new.ordering_key.clone_from(place);
        }
        if reconcile.is_some() {
            row.new.reconcile = terms;
        }
        providers::update(tx, &row, now)?;
        if let Some(secret) = &sealed {
            credentials::insert(tx, &secret.of(&tenant, Owner::Provider(row.seq), now))?;
        }
        let after = providers::by_name(tx, &tenant, &name)?.or_not_found("provider")?;
        let was = shown(&before, base.as_deref());
        let body = shown(&after, base.as_deref());
        let mut change = Change::changed("provider", &row.new.id, &was, &body);
        if let Some(secret) = &sealed {
            change = change.and("credentials", ids(std::slice::from_ref(secret)));
        }
        Ok(change)
    })
}

/// Changes how a provider signs, if its secrets fit that.
fn change_scheme(
    tx: &WriteTx<'_>,
    key: &Keyring,
    row: &mut Provider,
    settings: &SchemeSettings,
) -> ChangeResult<()> {
    let SchemeSettings { scheme, repeats } = settings;
    let was = &row.new.scheme;
    let public = Scheme::takes_public_keys;
    let same = was.kind() == scheme.kind() && public(was) == public(scheme);
    if !same && (public(was) || public(scheme)) {
        // Its secrets stay, and a public key must never become a shared secret.
        return Err(Problem::unprocessable(
            "A scheme with public keys cannot be changed into another scheme, or another into \
             it; make a new provider.",
        )
        .into());
    }
    check_stored_secrets(tx, key, row.seq, scheme)?;
    row.new.scheme = scheme.clone();
    row.new.repeats = *repeats;
    Ok(())
}

/// `DELETE /v1/providers/{name}`
pub(super) fn remove(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let tenant = call.tenant.clone();
    let name = call.param(0).to_owned();
    let now = api.env.clock.wall();
    let base = public_base(api);
    change(api, call, move |tx| {
        let before = providers::by_name(tx, &tenant, &name)?.or_not_found("provider")?;
        let revoked = providers::delete(tx, before.seq, now)?;
        Ok(Change::gone("provider", &before.new.id, &shown(&before, base.as_deref()))
            .and("revoked", revoked))
    })
}

/// The provider that the path names.
pub(super) fn find(api: &Api, call: &Call) -> Result<Provider, Problem> {
    let found = api.env.store.read(|tx| providers::by_name(tx, &call.tenant, call.param(0)))?;
    found.or_not_found("provider")
}

/// The terms of comparisons with a change.
fn reconciled(
    terms: ReconcileTerms,
    change: Option<ReconcileChange>,
) -> Result<ReconcileTerms, Problem> {
    let changed = terms.with(change.unwrap_or_default());
    changed.map_err(|why| Problem::unprocessable(format!("{why}.")))
}

/// Reads where the ordering key is. It is read separately from the body, so that an error is answered 422, not 400.
fn read_key_place(place: Option<Value>) -> Result<Option<KeyPlace>, Problem> {
    let wrong = |error: &dyn std::fmt::Display| {
        Problem::unprocessable(format!(
            "The ordering_key cannot be used: {error}; write it as {{\"path\": \"$.data.id\"}} or \
             {{\"header\": \"X-Order-Id\"}}."
        ))
    };
    let read: Option<KeyPlace> =
        place.map(serde_json::from_value).transpose().map_err(|error| wrong(&error))?;
    if let Some(KeyPlace::Path(path)) = &read {
        path.clone().into_strict().map_err(|error| wrong(&error))?;
    }
    Ok(read)
}

/// Reads a scheme. It is read separately from the body, so that an error is answered 422, not 400.
fn read_scheme(scheme: Value) -> Result<SchemeSettings, Problem> {
    serde_json::from_value(scheme)
        .map_err(|error| Problem::unprocessable(format!("The scheme cannot be used: {error}.")))
}

fn check_secrets(scheme: &Scheme, secrets: &[String]) -> Result<(), Problem> {
    for secret in secrets {
        scheme.check_secret(secret).map_err(|error| unusable(&error))?;
    }
    Ok(())
}

/// Refuses a scheme that a stored secret does not fit: with it in force, webhooks could not be checked.
fn check_stored_secrets(
    tx: &ReadTx<'_>,
    key: &Keyring,
    provider: i64,
    scheme: &Scheme,
) -> ChangeResult<()> {
    for one in credentials::of_provider(tx, provider)? {
        let id = one.id;
        let opened = key.open(&credentials::context(&id), &one.sealed);
        let why = match &opened {
            Ok(secret) => match secret.expose_text().map(|text| scheme.check_secret(text)) {
                Some(Ok(())) => continue,
                Some(Err(error)) => error.to_string(),
                None => "it is no text".to_owned(),
            },
            Err(error) => error.to_string(),
        };
        let detail = format!(
            "The secret {id} of the provider does not fit the new scheme: {why}. Withdraw it first \
             (oncebox provider withdraw), or make a new provider."
        );
        return Err(Problem::unprocessable(detail).into());
    }
    Ok(())
}

/// 422: the secret does not fit the scheme.
pub(super) fn unusable(error: &dyn std::fmt::Display) -> Problem {
    Problem::unprocessable(format!("The secret cannot be used: {error}."))
}

/// An empty text means none.
fn read_url(text: &str) -> Result<Option<PublicUrl>, Problem> {
    let read = (!text.is_empty()).then(|| PublicUrl::parse(text)).transpose();
    read.map_err(|error| Problem::unprocessable(format!("public_url cannot be used: {error}.")))
}

/// The public URL of the intake, if it is set.
fn public_base(api: &Api) -> Option<String> {
    let settings = api.env.settings.get();
    let public = settings.listen.public_url.as_deref();
    public.map(|public| public.trim_end_matches('/').to_owned())
}

/// A provider, without its secrets.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Provider")]
struct ProviderAnswer<'a> {
    id: Is<Uuid, &'a str>,
    tenant: Is<NameText, &'a str>,
    name: &'a Name,
    #[schemars(schema_with = "as_sent::<SchemeSettings>")]
    scheme: SchemeSettings,
    pii: &'a Pii,
    /// The URL that the provider posts to, if it has its own; null: that of the settings.
    public_url: Option<&'a str>,
    /// The URL to enter at the provider: `public_url`, or the URL of the settings with `path`; null if neither is set.
    url: Option<String>,
    /// The path that accepts its webhooks.
    path: String,
    /// The largest body it may send.
    body_bytes_max: Is<BodyBytes, u32>,
    /// By how many seconds the signed time may differ from this machine's clock.
    tolerance_secs: Is<Whole<1, MAX_TOLERANCE_SECS>, u64>,
    /// For how many seconds the same signed bytes and type count as one event, even under another id; 0: each id is an
    /// event. Only for schemes whose signature does not cover the id (docs/providers.md).
    replay_window_secs: Is<ReplayWindow, u64>,
    /// Where its webhooks have their ordering key.
    ordering_key: Option<&'a KeyPlace>,
    /// When its list is compared with the webhooks that came.
    reconcile: ReconcileTerms,
    created_at: Timestamp,
    updated_at: Timestamp,
}

/// The URL to enter at a provider, if it is known, and the path that accepts its webhooks.
pub(super) fn url_of(new: &NewProvider, public_base: Option<&str>) -> (Option<String>, String) {
    let tenant = new.tenant.as_str();
    let name = &new.name;
    let path = if tenant == DEFAULT_TENANT {
        format!("/in/{name}")
    } else {
        format!("/in/{tenant}/{name}")
    };
    let own = new.public_url.as_ref().map(|url| url.as_str().to_owned());
    (own.or_else(|| public_base.map(|base| format!("{base}{path}"))), path)
}

fn shown(provider: &Provider, public_base: Option<&str>) -> Value {
    let Provider { new, created_at, updated_at, .. } = provider;
    let (url, path) = url_of(new, public_base);
    value(ProviderAnswer {
        id: new.id.as_str().into(),
        tenant: new.tenant.as_str().into(),
        name: &new.name,
        scheme: new.scheme_settings(),
        pii: &new.pii,
        public_url: new.public_url.as_ref().map(PublicUrl::as_str),
        url,
        path,
        body_bytes_max: new.body_bytes_max.into(),
        tolerance_secs: new.tolerance.as_secs().into(),
        replay_window_secs: new.replay_window.as_secs().into(),
        ordering_key: new.ordering_key.as_ref(),
        reconcile: new.reconcile,
        created_at: *created_at,
        updated_at: *updated_at,
    })
}
