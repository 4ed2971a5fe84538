//! Where a provider's webhooks have their ordering key.
//!
//! Not here: reading it from a request (`pipeline::receive`), and what a lane is ([`crate::model::lane`]).

use serde::{Deserialize, Serialize};

use crate::model::json_path::Path;

/// The longest ordering key; of a longer one its SHA-256 is stored.
pub const MAX_KEY_CHARS: usize = 255;
/// Parts of names of header fields that carry secrets. Ordering keys are stored as they are.
const SECRET: [&str; 6] = ["authorization", "cookie", "signature", "token", "secret", "api-key"];

/// Where the ordering key of a webhook is. Stored as JSON in `providers.ordering_key`.
///
/// ```
/// use oncebox::model::key_place::KeyPlace;
/// let read = |text| serde_json::from_str::<KeyPlace>(text);
/// assert!(read(r#"{"path": "$.data.object.id"}"#).is_ok());
/// assert!(read(r#"{"header": "X-Order-Id"}"#).is_ok());
/// assert!(read(r#"{"header": "X-Gitlab-Token"}"#).unwrap_err().to_string().contains("secret"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyPlace {
    /// The first text or number at this path of the body, or of the item of a batch.
    Path(Path),
    /// The header field of this name.
    Header(FieldName),
}

/// The name of a header field that may be stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FieldName(String);

impl FieldName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for FieldName {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let fits = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if !(1..=MAX_KEY_CHARS).contains(&name.len()) || !name.bytes().all(fits) {
            return Err(format!("the header {name:?} is not a valid header field"));
        }
        let lower = name.to_ascii_lowercase();
        if SECRET.iter().any(|part| lower.contains(part)) {
            return Err(format!(
                "the header {name} may carry a secret, and ordering keys are stored as they are"
            ));
        }
        Ok(Self(name))
    }
}

impl From<FieldName> for String {
    fn from(name: FieldName) -> Self {
        name.0
    }
}
