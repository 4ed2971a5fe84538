//! Requests that are no attempt: shown, sent as a test of a subscription, or sent as a health probe. No delivery is
//! touched, and nothing is settled.

use crate::formats::SUBJECT;
use crate::http::trace::Trace;
use crate::model::delivery::OutgoingRequest;
use crate::model::health_probe::ProbeRequest;
use crate::model::outcome::Outcome;
use crate::pipeline::deliver::built::{BuiltRequest, MAIL, WRITE};
use crate::pipeline::deliver::deliverer::Deliverer;
use crate::pipeline::deliver::report::cleaned;
use crate::pipeline::destinations::Destination;
use crate::pipeline::prelude::*;
use crate::pipeline::rendering::masked;
use crate::privacy::NOT_OPENED;
use crate::privacy::policy::ResponseScrub;

/// Time for a test of a subscription at most: other tests wait for it.
const MAX_TEST_TIME: Duration = Duration::from_secs(30);
/// Time for a health probe at most: others wait for its thread.
const MAX_PROBE_TIME: Duration = Duration::from_secs(10);

/// A request as an attempt would send it now, without its secrets.
#[derive(Debug)]
pub struct Preview {
    /// Where it goes.
    pub url: String,
    /// Its header fields: name, value, and whether the value or a part of it is hidden.
    pub headers: Vec<(String, String, bool)>,
    /// Its body.
    pub body: Vec<u8>,
}

/// A test of a subscription that has ended.
#[derive(Debug)]
pub struct Trial {
    /// The URL that was called; empty if there was none yet.
    pub url: String,
    /// What came of it.
    pub outcome: Outcome,
}

impl Trial {
    /// The trial of a request that cannot be made.
    pub fn unbuildable(reason: String) -> Self {
        Self { url: String::new(), outcome: Outcome::Unbuildable { reason } }
    }
}

impl Deliverer {
    /// The request that a delivery would send. The error says why there is none.
    pub fn preview(&self, mut outgoing: OutgoingRequest) -> Result<Preview, String> {
        let destination = self.destinations.of(outgoing.subscription)?;
        let signed_at = self.env.clock.for_signatures();
        let request = self.build(&mut outgoing, &destination, signed_at)?;
        let mut headers = request.headers;
        if matches!(request.method, WRITE | MAIL) {
            headers.push(("content-type".to_owned(), outgoing.content_type.clone()));
            let subject = request.rendered.iter().find(|(name, _)| name == SUBJECT);
            headers.extend(subject.map(|(_, value)| ("subject".to_owned(), value.clone())));
        }
        let log_on = destination.access.log_on_field();
        // It takes the place of a field of the event.
        headers.retain(|(name, _)| log_on.is_none_or(|own| !name.eq_ignore_ascii_case(own)));
        headers.extend(log_on.map(|name| (name.to_owned(), String::new())));
        let shown = headers.into_iter().map(|(name, value)| match masked(&name, &value, log_on) {
            Some(masked) => (name, masked, true),
            None => (name, value, false),
        });
        Ok(Preview { url: request.url, headers: shown.collect(), body: outgoing.payload })
    }

    /// Sends one request as a delivery of it would be sent, on a connection of its own.
    pub fn try_out(
        &self,
        outgoing: &mut OutgoingRequest,
        destination: &Destination,
        trace: &Trace,
    ) -> Result<Trial> {
        let seals = self.env.privacy.open_sealed(outgoing)?;
        if !seals.is_whole {
            return Ok(Trial::unbuildable(NOT_OPENED.to_owned()));
        }
        let signed_at = self.env.clock.for_signatures();
        let trial = match self.build(outgoing, destination, signed_at) {
            Ok(mut request) => {
                request.timeout = request.timeout.min(MAX_TEST_TIME);
                let outcome =
                    self.transmit(&request, outgoing, destination, &seals.echo, Some(trace));
                Trial { url: request.url, outcome }
            }
            Err(reason) => Trial::unbuildable(reason),
        };
        let outcome = trial.outcome.map_reason(|reason| cleaned(&seals.echo, reason));
        Ok(Trial { outcome, ..trial })
    }

    /// Probes a target with a ping or, in place of it, with a request of its own.
    pub fn probe(
        &self,
        mut ping: OutgoingRequest,
        destination: &Destination,
        own: ProbeRequest,
    ) -> Outcome {
        let signed_at = self.env.clock.for_signatures();
        let mut request = if let Some((method, url)) = own {
            ping.payload.clear();
            BuiltRequest {
                method: method.as_str(),
                url: url.to_string(),
                headers: destination.subscription.new.headers.clone().into_iter().collect(),
                signed_at,
                ..BuiltRequest::default()
            }
        } else {
            match self.build(&mut ping, destination, signed_at) {
                Ok(request) => request,
                Err(reason) => return Outcome::Unbuildable { reason },
            }
        };
        request.timeout = destination.timeout.min(MAX_PROBE_TIME);
        self.transmit(&request, &ping, destination, &ResponseScrub::default(), None)
    }
}
