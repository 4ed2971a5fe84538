//! Where the console is served, and to whom before there is a user.

use crate::rig::prelude::*;

fn get(address: SocketAddr, path: &str, fields: &[(&str, &str)]) -> Answer {
    http::send(address, "GET", path, fields, b"").unwrap()
}

/// An address on which nobody listens.
fn free(ip: &str) -> SocketAddr {
    TcpListener::bind((ip, 0)).unwrap().local_addr().unwrap()
}

#[test]
fn a_console_with_an_address_of_its_own_is_not_where_the_api_is() {
    let mut rig = Rig::new();
    let own = free("127.0.0.3");
    rig.restart_with(|settings| settings.listen.console = Some(own));
    get(rig.address(), "/console/", &[]).is(404);
    get(rig.address(), "/console", &[]).is(404);
    get(own, "/console/", &[]).is(200);
    get(own, "/livez", &[]).is(200);
    for path in ["/v1/stats", "/readyz", "/openapi.json", "/in/stripe", "/"] {
        get(own, path, &[]).is(404);
    }
    rig.post("/v1/users", &json!({ "name": "anna", "role": "read" })).is(201);
    let url = || {
        let made = rig.post("/v1/users/anna/link", &Value::Null).is(201).json();
        text(&made, "url")
    };
    let link = url();
    assert!(link.starts_with(&format!("http://{own}/console/enter?link=")), "{link}");
    let query = link.split_once('?').unwrap().1;
    let entered = http::send(own, "POST", "/console/enter", &[], query.as_bytes()).unwrap().is(303);
    let cookie = entered.field("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    shows(&get(own, "/console/", &[("Cookie", &cookie)]).is(200).text(), &["anna"]);
}

#[test]
fn a_link_has_the_public_url_of_the_console() {
    let mut rig = Rig::new();
    let own = free("127.0.0.3");
    rig.restart_with(|settings| {
        settings.listen.console = Some(own);
        settings.listen.public_url = Some("https://hooks.example".to_owned());
        settings.console.public_url = Some(format!("https://{own}/"));
    });
    rig.post("/v1/users", &json!({ "name": "anna", "role": "read" })).is(201);
    let made = rig.post("/v1/users/anna/link", &Value::Null).is(201).json();
    let url = made["url"].as_str().unwrap();
    assert!(url.starts_with(&format!("https://{own}/console/enter?link=")), "{url}");
    let body = url.split_once('?').unwrap().1.as_bytes();
    let entered = http::send(own, "POST", "/console/enter", &[], body).unwrap().is(303);
    let cookie = entered.field("set-cookie").unwrap();
    assert!(cookie.contains("; Secure"), "the browser's connection is encrypted: {cookie}");
}

#[test]
fn a_console_that_is_switched_off_is_nowhere() {
    let mut rig = Rig::new();
    rig.restart_with(|settings| settings.console.enabled = false);
    for path in ["/console", "/console/", "/console/log-in", "/console/assets/style.css"] {
        get(rig.address(), path, &[]).is(404);
    }
    rig.get("/v1/stats");
}
