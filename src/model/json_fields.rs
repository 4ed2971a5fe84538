//! Fields of JSON that Serde's own way does not fit: objects that are no array, whole numbers that may be written as
//! `3.0`, lists of which only the first elements are kept.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

/// A value that is only read from a JSON object. Serde would also accept an array of the fields, which the API description
/// does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(ObjectFields(PhantomData)).map(Self)
    }
}

/// Reads a field that is an object: for `#[serde(deserialize_with = …)]`.
/// Fails when it is not one, or its fields are wrong.
pub fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Object::deserialize(from).map(|Object(inner)| inner)
}

/// Reads a field that is an object, null or absent.
/// Fails when it is something else, or its fields are wrong.
pub fn optional_object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    Option::<Object<T>>::deserialize(from).map(|found| found.map(|Object(inner)| inner))
}

/// Reads a field; null is its default.
pub fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    from: D,
) -> Result<T, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

struct ObjectFields<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectFields<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(fields))
    }
}

/// Reads a whole number that may be absent or null: for `#[serde(default, deserialize_with = …)]`. It may be written as
/// `3.0`: languages with a single number type do so.
/// Fails when it has a fraction, or does not fit.
pub fn whole<'de, D: Deserializer<'de>, T: TryFrom<u64>>(from: D) -> Result<Option<T>, D::Error> {
    from.deserialize_any(Whole(PhantomData))
}

struct Whole<T>(PhantomData<T>);

impl<T: TryFrom<u64>> Visitor<'_> for Whole<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number of at most {} bytes", size_of::<T>())
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        let fits = T::try_from(number).map(Some);
        fits.map_err(|_too_large| E::invalid_value(Unexpected::Unsigned(number), &self))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
        // Through text, because a cast would change a number that is negative or too large.
        let whole = format!("{number:.0}").parse().ok().filter(|_| number.fract() == 0.0);
        match whole {
            Some(whole) => self.visit_u64(whole),
            None => Err(E::invalid_value(Unexpected::Float(number), &self)),
        }
    }
}

/// The first `MAX` elements of a list, and how many it has. The rest is counted, so that a long list takes no memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Few<T, const MAX: usize> {
    /// The first elements.
    pub kept: Vec<T>,
    /// How many elements the list has.
    pub count: usize,
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for Few<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(Elements::<T, MAX>(PhantomData))
    }
}

struct Elements<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Elements<T, MAX> {
    type Value = Few<T, MAX>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut kept = Vec::new();
        while kept.len() < MAX {
            let Some(element) = seq.next_element()? else {
                let count = kept.len();
                return Ok(Few { kept, count });
            };
            kept.push(element);
        }
        let mut count = kept.len();
        while seq.next_element::<IgnoredAny>()?.is_some() {
            count = count.saturating_add(1);
        }
        Ok(Few { kept, count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, serde::Deserialize)]
    struct Point {
        x: i32,
        #[serde(default)]
        y: i32,
    }

    #[test]
    fn an_array_is_no_object() {
        assert_eq!(serde_json::from_str::<Point>("[1,2]").unwrap(), Point { x: 1, y: 2 });
        let error = serde_json::from_str::<Object<Point>>("[1,2]").unwrap_err().to_string();
        assert!(error.contains("expected an object"), "{error}");
        let found = serde_json::from_str::<Object<Point>>(r#"{"x":1}"#).unwrap();
        assert_eq!(found, Object(Point { x: 1, y: 0 }));
    }

    #[derive(serde::Deserialize)]
    struct Limit {
        #[serde(default, deserialize_with = "whole")]
        most: Option<u32>,
    }

    fn read(text: &str) -> Result<Option<u32>, String> {
        let limit: Result<Limit, _> = serde_json::from_str(text);
        limit.map(|limit| limit.most).map_err(|error| error.to_string())
    }

    #[test]
    fn a_whole_number_may_have_a_decimal_point() {
        assert_eq!(read(r#"{"most": 3}"#), Ok(Some(3)));
        assert_eq!(read(r#"{"most": 3.0}"#), Ok(Some(3)));
        assert_eq!(read(r#"{"most": 3e2}"#), Ok(Some(300)));
        assert_eq!(read(r#"{"most": null}"#), Ok(None));
        assert_eq!(read("{}"), Ok(None));
    }

    #[test]
    fn what_is_not_whole_or_too_large_is_refused() {
        for text in ["3.5", "-1", "-1.0", "1e300", "4294967296", "4294967296.0", "\"3\"", "true"] {
            let error = read(&format!("{{\"most\": {text}}}")).unwrap_err();
            assert!(error.contains("whole number"), "{text}: {error}");
        }
    }

    #[test]
    fn the_first_are_kept_and_all_are_counted() {
        let read = |text: &str| serde_json::from_str::<Few<u8, 2>>(text);
        assert_eq!(read("[1]").unwrap(), Few { kept: vec![1], count: 1 });
        assert_eq!(read("[1,2,[3],{}]").unwrap(), Few { kept: vec![1, 2], count: 4 });
        assert!(read("[1,[]]").is_err() && read("[1,2,x]").is_err() && read("{}").is_err());
    }
}
