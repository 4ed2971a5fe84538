//! Conditions on a payload: whether they can be used, and whether they hold.
//!
//! A payload is read once for all filters of its tenant, which share a bound of steps. Where that is used up, or the
//! payload cannot be read, it is not known whether a filter holds. What is sealed in a payload counts as absent.

use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt;

use crate::base::text::without_mark;
use crate::model::format::{Condition, MAX_CONDITIONS, Op, PayloadFilter};
use crate::model::json::{Decimal, Json, Members, Unreadable};
use crate::model::json_path::{MatchState, Path, Step};
use crate::model::sealed;

/// Values of a list at most: each place of the payload is compared with all of them.
const MAX_LIST: usize = 100;
/// Bytes of a filter's JSON at most.
const MAX_FILTER_BYTES: usize = 16 * 1024;
/// Bytes of a payload that is read for a filter: the default limit of payloads.
const MAX_PAYLOAD_BYTES: usize = 1 << 20;
/// Steps that all filters take for one payload: a place that is looked at, a value that it is compared with, 64 bytes of a
/// text.
pub const MAX_STEPS: usize = 500_000;
/// Bytes of a text or of digits that cost one step.
const STEP_BYTES: usize = 64;

/// Why it is not known whether a filter holds, or what stands at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// The filters of the tenant have used up their steps.
    Spent,
    /// The payload begins like JSON, and is larger than is read.
    Large,
    /// The payload begins like JSON, and is not UTF-8.
    NotUtf8,
    /// The payload begins like JSON, and is not.
    NotJson,
    /// The payload is nested too deep.
    Deep,
    /// A name of the path is there twice in an object, and programs differ in which of the two they read.
    NameTwice,
}

impl Unknown {
    /// The ways out for a delivery whose filter could not be decided.
    pub const WAY_OUT: &str = "A retry sends it without its filter";
}

impl From<Unreadable> for Unknown {
    fn from(why: Unreadable) -> Self {
        match why {
            Unreadable::NotUtf8 => Self::NotUtf8,
            Unreadable::NotJson(_) => Self::NotJson,
            Unreadable::Deep => Self::Deep,
        }
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self {
            Self::Spent => {
                return write!(
                    f,
                    "the filters of this tenant's subscriptions take more than {MAX_STEPS} steps for this event: make \
                     them simpler"
                );
            }
            Self::Large => return write!(f, "the payload has more than {MAX_PAYLOAD_BYTES} bytes"),
            Self::NotUtf8 => "the payload begins like JSON, but is not UTF-8",
            Self::NotJson => "the payload begins like JSON, but is not JSON",
            Self::Deep => return write!(f, "the payload: {}", Unreadable::Deep),
            Self::NameTwice => "a name that is looked for is twice in an object of the payload",
        };
        f.write_str(why)
    }
}

/// A payload as conditions see it.
#[derive(Debug)]
pub struct Payload {
    body: Body,
    /// Steps that are left.
    left: Cell<usize>,
}

#[derive(Debug)]
enum Body {
    Json(Json),
    /// XML, a form or any other text: no condition holds on it.
    Other,
    Unreadable(Unknown),
}

impl Payload {
    /// Reads a payload, which takes milliseconds where it is large: once for each event.
    pub fn read(bytes: &[u8]) -> Self {
        let body = match (begins_like_json(bytes), bytes.len() <= MAX_PAYLOAD_BYTES) {
            (is_json, true) => match Json::read(bytes) {
                Ok(value) => Body::Json(value),
                Err(why) if is_json => Body::Unreadable(why.into()),
                Err(_other) => Body::Other,
            },
            (true, false) => Body::Unreadable(Unknown::Large),
            (false, false) => Body::Other,
        };
        Self { body, left: Cell::new(MAX_STEPS) }
    }

    /// Takes steps; tells whether some are left.
    fn spend(&self, steps: usize) -> bool {
        self.left.set(self.left.get().saturating_sub(steps));
        self.left.get() > 0
    }
}

/// Whether a body is meant as JSON: its first character opens an object or a list. Also where it is UTF-16, whose
/// characters have a zero byte.
fn begins_like_json(bytes: &[u8]) -> bool {
    let bytes = without_mark(bytes);
    let bytes = bytes.strip_prefix(b"\xff\xfe").unwrap_or(bytes);
    let bytes = bytes.strip_prefix(b"\xfe\xff").unwrap_or(bytes);
    let first = bytes.iter().find(|byte| **byte != 0 && !byte.is_ascii_whitespace());
    matches!(first, Some(b'{' | b'['))
}

/// Whether a filter holds on a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterVerdict {
    /// All conditions hold.
    Met,
    /// A condition does not hold.
    Unmet,
    /// It is not known.
    Unknown(Unknown),
}

/// Whether all conditions hold. One that is kept as text is read, which takes steps too.
pub fn judge(filter: &PayloadFilter, payload: &Payload) -> FilterVerdict {
    if let PayloadFilter::Text(text) = filter
        && !payload.spend(text.get().len())
    {
        return FilterVerdict::Unknown(Unknown::Spent);
    }
    unmet(&filter.conditions(), payload).map_or(FilterVerdict::Met, |(_, verdict)| verdict)
}

/// The first condition that does not hold, else the first of which it is not known; `None`: all hold.
pub fn unmet<'c>(
    filter: &'c [Condition],
    payload: &Payload,
) -> Option<(&'c Condition, FilterVerdict)> {
    let mut unknown = None;
    for condition in filter {
        match holds(condition, payload) {
            FilterVerdict::Met => {}
            FilterVerdict::Unmet => return Some((condition, FilterVerdict::Unmet)),
            verdict @ FilterVerdict::Unknown(_) => unknown = unknown.or(Some((condition, verdict))),
        }
    }
    unknown
}

fn holds(condition: &Condition, payload: &Payload) -> FilterVerdict {
    let value = match &payload.body {
        Body::Json(value) => value,
        Body::Other => return FilterVerdict::Unmet,
        Body::Unreadable(why) => return FilterVerdict::Unknown(*why),
    };
    let Condition { path, op, value: wanted } = condition;
    let look = Look { payload, unknown: Cell::new(None) };
    let steps = wanted.size();
    let passes = |found: &Json| payload.spend(steps) && look.fits(*op, found, wanted);
    let found = look.any_place(path, MatchState::START, value, &passes);
    if payload.left.get() == 0 {
        return FilterVerdict::Unknown(Unknown::Spent);
    }
    if let Some(why) = look.unknown.get() {
        return FilterVerdict::Unknown(why);
    }
    let is_negated = *op == Op::NotEquals || (*op == Op::Exists && *wanted == Json::Bool(false));
    if found == is_negated { FilterVerdict::Unmet } else { FilterVerdict::Met }
}

/// The first text or number at a path, as a text; `None` if there is none.
/// Fails where that cannot be known.
pub fn first_text(path: &Path, payload: &Payload) -> Result<Option<String>, Unknown> {
    let value = match &payload.body {
        Body::Json(value) => value,
        Body::Other => return Ok(None),
        Body::Unreadable(why) => return Err(*why),
    };
    let found = RefCell::new(None);
    let takes = |value: &Json| {
        let text = match value {
            Json::Text(text) => Some(text.to_string()),
            Json::Whole(_) | Json::Number(_) => Some(value.to_string()),
            _ => None,
        };
        let is_found = text.is_some();
        found.replace(text);
        is_found
    };
    let look = Look { payload, unknown: Cell::new(None) };
    let is_found = look.any_place(path, MatchState::START, value, &takes);
    match look.unknown.get() {
        Some(why) => Err(why),
        None if !is_found && payload.left.get() == 0 => Err(Unknown::Spent),
        None => Ok(found.into_inner()),
    }
}

/// One look at a payload, for one path.
struct Look<'p> {
    payload: &'p Payload,
    /// Why its result is not known.
    unknown: Cell<Option<Unknown>>,
}

impl Look<'_> {
    /// Whether a place of the path passes the test.
    fn any_place(
        &self,
        path: &Path,
        state: MatchState,
        value: &Json,
        test: &dyn Fn(&Json) -> bool,
    ) -> bool {
        if !self.payload.spend(1) || state.is_dead() {
            return false;
        }
        let is_seen = || {
            let is_sealed = value.as_text().is_some_and(sealed::is_in);
            self.payload.spend(length(value) / STEP_BYTES) && !is_sealed
        };
        if path.is_at(state) && is_seen() && test(value) {
            return true;
        }
        match value {
            Json::Object(members) => {
                self.check_names(path, state, members);
                members.iter().any(|(name, inner)| {
                    self.any_place(path, path.step(state, Step::Name(name)), inner, test)
                })
            }
            Json::List(items) => items.iter().enumerate().any(|(index, inner)| {
                self.any_place(path, path.step(state, Step::Index(index)), inner, test)
            }),
            _ => false,
        }
    }

    /// Notes a doubled name, if the path leads to it or through it.
    fn check_names(&self, path: &Path, state: MatchState, members: &Members) {
        if !members.is_ambiguous() || !self.payload.spend(members.iter().len()) {
            return;
        }
        let mut seen = BTreeSet::new();
        let mut twice = BTreeSet::new();
        for (name, _) in members.iter() {
            if !seen.insert(name) {
                twice.insert(name);
            }
        }
        let matters = |(name, value): (&str, &Json)| {
            let next = path.step(state, Step::Name(name));
            let leads_on = matches!(value, Json::Object(_) | Json::List(_)) && !next.is_dead();
            twice.contains(name) && (path.is_at(next) || leads_on)
        };
        if members.iter().any(matters) {
            self.unknown.set(Some(Unknown::NameTwice));
        }
    }

    fn fits(&self, op: Op, found: &Json, wanted: &Json) -> bool {
        let order = |fits: fn(Ordering) -> bool| compare(found, wanted).is_some_and(fits);
        let text = |fits: fn(&str, &str) -> bool| {
            found.as_text().zip(wanted.as_text()).is_some_and(|(found, wanted)| fits(found, wanted))
        };
        match op {
            Op::Equals | Op::NotEquals => self.equal(found, wanted),
            Op::In => {
                let all = wanted.as_list().unwrap_or_default();
                all.iter().any(|wanted| self.equal(found, wanted))
            }
            Op::Exists => true,
            Op::Gt => order(Ordering::is_gt),
            Op::Gte => order(Ordering::is_ge),
            Op::Lt => order(Ordering::is_lt),
            Op::Lte => order(Ordering::is_le),
            Op::StartsWith => text(|found, wanted| found.starts_with(wanted)),
            Op::Contains => {
                let steps = wanted.size();
                let is_in = |item| self.payload.spend(steps) && self.equal(item, wanted);
                text(|found, wanted| found.contains(wanted))
                    || found.as_list().is_some_and(|items| items.iter().any(is_in))
            }
        }
    }

    /// Numbers by their values, also a text that is one; all else as it is, objects without the order of their members.
    fn equal(&self, found: &Json, wanted: &Json) -> bool {
        match (found, wanted) {
            (_, Json::Whole(_) | Json::Number(_)) => {
                compare(found, wanted) == Some(Ordering::Equal)
            }
            (Json::List(found), Json::List(wanted)) => {
                let mut pairs = found.iter().zip(wanted);
                found.len() == wanted.len()
                    && pairs.all(|(found, wanted)| self.equal(found, wanted))
            }
            (Json::Object(found), Json::Object(wanted)) => self.equal_members(found, wanted),
            _ => found == wanted,
        }
    }

    fn equal_members(&self, found: &Members, wanted: &Members) -> bool {
        if found.is_ambiguous() {
            self.unknown.set(Some(Unknown::NameTwice));
            return false;
        }
        let count = found.iter().len();
        let others = wanted.iter().len();
        if count != others {
            return false;
        }
        let is_same = |(own, other): ((&str, &Json), (&str, &Json))| own.0 == other.0;
        if found.iter().zip(wanted.iter()).all(is_same) {
            let mut pairs = found.iter().zip(wanted.iter());
            return pairs.all(|((_, found), (_, wanted))| self.equal(found, wanted));
        }
        // Each name is looked for among all.
        let steps = count.saturating_mul(others) / STEP_BYTES;
        self.payload.spend(steps)
            && wanted.iter().all(|(name, wanted)| {
                found.get(name).is_some_and(|found| self.equal(found, wanted))
            })
    }
}

/// Bytes of a text or of a number's digits.
fn length(value: &Json) -> usize {
    match value {
        Json::Text(text) | Json::Number(text) => text.len(),
        _ => 0,
    }
}

/// Numbers by their values, texts by their characters. A text that is a number is compared with a number as one: amounts
/// and ids often are texts.
fn compare(found: &Json, wanted: &Json) -> Option<Ordering> {
    match (found, wanted) {
        (Json::Whole(found), Json::Whole(wanted)) => Some(found.cmp(wanted)),
        (Json::Text(found), Json::Text(wanted)) => Some(found.cmp(wanted)),
        (Json::Text(found), _) => compare_number(Decimal::read(found)?, wanted),
        _ => found.with_number(|found| compare_number(found, wanted))?,
    }
}

fn compare_number(found: Decimal<'_>, wanted: &Json) -> Option<Ordering> {
    wanted.with_number(|wanted| found.compare(wanted))
}

/// Whether a filter can be used; the error says which condition cannot, and why.
pub fn check(filter: &[Condition]) -> Result<(), String> {
    if filter.len() > MAX_CONDITIONS {
        let have = filter.len();
        return Err(format!("it has {have} conditions; it may have {MAX_CONDITIONS}"));
    }
    for Condition { path, op, value } in filter {
        path.clone().into_strict().map_err(|why| why.to_string())?;
        let (fits, takes) = match op {
            Op::Equals | Op::NotEquals => (true, ""),
            Op::In => (
                value.as_list().is_some_and(|list| (1..=MAX_LIST).contains(&list.len())),
                "a list of 1 to 100 values",
            ),
            Op::Exists => (matches!(value, Json::Null | Json::Bool(_)), "true or false"),
            Op::Gt | Op::Gte | Op::Lt | Op::Lte => {
                (value.is_number() || value.as_text().is_some(), "a number or a text")
            }
            Op::StartsWith => (value.as_text().is_some(), "a text"),
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
    use serde_json::{Value, json};

    use super::*;

    fn condition(path: &str, op: &str, value: &Value) -> Condition {
        serde_json::from_value(json!({ "path": path, "op": op, "value": value })).unwrap()
    }

    fn all_hold(filter: &[Condition], payload: &Value) -> bool {
        unmet(filter, &Payload::read(payload.to_string().as_bytes())).is_none()
    }

    /// What is found of a condition, which is given as JSON, on a payload of these bytes.
    fn verdict(condition: &str, payload: &[u8]) -> FilterVerdict {
        let filter = PayloadFilter::read(&format!("[{condition}]")).unwrap();
        judge(&filter, &Payload::read(payload))
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
    fn numbers_are_compared_by_their_digits_also_those_in_texts() {
        let condition =
            |op: &str, value: &str| format!(r#"{{"path":"$.n","op":"{op}","value":{value}}}"#);
        for (payload, op, value, holds) in [
            ("18446744073709551617", "equals", "18446744073709551617", true),
            ("18446744073709551616", "equals", "18446744073709551617", false),
            ("18446744073709551616", "lt", "18446744073709551617", true),
            ("123456789012345678.91", "gt", "123456789012345678.90", true),
            ("0.1", "equals", "0.10000000000000001", false),
            ("1e400", "gt", "1e399", true),
            ("1e400", "equals", "1e400", true),
            ("-0", "equals", "0", true),
            ("1.0", "equals", "1", true),
            ("\"4711\"", "equals", "4711", true),
            ("\"4711.0\"", "equals", "4711", true),
            ("\"4711\"", "not_equals", "4711", false),
            ("\"4712\"", "not_equals", "4711", true),
            ("\"4711\"", "in", "[1,4711]", true),
            ("[\"4711\"]", "contains", "4711", true),
            ("\"4711\"", "gte", "4711", true),
            ("\"18446744073709551617\"", "equals", "18446744073709551616", false),
            // Leading zeros and blanks make another text of it.
            ("\"04711\"", "equals", "4711", false),
            ("\" 4711\"", "equals", "4711", false),
            ("\"4711\"", "equals", "\"4711\"", true),
            ("4711", "equals", "\"4711\"", false),
            ("{\"a\":\"1\",\"b\":[2.0]}", "equals", "{\"b\":[2],\"a\":1}", true),
        ] {
            let payload = format!("{{\"n\":{payload}}}");
            let found = verdict(&condition(op, value), payload.as_bytes());
            let right = if holds { FilterVerdict::Met } else { FilterVerdict::Unmet };
            assert_eq!(found, right, "{payload} {op} {value}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_not_known() {
        let conditions = [
            r#"{"path":"$.a","op":"not_equals","value":1}"#,
            r#"{"path":"$.a","op":"exists","value":false}"#,
            r#"{"path":"$.a","op":"equals","value":1}"#,
        ];
        let nested = |deep: usize| format!("{}{}", "[".repeat(deep), "]".repeat(deep));
        let large = format!("[\"{}\"]", "x".repeat(MAX_PAYLOAD_BYTES));
        let utf16: Vec<u8> =
            "\u{feff}{\"a\":1}".encode_utf16().flat_map(u16::to_le_bytes).collect();
        for (payload, why) in [
            (&b"{"[..], Unknown::NotJson),
            (b" \n{\"a\":01}", Unknown::NotJson),
            (b"\xef\xbb\xbf[1,]", Unknown::NotJson),
            (b"{\"a\":\"\xfc\"}", Unknown::NotUtf8),
            (&utf16, Unknown::NotUtf8),
            (nested(200).as_bytes(), Unknown::Deep),
            (large.as_bytes(), Unknown::Large),
        ] {
            for condition in conditions {
                assert_eq!(verdict(condition, payload), FilterVerdict::Unknown(why), "{condition}");
            }
            let path = Path::parse("$.a").unwrap();
            assert_eq!(first_text(&path, &Payload::read(payload)), Err(why));
        }
        // What is not meant as JSON fits no filter, however large it is.
        let xml = format!("<a>{}</a>", "x".repeat(MAX_PAYLOAD_BYTES));
        for payload in ["no JSON", "", "a=b", "<a>{}</a>", &xml] {
            for condition in conditions {
                assert_eq!(verdict(condition, payload.as_bytes()), FilterVerdict::Unmet);
            }
        }
        let deepest = verdict(conditions[0], nested(128).as_bytes());
        assert_eq!(deepest, FilterVerdict::Met);
    }

    #[test]
    fn texts_that_were_cut_and_huge_numbers_hide_nothing() {
        let condition = r#"{"path":"$.total","op":"gt","value":100}"#;
        for payload in [
            r#"{"total":250,"note":"cut \ud83d"}"#,
            r#"{"total":250,"\ude00":1}"#,
            r#"{"total":250,"note":1e400}"#,
            r#"{"total":250,"note":-1E-999999999999999999999}"#,
            "\u{feff}{\"total\":250}",
        ] {
            assert_eq!(verdict(condition, payload.as_bytes()), FilterVerdict::Met, "{payload}");
        }
        let replaced = r#"{"path":"$.a","op":"equals","value":"x\ufffd"}"#;
        assert_eq!(verdict(replaced, br#"{"a":"x\ud83d"}"#), FilterVerdict::Met);
    }

    #[test]
    fn a_name_that_is_there_twice_is_not_known_where_a_path_needs_it() {
        let twice = FilterVerdict::Unknown(Unknown::NameTwice);
        for (path, payload, found) in [
            ("$.a", r#"{"a":1,"a":2}"#, twice),
            ("$.a", r#"{"a":1,"\u0061":1}"#, twice),
            ("$.a", r#"{"a":1,"b":2,"b":3}"#, FilterVerdict::Met),
            ("$.a", r#"{"a":1,"b":{"a":2,"a":3}}"#, FilterVerdict::Met),
            ("$.b.a", r#"{"b":{"a":1},"b":{"a":1}}"#, twice),
            ("$.*", r#"{"a":1,"b":2,"b":3}"#, twice),
            ("$..a", r#"{"a":1,"b":2,"b":3}"#, FilterVerdict::Met),
            ("$..a", r#"{"b":{},"b":{}}"#, twice),
        ] {
            let condition = format!(r#"{{"path":"{path}","op":"in","value":[1]}}"#);
            assert_eq!(verdict(&condition, payload.as_bytes()), found, "{path} {payload}");
        }
        let whole = r#"{"path":"$.a","op":"equals","value":{"x":1}}"#;
        assert_eq!(verdict(whole, br#"{"a":{"x":2,"x":1}}"#), twice);
        // A condition that does not hold for sure decides.
        let filter =
            r#"[{"path":"$.a","op":"equals","value":1},{"path":"$.b","op":"equals","value":1}]"#;
        let filter = PayloadFilter::read(filter).unwrap();
        let payload = Payload::read(br#"{"a":1,"a":2,"b":2}"#);
        assert_eq!(judge(&filter, &payload), FilterVerdict::Unmet);
    }

    #[test]
    fn a_key_is_read_as_it_is_written() {
        let path = Path::parse("$.id").unwrap();
        for (payload, found) in [
            (r#"{"id":18446744073709551617}"#, Ok(Some("18446744073709551617"))),
            (r#"{"id":1.50}"#, Ok(Some("1.50"))),
            (r#"{"id":"a\ud83d"}"#, Ok(Some("a\u{fffd}"))),
            (r#"{"id":null}"#, Ok(None)),
            ("<id/>", Ok(None)),
            (r#"{"id":1,"id":2}"#, Err(Unknown::NameTwice)),
        ] {
            let read = first_text(&path, &Payload::read(payload.as_bytes()));
            assert_eq!(read, found.map(|text| text.map(str::to_owned)), "{payload}");
        }
    }

    #[test]
    fn filters_share_the_steps_of_a_payload() {
        let spent = Some(FilterVerdict::Unknown(Unknown::Spent));
        let negated =
            [condition("$.a", "not_equals", &json!(1)), condition("$.a", "exists", &json!(false))];
        let many = Payload::read(format!("[{}0]", "0,".repeat(300_000)).as_bytes());
        let found = |filter: &[Condition], payload: &Payload| {
            unmet(filter, payload).map(|(_, verdict)| verdict)
        };
        assert_eq!(found(&negated[..1], &many), None);
        assert_eq!(found(&negated[1..], &many), spent);
        let few = format!("[{}0]", "0,".repeat(100_000));
        assert_eq!(found(&negated[..1], &Payload::read(few.as_bytes())), None);
        // Digits cost steps as texts do.
        let digits = format!("[{}]", vec!["9".repeat(1_000); 1_000].join(","));
        let filter = [condition("$[*]", "in", &json!((0..90).collect::<Vec<_>>()))];
        assert!(found(&filter, &Payload::read(digits.as_bytes())).is_some());
    }

    #[test]
    fn the_worst_filter_on_the_worst_payload_ends() {
        let path = format!("${}", "..a".repeat(60));
        let filter = vec![condition(&path, "not_equals", &json!(2)); MAX_CONDITIONS];
        let nested = format!("{}1{}", "{\"a\":".repeat(120), "}".repeat(120));
        let payload = Payload::read(format!("[{}]", [nested.as_str(); 800].join(",")).as_bytes());
        // Without the bound on steps this would not end.
        let (_, found) = unmet(&filter, &payload).unwrap();
        assert_eq!(found, FilterVerdict::Unknown(Unknown::Spent));
        // A value that is compared with many costs as many steps.
        let list: Vec<u32> = (0..100).collect();
        let payload = Payload::read(format!("[{}0]", "0,".repeat(10_000)).as_bytes());
        let filter = [condition("$[*]", "in", &json!(list[1..]))];
        let (_, found) = unmet(&filter, &payload).unwrap();
        assert_eq!(found, FilterVerdict::Unknown(Unknown::Spent));
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
            let as_number = there.and_then(|v| v.as_i64().or_else(|| v.as_str()?.parse().ok()));
            let is_equal = as_number == Some(number);
            prop_assert_eq!(holds("equals", json!(number)), is_equal);
            prop_assert_eq!(holds("not_equals", json!(number)), !is_equal);
            prop_assert_eq!(holds("in", json!([number])), is_equal);
            prop_assert_eq!(holds("gt", json!(number)), as_number.is_some_and(|have| have > number));
            prop_assert_eq!(holds("lte", json!(number)), as_number.is_some_and(|have| have <= number));
            let text = there.and_then(Value::as_str);
            prop_assert_eq!(holds("starts_with", json!("a")), text.is_some_and(|t| t.starts_with('a')));
        }
    }
}
