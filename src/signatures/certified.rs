//! PayPal and Amazon SNS: the provider signs with a certificate, and the request names its URL.

use serde_json::Value;

use super::certificate::check_pem;
use super::check::{Incoming, Refused, Verified};
use super::naming::Facts;
use super::paypal::{self, Paypal};
use super::sns::{self, Sns};
use crate::base::clock::Timestamp;

/// A scheme whose provider signs with a certificate, and its settings.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[serde(untagged)]
pub enum Certified {
    /// PayPal.
    Paypal(Paypal),
    /// Amazon SNS.
    Sns(Sns),
}

impl Certified {
    /// The scheme of that kind, or why its settings are refused.
    pub(super) fn parse(kind: &str, settings: Value) -> Result<Self, String> {
        let (read, certificates) = if kind == paypal::FACTS.kind {
            let paypal: Paypal =
                serde_json::from_value(settings).map_err(|error| error.to_string())?;
            paypal.check()?;
            let certificates = paypal.certificates.clone();
            (Self::Paypal(paypal), certificates)
        } else {
            let sns: Sns = serde_json::from_value(settings).map_err(|error| error.to_string())?;
            sns.check()?;
            let certificates = sns.certificates.clone();
            (Self::Sns(sns), certificates)
        };
        if certificates.is_some_and(|text| !check_pem(&text)) {
            return Err("`certificates` must be PEM certificates with RSA keys".to_owned());
        }
        Ok(read)
    }

    pub(super) fn facts(&self) -> &'static Facts {
        match self {
            Self::Paypal(_) => &paypal::FACTS,
            Self::Sns(_) => &sns::FACTS,
        }
    }

    /// The URL of a request's certificate; `None` if the settings contain one.
    pub(super) fn certificate_url(
        &self,
        incoming: &Incoming<'_>,
    ) -> Result<Option<String>, Refused> {
        match self {
            Self::Paypal(Paypal { certificates: Some(_), .. })
            | Self::Sns(Sns { certificates: Some(_), .. }) => Ok(None),
            Self::Paypal(_) => paypal::certificate_url(incoming).map(Some),
            Self::Sns(sns) => sns::certificate_url(sns, incoming).map(Some),
        }
    }

    pub(super) fn verify(
        &self,
        fetched: Option<&[u8]>,
        incoming: &Incoming<'_>,
        now: Timestamp,
    ) -> Result<Verified, Refused> {
        match self {
            Self::Paypal(paypal) => paypal::verify(paypal, fetched, incoming, now),
            Self::Sns(sns) => sns::verify(sns, fetched, incoming),
        }
    }

    /// The time that a request says it was signed at.
    pub(super) fn claimed_time(&self, incoming: &Incoming<'_>) -> Option<Timestamp> {
        match self {
            Self::Paypal(_) => Timestamp::parse(incoming.headers.get(paypal::TIME)?),
            Self::Sns(_) => None,
        }
    }

    /// See [`super::Scheme::nonce`].
    pub(super) fn nonce(&self, incoming: &Incoming<'_>) -> Option<String> {
        match self {
            Self::Paypal(_) => incoming.headers.get(paypal::TRANSMISSION).map(str::to_owned),
            Self::Sns(_) => None,
        }
    }

    /// The URL that confirms a subscription, if the settings allow calling it.
    pub(super) fn confirmation(&self, incoming: &Incoming<'_>) -> Option<String> {
        match self {
            Self::Paypal(_) => None,
            Self::Sns(sns) => sns::confirmation(sns, incoming),
        }
    }

    pub(super) const fn why_no_sample(&self) -> &'static str {
        match self {
            Self::Paypal(_) => {
                "PayPal signs with the key of its own certificate, which nobody else has; a payment in its sandbox \
                 sends a real one"
            }
            Self::Sns(_) => {
                "Amazon signs with the key of its own certificate, which nobody else has; `aws sns publish` to the \
                 topic sends a real one"
            }
        }
    }
}
