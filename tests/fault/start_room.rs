//! A start on a full disk waits for room, and says so.

use std::os::unix::net::UnixDatagram;
use std::process::Child;

use crate::fault::disk::Tmpfs;
use crate::fault::process::prelude::*;

/// A service on a port that is known before it starts, and the messages it sends to its manager.
struct Started {
    child: Child,
    address: SocketAddr,
    manager: UnixDatagram,
}

impl Started {
    fn new(home: &Path, elsewhere: &Path) -> Self {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let config = elsewhere.join("oncebox.toml");
        fs::write(&config, SOON.replace("127.0.0.1:0", &address.to_string())).unwrap();
        let socket = elsewhere.join("notify");
        drop(fs::remove_file(&socket));
        let manager = UnixDatagram::bind(&socket).unwrap();
        manager.set_nonblocking(true).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_oncebox"));
        command.arg("--config").arg(&config).arg("--data").arg(home.join("data")).arg("serve");
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.env("NOTIFY_SOCKET", &socket).spawn().unwrap();
        Self { child, address, manager }
    }

    fn status(&self, method: &str, path: &str) -> Option<u16> {
        call(self.address, "", method, path, &Value::Null).ok().map(|answer| answer.status)
    }

    /// Whether the manager has heard a message with both texts in it.
    fn has_told(&self, what: &str, more: &str) -> bool {
        let mut buffer = [0; 1024];
        std::iter::from_fn(|| {
            self.manager
                .recv(&mut buffer)
                .ok()
                .map(|length| String::from_utf8_lossy(&buffer[..length]).into_owned())
        })
        .any(|message| message.contains(what) && message.contains(more))
    }

    fn stop(mut self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Fills the disk to the last byte.
fn fill(home: &Path) {
    fs::write(home.join("ballast"), vec![0; 16 << 20]).unwrap_err();
}

fn waits_and_starts(home: &Path, elsewhere: &Path) {
    let mut started = Started::new(home, elsewhere);
    until("it waits", || started.status("GET", "/livez") == Some(200));
    let ready = call(started.address, "", "GET", "/readyz", &Value::Null).unwrap();
    assert_eq!(ready.status, 503);
    let which = format!("The disk of {}", home.display());
    assert!(ready.detail().contains(&which) && ready.detail().contains("df -h"), "{ready:?}");
    assert_eq!(started.status("POST", "/in/stripe"), Some(507));
    assert_eq!(started.status("GET", "/v1/stats"), Some(507));
    until("the manager is told", || started.has_told("EXTEND_TIMEOUT_USEC=", &which));
    assert!(started.child.try_wait().unwrap().is_none(), "it goes on waiting");

    fs::remove_file(home.join("ballast")).unwrap();
    until("it starts when there is room", || started.status("GET", "/readyz") == Some(200));
    until("the manager is told", || started.has_told("READY=1", "Ready"));
    started.stop();
}

#[test]
fn a_start_on_a_full_disk_waits_for_room() {
    let Some(tmpfs) = Tmpfs::mount(8) else { return };
    let elsewhere = tempfile::tempdir().unwrap();
    // The first start, which makes the database, and one that finds it.
    for _ in 0..2 {
        // The index of the run before is made anew, and would leave its room.
        drop(fs::remove_file(tmpfs.path().join("data/oncebox.db-shm")));
        fill(tmpfs.path());
        waits_and_starts(tmpfs.path(), elsewhere.path());
    }
}

#[test]
fn a_start_that_waits_for_room_ends_when_it_is_asked_to() {
    let Some(tmpfs) = Tmpfs::mount(2) else { return };
    let elsewhere = tempfile::tempdir().unwrap();
    fill(tmpfs.path());
    let started = Started::new(tmpfs.path(), elsewhere.path());
    until("it waits", || started.status("GET", "/livez") == Some(200));
    started.stop();
}
