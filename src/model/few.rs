//! A JSON list of which only the first elements are kept. The rest is counted, so that a long list takes no memory.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// The first `MAX` elements of a list, and how many it has.
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

    #[test]
    fn the_first_are_kept_and_all_are_counted() {
        let read = |text: &str| serde_json::from_str::<Few<u8, 2>>(text);
        assert_eq!(read("[1]").unwrap(), Few { kept: vec![1], count: 1 });
        assert_eq!(read("[1,2,[3],{}]").unwrap(), Few { kept: vec![1, 2], count: 4 });
        assert!(read("[1,[]]").is_err() && read("[1,2,x]").is_err() && read("{}").is_err());
    }
}
