//! What a person wants of a new box, as flags. Nothing of it is needed.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;

use crate::cli::pii;
use crate::cli::prelude::*;
use crate::cli::provider::parse_scheme;
use crate::cli::trigger::Trigger;
use crate::model::target_url::TargetUrl;
use crate::signatures::{Scheme, kinds};

#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "What is wanted")]
pub(super) struct Wishes {
    /// Address of the API and the intake, like 127.0.0.1:8710
    #[arg(long, value_name = "ADDRESS")]
    pub(super) listen: Option<String>,
    /// URL under which providers reach this box
    #[arg(long, value_name = "URL")]
    pub(super) public_url: Option<String>,
    /// Address of the proxy in front, whose X-Forwarded-For counts; may be repeated
    #[arg(long = "trusted-proxy", value_name = "ADDRESS")]
    pub(super) trusted_proxies: Vec<String>,
    /// Scheme of a provider that posts webhooks; the provider gets its name
    #[arg(long, value_name = "SCHEME", requires = "pii", value_parser = PossibleValuesParser::new(kinds()))]
    pub(super) provider: Option<String>,
    /// How the provider's personal data is handled: allow, or a policy (oncebox pii test)
    #[arg(long, value_name = "allow|FILE|JSON", requires = "provider")]
    pub(super) pii: Option<String>,
    /// File with the provider's secret [default: one is made, and printed]
    #[arg(long, value_name = "FILE", requires = "provider")]
    pub(super) secret_file: Option<PathBuf>,
    /// URL that gets the provider's webhooks, or without a provider all events; a private address is allowed as well
    #[arg(long, value_name = "URL", value_parser = target)]
    pub(super) target: Option<String>,
}

/// A provider that is wanted.
#[derive(Debug)]
pub(super) struct ProviderWish {
    pub(super) name: String,
    pub(super) scheme: Scheme,
    /// The scheme as the API takes it.
    pub(super) scheme_json: Value,
    pub(super) pii: Value,
    pub(super) secret_file: Option<PathBuf>,
}

impl Wishes {
    /// Whether anything is wanted.
    pub(super) fn is_any(&self) -> bool {
        let settings = [&self.listen, &self.public_url];
        settings.iter().any(|wish| wish.is_some())
            || !self.trusted_proxies.is_empty()
            || self.provider.is_some()
            || self.target.is_some()
    }

    /// The provider, checked as far as it can be without the service.
    pub(super) fn provider(&self) -> Result<Option<ProviderWish>, Failure> {
        let Some(kind) = &self.provider else { return Ok(None) };
        let (scheme_json, scheme) = scheme(kind)?;
        let pii = self.pii.as_deref().unwrap_or_default();
        Ok(Some(ProviderWish {
            name: kind.clone(),
            scheme,
            scheme_json,
            pii: pii::policy_from_flag("--pii", pii)?,
            secret_file: self.secret_file.clone(),
        }))
    }
}

impl ProviderWish {
    /// What sends a sample of it.
    pub(super) fn trigger(&self, connect: &ConnectArgs) -> Trigger {
        Trigger::of(self.scheme.kind(), connect.clone())
    }
}

/// A scheme that needs no settings of its own.
pub(super) fn scheme(kind: &str) -> Result<(Value, Scheme), Failure> {
    parse_scheme(kind, None).map_err(|failure| {
        let first = format!("Make it with: oncebox provider create NAME --scheme {kind} …");
        failure.and(first).and("Then run setup without --provider.")
    })
}

/// The URL of a target, as it is stored.
pub(super) fn target(given: &str) -> Result<String, String> {
    TargetUrl::parse(given).map(|url| url.as_str().to_owned()).map_err(|why| why.to_string())
}
