//! Sends spans to the collector, in batches (OTLP/HTTP, JSON).

use std::time::Duration;

use crossbeam_channel::Receiver;

use crate::base::stop::Stop;
use crate::config::Settings;
use crate::http::client::{self, Call, Client, ClientSettings, SetupError};
use crate::model::address::AddressPolicy;
use crate::traces::SpanQueue;
use crate::traces::span::{AttemptSpan, export_request, refused};

/// Spans of a batch at most.
const MAX_BATCH: usize = 512;
/// How long a batch is gathered.
const GATHER: Duration = Duration::from_secs(1);
/// How often an idle exporter looks whether it is to stop.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Time for a request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What sends spans to the collector.
#[derive(Debug)]
pub struct Exporter {
    endpoint: String,
    client: Client,
    spans: Receiver<AttemptSpan>,
    queue: SpanQueue,
    headers: [(String, String); 1],
    /// Whether the last batch was not taken. Only a change is logged.
    is_failing: bool,
}

impl Exporter {
    /// The queue of spans, and what works it off if the settings name a collector. Fails if the CA file cannot be used.
    ///
    /// The collector is called directly, whatever addresses deliveries may go to: who writes the settings file decides.
    pub fn of(settings: &Settings) -> Result<(SpanQueue, Option<Self>), SetupError> {
        let Some(endpoint) = settings.traces.endpoint.clone() else {
            return Ok((SpanQueue::default(), None));
        };
        let delivery = &settings.delivery;
        let client = Client::new(ClientSettings {
            policy: AddressPolicy::everything(),
            ca_pem: delivery.ca_file.as_deref().map(client::read_ca_file).transpose()?,
            connect_timeout: delivery.connect_timeout,
            idle_connections: 1,
            proxy: None,
        })?;
        let (queue, spans) = SpanQueue::with_collector();
        let headers = [("content-type".to_owned(), "application/json".to_owned())];
        let exporter =
            Self { endpoint, client, spans, queue: queue.clone(), headers, is_failing: false };
        Ok((queue, Some(exporter)))
    }

    /// Sends spans until a stop is asked for. What waits then is dropped.
    pub fn run(mut self, stop: &Stop) {
        while !stop.asked() {
            let batch = self.next_batch();
            if !batch.is_empty() {
                self.export(&batch);
            }
        }
    }

    /// The spans that came within a second of the first one; none if none came.
    fn next_batch(&self) -> Vec<AttemptSpan> {
        let mut batch = Vec::new();
        batch.extend(self.spans.recv_timeout(LOOK_EVERY));
        if batch.is_empty() {
            return batch;
        }
        let ended = crossbeam_channel::after(GATHER);
        while batch.len() < MAX_BATCH {
            crossbeam_channel::select! {
                recv(self.spans) -> span => match span {
                    Ok(span) => batch.push(span),
                    Err(_gone) => return batch,
                },
                recv(ended) -> _ => return batch,
            }
        }
        batch
    }

    /// Sends a batch once. If it is not taken, its spans are dropped.
    fn export(&mut self, batch: &[AttemptSpan]) {
        let body = export_request(batch).to_string();
        let call = Call {
            method: "POST",
            url: &self.endpoint,
            headers: &self.headers,
            body: body.as_bytes(),
            timeout: TIMEOUT,
            ..Call::default()
        };
        let count = u64::try_from(batch.len()).unwrap_or(u64::MAX);
        let taken = match self.client.call(&call) {
            Ok(answer) if (200..300).contains(&answer.status) => {
                Ok(count.saturating_sub(refused(&answer.body)))
            }
            Ok(answer) => Err(format!("it answers {}", answer.status)),
            Err(error) => Err(error.to_string()),
        };
        let counts = self.queue.counts();
        let taken_count = *taken.as_ref().unwrap_or(&0);
        counts.exported.add_many(taken_count);
        counts.dropped.add_many(count.saturating_sub(taken_count));
        match &taken {
            Err(why) if !self.is_failing => {
                tracing::warn!(
                    why,
                    "the collector does not take traces; they are dropped until it does"
                );
            }
            Ok(_) if self.is_failing => tracing::info!("the collector takes traces again"),
            Ok(_) | Err(_) => {}
        }
        self.is_failing = taken.is_err();
    }
}
