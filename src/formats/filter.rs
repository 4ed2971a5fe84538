//! Conditions on a payload: whether they can be used, and whether they hold.
//!
//! A payload is read once for all filters of its tenant, which share a bound of steps. Where that is used up, it is not
//! known whether further filters hold. What is sealed in a payload counts as absent.

use std::cell::{Cell, RefCell};
use std::cmp::Ordering;

use serde_json::Value;

use crate::model::format::{Condition, Filter, Op};
use crate::model::json_path::{MatchState, Path, Step};
use crate::model::sealed;

/// Conditions of a filter at most.
pub const MAX_CONDITIONS: usize = 16;
/// Values of a list at most: each place of the payload is compared with all of them.
const MAX_LIST: usize = 100;
/// Bytes of a filter's JSON at most.
const MAX_FILTER_BYTES: usize = 16 * 1024;
/// Bytes of a payload that is read for a filter: the default limit of payloads. No condition holds on a larger one.
const MAX_PAYLOAD_BYTES: usize = 1 << 20;
/// Steps that all filters take for one payload: a place that is looked at, a value that it is compared with, 64 bytes of a
/// text.
pub const MAX_STEPS: usize = 500_000;

/// A payload as conditions see it; `None` where it is no JSON, or too large or too deep.
#[derive(Debug)]
pub struct Payload {
    value: Option<Value>,
    /// Steps that are left.
    left: Cell<usize>,
}

impl Payload {
    /// Reads a payload, which takes milliseconds where it is large: once for each event.
    pub fn read(bytes: &[u8]) -> Self {
        let fits = bytes.len() <= MAX_PAYLOAD_BYTES;
        let value = fits.then(|| serde_json::from_slice(bytes).ok()).flatten();
        Self { value, left: Cell::new(MAX_STEPS) }
    }

    /// Whether the steps are used up: what did not hold might.
    pub fn is_spent(&self) -> bool {
        self.left.get() == 0
    }

    /// Takes steps; tells whether some are left.
    fn spend(&self, steps: usize) -> bool {
        self.left.set(self.left.get().saturating_sub(steps));
        !self.is_spent()
    }
}

/// Whether all conditions hold. One that is kept as text is read, which takes steps too.
pub fn is_met(filter: &Filter, payload: &Payload) -> bool {
    if let Filter::Text(text) = filter
        && !payload.spend(text.get().len())
    {
        return false;
    }
    unmet(&filter.conditions(), payload).is_none()
}

/// The first condition that does not hold; `None`: all hold.
pub fn unmet<'c>(filter: &'c [Condition], payload: &Payload) -> Option<&'c Condition> {
    filter.iter().find(|condition| {
        !payload.value.as_ref().is_some_and(|value| holds(condition, value, payload))
    })
}

/// How many values are in a value, itself included.
fn size(value: &Value) -> usize {
    let inner: usize = match value {
        Value::Object(members) => members.values().map(size).sum(),
        Value::Array(items) => items.iter().map(size).sum(),
        _ => 0,
    };
    inner.saturating_add(1)
}

fn holds(
    Condition { path, op, value: wanted }: &Condition,
    value: &Value,
    payload: &Payload,
) -> bool {
    let order =
        |found: &Value, fits: fn(Ordering) -> bool| compare(found, wanted).is_some_and(fits);
    let text = |found: &Value, fits: fn(&str, &str) -> bool| {
        found.as_str().zip(wanted.as_str()).is_some_and(|(found, wanted)| fits(found, wanted))
    };
    let steps = size(wanted);
    // Each item of a list is compared with all of the value that is wanted.
    let list = |of: &Value, with: &Value| {
        let is_equal = |item| payload.spend(steps) && equal(item, with);
        of.as_array().is_some_and(|items| items.iter().any(is_equal))
    };
    let passes = |found: &Value| {
        payload.spend(steps)
            && match op {
                Op::Equals | Op::NotEquals => equal(found, wanted),
                Op::In => {
                    wanted.as_array().is_some_and(|all| all.iter().any(|it| equal(it, found)))
                }
                Op::Exists => true,
                Op::Gt => order(found, Ordering::is_gt),
                Op::Gte => order(found, Ordering::is_ge),
                Op::Lt => order(found, Ordering::is_lt),
                Op::Lte => order(found, Ordering::is_le),
                Op::StartsWith => text(found, |found, wanted| found.starts_with(wanted)),
                Op::Contains => {
                    text(found, |found, wanted| found.contains(wanted)) || list(found, wanted)
                }
            }
    };
    let found = any_place(path, MatchState::START, value, payload, &passes);
    let is_negated = *op == Op::NotEquals || (*op == Op::Exists && *wanted == Value::Bool(false));
    !payload.is_spent() && found != is_negated
}

/// The first text or number at a path, as a text; `None` if there is none, or too much was looked at.
pub fn first_text(path: &Path, payload: &Payload) -> Option<String> {
    let found = RefCell::new(None);
    let takes = |value: &Value| {
        let text = match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        let is_found = text.is_some();
        found.replace(text);
        is_found
    };
    let _is_found = any_place(path, MatchState::START, payload.value.as_ref()?, payload, &takes);
    found.into_inner()
}

/// Whether a place of the path passes the test.
fn any_place(
    path: &Path,
    state: MatchState,
    value: &Value,
    payload: &Payload,
    test: &dyn Fn(&Value) -> bool,
) -> bool {
    if !payload.spend(1) || state.is_dead() {
        return false;
    }
    let is_seen = || {
        let found = value.as_str().unwrap_or_default();
        payload.spend(found.len() / 64) && !sealed::is_in(found)
    };
    if path.is_at(state) && is_seen() && test(value) {
        return true;
    }
    match value {
        Value::Object(members) => members.iter().any(|(name, inner)| {
            any_place(path, path.step(state, Step::Name(name)), inner, payload, test)
        }),
        Value::Array(items) => items.iter().enumerate().any(|(index, inner)| {
            any_place(path, path.step(state, Step::Index(index)), inner, payload, test)
        }),
        _ => false,
    }
}

fn equal(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Number(_), Value::Number(_)) => compare(found, wanted) == Some(Ordering::Equal),
        _ => found == wanted,
    }
}

/// Numbers by their value, texts by their characters. A text that is a number is compared with a number as one: amounts
/// often are texts.
fn compare(found: &Value, wanted: &Value) -> Option<Ordering> {
    match (found, wanted) {
        (Value::Number(found), Value::Number(wanted)) => {
            match found.as_i128().zip(wanted.as_i128()) {
                Some((found, wanted)) => Some(found.cmp(&wanted)),
                None => found.as_f64()?.partial_cmp(&wanted.as_f64()?),
            }
        }
        (Value::String(found), Value::String(wanted)) => Some(found.cmp(wanted)),
        (Value::String(found), Value::Number(_)) => {
            compare(&Value::Number(found.parse().ok()?), wanted)
        }
        _ => None,
    }
}

/// Whether a filter can be used; the error says which condition cannot, and why.
pub fn check(filter: &[Condition]) -> Result<(), String> {
    if filter.len() > MAX_CONDITIONS {
        let have = filter.len();
        return Err(format!("it has {have} conditions; it may have {MAX_CONDITIONS}"));
    }
    for Condition { path, op, value } in filter {
        let (fits, takes) = match op {
            Op::Equals | Op::NotEquals => (true, ""),
            Op::In => (
                value.as_array().is_some_and(|list| (1..=MAX_LIST).contains(&list.len())),
                "a list of 1 to 100 values",
            ),
            Op::Exists => (value.is_null() || value.is_boolean(), "true or false"),
            Op::Gt | Op::Gte | Op::Lt | Op::Lte => {
                (value.is_number() || value.is_string(), "a number or a text")
            }
            Op::StartsWith => (value.is_string(), "a text"),
            Op::Contains => (!value.is_null(), "a text or another value"),
        };
        if !fits {
            return Err(format!("the condition {op} on {path} takes {takes}"));
        }
    }
    let bytes = serde_json::to_vec(filter).map_or(0, |json| json.len());
    if bytes > MAX_FILTER_BYTES {
        return Err(format!("it has {bytes} bytes of JSON; it may have {MAX_FILTER_BYTES}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn condition(path: &str, op: &str, value: &Value) -> Condition {
        serde_json::from_value(json!({ "path": path, "op": op, "value": value })).unwrap()
    }

    fn all_hold(filter: &[Condition], payload: &Value) -> bool {
        unmet(filter, &Payload::read(payload.to_string().as_bytes())).is_none()
    }

    #[test]
    fn each_op_compares_as_it_says() {
        let payload = json!({
            "total": 99.5, "amount": "120.00", "status": "paid", "paid": true, "note": null, "big": 9_007_199_254_740_993_i64,
            "lines": [{ "sku": "A-1", "n": 1 }, { "sku": "B-2", "n": 20 }], "tags": ["new", 7], "when": "2026-01-31",
            "secret": "obx-sealed.v.AAAA.", "zero": 0.0,
        });
        for (path, op, value, holds) in [
            ("$.status", "equals", json!("paid"), true),
            ("$.status", "equals", json!("open"), false),
            ("$.zero", "equals", json!(0), true),
            ("$.big", "equals", json!(9_007_199_254_740_992_i64), false),
            ("$.note", "equals", json!(null), true),
            ("$.missing", "equals", json!(null), false),
            ("$.lines[0]", "equals", json!({ "n": 1, "sku": "A-1" }), true),
            ("$.status", "not_equals", json!("open"), true),
            ("$.status", "not_equals", json!("paid"), false),
            ("$.missing", "not_equals", json!("paid"), true),
            ("$.lines[*].n", "not_equals", json!(20), false),
            ("$.status", "in", json!(["open", "paid"]), true),
            ("$.total", "in", json!(["99.5"]), false),
            ("$.note", "exists", json!(null), true),
            ("$.note", "exists", json!(false), false),
            ("$.missing", "exists", json!(true), false),
            ("$.missing", "exists", json!(false), true),
            ("$.total", "gt", json!(99), true),
            ("$.total", "gt", json!(99.5), false),
            ("$.total", "gte", json!(99.5), true),
            ("$.amount", "gt", json!(100), true),
            ("$.amount", "lt", json!("2"), true),
            ("$.status", "gt", json!(1), false),
            ("$.when", "lte", json!("2026-02-01"), true),
            ("$..n", "lt", json!(1), false),
            ("$..n", "gte", json!(20), true),
            ("$.lines[*].sku", "starts_with", json!("B-"), true),
            ("$.lines[*].sku", "starts_with", json!("C-"), false),
            ("$.status", "contains", json!("ai"), true),
            ("$.tags", "contains", json!(7), true),
            ("$.tags", "contains", json!("old"), false),
            ("$.secret", "exists", json!(true), false),
            ("$.secret", "contains", json!("obx"), false),
        ] {
            let filter = [condition(path, op, &value)];
            check(&filter).unwrap();
            assert_eq!(all_hold(&filter, &payload), holds, "{path} {op} {value}");
        }
    }

    #[test]
    fn nothing_holds_on_a_payload_that_cannot_be_read_within_bounds() {
        let negated =
            [condition("$.a", "not_equals", &json!(1)), condition("$.a", "exists", &json!(false))];
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        let large = format!("[\"{}\"]", "x".repeat(MAX_PAYLOAD_BYTES));
        for payload in ["no JSON", "", "{", &deep, &large] {
            for condition in &negated {
                let filter = std::slice::from_ref(condition);
                let payload = Payload::read(payload.as_bytes());
                assert_eq!((unmet(filter, &payload), payload.is_spent()), (Some(condition), false));
            }
        }
        // Filters share the steps; where those are used up it is said.
        let many = Payload::read(format!("[{}0]", "0,".repeat(300_000)).as_bytes());
        assert_eq!((unmet(&negated[..1], &many), many.is_spent()), (None, false));
        assert_eq!((unmet(&negated[1..], &many), many.is_spent()), (Some(&negated[1]), true));
        let few = format!("[{}0]", "0,".repeat(100_000));
        assert_eq!(unmet(&negated[..1], &Payload::read(few.as_bytes())), None);
    }

    #[test]
    fn the_worst_filter_on_the_worst_payload_ends() {
        let path = format!("${}", "..a".repeat(60));
        let filter = vec![condition(&path, "not_equals", &json!(2)); MAX_CONDITIONS];
        let nested = format!("{}1{}", "{\"a\":".repeat(120), "}".repeat(120));
        let payload = Payload::read(format!("[{}]", [nested.as_str(); 800].join(",")).as_bytes());
        // Without the bound on steps this would not end.
        assert!(unmet(&filter, &payload).is_some() && payload.is_spent());
        // A value that is compared with many costs as many steps.
        let list: Vec<u32> = (0..100).collect();
        let payload = Payload::read(format!("[{}0]", "0,".repeat(10_000)).as_bytes());
        let filter = [condition("$[*]", "in", &json!(list[1..]))];
        assert!(unmet(&filter, &payload).is_some() && payload.is_spent());
    }

    #[test]
    fn what_cannot_be_compared_is_refused() {
        for (op, value) in [
            ("in", json!("a")),
            ("in", json!([])),
            ("exists", json!("a")),
            ("gt", json!([1])),
            ("starts_with", json!(1)),
            ("contains", json!(null)),
            ("equals", json!("x".repeat(MAX_FILTER_BYTES))),
        ] {
            assert!(check(&[condition("$.a", op, &value)]).is_err(), "{op} {value}");
        }
        assert!(
            check(&vec![condition("$.a", "exists", &json!(null)); MAX_CONDITIONS + 1]).is_err()
        );
    }

    /// Every value that is somewhere in a payload, with its path: what a person would look through.
    fn places(at: &str, value: &Value, into: &mut Vec<(String, Value)>) {
        into.push((at.to_owned(), value.clone()));
        match value {
            Value::Object(members) => {
                members
                    .iter()
                    .for_each(|(name, inner)| places(&format!("{at}.{name}"), inner, into));
            }
            Value::Array(items) => {
                let items = items.iter().enumerate();
                items.for_each(|(n, inner)| places(&format!("{at}[{n}]"), inner, into));
            }
            _ => (),
        }
    }

    fn payloads() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-3_i64..3).prop_map(Value::from),
            prop_oneof![Just("a"), Just("ab"), Just("2"), Just("")].prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[abc]", inner, 0..4)
                    .prop_map(|members| members.into_iter().collect::<Value>()),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_filter_finds_what_a_list_of_all_places_has(
            payload in payloads(),
            path in prop_oneof![Just("$"), Just("$.a"), Just("$.a.b"), Just("$[0]"), Just("$.a[1].c")],
            number in -3_i64..3,
        ) {
            let mut all = Vec::new();
            places("$", &payload, &mut all);
            let there = all.iter().find(|(at, _)| at == path).map(|(_, value)| value);
            let holds = |op: &str, value: Value| all_hold(&[condition(path, op, &value)], &payload);
            prop_assert_eq!(holds("exists", json!(true)), there.is_some());
            prop_assert_eq!(holds("exists", json!(false)), there.is_none());
            let is_equal = there.and_then(Value::as_i64) == Some(number);
            prop_assert_eq!(holds("equals", json!(number)), is_equal);
            prop_assert_eq!(holds("not_equals", json!(number)), !is_equal);
            prop_assert_eq!(holds("in", json!([number])), is_equal);
            let as_number = there.and_then(|v| v.as_i64().or_else(|| v.as_str()?.parse().ok()));
            prop_assert_eq!(holds("gt", json!(number)), as_number.is_some_and(|have| have > number));
            prop_assert_eq!(holds("lte", json!(number)), as_number.is_some_and(|have| have <= number));
            let text = there.and_then(Value::as_str);
            prop_assert_eq!(holds("starts_with", json!("a")), text.is_some_and(|t| t.starts_with('a')));
        }
    }
}
