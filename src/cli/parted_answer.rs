//! An answer that comes in parts: each part says with its `next` how the next one is asked for.

use serde_json::Map;

use crate::cli::prelude::*;

/// How the parts of an answer are asked for, and put together.
pub(super) struct PartedAnswer<'a> {
    /// The member of a request that takes `next` of the answer before.
    pub(super) member: &'static str,
    /// Counts that every part gives for the whole: they are not added.
    pub(super) of_whole: &'static [&'static str],
    /// Items of all parts that are kept, the first ones.
    pub(super) max_items: usize,
    /// What is said of what came so far, while the next part is asked for.
    pub(super) told: &'a dyn Fn(&Value) -> String,
}

impl PartedAnswer<'_> {
    /// Asks for all parts in turn, and returns them as one answer.
    pub(super) fn ask(
        &self,
        mut body: Map<String, Value>,
        send: impl Fn(Map<String, Value>) -> Result<Value, Failure>,
    ) -> Result<Value, Failure> {
        let mut whole = send(body.clone())?;
        while let Some(next) = whole.get("next").filter(|next| !next.is_null()).cloned() {
            out::note((self.told)(&whole));
            body.insert(self.member.to_owned(), next);
            whole = self.joined(whole, send(body.clone())?);
        }
        Ok(whole)
    }

    /// Two parts as one: counts are added, and items stand one after the other.
    fn joined(&self, whole: Value, part: Value) -> Value {
        let (Value::Object(mut whole), Value::Object(part)) = (whole, part) else {
            return Value::Null;
        };
        for (name, value) in part {
            match (whole.get_mut(&name), value) {
                (Some(Value::Array(items)), Value::Array(more)) => {
                    let room = self.max_items.saturating_sub(items.len());
                    items.extend(more.into_iter().take(room));
                }
                _ if self.of_whole.contains(&name.as_str()) => {}
                (Some(before @ Value::Number(_)), Value::Number(more)) => {
                    let more = more.as_u64().unwrap_or_default();
                    let sum = before.as_u64().unwrap_or_default().saturating_add(more);
                    *before = sum.into();
                }
                (_, value) if name == "next" => {
                    whole.insert(name, value);
                }
                // The period is that of the first part.
                _ => {}
            }
        }
        Value::Object(whole)
    }
}
