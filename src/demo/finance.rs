//! Finance: simulates an ERP that marks invoices paid and publishes an event for each until Oncebox acknowledges it. In a
//! chain, a trigger writes the events into Finance's own outbox table instead.
//!
//! All its state is in its database, so a kill loses nothing: unacknowledged events are published again under the same
//! key.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::base::clock::Clock;
use crate::base::stop::Stop;
use crate::config::Log;
use crate::demo::chaos;
use crate::demo::site::{Error, Run, Site, Topology, loopback_client, read_line};
use crate::demo::store::{Invoice, Ledger};
use crate::http::client::{Call, Client};
use crate::sys::host::end_with_parent;
use crate::telemetry;

/// Most events of one request.
const MAX_BATCH: u32 = 200;
/// Most invoices that are paid in one transaction.
const MAX_PAID_AT_ONCE: u32 = 500;
/// How often it checks for invoices to pay or publish.
const POLL_EVERY: Duration = Duration::from_millis(10);
/// Wait after a failed publication.
const RETRY_AFTER: Duration = Duration::from_millis(50);
/// Time limit of a publication.
const TIMEOUT: Duration = Duration::from_secs(2);

struct Finance {
    site: Site,
    life: u32,
    clock: Clock,
    client: Client,
    url: String,
    headers: Vec<(String, String)>,
    ledger: Ledger,
    created: u32,
    paid: u32,
    /// Invoices that were paid before this start.
    paid_before: u32,
    batches: u32,
}

/// Runs until it is killed.
pub fn run(site: &Path, life: u32) -> Result<(), Error> {
    end_with_parent().map_err(Error::about("no thread"))?;
    telemetry::start(&Log::default());
    let site = Site::read(site)?;
    let ledger = Ledger::finance(&site.finance_db())?;
    let counts = ledger.paid()?;
    let mut finance = Finance {
        life,
        clock: Clock::machine(),
        client: loopback_client()?,
        url: format!("http://{}/v1/events", site.oncebox),
        headers: headers(&site)?,
        ledger,
        created: counts.created,
        paid: counts.paid,
        paid_before: counts.paid,
        batches: 0,
        site,
    };
    let started = finance.clock.monotonic();
    let never = Stop::new();
    loop {
        finance.pay_due(finance.clock.monotonic().saturating_sub(started))?;
        let wait = match finance.site.run.topology {
            Topology::Direct | Topology::Kafka => finance.publish_some()?,
            Topology::Chain => POLL_EVERY,
        };
        never.wait(wait);
    }
}

/// The headers of a publication. In a chain Finance does not publish.
fn headers(site: &Site) -> Result<Vec<(String, String)>, Error> {
    if site.run.topology == Topology::Chain {
        return Ok(Vec::new());
    }
    let token = read_line(&site.publish_token())?;
    Ok(vec![
        ("content-type".to_owned(), "application/json".to_owned()),
        ("authorization".to_owned(), format!("Bearer {token}")),
    ])
}

impl Finance {
    /// Marks the invoices paid that are due at this time after the start.
    fn pay_due(&mut self, elapsed: Duration) -> Result<(), Error> {
        let open = self.site.run.invoices.saturating_sub(self.paid);
        let due = match self.site.run.per_second {
            0 => open,
            rate => {
                let so_far = elapsed.as_millis().saturating_mul(u128::from(rate)).div_euclid(1000);
                let so_far = u32::try_from(so_far).unwrap_or(u32::MAX);
                so_far.saturating_sub(self.paid.saturating_sub(self.paid_before))
            }
        };
        let most = due.min(open).min(MAX_PAID_AT_ONCE);
        if most == 0 {
            return Ok(());
        }
        // A kill between the two transactions leaves open invoices, which the next life pays.
        let wanted = self.paid.saturating_add(most);
        let new: Vec<_> = (self.created.saturating_add(1)..=wanted)
            .map(|number| (number, format!("C-{:04}", number % 977), 1000 + number % 90_000))
            .collect();
        self.ledger.create(&new)?;
        self.created = self.created.max(wanted);
        self.ledger.pay(most, self.clock.wall())?;
        self.paid = wanted;
        Ok(())
    }

    /// Publishes one batch. Returns how long to wait before the next.
    fn publish_some(&mut self) -> Result<Duration, Error> {
        let batch = self.ledger.to_publish(MAX_BATCH)?;
        if batch.is_empty() {
            return Ok(POLL_EVERY);
        }
        let body =
            serde_json::to_vec(&batch.iter().map(event).collect::<Vec<_>>()).unwrap_or_default();
        let call = Call {
            method: "POST",
            url: &self.url,
            headers: &self.headers,
            body: &body,
            timeout: TIMEOUT,
            ..Call::default()
        };
        match self.client.call(&call) {
            Ok(answer) if matches!(answer.status, 200 | 201) => {
                self.batches = self.batches.saturating_add(1);
                let Run { faults, seed, .. } = self.site.run;
                if faults && chaos::is_forgotten(seed, self.life, self.batches) {
                    return Ok(POLL_EVERY);
                }
                self.ledger.acknowledge(&batch, self.clock.wall())?;
                let full = u32::try_from(batch.len()).is_ok_and(|length| length >= MAX_BATCH);
                Ok(if full { Duration::ZERO } else { POLL_EVERY })
            }
            Ok(answer) => {
                let said = String::from_utf8_lossy(&answer.body).into_owned();
                tracing::warn!(status = answer.status, said, "Oncebox refused a batch");
                Ok(RETRY_AFTER)
            }
            Err(error) => {
                tracing::info!(%error, "Oncebox could not be reached");
                Ok(RETRY_AFTER)
            }
        }
    }
}

/// The event of a paid invoice. Made only from its row, so that a repetition is identical.
fn event(paid: &Invoice) -> Value {
    let Invoice { number, customer, amount_cents, paid_at } = paid;
    json!({
        "event_type": "invoice.paid",
        "source_system": "finance",
        "idempotency_key": format!("invoice.paid:{number}"),
        "aggregate_type": "invoice",
        "aggregate_id": number.to_string(),
        "occurred_at": paid_at,
        "payload": {
            "invoice": number, "customer": customer, "amount_cents": amount_cents,
            "currency": "EUR", "paid_at": paid_at,
        },
    })
}
