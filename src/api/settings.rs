//! `/v1/settings`: every setting with its value, and where the value comes from.

use crate::api::prelude::*;
use crate::config::settings::{KEYS, Key, SECTIONS, TakesEffect};
use crate::config::{Origin, Settings};
use crate::model::token::Right::Box;

/// The settings.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Settings",
    about: "The settings in force. They are changed in the file, the environment or the flags.",
    routes: &[get("/v1/settings", Box, Now(list))
        .doc("listSettings", "List the settings", &[])
        .about("Every setting. Where secrets are, and the arguments of commands, are not shown.")
        .returns(&[Returns::json::<SettingsAnswer>(200, "The settings.")])],
};

values! {
    /// Where a value comes from.
    SettingOrigin = { "type": "string", "enum": ["default", "file", "environment", "flag"] }
    /// When a changed value takes effect.
    TakesEffectWord = { "type": "string", "enum": ["reload", "restart"] }
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Settings")]
struct SettingsAnswer {
    sections: Vec<SectionAnswer>,
}

/// The settings of a section.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SettingsSection")]
struct SectionAnswer {
    name: &'static str,
    about: &'static str,
    settings: Vec<SettingAnswer>,
}

/// A setting.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Setting")]
struct SettingAnswer {
    /// Its key: `section.name`.
    key: String,
    /// What it means.
    about: &'static str,
    /// Its value, as in a file; null if there is none, or if it is the place of a secret. Of commands only the
    /// programs.
    value: Value,
    /// Whether the value, or a part of it, is not shown.
    is_hidden: bool,
    /// Its default; null if that is no value: see `unset`.
    default: Value,
    /// What applies without a value.
    unset: Option<&'static str>,
    /// The values that it may have.
    allowed: String,
    #[schemars(with = "SettingOrigin")]
    from: &'static str,
    /// The file and the line, the variable, or the flag.
    place: Option<String>,
    #[schemars(with = "TakesEffectWord")]
    takes_effect: &'static str,
    /// The variable of the environment that sets it.
    variable: String,
}

/// `GET /v1/settings`
#[expect(clippy::unnecessary_wraps, reason = "every route has this shape")]
fn list(api: &Api, _call: &Call) -> Result<Response, Problem> {
    let settings = api.env.settings.get();
    let defaults = Settings::default();
    let of = |key: &Key| {
        let origin = api.env.settings.origin(key);
        let from = match &origin {
            Origin::Default => "default",
            Origin::File { .. } => "file",
            Origin::Environment(_) => "environment",
            Origin::Flag(_) => "flag",
        };
        let shown = key.shown(&settings);
        SettingAnswer {
            key: key.path(),
            about: key.about,
            is_hidden: shown != key.get(&settings),
            value: shown,
            default: key.get(&defaults),
            unset: key.unset.map(|(says, _)| says),
            allowed: key.says(),
            from,
            place: (origin != Origin::Default).then(|| origin.to_string()),
            takes_effect: if key.takes == TakesEffect::Reload { "reload" } else { "restart" },
            variable: key.variable(),
        }
    };
    let sections = SECTIONS.iter().map(|(name, about)| {
        let settings = KEYS.iter().filter(|key| key.section == *name).map(of).collect();
        SectionAnswer { name, about, settings }
    });
    Ok(ok(&SettingsAnswer { sections: sections.collect() }))
}
