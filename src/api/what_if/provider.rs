//! What changed terms of a provider would have done with its stored webhooks: its policy on personal data, the place of its
//! ordering key, and the largest body.
//!
//! Webhooks are stored after the policy of their time was applied. What it dropped is not looked at, and what it sealed stays
//! hidden.

use serde_json::Value;

use crate::api::call::SHOWN_FACTOR;
use crate::api::prelude::*;
use crate::api::what_if::{WalkFilter, Walked, WalkedEvent, walk};
use crate::base::headers::Headers;
use crate::model::provider::KeyPlace;
use crate::model::webhook_event::NewWebhookEvent;
use crate::pipeline::receive::ordering_key;
use crate::privacy::policy::{Finding, Pii};
use crate::privacy::{Fresh, NotAdmitted};
use crate::signatures::provider::NewProvider;
use crate::store::webhook_events::{self, WebhookEventFilter};

/// Examples of each difference.
const MAX_OF_EACH: usize = 7;
/// Examples at most.
const MAX_EXAMPLES: usize = 3 * MAX_OF_EACH;
/// Values that an example names.
const MAX_VALUES: usize = 5;

/// What the terms of a provider would have done with its stored webhooks. Nothing was saved.
#[derive(Default, Serialize, JsonSchema)]
pub(in crate::api) struct ProviderWhatIf {
    #[serde(flatten)]
    walked: Walked,
    /// Webhooks that would be refused.
    refused: u64,
    /// Webhooks of which the policy on personal data would store something otherwise.
    changed: u64,
    /// Webhooks that would have another ordering key, or none.
    other_key: u64,
    /// Webhooks with sealed fields, whose content was not looked at.
    sealed: u64,
    /// Up to seven examples of each difference, the newest first.
    #[schemars(length(max = MAX_EXAMPLES))]
    examples: Vec<ProviderExample>,
}

/// The answer to a change of a provider.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes two kinds of answers")]
pub(in crate::api) enum OrPeriod<T> {
    Provider(T),
    Period(Box<ProviderWhatIf>),
}

/// What differs for a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "ProviderDifference")]
enum Difference {
    /// It would be refused.
    Refused,
    /// Something of it would be stored otherwise.
    Changed,
    /// It would have another ordering key.
    OtherKey,
}

/// One webhook for which the terms make a difference.
#[derive(Serialize, JsonSchema)]
struct ProviderExample {
    event: Is<Uuid>,
    event_type: String,
    received_at: Timestamp,
    difference: Difference,
    /// What is refused or stored otherwise, and where, without values; or both ordering keys.
    why: String,
}

/// What is asked of a provider.
pub(in crate::api) struct AskedProvider<'a> {
    /// As it is stored.
    pub(in crate::api) stored: &'a NewProvider,
    /// As it would be.
    pub(in crate::api) wanted: &'a NewProvider,
    /// The period, such as `7d`, or where a walk goes on.
    pub(in crate::api) period: &'a str,
}

impl AskedProvider<'_> {
    /// Shows what its terms would have done with the stored webhooks of a period.
    /// Fails with 422 if the period is no span, or the ordering key is in a header field that is not stored.
    pub(in crate::api) fn show(&self, api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
        let is_moved = self.wanted.ordering_key != self.stored.ordering_key;
        if let Some(KeyPlace::Header(name)) = self.wanted.ordering_key.as_ref().filter(|_| is_moved)
        {
            return Err(Problem::unprocessable(format!(
                "what_if cannot tell what an ordering key in {name} would do: not all header fields of webhooks are stored."
            )));
        }
        let provider = Some(self.stored.name.to_string());
        let webhooks = WebhookEventFilter { provider, ..WebhookEventFilter::default() };
        let filter = WalkFilter { outbox: None, webhooks: Some(webhooks) };
        let mut seen = ProviderWhatIf::default();
        let look = |file: &Api, event: &WalkedEvent| seen.look(file, self, event);
        seen.walked = walk(api, call, self.period, filter, look)?;
        Ok(Audited::dry_run(value(seen)))
    }

    /// What differs for a webhook, with the reason.
    fn judge(
        &self,
        api: &Api,
        webhook: &NewWebhookEvent,
    ) -> Result<Vec<(Difference, String)>, Problem> {
        if let Some(why) = self.refusal(api, webhook)? {
            return Ok(vec![(Difference::Refused, why)]);
        }
        let changed = self.changed_values(api, webhook).map(|why| (Difference::Changed, why));
        let moved = self.moved_key(webhook).map(|why| (Difference::OtherKey, why));
        Ok(changed.into_iter().chain(moved).collect())
    }

    /// Why a webhook would be refused.
    fn refusal(&self, api: &Api, webhook: &NewWebhookEvent) -> Result<Option<String>, Problem> {
        let bytes = webhook.payload.len();
        let most = self.wanted.body_bytes_max;
        if u32::try_from(bytes).map_or(true, |bytes| bytes > most) {
            return Ok(Some(format!("its body has {bytes} bytes; body_bytes_max is {most}")));
        }
        if key_of(self.wanted, webhook).is_err() {
            return Ok(Some("its ordering key cannot be read".to_owned()));
        }
        let Some(policy) = self.wanted.pii.rules() else { return Ok(None) };
        let mut admitted = webhook.clone();
        match api.env.privacy.admit_webhook(policy, &mut admitted, &mut Fresh::default()) {
            Ok(()) => Ok(None),
            Err(NotAdmitted::Refused { why, .. }) => Ok(Some(why.to_string())),
            Err(NotAdmitted::Failed(error)) => Err(error.into()),
        }
    }

    /// The values that one policy changes and the other leaves as they are.
    fn changed_values(&self, api: &Api, webhook: &NewWebhookEvent) -> Option<String> {
        let now = findings(api, &self.stored.pii, webhook);
        let then = findings(api, &self.wanted.pii, webhook);
        let has = |all: &[Finding], one: &Finding| all.iter().any(|other| is_same(other, one));
        let more = then.iter().filter(|one| !has(&now, one));
        let fewer = now.iter().filter(|one| !has(&then, one));
        let more = more.map(|one| format!("{} {}", one.action.as_str(), one.path));
        let fewer = fewer.map(|one| format!("no longer {} {}", one.action.as_str(), one.path));
        let told: Vec<String> = more.chain(fewer).collect();
        let mut shown: Vec<String> = told.iter().take(MAX_VALUES).cloned().collect();
        let hidden = told.len().saturating_sub(MAX_VALUES);
        if hidden > 0 {
            shown.push(format!("and {hidden} more"));
        }
        (!told.is_empty()).then(|| shown.join("; "))
    }

    /// Both ordering keys, if they differ.
    fn moved_key(&self, webhook: &NewWebhookEvent) -> Option<String> {
        if self.wanted.ordering_key == self.stored.ordering_key {
            return None;
        }
        let shown = |key: Option<String>| key.unwrap_or_else(|| "none".to_owned());
        let now = key_of(self.stored, webhook).ok().flatten();
        let then = key_of(self.wanted, webhook).ok().flatten();
        (now != then).then(|| format!("{} in place of {}", shown(then), shown(now)))
    }
}

impl ProviderWhatIf {
    fn look(
        &mut self,
        file: &Api,
        asked: &AskedProvider<'_>,
        event: &WalkedEvent,
    ) -> Result<(), Problem> {
        if event.is_expunged {
            return Ok(());
        }
        let tenant = asked.stored.tenant.as_str();
        let found = file.env.store.read(|tx| webhook_events::by_id(tx, tenant, &event.id))?;
        // Archived or expunged meanwhile.
        let Some(found) = found else { return Ok(()) };
        let webhook = found.new;
        let _share = file.share(webhook.payload.len().saturating_mul(SHOWN_FACTOR))?;
        let is_sealed = webhook.sealed.fields > 0;
        self.sealed = self.sealed.saturating_add(is_sealed.into());
        for (difference, why) in asked.judge(file, &webhook)? {
            let count = match difference {
                Difference::Refused => &mut self.refused,
                Difference::Changed => &mut self.changed,
                Difference::OtherKey => &mut self.other_key,
            };
            *count = count.saturating_add(1);
            let shown = self.examples.iter().filter(|example| example.difference == difference);
            if shown.count() < MAX_OF_EACH {
                self.examples.push(ProviderExample {
                    event: webhook.id.clone().into(),
                    event_type: webhook.event_type.clone(),
                    received_at: webhook.received_at,
                    difference,
                    why,
                });
            }
        }
        Ok(())
    }
}

/// The ordering key of a stored webhook; an error if it cannot be read.
fn key_of(provider: &NewProvider, webhook: &NewWebhookEvent) -> Result<Option<String>, ()> {
    let mut headers = Headers::default();
    for (name, value) in &webhook.headers {
        headers.push(name, value.as_bytes());
    }
    ordering_key(provider, &headers, webhook.body()).map_err(drop)
}

/// The findings of a policy in a stored webhook; none if the policy refuses the webhook.
fn findings(api: &Api, pii: &Pii, webhook: &NewWebhookEvent) -> Vec<Finding> {
    let Some(policy) = pii.rules() else { return Vec::new() };
    let names = api.env.privacy.names();
    let hash = |text: &str| names.value(&webhook.tenant, text);
    let applied = policy.apply(&webhook.content_type, &webhook.payload, &hash, true);
    applied.map(|applied| applied.findings).unwrap_or_default()
}

/// Whether two findings say the same, whatever the number of their rule.
fn is_same(one: &Finding, other: &Finding) -> bool {
    one.action == other.action && one.path == other.path && one.detector == other.detector
}
