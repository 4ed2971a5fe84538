//! Values with one text, which is the same in SQL, in JSON and on the command line: enums of words, and types that are
//! parsed from a text.

use std::fmt;

use serde::de::value::Error as ValueError;
use serde::de::{Error, IntoDeserializer, Visitor};
use serde::{Deserialize, Deserializer};

/// Declares an enum of words. `as "Name"` names its schema in the API's description; without it, the schema stands
/// where it is used.
///
/// It makes `ALL`, `as_str` and `parse`, and the word is what is displayed, serialized and read.
macro_rules! words {
    ($(#[$about:meta])* $pub:vis enum $name:ident $(as $schema:literal)? {
        $($(#[$note:meta])* $word:ident = $text:literal),+ $(,)?
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        $pub enum $name {
            $($(#[$note])* $word,)+
        }

        #[allow(dead_code, reason = "few enums need all of it")]
        impl $name {
            /// All of them, in order.
            pub const ALL: [Self; [$($text),+].len()] = [$(Self::$word),+];

            /// The word.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$word => $text,)+
                }
            }

            /// Reads the word.
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|word| word.as_str() == text)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
                to.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
                $crate::base::words::read(from, Self::parse, &[$($text),+])
            }
        }

        #[cfg(feature = "service")]
        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                let named: &[&str] = &[$($schema)?];
                named.is_empty()
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                [$($schema,)? stringify!($name)][0].into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "enum": [$($text),+] })
            }
        }
    };
}
pub(crate) use words;

/// Makes the text of a type its JSON form. The type has `parse`; with a field, that field is what is displayed.
macro_rules! as_text {
    ($type:ident, $field:tt) => {
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.$field)
            }
        }
        $crate::base::words::as_text!($type);
    };
    ($type:ident) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(
                &self,
                to: S,
            ) -> std::result::Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(
                from: D,
            ) -> std::result::Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(from)?;
                Self::parse(&text).map_err(serde::de::Error::custom)
            }
        }
    };
}
pub(crate) use as_text;

/// Reads one of `known` words with `parse`.
pub fn read<'de, D: Deserializer<'de>, T>(
    from: D,
    parse: fn(&str) -> Option<T>,
    known: &'static [&'static str],
) -> Result<T, D::Error> {
    from.deserialize_str(Word { parse, known })
}

/// Reads a word that may be absent or null: for `#[serde(default, deserialize_with = …)]`. An unknown one is no other
/// form, but a value that cannot be used.
pub fn optional<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    let Some(text) = Option::<String>::deserialize(from)? else { return Ok(None) };
    let read = T::deserialize(text.into_deserializer()).map(Some);
    read.map_err(|error: ValueError| D::Error::custom(format!("The word cannot be used: {error}")))
}

/// Reads a word as [`optional`] does; without one it is the default.
pub fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    from: D,
) -> Result<T, D::Error> {
    optional(from).map(Option::unwrap_or_default)
}

struct Word<T> {
    parse: fn(&str) -> Option<T>,
    known: &'static [&'static str],
}

impl<T> Visitor<'_> for Word<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a word")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.parse)(text).ok_or_else(|| {
            let known = self.known.join(", ");
            E::custom(format!("unknown variant `{text}`; it is one of {known}"))
        })
    }
}

#[cfg(test)]
mod tests {
    words! {
        /// Fruit.
        enum Fruit {
            /// Red.
            Apple = "apple",
            /// Yellow.
            Pear = "green.pear",
        }
    }

    #[test]
    fn every_word_is_written_and_read_back() {
        for fruit in Fruit::ALL {
            assert_eq!(Fruit::parse(fruit.as_str()), Some(fruit));
            let text = serde_json::to_string(&fruit).unwrap();
            assert_eq!(text, format!("\"{fruit}\""));
            assert_eq!(serde_json::from_str::<Fruit>(&text).unwrap(), fruit);
        }
        let error = serde_json::from_str::<Fruit>("\"plum\"").unwrap_err().to_string();
        assert!(error.contains("plum") && error.contains("green.pear"), "{error}");
        assert!(serde_json::from_str::<Fruit>("1").is_err() && Fruit::parse("Apple").is_none());
    }
}
