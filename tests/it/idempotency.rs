//! The header `Idempotency-Key`.

use crate::rig::prelude::*;

/// "key format aligns with the API contract: minLength: 32, pattern: ^[A-Za-z0-9_-]+$"; "key VARCHAR(255)".
#[test]
fn strict_keys_have_32_to_255_letters_digits_underscores_and_hyphens() {
    let rig = Rig::with(|settings| settings.idempotency.strict = true);
    let publish = |key: &str| rig.post_keyed(&rig.token, key, r#"{"event_type":"a","payload":1}"#);
    let (short, longest) = ("k".repeat(31), "k".repeat(255));
    for key in [&short, &format!("{longest}k"), "urn:order/7+8=15?-and-so-on-and-so-on"] {
        publish(key).is(400).tells("32 to 255");
    }
    for key in [&"k".repeat(32), &longest, &format!("\"{}\"", "A_z-".repeat(40))] {
        publish(key).is(201);
        assert_eq!(publish(key).is(201).field("idempotency-replayed"), Some("true"));
    }
    let other = format!("{}a", "k".repeat(254));
    assert_eq!(publish(&other).is(201).field("idempotency-replayed"), None);
}
