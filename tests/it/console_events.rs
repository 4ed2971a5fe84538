//! The pages of events, webhooks and deliveries.

use serde_json::json;

use crate::console_rig::Browser;
use crate::rig::Rig;

#[test]
fn who_is_logged_in_sees_a_page() {
    let rig = Rig::new();
    let browser = Browser::new(&rig, "read");
    rig.publish(&json!({ "event_type": "a.b", "payload": {} }));
    assert!(browser.get("/console/").contains("Overview"));
}
