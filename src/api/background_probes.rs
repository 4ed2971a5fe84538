//! Tests of subscriptions that nobody waits for: their steps so far, and what they came to. They are in memory only.

use std::collections::VecDeque;

use parking_lot::Mutex;
use serde_json::Value;

use crate::http::message::Response;
use crate::http::trace::Trace;
use crate::model::subscription::Subscription;

/// Tests that are remembered. The oldest is forgotten first.
const MAX_REMEMBERED: usize = 100;

/// The tests, the oldest first.
#[derive(Debug, Default)]
pub(super) struct BackgroundTests(Mutex<VecDeque<BackgroundTest>>);

/// A test.
#[derive(Debug)]
pub(super) struct BackgroundTest {
    pub(super) id: String,
    tenant: String,
    pub(super) subscription: String,
    pub(super) url: String,
    /// `None` while it waits for its turn.
    pub(super) trace: Option<Trace>,
    /// The result, or why there is none; `None` while it runs.
    pub(super) answer: Option<Result<Value, String>>,
}

impl BackgroundTests {
    /// Adds a test that waits for its turn.
    pub(super) fn add(&self, id: &str, tenant: &str, subscription: &Subscription) {
        let mut known = self.0.lock();
        if known.len() >= MAX_REMEMBERED {
            known.pop_front();
        }
        known.push_back(BackgroundTest {
            id: id.to_owned(),
            tenant: tenant.to_owned(),
            subscription: subscription.new.name.to_string(),
            url: subscription.new.target.unfilled_url(),
            trace: None,
            answer: None,
        });
    }

    /// Notes that its turn has come.
    pub(super) fn begin(&self, id: &str, trace: &Trace) {
        self.change(id, |test| test.trace = Some(trace.clone()));
    }

    /// Notes how it was answered.
    pub(super) fn end(&self, id: &str, answer: &Response) {
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let detail = || body.get("detail").and_then(Value::as_str).unwrap_or_default().to_owned();
        let ended = if answer.status < 400 { Ok(body.clone()) } else { Err(detail()) };
        self.change(id, |test| test.answer = Some(ended));
    }

    /// Shows a test of a tenant; `None` if it is not known.
    pub(super) fn show<T>(
        &self,
        id: &str,
        tenant: &str,
        with: impl FnOnce(&BackgroundTest) -> T,
    ) -> Option<T> {
        let known = self.0.lock();
        known.iter().find(|test| test.id == id && test.tenant == tenant).map(with)
    }

    fn change(&self, id: &str, with: impl FnOnce(&mut BackgroundTest)) {
        if let Some(test) = self.0.lock().iter_mut().find(|test| test.id == id) {
            with(test);
        }
    }
}
