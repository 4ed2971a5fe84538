//! `/v1/alert-channels`: where people are told of escalations.

use std::sync::Arc;

use serde::Deserializer;
use serde::de::Error as _;
use serde_json::Map;
use zeroize::Zeroizing;

use crate::alerts::channel::{AlertChannelKind, Channel, Counted, MAX_RATE, Terms};
use crate::alerts::{message, store};
use crate::api::audited::ChangeResult;
use crate::api::prelude::*;
use crate::api::sealing::to_seal;
use crate::api::subscription_terms::{SecretText, sealed_address};
use crate::base::id::{self, SubscriptionSeq};
use crate::model::credential::Settings;
use crate::model::escalation::{Class, Severity};
use crate::model::event::{ALERT_TYPE, OWN_SOURCE};
use crate::model::json_fields;
use crate::model::name::Name;
use crate::model::pattern::Patterns;
use crate::model::subscription::{NewSubscription, Subscription, SubscriptionTerms, Target};
use crate::model::target_url::TargetUrl;
use crate::signatures::signing::SigningSecret;
use crate::store::credentials::{self, Owner};
use crate::store::subscriptions;
use crate::targets::email;

const NAME: Param = Param::path::<NameText>("name", "The channel's name.", "ops");

/// Where people are told.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Alert channels",
    about: "Where people are told of escalations. A channel has a subscription, `alert-` and its name: its alerts are \
            deliveries of that one.",
    routes: &[
        get("/v1/alert-channels", Read, Listed(list))
            .doc("listAlertChannels", "List the alert channels", &[LIMIT, AFTER])
            .about("Without the secret parts of their URLs.")
            .returns(&[Returns::page::<ChannelAnswer<'_>>("A page of channels, the oldest first.")]),
        post("/v1/alert-channels", Admin, Act("alert_channel.create", create))
            .doc("createAlertChannel", "Make an alert channel", &[])
            .about(
                "It is told of open escalations at once. The answer has the secret that a webhook's requests are \
                 signed with, this once. A command is of the tenant `default` only.",
            )
            .returns(&[Returns::json::<NewChannelAnswer<'_>>(201, "The channel.")])
            .body::<ChannelCreation>(r#"{"name":"ops","kind":"webhook","url":"https://ops.example.com/alerts"}"#),
        get("/v1/alert-channels/{name}", Read, Now(show))
            .doc("getAlertChannel", "Show an alert channel", &[NAME])
            .about("With how its deliveries go.")
            .returns(&[Returns::json::<ChannelAnswer<'_>>(200, "The channel.")]),
        patch("/v1/alert-channels/{name}", Admin, Act("alert_channel.change", change_one))
            .doc("changeAlertChannel", "Change an alert channel", &[NAME])
            .about("What is absent stays; name and kind always do.")
            .returns(&[Returns::json::<ChannelAnswer<'_>>(200, "The channel as it is now.")])
            .body::<ChannelTerms>(r#"{"severity":"critical","quiet_hours":"22:00-06:00 +01:00"}"#),
        delete("/v1/alert-channels/{name}", Admin, Act("alert_channel.delete", remove))
            .doc("deleteAlertChannel", "Delete an alert channel", &[NAME])
            .about("With its subscription. What is not delivered is cancelled.")
            .returns(&[Returns::nothing("It is deleted.")]),
        post("/v1/alert-channels/{name}/test", Operate, Act("alert_channel.test", test))
            .doc("testAlertChannel", "Send a test to an alert channel", &[NAME])
            .about("A message that says so is delivered as an alert is.")
            .returns(&[Returns::json::<TestAnswer>(200, "What was stored.")]),
    ],
};

/// `POST /v1/alert-channels`
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct ChannelCreation {
    #[schemars(with = "Text<1, 57>", regex(pattern = "^[a-z0-9-]+$"))]
    name: String,
    kind: AlertChannelKind,
    #[schemars(flatten)]
    terms: ChannelTerms,
}

// Derived, a flattened field would let unknown ones pass.
impl<'de> Deserialize<'de> for ChannelCreation {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut fields = Map::deserialize(from)?;
        let mut take = |name| match fields.remove(name) {
            Some(Value::String(text)) => Ok(text),
            Some(_) => Err(D::Error::custom(format!("invalid {name}: it is not a text"))),
            None => Err(D::Error::missing_field(name)),
        };
        let name = take("name")?;
        let kind = AlertChannelKind::deserialize(Value::String(take("kind")?))
            .map_err(D::Error::custom)?;
        let terms = ChannelTerms::deserialize(Value::Object(fields)).map_err(D::Error::custom)?;
        Ok(Self { name, kind, terms })
    }
}

/// What a channel may say. What is absent stays, or is the default.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ChannelTerms {
    /// Of slack and webhook: where it posts. It is sealed; only its host is shown.
    #[schemars(extend("x-of" = { "kind": ["slack", "webhook"] }))]
    url: Option<Is<Text<1, 2048>>>,
    /// Of email: the addresses.
    #[schemars(with = "Option<Vec<Text<3, 254>>>", length(min = 1, max = 20))]
    #[schemars(extend("x-of" = { "kind": ["email"] }))]
    to: Option<Vec<String>>,
    /// Of command: its name in the settings.
    #[schemars(with = "Option<Text<1, 63>>", extend("x-of" = { "kind": ["command"] }))]
    command: Option<String>,
    /// The lowest severity that is told; `warning` if absent.
    severity: Option<Severity>,
    /// The classes that are told; empty: all.
    classes: Option<Vec<Class>>,
    /// Whether escalations of other tenants are told too; for the tenant `default`.
    all_tenants: Option<bool>,
    /// When only critical ones are told, like `22:00-06:00 Europe/Budapest` or `22:00-06:00 +01:00`; empty: never.
    #[schemars(with = "Option<Text<0, 100>>")]
    quiet_hours: Option<String>,
    /// The most messages in an hour; the last one has all the rest. Critical ones never wait for it, and what is over
    /// does not count. 20 if absent.
    #[serde(default, deserialize_with = "json_fields::whole")]
    #[schemars(with = "Option<Whole<1, { MAX_RATE as u64 }>>")]
    rate_per_hour: Option<u32>,
    /// How long escalations are collected for one message, like `15min`; `0s`: not at all.
    #[schemars(with = "Option<Text<1, 32>>")]
    digest: Option<String>,
    /// When one is told again that nobody has acknowledged; `0s`: never. `24h` if absent.
    #[schemars(with = "Option<Text<1, 32>>")]
    repeat_after: Option<String>,
}

/// An alert channel.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "AlertChannel")]
struct ChannelAnswer<'a> {
    id: Is<Uuid, &'a str>,
    tenant: Is<NameText, &'a str>,
    name: &'a Name,
    kind: AlertChannelKind,
    /// Where it goes, without what is secret.
    target: &'a str,
    /// The subscription that delivers its alerts.
    subscription: Is<NameText>,
    #[serde(flatten)]
    terms: &'a Terms,
    last_success_at: Option<Timestamp>,
    /// Since when its deliveries fail; null: they do not.
    failing_since: Option<Timestamp>,
    created_at: Timestamp,
    updated_at: Timestamp,
}

/// An alert channel just made.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "NewAlertChannel")]
struct NewChannelAnswer<'a, T = ChannelAnswer<'a>> {
    #[serde(flatten)]
    made: T,
    /// Of a webhook: what its requests are signed with. It is shown this once.
    secret: Option<Is<SecretText, &'a str>>,
}

/// A test that was stored.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "AlertTest")]
struct TestAnswer {
    /// The event: its deliveries say whether it arrived.
    #[schemars(with = "Uuid")]
    event_id: String,
    #[schemars(with = "NameText")]
    subscription: String,
}

/// Where a channel goes: the target as its subscription shows it, and the URL that has to be sealed.
struct Destination {
    target: Target,
    secret: Option<Zeroizing<String>>,
}

impl ChannelTerms {
    /// Where it goes; `None` if that is not said.
    fn destination(
        &self,
        api: &Api,
        kind: AlertChannelKind,
        tenant: &str,
    ) -> Result<Option<Destination>, Problem> {
        let Self { url, to, command, .. } = self;
        let plain = |target| Ok(Some(Destination { target, secret: None }));
        match (kind, url, to, command) {
            (_, None, None, None) => Ok(None),
            (AlertChannelKind::Slack | AlertChannelKind::Webhook, Some(url), None, None) => {
                let url = sealed_address(api, url)?;
                if url.as_str().contains('{') {
                    return Err(Problem::unprocessable(
                        "The url of a channel has no placeholders.",
                    ));
                }
                let scheme = if url.is_https() { "https" } else { "http" };
                let shown = format!("{scheme}://{}/***", url.authority());
                let shown = TargetUrl::parse(&shown).map_err(|error| {
                    Problem::unprocessable(format!("The url cannot be used: {error}"))
                })?;
                let secret = Some(Zeroizing::new(url.as_str().to_owned()));
                Ok(Some(Destination { target: Target::Http(shown), secret }))
            }
            (AlertChannelKind::Email, None, Some(to), None) => {
                let unusable = |what, why| Problem::unprocessable(format!("{what} {why}."));
                let settings = api.env.settings.get();
                let to = email::addresses(to, &settings.alerts.allowed_domains)
                    .map_err(|why| unusable("to", why))?;
                email::check(&settings).map_err(|why| unusable("No e-mail can be sent:", why))?;
                plain(Target::Email(format!("mailto:{to}")))
            }
            (AlertChannelKind::Command, None, None, Some(name)) => {
                if tenant != DEFAULT_TENANT {
                    let detail =
                        "A command runs on the machine: only the tenant default may name one.";
                    return Err(Problem::unprocessable(detail));
                }
                if !api.env.settings.get().alerts.commands.contains_key(name) {
                    let why = format!(
                        "There is no command {name:?} in the settings; add it under [alerts.commands]."
                    );
                    return Err(Problem::unprocessable(why));
                }
                plain(Target::Command(format!("command:{name}")))
            }
            _ => Err(Problem::unprocessable(
                "slack and webhook have a url, email has to, command has command, and no other one.",
            )),
        }
    }

    fn put(&self, into: &mut Terms) {
        let Self { severity, classes, all_tenants, quiet_hours, .. } = self;
        let Self { rate_per_hour, digest, repeat_after, .. } = self;
        replace(&mut into.severity, severity.as_ref());
        replace(&mut into.classes, classes.as_ref());
        replace(&mut into.all_tenants, all_tenants.as_ref());
        replace(&mut into.quiet_hours, quiet_hours.as_ref());
        replace(&mut into.rate_per_hour, rate_per_hour.as_ref());
        replace(&mut into.digest, digest.as_ref());
        replace(&mut into.repeat_after, repeat_after.as_ref());
    }
}

fn replace<T: Clone>(have: &mut T, with: Option<&T>) {
    if let Some(with) = with {
        have.clone_from(with);
    }
}

fn check(terms: &Terms, tenant: &str) -> Result<(), Problem> {
    terms.timing().map_err(|why| Problem::unprocessable(format!("{why}.")))?;
    if terms.wanted().is_empty() {
        let detail = "No escalation would be told: none of the classes has that severity.";
        return Err(Problem::unprocessable(detail));
    }
    if terms.all_tenants && tenant != DEFAULT_TENANT {
        return Err(Problem::unprocessable("all_tenants is for channels of the tenant default."));
    }
    Ok(())
}

/// `POST /v1/alert-channels`
fn create(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let ChannelCreation { name, kind, terms: given } = call.json()?;
    let subscription_name = Name::parse(&Channel::subscription_name(&name));
    let (Ok(name), Ok(subscription_name)) = (Name::parse(&name), subscription_name) else {
        let detail = format!("The name cannot be {name:?}; it is 1 to 57 of a-z, 0-9 and -.");
        return Err(Problem::unprocessable(detail));
    };
    let Some(destination) = given.destination(api, kind, &call.tenant)? else {
        let field = match kind {
            AlertChannelKind::Slack | AlertChannelKind::Webhook => "url",
            AlertChannelKind::Email => "to",
            AlertChannelKind::Command => "command",
        };
        return Err(Problem::unprocessable(format!("{field} is missing: where its alerts go.")));
    };
    let mut terms = Terms::default();
    given.put(&mut terms);
    check(&terms, &call.tenant)?;
    let now = api.env.clock.wall();
    let new = subscription(api, call, subscription_name, destination.target.clone(), now)?;
    let new = Arc::new(new);
    let channel = Channel {
        seq: 0,
        id: id::uuid7(now, &*api.env.draw),
        tenant: call.tenant.clone(),
        name,
        kind,
        subscription: SubscriptionSeq(0),
        terms,
        counted: Counted::default(),
        created_at: now,
        updated_at: now,
    };
    let signing = SigningSecret::generate(&*api.env.draw).to_text();
    let to_seal = to_seal(api, now, Settings::Signing {}, &signing);
    let seal = sealer(api);
    let secret = (kind == AlertChannelKind::Webhook).then_some(signing);
    change(api, call, move |tx| {
        let Some(seq) = subscriptions::insert(tx, &new, now)? else {
            let detail = format!("There is a subscription named {:?} already.", new.name.as_str());
            return Err(Problem::conflict(detail).into());
        };
        credentials::insert(tx, &to_seal.of(&new.tenant, Owner::Subscription(seq), now))?;
        let channel = Channel { subscription: seq, ..channel.clone() };
        let sealed = destination.secret.as_ref().map(|url| seal(&channel.id, url));
        store::insert(tx, &channel, sealed.as_ref())?;
        let made = Change::made("alert_channel", &channel.id, &shown(tx, &channel)?);
        let secret = secret.as_ref().map(|secret| secret.as_str().into());
        Ok(made.shown(|made| NewChannelAnswer { made, secret }))
    })
}

/// The subscription of a new channel.
fn subscription(
    api: &Api,
    call: &Call,
    name: Name,
    target: Target,
    now: Timestamp,
) -> Result<NewSubscription, Problem> {
    let event_types = Patterns::parse(&[ALERT_TYPE.to_owned()])
        .map_err(|error| Problem::unprocessable(error.to_string()))?;
    let owner_id = OWN_SOURCE.to_owned();
    Ok(NewSubscription {
        id: id::uuid7(now, &*api.env.draw),
        tenant: call.tenant.clone(),
        name,
        target,
        terms: SubscriptionTerms { event_types, owner_id, ..SubscriptionTerms::default() },
    })
}

/// What seals a channel's URL. Only the writer may use it: a rotation of the master key must not miss what it seals.
fn sealer(api: &Api) -> impl Fn(&str, &str) -> store::SealedUrl + Send + 'static {
    let key = Arc::clone(&api.env.keyring);
    let draw = Arc::clone(&api.env.draw);
    move |channel_id, url| {
        let key = key.current();
        (key.seal(&store::context(channel_id), url.as_bytes(), &*draw), key.key_id())
    }
}

/// `GET /v1/alert-channels`
fn list(api: &Api, call: &Call) -> Result<Response, Problem> {
    let page = call.query.page()?;
    let after = page.after.unwrap_or(0);
    let found = lists::read(api, call, |tx| {
        let channels = store::page(tx, &call.tenant, after, page.limit)?;
        channels
            .into_iter()
            .map(|channel| Ok((channel.seq, shown(tx, &channel)?)))
            .collect::<StoreResult<Vec<_>>>()
    })?;
    Ok(page_of(&found, page, |(seq, _)| *seq, |(_, shown)| shown.clone()))
}

/// `GET /v1/alert-channels/{name}`
fn show(api: &Api, call: &Call) -> Result<Response, Problem> {
    let channel = find(api, call)?;
    Ok(ok(&api.env.store.read(|tx| shown(tx, &channel))?))
}

/// `PATCH /v1/alert-channels/{name}`
fn change_one(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let given: ChannelTerms = call.json()?;
    let found = find(api, call)?;
    let destination = given.destination(api, found.kind, &call.tenant)?;
    let mut terms = found.terms;
    given.put(&mut terms);
    check(&terms, &call.tenant)?;
    let now = api.env.clock.wall();
    let seal = sealer(api);
    act(api, call, move |tx, before| {
        let mut channel = before.clone();
        given.put(&mut channel.terms);
        let mut sealed = None;
        if let Some(Destination { target, secret }) = &destination {
            sealed = secret.as_ref().map(|url| seal(&channel.id, url));
            if let Some(mut subscription) = subscriptions::by_seq(tx, channel.subscription)? {
                Arc::make_mut(&mut subscription.new).target = target.clone();
                crate::store::settlement::end_holds_by_change(tx, subscription.seq, now)?;
                subscriptions::update(tx, &subscription, now)?;
            }
        }
        store::update(tx, &channel, sealed.as_ref(), now)?;
        let channel = store::find(tx, &channel.tenant, channel.name.as_str())?
            .or_not_found("alert channel")?;
        Ok(Change::changed(
            "alert_channel",
            &channel.id,
            &shown(tx, before)?,
            &shown(tx, &channel)?,
        ))
    })
}

/// `DELETE /v1/alert-channels/{name}`
fn remove(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let now = api.env.clock.wall();
    act(api, call, move |tx, before| {
        let change = Change::gone("alert_channel", &before.id, &shown(tx, before)?);
        let Some(revoked) = store::delete(tx, before, now)? else {
            let most = store::MAX_CANCELLED;
            let detail = format!(
                "More than {most} deliveries of {:?} are open or dead: cancel or discard them first.",
                Channel::subscription_name(before.name.as_str())
            );
            return Err(Problem::conflict(detail).into());
        };
        Ok(change.and("revoked", revoked))
    })
}

/// `POST /v1/alert-channels/{name}/test`
fn test(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let at = api.env.clock.wall();
    let now = api.env.clock.now();
    let event_id = id::uuid7(at, &*api.env.draw);
    act(api, call, move |tx, channel| {
        store::send(tx, channel, &event_id, message::test(channel), at, now)?;
        let subscription = Channel::subscription_name(channel.name.as_str());
        let change = Change::changed("alert_channel", &channel.id, &(), &());
        let body = TestAnswer { event_id: event_id.clone(), subscription };
        Ok(change.and("event_id", event_id.as_str()).answer(body))
    })
}

/// Does something to one channel.
fn act(
    api: &Api,
    call: &Call,
    mut run: impl FnMut(&WriteTx<'_>, &Channel) -> ChangeResult + Send + 'static,
) -> Result<Audited<Value>, Problem> {
    let tenant = call.tenant.clone();
    let name = call.param(0).to_owned();
    change(api, call, move |tx| {
        run(tx, &store::find(tx, &tenant, &name)?.or_not_found("alert channel")?)
    })
}

fn find(api: &Api, call: &Call) -> Result<Channel, Problem> {
    api.env
        .store
        .read(|tx| store::find(tx, &call.tenant, call.param(0)))?
        .or_not_found("alert channel")
}

fn shown(tx: &ReadTx<'_>, channel: &Channel) -> StoreResult<Value> {
    let subscription: Option<Subscription> = subscriptions::by_seq(tx, channel.subscription)?;
    let of = subscription.as_ref();
    Ok(value(ChannelAnswer {
        id: channel.id.as_str().into(),
        tenant: channel.tenant.as_str().into(),
        name: &channel.name,
        kind: channel.kind,
        target: of.map(|found| found.new.target.url()).unwrap_or_default(),
        subscription: Channel::subscription_name(channel.name.as_str()).into(),
        terms: &channel.terms,
        last_success_at: of.and_then(|found| found.last_success_at),
        failing_since: of.and_then(|found| found.failing_since),
        created_at: channel.created_at,
        updated_at: channel.updated_at,
    }))
}
