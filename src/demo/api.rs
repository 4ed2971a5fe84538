//! Asking an Oncebox of the run over its API, as any program would.

use std::time::Duration;

use serde_json::Value;

use crate::demo::error::Error;
use crate::demo::role::Role;
use crate::demo::site::{Site, loopback_client, read_line};
use crate::http::client::{Call, Client};

/// How long a question may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The API of one Oncebox, with its administrator's token.
pub(super) struct Api {
    client: Client,
    base: String,
    headers: [(String, String); 2],
}

impl Api {
    /// Of an Oncebox that was ready once, so that its first token is there.
    pub(super) fn of(site: &Site, role: Role) -> Result<Self, Error> {
        let address = if role == Role::Downstream { site.downstream } else { site.oncebox };
        let admin = read_line(&site.admin_token(role))?;
        Ok(Self {
            client: loopback_client()?,
            base: format!("http://{address}"),
            headers: [
                ("content-type".to_owned(), "application/json".to_owned()),
                ("authorization".to_owned(), format!("Bearer {admin}")),
            ],
        })
    }

    pub(super) fn ask(
        &self,
        method: &str,
        path: &str,
        what: &'static str,
        body: &Value,
    ) -> Result<Value, Error> {
        let url = format!("{}{path}", self.base);
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let (headers, body, timeout) = (&self.headers, body.as_bytes(), TIMEOUT);
        let refused = |status, said: String| Error::Refused { what, status, said };
        let answer = self.client.call(&Call { method, url: &url, headers, body, timeout });
        let answer = answer.map_err(|error| refused(0, error.to_string()))?;
        if !(200..300).contains(&answer.status) {
            let said = String::from_utf8_lossy(&answer.body).into_owned();
            return Err(refused(answer.status, said));
        }
        serde_json::from_slice(&answer.body)
            .map_err(|error| refused(answer.status, error.to_string()))
    }

    /// Deliveries it still has; `None` when it does not say.
    pub(super) fn pending(&self) -> Option<u32> {
        let stats = self.ask("GET", "/v1/stats", "asking for its numbers", &Value::Null).ok()?;
        u32::try_from(stats.get("pending")?.as_u64()?).ok()
    }
}
