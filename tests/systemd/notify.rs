//! What the manager is told, over a real socket.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use crate::rig::http;
use crate::systemd::process::Unit;

fn next(manager: &UnixDatagram) -> String {
    let mut buffer = [0; 1024];
    let length = manager.recv(&mut buffer).unwrap();
    String::from_utf8(buffer[..length].to_vec()).unwrap()
}

/// Messages up to one that begins so, which comes last.
fn until_says(manager: &UnixDatagram, beginning: &str) -> Vec<String> {
    let mut heard = Vec::new();
    while !heard.last().is_some_and(|last: &String| last.starts_with(beginning)) {
        heard.push(next(manager));
    }
    heard
}

#[test]
fn the_manager_hears_when_it_is_ready_that_it_lives_and_that_it_ends() {
    let mut unit = Unit::new();
    let manager = unit.manager();
    unit.variable("WATCHDOG_USEC", "2000000");
    unit.variable("WATCHDOG_PID", "$$");
    let mut service = unit.start();
    let heard = until_says(&manager, "READY=1");
    assert_eq!(heard[0], "STATUS=Starting.");
    let address = service.address();
    assert_eq!(heard.last().unwrap(), &format!("READY=1\nSTATUS=Ready, listening on {address}."));
    // Ready means that it can be used this instant.
    assert_eq!(http::send(address, "GET", "/readyz", &[], b"").unwrap().status, 200);
    for _ in 0..3 {
        assert_eq!(next(&manager), "WATCHDOG=1");
    }
    service.signal("TERM");
    let last = until_says(&manager, "STOPPING=1").pop().unwrap();
    assert_eq!(last, "STOPPING=1\nSTATUS=Stopping: running work is finished first.");
    assert!(service.ended().success());
}

#[test]
fn an_abstract_socket_is_heard_as_well_and_nobody_else_s_watchdog_is_fed() {
    let name = format!("oncebox-notify-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let manager = UnixDatagram::bind_addr(&address).unwrap();
    manager.set_read_timeout(Some(crate::rig::PATIENCE)).unwrap();
    let mut unit = Unit::new();
    unit.variable("NOTIFY_SOCKET", format!("@{name}"));
    unit.variable("WATCHDOG_USEC", "200000");
    unit.variable("WATCHDOG_PID", "1");
    let mut service = unit.start();
    until_says(&manager, "READY=1");
    service.signal("TERM");
    let heard = until_says(&manager, "STOPPING=1");
    assert_eq!(heard.len(), 1, "{heard:?}");
    assert!(service.ended().success());
}

#[test]
fn a_manager_that_cannot_be_reached_is_logged_once_and_the_service_goes_on() {
    let mut unit = Unit::new();
    unit.variable("NOTIFY_SOCKET", "/nowhere/notify");
    unit.variable("WATCHDOG_USEC", "200000");
    let mut service = unit.start();
    let address = service.address();
    assert_eq!(http::send(address, "GET", "/readyz", &[], b"").unwrap().status, 200);
    service.stop();
    let log = service.log();
    assert_eq!(log.matches("the service manager could not be notified").count(), 1, "{log}");
}

#[test]
fn a_service_that_does_not_start_says_why() {
    let mut unit = Unit::new();
    let mut first = unit.start();
    first.address();
    let manager = unit.manager();
    let mut second = unit.start();
    let said = until_says(&manager, "STATUS=Not started").pop().unwrap();
    assert!(said.contains("another oncebox (process "), "{said}");
    assert_eq!(second.ended().code(), Some(75));
}

#[test]
fn each_failed_start_in_a_row_waits_longer_and_a_start_that_works_ends_the_row() {
    let mut unit = Unit::new();
    let manager = unit.manager();
    let runtime = unit.home.path().to_str().unwrap().to_owned();
    unit.variable("RUNTIME_DIRECTORY", runtime);
    let right = unit.settings.clone();
    unit.settings.push_str("nonsense = true\n");
    for secs in ["1", "2"] {
        let mut service = unit.start();
        let said = until_says(&manager, "STATUS=Not started, trying again").pop().unwrap();
        assert!(
            said.starts_with(&format!("STATUS=Not started, trying again in {secs} s: ")),
            "{said}"
        );
        assert!(said.contains("nonsense"), "{said}");
        assert_eq!(service.ended().code(), Some(78));
    }
    let mut third = unit.start();
    until_says(&manager, "STATUS=Not started, trying again in 4 s");
    let log = third.log();
    assert!(log.lines().all(|line| line.starts_with('{')), "nothing but lines of the log: {log}");
    assert_eq!(log.matches("\"failed_starts\":3").count(), 1, "{log}");
    // Who stops it is mending it.
    third.signal("TERM");
    assert_eq!(third.ended().code(), Some(78));
    let mut fourth = unit.start();
    until_says(&manager, "STATUS=Not started, trying again in 1 s");
    assert_eq!(fourth.ended().code(), Some(78));
    unit.settings = right;
    let mut service = unit.start();
    until_says(&manager, "READY=1");
    service.stop();
    assert!(!unit.home.path().join("failed-starts").exists());
}

#[test]
fn the_status_follows_whether_it_is_ready() {
    let mut unit = Unit::new();
    let manager = unit.manager();
    let mut service = unit.start();
    until_says(&manager, "READY=1");
    let address = service.address();
    let file = rusqlite::Connection::open(service.data().join("oncebox.db")).unwrap();
    file.execute_batch("BEGIN IMMEDIATE").unwrap();
    let said = until_says(&manager, "STATUS=").pop().unwrap();
    assert!(said.starts_with("STATUS=Not ready: database: cannot be written"), "{said}");
    file.execute_batch("ROLLBACK").unwrap();
    let said = until_says(&manager, "STATUS=Ready").pop().unwrap();
    assert_eq!(said, format!("STATUS=Ready, listening on {address}."));
    service.stop();
}
