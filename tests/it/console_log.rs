//! The log of what is done in the console: who did what to which thing.

use std::collections::BTreeMap;
use std::fmt::Debug;

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::it::console_rig::{Browser, form};
use crate::rig::prelude::*;

/// The fields of a line of the log.
type Line = BTreeMap<String, String>;

/// Lines about requests, of all tests of this program.
static LINES: Mutex<Vec<Line>> = Mutex::new(Vec::new());

/// Keeps lines about requests.
struct Keeper;

struct Fields<'l>(&'l mut Line);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }
}

impl Subscriber for Keeper {
    fn enabled(&self, of: &Metadata<'_>) -> bool {
        *of.level() <= Level::INFO && of.target() == "oncebox::api::answered"
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::new();
        event.record(&mut Fields(&mut line));
        LINES.lock().push(line);
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

#[test]
fn the_log_of_an_action_of_the_console_names_actor_action_and_resource() {
    tracing::subscriber::set_global_default(Keeper).unwrap();
    let rig = Rig::new();
    rig.user("wilhelmina", "operate");
    let browser = Browser::enter(&rig, "wilhelmina");
    rig.pull("erp", &json!({}));
    let id = text(&rig.get("/v1/subscriptions/erp"), "id");
    let page = browser.get("/console/subscriptions/erp");
    let pause = form(&page, "/console/act/pause-subscription").unwrap();
    browser.submit(&pause, &[]).is(303);
    // What is refused changes nothing, and its line names no resource.
    browser.submit(&pause, &[("csrf", "forged")]).is(403);
    let of_console = |line: &Line| {
        line.get("path").is_some_and(|path| path == "/console/act/pause-subscription")
    };
    let named = |line: &Line| {
        ["actor", "action", "resource"].map(|name| line.get(name).cloned().unwrap_or_default())
    };
    let mut done = Vec::new();
    until("the action is logged", || {
        let lines = LINES.lock().clone();
        let own = lines.iter().filter(|line| of_console(line)).map(named);
        done = own.filter(|names| names[2].contains(&id)).collect();
        !done.is_empty()
    });
    let resource = format!("subscription/{id}");
    let wanted = ["wilhelmina".to_owned(), "subscription.pause".to_owned(), resource];
    assert_eq!(done, [wanted]);
}
