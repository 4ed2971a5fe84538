//! The pages of settings, users, sessions, tokens and backups.

use crate::it::console_rig::{Browser, asking, away_erp, form, links};
use crate::it::restoring::{back_up, restore};
use crate::rig::prelude::*;

#[test]
fn users_are_paged_disabled_and_enabled() {
    let rig = Rig::new();
    let browser = Browser::named(&rig, "anna", "admin");
    for n in 0..30 {
        rig.user(&format!("user-{n:02}"), "read");
    }
    let page = browser.get("/console/settings/users");
    assert!(page.contains("user-18") && !page.contains("user-19"), "{page}");
    let next = links(&page).into_iter().find(|link| link.contains("after=")).unwrap();
    let page = browser.get(&next);
    assert!(page.contains("user-19") && page.contains("user-29") && page.contains("First page"));
    // What is touched is named.
    let asked = browser.get(&asking(&page, "disable-user", "user-29"));
    assert!(asked.contains("<strong>user-29</strong>") && asked.contains(">read<"), "{asked}");
    let answer = browser.submit(&form(&asked, "/console/act/disable-user").unwrap(), &[]).is(303);
    assert!(rig.get("/v1/users/user-29")["disabled_at"].is_string());
    let page = browser.get(answer.field("location").unwrap());
    assert!(page.contains("disabled") && page.contains("Disable: done"), "{page}");
    let enable = form(&page, "/console/act/enable-user").unwrap();
    assert!(enable.fields.contains(&("name".to_owned(), "user-29".to_owned())), "{enable:?}");
    browser.submit(&enable, &[]).is(303);
    assert!(rig.get("/v1/users/user-29")["disabled_at"].is_null());
    let audited = rig.get("/v1/audit-events?action=user.change");
    assert_eq!(audited["items"][0]["actor"]["display"], "anna", "{audited}");
}

#[test]
fn tokens_and_sessions_are_named_before_they_are_ended() {
    let rig = Rig::new();
    let browser = Browser::named(&rig, "anna", "admin");
    let page = browser.act(
        "/console/settings/tokens",
        "create-token",
        &[("name", "the till"), ("role", "publish"), ("source_systems", "shop\npos")],
    );
    assert!(page.contains("obx_") || page.contains("This is shown once."), "{page}");
    let made = rig.get("/v1/tokens")["items"].as_array().unwrap().last().unwrap().clone();
    has(&made, &json!({ "name": "the till", "source_systems": ["shop", "pos"] }));
    let id = made["id"].as_str().unwrap();
    let page = browser.get("/console/settings/tokens");
    let asked = browser.get(&asking(&page, "revoke-token", id));
    assert!(asked.contains("the till") && asked.contains("publish"), "{asked}");
    browser.submit(&form(&asked, "/console/act/revoke-token").unwrap(), &[]).is(303);
    assert!(rig.get(&format!("/v1/tokens/{id}"))["revoked_at"].is_string());

    let other = Browser::named(&rig, "bela", "read");
    assert_eq!(other.send("GET", "/console/settings/sessions", b"").status, 403);
    let page = browser.get("/console/settings/sessions");
    assert_eq!(page.matches("(this one)").count(), 1);
    let sessions = rig.get("/v1/sessions");
    let belas = sessions["items"].as_array().unwrap().iter().find(|row| row["user"] == "bela");
    let id = belas.unwrap()["id"].as_str().unwrap();
    let asked = browser.get(&asking(&page, "end-session", id));
    assert!(asked.contains("<strong>bela</strong>") && asked.contains("127.0.0.1"), "{asked}");
    browser.submit(&form(&asked, "/console/act/end-session").unwrap(), &[]).is(303);
    assert!(other.get("/console/settings").contains("Log in"));
}

#[test]
fn everybody_ends_the_own_sessions_and_changes_the_own_password() {
    let rig = Rig::new();
    let browser = Browser::named(&rig, "anna", "read");
    let elsewhere = rig.log_in_by_link("anna");
    let other = Browser::named(&rig, "bela", "read");
    let page = browser.get("/console/settings/my-sessions");
    assert!(page.contains("anna") && !page.contains("bela"), "{page}");
    assert_eq!(page.matches("/console/act/end-own-session").count(), 2);
    for tab in ["users", "sessions", "tokens", "in-force", "databases", "backups"] {
        let path = format!("/console/settings/{tab}");
        assert!(!page.contains(&format!("\"{path}\"")), "{path}");
        assert_eq!(browser.send("GET", &path, b"").status, 403, "{path}");
    }
    // The older session is this one; the form of the other one stands last.
    let (last, act) = page.rsplit_once("action=\"/console/act/end-own-session\"").unwrap();
    let (_, head) = last.rsplit_once("<form").unwrap();
    let last = format!("<form{head}action=\"/console/act/end-own-session\"{act}");
    let end = form(&last, "/console/act/end-own-session").unwrap();
    browser.submit(&end, &[]).is(303);
    assert!(rig.appliance().api().session(&elsewhere.secret, true).unwrap().is_none());
    assert!(browser.get("/console/settings/my-sessions").contains("(this one)"));

    let new = [("new", "correct horse battery")];
    let page = browser.act("/console/settings", "own-password", &new);
    assert!(page.contains("Change my password: done. Log in again."), "{page}");
    let log_in = form(&page, "/console/log-in").unwrap();
    let answer =
        browser.submit(&log_in, &[("name", "anna"), ("password", "correct horse battery")]);
    assert_eq!(answer.status, 303);
    assert!(other.get("/console/settings").contains("bela"));
}

#[test]
fn settings_in_force_say_where_they_come_from_and_a_backup_is_made_by_a_button() {
    let rig =
        Rig::with(|settings| settings.listen.public_url = Some("https://box.example".to_owned()));
    let browser = Browser::named(&rig, "anna", "admin");
    let page = browser.get("/console/settings/in-force");
    for part in ["listen.public_url", "https://box.example", "delivery.", "default"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    println!("the settings have {} bytes", page.len());
    assert!(browser.get("/console/settings/backups").contains("There is no backup here."));
    let page = browser.act("/console/settings/backups", "back-up", &[]);
    let made = rig.get("/v1/backups")["items"][0].clone();
    assert!(page.contains("Back up now: done") && page.contains(" MB"), "{page}");
    let name = made["path"].as_str().unwrap().rsplit('/').next().unwrap();
    let links = links(&page).into_iter().filter(|link| link.contains(name)).collect::<Vec<_>>();
    let [file, manifest] = links.as_slice() else { panic!("{page}") };
    let kept = browser.send("GET", file, b"").is(200);
    assert_eq!(kept.body(), fs::read(made["path"].as_str().unwrap()).unwrap());
    assert!(browser.get(manifest).contains("\"sha256\""));
    let page = browser.act("/console/settings/backups", "verify-backup", &[]);
    assert!(page.contains("Verify: done"), "{page}");
    let audited = rig.get("/v1/audit-events?action=backup.make");
    assert_eq!(audited["items"][0]["actor"]["display"], "anna", "{audited}");
}

#[test]
fn what_is_in_doubt_after_a_restore_is_decided_by_form() {
    let (mut rig, _receiver) = Rig::subscribed_to("erp", Receiver::scripted([Reply::status(500)]));
    rig.deliver("waits");
    back_up(&rig);
    restore(&mut rig);
    let browser = Browser::named(&rig, "anna", "admin");
    let page = browser.get("/console/settings");
    let path = "/console/act/release-in-doubt";
    let link = links(&page).into_iter().find(|link| link.starts_with(path)).unwrap();
    let asked = browser.get(&link);
    assert!(asked.contains("this field is required"), "nothing chosen never means all: {asked}");
    let given = [("filter.subscription", "erp")];
    let shown = browser.submit(&form(&asked, path).unwrap(), &given).is(200).text();
    assert!(shown.contains("<strong>1</strong>"), "{shown}");
    assert_eq!(rig.get("/v1/in-doubt")["in_doubt"], 1);
    browser.submit(&form(&shown, path).unwrap(), &[]).is(303);
    assert_eq!(rig.get("/v1/in-doubt")["in_doubt"], 0);
    let page = browser.act("/console/settings", "end-in-doubt", &[]);
    assert!(!page.contains(path) && page.contains("Stop holding new events: done"), "{page}");
    assert!(rig.get("/v1/in-doubt")["until"].is_null());
}

#[test]
fn databases_of_others_are_listed_with_what_uses_them_and_tested_by_a_button() {
    let rig = Rig::new();
    let browser = Browser::named(&rig, "anna", "admin");
    assert!(browser.get("/console/settings/databases").contains("The settings name no database."));
    let rig = Rig::with(away_erp);
    let target =
        json!({ "name": "stock", "url": "database:erp", "template": { "inbox": "inbox" } });
    rig.post("/v1/subscriptions", &target).is(201);
    let browser = Browser::named(&rig, "anna", "admin");
    let page = browser.get("/console/settings/databases");
    for part in ["erp", "postgresql", "subscription default/stock", "0 / 2"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let test = form(&page, "/console/act/test-database").unwrap();
    let tested = browser.submit(&test, &[]).is(200).text();
    assert!(tested.contains("Test: it cannot be used as it is"), "{tested}");
    assert!(tested.contains("/nowhere/oncebox-odbc"), "the reason: {tested}");
    let page = browser.get("/console/settings/databases");
    assert!(page.contains("away") && page.contains("/nowhere/oncebox-odbc"), "{page}");
}
