//! What the service manager hears: ready, alive, and nothing when a thread hangs.

use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;

use oncebox::app::supervision::Supervision;
use oncebox::base::faults::Stall;
use oncebox::sys::systemd::Notifier;

use crate::rig::prelude::*;

/// The silence the manager bears.
const TOLERATED: Duration = secs(30);

/// A service manager that listens.
struct Manager {
    socket: UnixDatagram,
    supervision: Supervision,
    now: Duration,
}

impl Manager {
    fn of(rig: &Rig) -> Self {
        let path = rig.home().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_nonblocking(true).unwrap();
        let notifier = Notifier::to(path.to_str());
        let supervision = Supervision::new(rig.appliance(), notifier, Some(TOLERATED));
        Self { socket, supervision, now: Duration::ZERO }
    }

    /// What was said since the last time.
    fn heard(&self) -> Vec<String> {
        let mut heard = Vec::new();
        let mut buffer = [0; 512];
        loop {
            match self.socket.recv(&mut buffer) {
                Ok(length) => heard.push(String::from_utf8(buffer[..length].to_vec()).unwrap()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return heard,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Looks until something is said.
    #[track_caller]
    fn wait(&mut self, rig: &Rig) -> Vec<String> {
        let mut heard = Vec::new();
        until("something is said", || {
            self.supervision.check(rig.appliance(), self.now);
            heard = self.heard();
            !heard.is_empty()
        });
        heard
    }

    /// The next message, when so much time has passed.
    #[track_caller]
    fn after(&mut self, rig: &Rig, span: Duration) -> Vec<String> {
        self.now += span;
        self.wait(rig)
    }
}

#[test]
fn it_is_ready_when_a_write_is_committed_and_alive_at_half_of_the_tolerated_silence() {
    let rig = Rig::new();
    let before = rig.appliance().store().writer().done().commits.get();
    let mut manager = Manager::of(&rig);
    let ready = format!("READY=1\nSTATUS=Ready, listening on {}.", rig.address());
    assert_eq!(manager.wait(&rig), [ready.as_str(), "WATCHDOG=1"]);
    assert!(rig.appliance().store().writer().done().commits.get() > before, "nothing was written");
    for _ in 0..3 {
        assert_eq!(manager.after(&rig, secs(15)), ["WATCHDOG=1"]);
    }
    until("every pulse is felt", || rig.appliance().missing_heartbeats().is_empty());
    manager.now += secs(14);
    manager.supervision.check(rig.appliance(), manager.now);
    assert!(manager.heard().is_empty(), "it says more than it is asked for");
}

#[test]
fn it_is_not_ready_while_the_disk_refuses_a_write() {
    let faults = Faults::stalling();
    let rig = Rig::with_faults(|_| {}, faults.clone());
    faults.fail(Some(Step::Write));
    let mut manager = Manager::of(&rig);
    let said = manager.wait(&rig);
    assert!(said[0].contains("STATUS=Not ready: the database cannot be written"), "{said:?}");
    assert!(!manager.supervision.is_ready());
    faults.fail(None);
    let said = manager.after(&rig, secs(1));
    assert!(said[0].starts_with("READY=1"), "{said:?}");
}

#[test]
fn when_any_thread_hangs_the_manager_is_no_longer_told_that_all_is_well() {
    for (stall, name) in [
        (Stall::Writer, "the writer"),
        (Stall::Dispatcher, "the dispatcher"),
        (Stall::Listener, "the listener"),
    ] {
        let faults = Faults::stalling();
        let rig = Rig::with_faults(|_| {}, faults.clone());
        let mut manager = Manager::of(&rig);
        manager.wait(&rig);
        faults.stall(Some(stall));
        let others_come_round = || {
            until("the others come round", || {
                rig.appliance().missing_heartbeats().iter().all(|missing| *missing == name)
            });
        };
        others_come_round();
        let mut said = manager.after(&rig, secs(25));
        // The sign that was asked for before it hung may still have been given, once.
        if said == ["WATCHDOG=1"] {
            others_come_round();
            said = manager.after(&rig, secs(25));
        }
        assert_eq!(said, [format!("STATUS=Not well: no heartbeat from {name}.")]);
        for _ in 0..5 {
            manager.now += secs(60);
            manager.supervision.check(rig.appliance(), manager.now);
            assert!(manager.heard().is_empty(), "{name} hangs, and all is said to be well");
        }
        faults.stall(None);
        let said = manager.after(&rig, secs(1));
        assert_eq!(said.last().map(String::as_str), Some("WATCHDOG=1"), "{name}: {said:?}");
    }
}
