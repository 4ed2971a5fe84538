//! A database of somebody else's as a target: which one, and what a delivery does there.

use crate::model::effect_statement::EffectStatement;
use crate::model::format::TemplateText;
use crate::model::inbox_table::InboxTable;
use crate::model::name::Name;

/// How such a URL is written.
const SHAPE: &str = "a database is database: and its name in the settings, like database:erp";

/// The database of a target.
///
/// *Shape*: `database:` and a name of the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseTarget(String);

impl DatabaseTarget {
    /// Reads a URL. The error says how one is written.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} cannot be read: {SHAPE}");
        let name = text.strip_prefix("database:").ok_or_else(wrong)?;
        Name::parse(name).map_err(|error| format!("{}: {error}", wrong()))?;
        Ok(Self(text.to_owned()))
    }

    /// Its name in the settings.
    pub fn name(&self) -> &str {
        self.0.strip_prefix("database:").unwrap_or_default()
    }

    /// The URL.
    pub fn url(&self) -> &str {
        &self.0
    }
}

/// What a delivery does in the database, beside claiming its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A statement of the integrator.
    Statement(EffectStatement),
    /// A row in an inbox table.
    Inbox(InboxTable),
}

impl Effect {
    /// That of a subscription. The error says what is missing or wrong.
    pub fn of(template: Option<&TemplateText>) -> Result<Self, String> {
        let effect = template.and_then(|template| template.effect.as_deref());
        let inbox = template.and_then(|template| template.inbox.as_deref());
        match (effect, inbox) {
            (Some(text), None) => EffectStatement::parse(text).map(Self::Statement),
            (None, Some(table)) => InboxTable::parse(table).map(Self::Inbox),
            (None, None) => {
                Err("a database needs what is done in it: effect, one statement, or inbox, a \
                                 table"
                    .to_owned())
            }
            (Some(_), Some(_)) => {
                Err("a database has either effect or inbox, and not both".to_owned())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_named_by_its_url() {
        assert_eq!(DatabaseTarget::parse("database:erp").unwrap().name(), "erp");
        for wrong in ["erp", "database:", "database:a b", "database://erp"] {
            assert!(DatabaseTarget::parse(wrong).unwrap_err().contains("database:erp"), "{wrong}");
        }
    }

    #[test]
    fn what_is_done_is_one_statement_or_one_inbox() {
        let template = |effect: Option<&str>, inbox: Option<&str>| TemplateText {
            effect: effect.map(str::to_owned),
            inbox: inbox.map(str::to_owned),
            ..TemplateText::default()
        };
        assert!(Effect::of(Some(&template(Some("SELECT 1"), None))).is_ok());
        assert!(Effect::of(Some(&template(None, Some("inbox")))).is_ok());
        for (effect, inbox, says) in [
            (None, None, "needs what is done"),
            (Some("SELECT 1"), Some("inbox"), "not both"),
            (Some("DROP TABLE a"), None, "begins with"),
            (None, Some("a b"), "no table"),
        ] {
            let error = Effect::of(Some(&template(effect, inbox))).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
        assert!(Effect::of(None).is_err());
    }
}
