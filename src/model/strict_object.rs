//! Reads structs from JSON objects only. Serde would also accept an array of the fields, which the API description does
//! not allow.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A value that is only read from a JSON object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Fields(PhantomData)).map(Self)
    }
}

/// Reads a field that is an object: for `#[serde(deserialize_with = …)]`.
/// Fails when it is not one, or its fields are wrong.
pub fn read<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Object::deserialize(from).map(|Object(inner)| inner)
}

/// Reads a field that is an object, null or absent.
/// Fails when it is something else, or its fields are wrong.
pub fn optional<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    Option::<Object<T>>::deserialize(from).map(|found| found.map(|Object(inner)| inner))
}

struct Fields<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(fields))
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
}
