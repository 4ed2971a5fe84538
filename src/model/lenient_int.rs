//! Reads whole numbers that may be written as `3.0`. Languages with a single number type write them like this.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserializer;
use serde::de::{Error, Unexpected, Visitor};

/// Reads a whole number that may be absent or null: for `#[serde(default, deserialize_with = …)]`.
/// Fails when it has a fraction, or does not fit.
pub fn optional<'de, D: Deserializer<'de>, T: TryFrom<u64>>(
    from: D,
) -> Result<Option<T>, D::Error> {
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

#[cfg(test)]
mod tests {
    #[derive(serde::Deserialize)]
    struct Limit {
        #[serde(default, deserialize_with = "super::optional")]
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
}
