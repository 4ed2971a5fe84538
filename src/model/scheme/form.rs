//! Schemes as settings: what is written in rows, in the API and in files.
//!
//! Not here: what the settings of one scheme mean, which its own file knows.

use serde_json::{Map, Value};

use super::adyen::Adyen;
use super::{Scheme, generic, header_list, plain};

/// The words, as they are told to people.
pub const KINDS: &[&str] = &[
    "standard",
    "stripe",
    "github",
    "shopify",
    "gitlab",
    "slack",
    "square",
    "paddle",
    "polar",
    "woocommerce",
    "chargebee",
    "twilio",
    "sendgrid",
    "mailgun",
    "adyen",
    "dynamics",
    "paypal",
    "sns",
    "gitea",
    "forgejo",
    "pagerduty",
    "linear",
    "terraform",
    "grafana",
    "frappe",
    "generic",
];

/// Why a scheme's settings are refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SchemeError {
    /// `kind` is missing or not a string.
    #[error("a scheme needs a `kind`, one of {}", KINDS.join(", "))]
    NoKind,
    /// There is no such scheme.
    #[error("there is no scheme `{kind}`; there are {}", KINDS.join(", "))]
    UnknownKind {
        /// What was asked for.
        kind: String,
    },
    /// The scheme cannot be set in this way.
    #[error("the scheme `{kind}` has no setting `{setting}`")]
    NoSuchSetting {
        /// The scheme.
        kind: String,
        /// The setting that it does not have.
        setting: String,
    },
    /// The settings do not fit together, or one is missing.
    #[error("the scheme `{kind}` cannot be set like this: {why}")]
    Settings {
        /// The scheme.
        kind: String,
        /// What is wrong.
        why: String,
    },
}

/// Settings of `chargebee`.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Basic {
    user: String,
}

/// The scheme of that word, if it needs no settings.
pub(super) fn plain(kind: &str) -> Option<Scheme> {
    Some(match kind {
        "standard" => Scheme::Standard,
        "polar" => Scheme::Polar,
        "gitlab" => Scheme::Gitlab,
        "twilio" => Scheme::Twilio,
        "mailgun" => Scheme::Mailgun,
        "sendgrid" => Scheme::Sendgrid,
        "dynamics" => Scheme::Dynamics,
        "adyen" => Scheme::Adyen(Adyen::default()),
        "stripe" => Scheme::Listed(&header_list::STRIPE),
        "paddle" => Scheme::Listed(&header_list::PADDLE),
        _ => Scheme::Plain(plain::of(kind)?),
    })
}

impl TryFrom<Map<String, Value>> for Scheme {
    type Error = SchemeError;

    fn try_from(mut settings: Map<String, Value>) -> Result<Self, SchemeError> {
        let Some(Value::String(kind)) = settings.remove("kind") else {
            return Err(SchemeError::NoKind);
        };
        if kind != "adyen"
            && let Some(scheme) = plain(&kind)
        {
            return match settings.keys().next() {
                Some(setting) => Err(SchemeError::NoSuchSetting { kind, setting: setting.clone() }),
                None => Ok(scheme),
            };
        }
        let settings = Value::Object(settings);
        let read = match kind.as_str() {
            "chargebee" => serde_json::from_value(settings)
                .map_err(|why| why.to_string())
                .and_then(|Basic { user }| {
                    let fits = generic::is_user(&user);
                    fits.then_some(Self::Chargebee { user })
                        .ok_or_else(|| generic::SettingsError::User.to_string())
                }),
            "adyen" => {
                serde_json::from_value(settings).map(Self::Adyen).map_err(|why| why.to_string())
            }
            "paypal" => serde_json::from_value(settings)
                .map(|paypal| Self::Paypal(Box::new(paypal)))
                .map_err(|why| why.to_string()),
            "sns" => serde_json::from_value(settings)
                .map(|sns| Self::Sns(Box::new(sns)))
                .map_err(|why| why.to_string()),
            "generic" => serde_json::from_value(settings)
                .map(|generic| Self::Generic(Box::new(generic)))
                .map_err(|why| why.to_string()),
            _ => return Err(SchemeError::UnknownKind { kind }),
        };
        read.map_err(|why| SchemeError::Settings { kind, why })
    }
}

impl From<Scheme> for Map<String, Value> {
    fn from(scheme: Scheme) -> Self {
        let mut settings = Self::new();
        settings.insert("kind".to_owned(), Value::from(scheme.kind()));
        let own = match scheme {
            Scheme::Chargebee { user } => serde_json::to_value(Basic { user }),
            Scheme::Paypal(paypal) => serde_json::to_value(paypal),
            Scheme::Sns(sns) => serde_json::to_value(sns),
            Scheme::Adyen(adyen) => serde_json::to_value(adyen),
            Scheme::Generic(generic) => serde_json::to_value(generic),
            Scheme::Standard
            | Scheme::Polar
            | Scheme::Gitlab
            | Scheme::Twilio
            | Scheme::Mailgun
            | Scheme::Sendgrid
            | Scheme::Dynamics
            | Scheme::Plain(_)
            | Scheme::Listed(_) => return settings,
        };
        if let Ok(Value::Object(own)) = own {
            settings.extend(own);
        }
        settings
    }
}
