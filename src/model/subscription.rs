//! A subscription: who wants which events, where they go and how.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use schemars::{JsonSchema, json_schema};
use serde::{Deserialize, Serialize, Serializer};

use crate::base::clock::Timestamp;
use crate::base::id::SubscriptionSeq;
use crate::base::schema::{
    HEADER_NAME, HeaderName, NameText, OrNull, SomeText, Text, Uuid, Whole, described, values,
};
use crate::base::words::{self, as_text, words};
use crate::model::database_target::DatabaseTarget;
use crate::model::event::OWN_SOURCE;
use crate::model::failure::Streak;
use crate::model::folder::Folder;
use crate::model::format::{
    Condition, Format, MAX_CONDITIONS, MAX_HEADERS, PayloadFilter, TemplateText,
};
use crate::model::health_probe::{Health, Probe};
use crate::model::hold::Hold;
use crate::model::json_fields;
use crate::model::kafka_topic::KafkaTopic;
use crate::model::lane::{Key, OrderTerms, Ordering, Scope};
use crate::model::name::Name;
use crate::model::outcome::AttemptClass;
use crate::model::pattern::Patterns;
use crate::model::target_url::TargetUrl;

/// Where a subscription's events come from. Stored in `subscriptions.source`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// Events of the outbox.
    #[default]
    Outbox,
    /// Webhook events of one provider.
    Provider(Name),
    /// Both.
    All,
}

impl Source {
    /// Reads `outbox`, `all` or `provider:<name>`; `None` for anything else.
    ///
    /// ```
    /// use oncebox::model::subscription::Source;
    /// assert_eq!(Source::parse("provider:stripe").unwrap().to_string(), "provider:stripe");
    /// assert!(Source::parse("stripe").is_err());
    /// ```
    pub fn parse(text: &str) -> Result<Self, String> {
        let provider = || Name::parse(text.strip_prefix("provider:")?).ok().map(Self::Provider);
        match text {
            "outbox" => Ok(Self::Outbox),
            "all" => Ok(Self::All),
            _ => provider().ok_or_else(|| {
                format!("source cannot be {text:?}; it is outbox, all, or provider:<name>")
            }),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outbox => f.write_str("outbox"),
            Self::All => f.write_str("all"),
            Self::Provider(name) => write!(f, "provider:{name}"),
        }
    }
}

as_text!(Source);
described!(
    Source,
    json_schema!({
        "type": "string", "pattern": "^(outbox|all|provider:[a-z0-9-]{1,63})$"
    })
);

words! {
    /// The method a subscription is called with.
    #[derive(Default)]
    pub enum CallMethod as "CallMethod" {
        /// `POST`
        #[default]
        Post = "POST",
        /// `PUT`
        Put = "PUT",
        /// `PATCH`
        Patch = "PATCH",
    }
}

/// Where a subscription's events go. Stored in `subscriptions.target_kind` and `url`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// We send them to a URL, which may have placeholders like `{aggregate_id}`.
    Http(TargetUrl),
    /// We write them to a topic.
    Kafka(KafkaTopic),
    /// We write each into a file of its own.
    Folder(Folder),
    /// We write them into a database of somebody else's.
    Database(DatabaseTarget),
    /// Consumers fetch them.
    Pull,
    /// We send them as e-mail: `mailto:` and the addresses, with commas.
    Email(String),
    /// We run a command of the settings: `command:` and its name. Of alert channels only.
    Command(String),
}

impl Target {
    /// The words for its kinds.
    pub const KINDS: [&str; 7] =
        ["http", "kafka", "folder", "database", "pull", "email", "command"];
    /// The kinds that a person may choose.
    pub const CHOSEN_KINDS: [&str; 6] = ["http", "kafka", "folder", "database", "email", "pull"];

    /// The word for its kind in SQL and API.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Http(_) => "http",
            Self::Kafka(_) => "kafka",
            Self::Folder(_) => "folder",
            Self::Database(_) => "database",
            Self::Pull => "pull",
            Self::Email(_) => "email",
            Self::Command(_) => "command",
        }
    }

    /// The URL; empty if consumers fetch the events.
    pub fn url(&self) -> &str {
        match self {
            Self::Http(url) => url.as_str(),
            Self::Kafka(topic) => topic.url(),
            Self::Folder(folder) => folder.url(),
            Self::Database(database) => database.url(),
            Self::Pull => "",
            Self::Email(url) | Self::Command(url) => url,
        }
    }

    /// What an attempt without an HTTP request shows as its URL.
    pub fn unfilled_url(&self) -> String {
        match self {
            Self::Http(_) | Self::Kafka(_) | Self::Pull => String::new(),
            Self::Folder(folder) => folder.url().to_owned(),
            Self::Database(database) => database.url().to_owned(),
            Self::Email(url) | Self::Command(url) => url.clone(),
        }
    }

    /// Whether events are sent to another machine: consumers do not fetch them, and the target is not on this machine.
    /// A mail server often stands on the site, so e-mail is tried without a connection to the outside as well.
    pub fn needs_network(&self) -> bool {
        matches!(self, Self::Http(url) if !url.is_on_this_machine())
    }

    /// Reads it back from its kind and its URL.
    pub fn parse(kind: &str, url: &str) -> Option<Self> {
        match kind {
            "http" => TargetUrl::parse(url).ok().map(Self::Http),
            "kafka" => KafkaTopic::parse(url).ok().map(Self::Kafka),
            "folder" => Folder::parse(url).ok().map(Self::Folder),
            "database" => DatabaseTarget::parse(url).ok().map(Self::Database),
            "pull" => url.is_empty().then_some(Self::Pull),
            "email" => url.starts_with("mailto:").then(|| Self::Email(url.to_owned())),
            "command" => url.starts_with("command:").then(|| Self::Command(url.to_owned())),
            _ => None,
        }
    }
}

impl Serialize for Target {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let url = Some(self.url()).filter(|url| !url.is_empty());
        TargetFields { target: self.kind(), url }.serialize(to)
    }
}

/// A target as it is shown.
#[derive(Serialize, JsonSchema)]
pub struct TargetFields<'a> {
    /// `http`: events are sent to `url`. `kafka`: they are written to a topic. `folder`: each is written into a file.
    /// `database`: each does something in a database of the settings.
    /// `email`: each is sent as a mail. `pull`: consumers ask for them, and there is no `url`. It stays what it was made with.
    #[schemars(with = "TargetKind")]
    target: &'a str,
    /// Where it is called; may hold `{aggregate_id}` and its like. Of `kafka`: `kafka://<cluster>/<topic>`. Of `folder`:
    /// `folder:` and an absolute path. Of `email`: `mailto:` and the addresses.
    #[schemars(with = "Option<Text<1, 2048>>")]
    url: Option<&'a str>,
}

values! {
    /// The kinds of a subscription's target.
    TargetKind = { "type": "string", "enum": Target::KINDS }
    /// Those of them that a person may choose.
    ChosenTargetKind = { "type": "string", "enum": Target::CHOSEN_KINDS }
    /// Header fields that a subscription adds to its requests.
    OwnHeaders = {
        "type": "object", "maxProperties": MAX_HEADERS,
        "additionalProperties": { "type": "string", "pattern": "^[ -~]*$" },
        "propertyNames": { "pattern": HEADER_NAME },
    }
    /// Classes by status, like `404`, or by hundred, like `5xx`.
    ClassesText = {
        "type": "object", "maxProperties": 64,
        "propertyNames": { "pattern": "^([1-5][0-9][0-9]|[1-5]xx)$" },
        "additionalProperties": { "type": "string", "enum": AttemptClass::ALL },
    }
}

words! {
    /// Whether a subscription is called. Stored in `subscriptions.state`.
    pub enum SubscriptionState as "SubscriptionState" {
        /// Called when it has something due and no hold.
        Active = "ACTIVE",
        /// A person paused it. Left by resume.
        Paused = "PAUSED",
        /// The target answered 410, or has failed for five days. Left by resume.
        DisabledDead = "DISABLED_DEAD",
    }
}

/// How it is called where that differs from the settings.
// Stored as JSON in `policy`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// Waits between attempts, like `5s`, `30min`; the last is repeated.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<SomeText>>", length(min = 1, max = 50))]
    pub steps: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "json_fields::whole")]
    #[schemars(with = "Option<Whole<1, 1000>>")]
    pub max_attempts: Option<u32>,
    /// Time for a whole attempt, like `30s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<SomeText>")]
    pub timeout: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "json_fields::whole")]
    #[schemars(with = "Option<Whole<1, 256>>")]
    pub in_flight_max: Option<u32>,
    /// How long a pull consumer has an event to itself: `1s` to `12h`; `60s` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<SomeText>")]
    pub lease: Option<String>,
    /// Requests at most, like `10/s`, `60/min` or `5000/h`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<SomeText>")]
    pub rate: Option<String>,
    /// Transient failures in a row after which it is held and probed; 0: never; 10 if absent.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "json_fields::whole")]
    #[schemars(with = "Option<Whole<0, 100_000>>")]
    pub breaker_after: Option<u32>,
    /// How long the target has to confirm what it accepted: `1s` to `30days`. Without it, a 2xx completes a delivery.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<SomeText>")]
    pub confirm_within: Option<String>,
    /// What answers mean where that differs from the default, like `{"409": "success", "5xx": "validation"}`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "ClassesText")]
    pub classes: BTreeMap<String, AttemptClass>,
    /// Whether requests have the header fields that name the event: `oncebox-event-type`, `oncebox-aggregate-type`,
    /// `oncebox-aggregate-id`, and the field in which a provider names the type of its webhook; true if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_fields: Option<bool>,
    /// How the target is probed when nothing was sent to it for a while; it is not if absent.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "json_fields::optional_object"
    )]
    pub probe: Option<Probe>,
}

/// The terms of a subscription, without its name and its target. A creation, a declared subscription and an answer have
/// these fields, a change has some of them, and each is a column.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SubscriptionTerms {
    /// Which types it wants, like `invoice.*`; `*` for all.
    pub event_types: Patterns,
    /// Where its events come from: `outbox`, `all`, or `provider:<name>`.
    #[serde(deserialize_with = "json_fields::or_default")]
    #[schemars(with = "OrNull<Source>")]
    pub source: Source,
    /// The person or system that answers for it.
    #[schemars(with = "Text<0, 255>")]
    pub owner_id: String,
    pub method: CallMethod,
    /// Further header fields of its requests. Fields that carry secrets are refused: set a credential.
    #[schemars(with = "OwnHeaders")]
    pub headers: BTreeMap<String, String>,
    #[serde(deserialize_with = "json_fields::object")]
    pub policy: Policy,
    /// `key`: events with the same `ordering_key`, else of the same aggregate, go one after another; `strict`: all of
    /// them do. Of events stored from then on.
    #[serde(deserialize_with = "words::or_default")]
    #[schemars(with = "OrNull<Ordering>")]
    pub ordering: Ordering,
    #[serde(deserialize_with = "json_fields::object")]
    pub order: OrderTerms,
    /// How a payload stands in a request.
    pub format: Format,
    /// Names of the events' header fields that are sent with them, whatever their case.
    #[schemars(with = "Vec<HeaderName>", length(max = 64))]
    pub event_headers: Vec<String>,
    /// What a payload must meet, every condition. Nothing if empty or null. Of events stored from then on.
    #[schemars(with = "OrNull<Vec<Condition>>", length(max = MAX_CONDITIONS))]
    pub filter: PayloadFilter,
    /// What requests are written with. Null: by their format alone.
    #[serde(deserialize_with = "json_fields::optional_object")]
    pub template: Option<TemplateText>,
}

impl SubscriptionTerms {
    /// Replaces the field of this name by that of `other`.
    pub fn replace(&mut self, name: &str, other: &Self) {
        let Self {
            event_types,
            source,
            owner_id,
            method,
            headers,
            policy,
            ordering,
            order,
            format,
            event_headers,
            filter,
            template,
        } = other;
        match name {
            "event_types" => self.event_types.clone_from(event_types),
            "source" => self.source.clone_from(source),
            "owner_id" => self.owner_id.clone_from(owner_id),
            "method" => self.method = *method,
            "headers" => self.headers.clone_from(headers),
            "policy" => self.policy.clone_from(policy),
            "ordering" => self.ordering = *ordering,
            "order" => self.order.clone_from(order),
            "format" => self.format = *format,
            "event_headers" => self.event_headers.clone_from(event_headers),
            "filter" => self.filter.clone_from(filter),
            "template" => self.template.clone_from(template),
            _ => {}
        }
    }
}

/// A subscription to be stored. Its terms can be read as fields of its own.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct NewSubscription {
    #[schemars(with = "Uuid")]
    pub id: String,
    #[schemars(with = "NameText")]
    pub tenant: String,
    // Unique per tenant.
    pub name: Name,
    #[serde(flatten)]
    #[schemars(with = "TargetFields<'static>")]
    pub target: Target,
    #[serde(flatten)]
    pub terms: SubscriptionTerms,
}

impl Deref for NewSubscription {
    type Target = SubscriptionTerms;

    fn deref(&self) -> &SubscriptionTerms {
        &self.terms
    }
}

/// A subscription, without its secret.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Subscription {
    /// Its number in the file.
    #[serde(skip)]
    pub seq: SubscriptionSeq,
    /// What it was stored with, or last changed to. Shared with all others that know it.
    #[serde(flatten, serialize_with = "shared")]
    pub new: Arc<NewSubscription>,
    pub state: SubscriptionState,
    /// Why it is not called for now.
    pub holds: Vec<Hold>,
    /// Whether its target works; null if it is not probed.
    pub health: Option<Health>,
    /// The host that had an address on a network of this machine: no line to the outside is needed.
    #[serde(skip)]
    pub site_host: Option<String>,
    /// Failed attempts since the last success.
    pub failure_count: u32,
    /// The latest of these failures that have one class.
    #[serde(skip)]
    pub streak: Streak,
    // The first of these failures.
    pub failing_since: Option<Timestamp>,
    pub last_success_at: Option<Timestamp>,
    pub last_failure_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

fn shared<S: Serializer>(new: &Arc<NewSubscription>, to: S) -> Result<S::Ok, S::Error> {
    NewSubscription::serialize(new, to)
}

/// What routing needs to know about an event.
#[derive(Clone, Copy, Debug)]
pub struct Routed<'a> {
    /// Its tenant.
    pub tenant: &'a str,
    /// The provider, for a webhook event; `None` for an event of the outbox.
    pub provider: Option<&'a str>,
    /// Whether it is an event of Oncebox itself. These are sent only to subscriptions that name their type.
    pub is_own: bool,
    /// Its type.
    pub event_type: &'a str,
    /// The only subscription it is for.
    pub target: Option<&'a str>,
    /// The fields that decide its lane.
    pub key: Key<'a>,
}

impl Subscription {
    /// Whose lanes and funnels its deliveries are in.
    pub fn scope(&self) -> Scope<'_> {
        self.new.scope(self.seq)
    }

    /// Whether a person relies on no further attempt: even one that was already scheduled is not started.
    pub fn is_held_by_a_person(&self) -> bool {
        self.holds.iter().any(|hold| hold.reason.is_by_a_person())
    }
}

impl NewSubscription {
    /// Whose lanes and funnels the deliveries of the subscription with this number are in.
    pub fn scope(&self, subscription: SubscriptionSeq) -> Scope<'_> {
        let Self { tenant, terms, .. } = self;
        Scope { subscription, tenant, ordering: terms.ordering, terms: &terms.order }
    }

    /// Whether the order of its events matters: in lanes, or because an older state must not follow a newer one.
    pub fn asks_for_order(&self) -> bool {
        let OrderTerms { latest_only, external_calls, .. } = &self.order;
        self.ordering != Ordering::None || *latest_only || external_calls.is_some()
    }

    /// Whether a delivery may have to wait until another one's outcome is stored.
    pub fn sends_one_by_one(&self) -> bool {
        let is_capped = self.policy.in_flight_max.is_some();
        self.asks_for_order() || is_capped || self.order.funnel_point.is_some()
    }

    /// Whether matching an event looks at its payload.
    pub fn reads_payload(&self) -> bool {
        !self.filter.is_empty() || self.order.call_path.is_some()
    }

    /// Whether it belongs to an alert channel. Nobody else may use this owner.
    pub fn is_of_alerts(&self) -> bool {
        self.owner_id == OWN_SOURCE
    }

    /// Whether it wants this event. If the event names its target, the patterns do not count, but the source does.
    pub fn wants(&self, event: Routed<'_>) -> bool {
        let from = match (&self.source, event.provider) {
            (Source::All, _) | (Source::Outbox, None) => true,
            (Source::Provider(name), Some(provider)) => name.as_str() == provider,
            (Source::Outbox, Some(_)) | (Source::Provider(_), None) => false,
        };
        let named = event.target.map(|target| target == self.name.as_str());
        self.tenant == event.tenant
            && from
            && (event.is_own || !self.is_of_alerts())
            && named.unwrap_or_else(|| {
                let types = &self.event_types;
                types.names(event.event_type) || (!event.is_own && types.matches(event.event_type))
            })
    }
}
