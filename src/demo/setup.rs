//! Configures the Onceboxes of a run over their API: subscriptions, sources, providers and tokens.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::demo::site::{
    CLUSTER, Error, LOGISTICS_PATH, Role, Site, Topology, loopback_client, read_line, write_secret,
};
use crate::demo::{line, topic};
use crate::http::client::{Call, Client};

/// The provider's name for Finance's Oncebox at Logistics' Oncebox.
const PROVIDER: &str = "finance";

/// Configures the Onceboxes of a run.
pub(super) fn configure(site: &Site) -> Result<(), Error> {
    match site.run.topology {
        Topology::Direct => {
            let url = format!("http://{}{}", site.logistics, LOGISTICS_PATH);
            direct(site, &Api::of(site, Role::Oncebox)?, &url)
        }
        Topology::Kafka => {
            let url = format!("kafka://{}/{}", CLUSTER, topic::TOPIC);
            direct(site, &Api::of(site, Role::Oncebox)?, &url)
        }
        Topology::Chain => {
            chain(site, &Api::of(site, Role::Oncebox)?, &Api::of(site, Role::Downstream)?)
        }
    }
}

fn direct(site: &Site, oncebox: &Api, url: &str) -> Result<(), Error> {
    let subscription = json!({ "name": "logistics", "url": url, "event_types": ["invoice.paid"] });
    let made =
        oncebox.request("POST", "/v1/subscriptions", "making the subscription", &subscription)?;
    let token = json!({ "name": "finance", "role": "publish", "source_systems": ["finance"] });
    let token = oncebox.request("POST", "/v1/tokens", "making Finance's token", &token)?;
    write_secret(&site.secret(), &text(&made, "secret"))?;
    write_secret(&site.publish_token(), &text(&token, "token"))
}

/// The second Oncebox gets the secret that the first one signs with.
fn chain(site: &Site, first: &Api, second: &Api) -> Result<(), Error> {
    let source = json!({
        "name": "finance", "kind": "sqlite", "settings": { "path": site.finance_db() },
        "from": "start",
    });
    first.request("POST", "/v1/sources", "making the source", &source)?;
    let url = format!("http://{}{}", site.line, line::PATH);
    let onward = json!({ "name": "logistics", "url": url, "event_types": ["invoice.paid"] });
    let onward = first.request("POST", "/v1/subscriptions", "making the subscription", &onward)?;
    let provider = json!({
        "name": PROVIDER, "scheme": { "kind": "standard" }, "pii": "allow",
        "secret": text(&onward, "secret"),
    });
    second.request("POST", "/v1/providers", "making the provider", &provider)?;
    let url = format!("http://{}{}", site.logistics, LOGISTICS_PATH);
    let last = json!({ "name": "erp", "url": url, "source": format!("provider:{PROVIDER}") });
    let last =
        second.request("POST", "/v1/subscriptions", "making the last subscription", &last)?;
    write_secret(&site.secret(), &text(&last, "secret"))
}

fn text(value: &Value, field: &str) -> String {
    value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Time limit of a request.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The API of one Oncebox, with its administrator's token.
pub struct Api {
    client: Client,
    base: String,
    headers: [(String, String); 2],
}

impl Api {
    /// The API of an Oncebox that has been ready, so that its first token exists.
    pub(super) fn of(site: &Site, role: Role) -> Result<Self, Error> {
        let address = if role == Role::Downstream { site.downstream } else { site.oncebox };
        Self::at(address, &site.admin_token(role))
    }

    /// The API at an address, with the token in a file.
    pub fn at(address: SocketAddr, token: &Path) -> Result<Self, Error> {
        let admin = read_line(token)?;
        Ok(Self {
            client: loopback_client()?,
            base: format!("http://{address}"),
            headers: [
                ("content-type".to_owned(), "application/json".to_owned()),
                ("authorization".to_owned(), format!("Bearer {admin}")),
            ],
        })
    }

    /// Asks for something; `what` says in an error what it was.
    pub fn request(
        &self,
        method: &str,
        path: &str,
        what: &'static str,
        body: &Value,
    ) -> Result<Value, Error> {
        let url = &format!("{}{path}", self.base);
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let refused = |status, body: String| {
            Error::Failed(format!("Oncebox answered {status} to {what}: {body}"))
        };
        let call = Call {
            method,
            url,
            headers: &self.headers,
            body: body.as_bytes(),
            timeout: TIMEOUT,
            ..Call::default()
        };
        let answer = self.client.call(&call).map_err(|error| refused(0, error.to_string()))?;
        if !(200..300).contains(&answer.status) {
            let body = String::from_utf8_lossy(&answer.body).into_owned();
            return Err(refused(answer.status, body));
        }
        serde_json::from_slice(&answer.body)
            .map_err(|error| refused(answer.status, error.to_string()))
    }

    /// Pending deliveries; `None` if it does not answer.
    pub fn pending(&self) -> Option<u32> {
        let stats =
            self.request("GET", "/v1/stats", "asking for its numbers", &Value::Null).ok()?;
        u32::try_from(stats.get("pending")?.as_u64()?).ok()
    }
}
