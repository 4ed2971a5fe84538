//! A payload as templates see it. A number that a float would change is an object of its own, which is written with the digits
//! that came.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use minijinja::value::{DynObject, Object, ObjectRepr, ValueKind};
use minijinja::{Error, ErrorKind, Value};
use serde::ser::{Error as _, SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::model::json::{Decimal, Json};

/// A number whose digits a float does not keep, such as `99.90`.
#[derive(Debug)]
struct Exact(Box<str>);

impl Object for Exact {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn is_true(self: &Arc<Self>) -> bool {
        Decimal::read(&self.0).is_some_and(|number| !number.is_zero())
    }

    fn custom_cmp(self: &Arc<Self>, other: &DynObject) -> Option<Ordering> {
        let other = other.downcast_ref::<Self>()?;
        Some(Decimal::read(&self.0)?.compare(Decimal::read(&other.0)?))
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A payload's value. A name that is twice in an object is an error for those who ask for it.
pub fn of(json: Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(value) => Value::from(value),
        Json::Whole(number) => Value::from(number),
        Json::Number(digits) => number(digits),
        Json::Text(text) => Value::from(&*text),
        Json::List(items) => Value::from(items.into_iter().map(of).collect::<Vec<_>>()),
        Json::Object(members) => {
            let twice = members.name_twice().map(str::to_owned);
            let members = members.into_vec().into_iter().map(|(name, value)| {
                let is_twice = twice.as_deref() == Some(&*name);
                let value = if is_twice { ambiguous(&name) } else { of(value) };
                (Value::from(&*name), value)
            });
            Value::from_pairs(members)
        }
    }
}

fn ambiguous(name: &str) -> Value {
    let why = format!("the name {name:?} is twice in an object of the payload");
    Value::from(Error::new(ErrorKind::InvalidOperation, why))
}

fn number(digits: Box<str>) -> Value {
    let is_whole = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    if is_whole && let Some(whole) = digits.parse::<i128>().ok().filter(|_| *digits != *"-0") {
        return Value::from(whole);
    }
    let float = digits.parse::<f64>().ok();
    match float.filter(|float| serde_json::to_string(float).is_ok_and(|text| text == *digits)) {
        Some(float) => Value::from(float),
        None => Value::from_object(Exact(digits)),
    }
}

/// The digits of a number that is an object.
pub fn digits(value: &Value) -> Option<&str> {
    value.downcast_object_ref::<Exact>().map(|Exact(digits)| &**digits)
}

/// Whether a value is an object that is no number: a list, a map, a function.
pub fn is_compound(value: &Value) -> bool {
    value.as_object().is_some() && digits(value).is_none()
}

/// A number that is an object as a float, for what calculates; any other value as it is.
pub fn as_float(value: Value) -> Value {
    digits(&value).and_then(|digits| digits.parse::<f64>().ok()).map_or(value, Value::from)
}

/// A number that is an object as its text; any other value as it is.
pub fn as_text(value: Value) -> Value {
    digits(&value).map(Value::from).unwrap_or(value)
}

/// Compares two values of which one is a number that is an object; `None` if the other is no number.
pub fn compare(a: &Value, b: &Value) -> Option<Ordering> {
    let text = |value: &Value| match digits(value) {
        Some(digits) => Some(digits.to_owned()),
        None if value.kind() == ValueKind::Number => serde_json::to_string(value).ok(),
        None => None,
    };
    let a = text(a)?;
    let b = text(b)?;
    Some(Decimal::read(&a)?.compare(Decimal::read(&b)?))
}

/// A value as JSON, numbers with their digits.
pub struct Written<'v>(pub &'v Value);

impl Serialize for Written<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self(value) = self;
        if let Some(digits) = digits(value) {
            return RawValue::from_string(digits.to_owned())
                .map_err(S::Error::custom)?
                .serialize(to);
        }
        if value.kind() == ValueKind::Invalid {
            return Err(S::Error::custom(value));
        }
        let object = value.as_object();
        match (object, object.map(DynObject::repr)) {
            (Some(_), Some(ObjectRepr::Seq | ObjectRepr::Iterable)) => {
                let mut list = to.serialize_seq(value.len())?;
                for item in value.try_iter().map_err(S::Error::custom)? {
                    list.serialize_element(&Written(&item))?;
                }
                list.end()
            }
            (Some(object), Some(ObjectRepr::Map)) => {
                let mut map = to.serialize_map(value.len())?;
                for (name, item) in object.try_iter_pairs().into_iter().flatten() {
                    map.serialize_entry(&name, &Written(&item))?;
                }
                map.end()
            }
            _ => value.serialize(to),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_written_as_it_came() {
        for text in [
            r#"{"b":99.90,"a":[1,-5,1.5,1e3,1e400,123456789012345678.91,18446744073709551617,-0]}"#,
            r#"{"deep":{"x":[],"y":{},"z":[null,true,false,"t"]},"0.10":0.10}"#,
            "170141183460469231731687303715884105728",
        ] {
            let value = of(Json::read(text.as_bytes()).unwrap());
            assert_eq!(serde_json::to_string(&Written(&value)).unwrap(), text);
        }
        let twice = of(Json::read(br#"{"a":{"x":1,"x":2},"b":3}"#).unwrap());
        let why = serde_json::to_string(&Written(&twice)).unwrap_err().to_string();
        assert!(why.contains("\"x\" is twice"), "{why}");
        assert_eq!(twice.get_attr("b").unwrap(), Value::from(3));
    }

    #[test]
    fn numbers_that_are_objects_are_compared_by_their_digits() {
        let value = |text: &str| of(Json::read(text.as_bytes()).unwrap());
        for (a, b, order) in [
            ("99.90", "99.9", Some(Ordering::Equal)),
            ("99.90", "100", Some(Ordering::Less)),
            ("1e400", "18446744073709551617", Some(Ordering::Greater)),
            ("123456789012345678.90", "123456789012345678.91", Some(Ordering::Less)),
            ("99.90", "\"99.90\"", None),
        ] {
            assert_eq!(compare(&value(a), &value(b)), order, "{a} {b}");
        }
        assert!(value("1.50").is_true() && !value("0.00").is_true());
    }
}
