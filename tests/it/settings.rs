//! `GET /v1/settings`: every setting, its value, and where it comes from.

use oncebox::config::settings::KEYS;
use oncebox::config::{Environment, Sources};

use crate::rig::prelude::*;

fn setting(rig: &Rig, key: &str) -> Value {
    let answer = rig.get("/v1/settings");
    let sections = answer["sections"].as_array().unwrap();
    let mut all = sections.iter().flat_map(|section| section["settings"].as_array().unwrap());
    all.find(|setting| setting["key"] == key).unwrap().clone()
}

#[test]
fn every_setting_is_there_and_no_place_of_a_secret() {
    let rig = Rig::with(|settings| {
        settings.keys.master_key_file = Some(settings.database.directory.join("the-key-file"));
        settings.smtp.password_file = Some("/etc/the-password-file".into());
        let command = ["/bin/vault", "--password", "the-secret"].map(str::to_owned).to_vec();
        settings.credentials.commands.insert("vault".to_owned(), command);
    });
    let answer = rig.get("/v1/settings");
    let sections = answer["sections"].as_array().unwrap();
    let count: usize = sections.iter().map(|of| of["settings"].as_array().unwrap().len()).sum();
    assert_eq!(count, KEYS.len());
    let text = answer.to_string();
    for hidden in ["the-key-file", "the-password-file", "the-secret"] {
        assert!(!text.contains(hidden), "{hidden}");
    }
    for hidden in ["keys.master_key_file", "smtp.password_file"] {
        let of = setting(&rig, hidden);
        assert_eq!((of["value"].clone(), of["is_hidden"].clone()), (Value::Null, json!(true)));
    }
    let commands = setting(&rig, "credentials.commands");
    has(&commands, &json!({ "value": { "vault": ["/bin/vault"] }, "is_hidden": true }));
    let attempts = setting(&rig, "delivery.max_attempts");
    for (field, value) in [
        ("value", json!(22)),
        ("default", json!(22)),
        ("is_hidden", json!(false)),
        ("from", json!("default")),
        ("place", Value::Null),
        ("takes_effect", json!("reload")),
        ("variable", json!("ONCEBOX_DELIVERY__MAX_ATTEMPTS")),
    ] {
        assert_eq!(attempts[field], value, "{field}");
    }
}

#[test]
fn a_value_says_where_it_comes_from_and_one_that_is_not_in_force_does_not() {
    let rig = Rig::new();
    let file = rig.home().join("oncebox.toml");
    fs::write(&file, "[delivery]\nmax_attempts = 22\ndeliverers = 3\n").unwrap();
    let environment = Environment::of([("ONCEBOX_METRICS__PUBLIC", "false")]);
    let mut sources = Sources { file: Some(file.clone()), environment, flags: Vec::new() };
    sources.flag("log.level", "--log-level", "info");
    rig.appliance().note_origins(&sources.load().unwrap());
    let origin = |key: &str| {
        let of = setting(&rig, key);
        [of["from"].clone(), of["place"].clone()]
    };
    let line = format!("{}:2", file.display());
    assert_eq!(origin("delivery.max_attempts"), [json!("file"), json!(line)]);
    let variable = json!("environment ONCEBOX_METRICS__PUBLIC");
    assert_eq!(origin("metrics.public"), [json!("environment"), variable]);
    assert_eq!(origin("log.level"), [json!("flag"), json!("flag --log-level")]);
    // It waits for a restart.
    assert_eq!(origin("delivery.deliverers"), [json!("default"), Value::Null]);
}
