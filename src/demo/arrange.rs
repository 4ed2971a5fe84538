//! What each side is told before the first invoice, and no more than that: who sends where, and under
//! which secret.

use serde_json::{Value, json};

use crate::demo::api::Api;
use crate::demo::error::Error;
use crate::demo::line;
use crate::demo::role::Role;
use crate::demo::site::{LOGISTICS_PATH, Site, write_secret};
use crate::demo::story::Story;

/// The provider that Finance's Oncebox is to Logistics' Oncebox.
const PROVIDER: &str = "finance";

/// Sets up the Onceboxes of a run.
pub(super) fn arrange(site: &Site) -> Result<(), Error> {
    match site.story {
        Story::Direct => direct(site, &Api::of(site, Role::Oncebox)?),
        Story::Chain => {
            chain(site, &Api::of(site, Role::Oncebox)?, &Api::of(site, Role::Downstream)?)
        }
    }
}

fn direct(site: &Site, oncebox: &Api) -> Result<(), Error> {
    let url = format!("http://{}{}", site.logistics, LOGISTICS_PATH);
    let subscription = json!({ "name": "logistics", "url": url, "event_types": ["invoice.paid"] });
    let made =
        oncebox.ask("POST", "/v1/subscriptions", "making the subscription", &subscription)?;
    let token = json!({ "name": "finance", "role": "publish", "source_systems": ["finance"] });
    let token = oncebox.ask("POST", "/v1/tokens", "making Finance's token", &token)?;
    write_secret(&site.secret(), &text(&made, "secret"))?;
    write_secret(&site.publish_token(), &text(&token, "token"))
}

/// The secret that the first Oncebox made for the second is the one under which the second knows it.
fn chain(site: &Site, first: &Api, second: &Api) -> Result<(), Error> {
    let source = json!({
        "name": "finance", "kind": "sqlite", "settings": { "path": site.finance_db() },
        "from": "start",
    });
    first.ask("POST", "/v1/sources", "making the source", &source)?;
    let url = format!("http://{}{}", site.line, line::PATH);
    let onward = json!({ "name": "logistics", "url": url, "event_types": ["invoice.paid"] });
    let onward = first.ask("POST", "/v1/subscriptions", "making the subscription", &onward)?;
    let provider = json!({
        "name": PROVIDER, "scheme": { "kind": "standard" }, "pii": "allow",
        "secret": text(&onward, "secret"),
    });
    second.ask("POST", "/v1/providers", "making the provider", &provider)?;
    let url = format!("http://{}{}", site.logistics, LOGISTICS_PATH);
    let last = json!({ "name": "erp", "url": url, "source": format!("provider:{PROVIDER}") });
    let last = second.ask("POST", "/v1/subscriptions", "making the last subscription", &last)?;
    write_secret(&site.secret(), &text(&last, "secret"))
}

fn text(value: &Value, field: &str) -> String {
    value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
}
