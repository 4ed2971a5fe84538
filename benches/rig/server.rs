//! The real thing: the release binary, in a process of its own, with a directory of its own.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{facts, now_us, rest, wire};

/// A running server. Dropped, it is killed; its directory goes with it unless it was lent.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: String,
    pub(crate) data: PathBuf,
    pub(crate) token: String,
    /// From exec to the first 200 of `/readyz`.
    pub(crate) ready_after: Duration,
    keep: bool,
}

/// The program that is measured: the one just built, or, to compare two builds, the one in `ONCEBOX_BIN`.
pub(crate) fn program() -> PathBuf {
    std::env::var_os("ONCEBOX_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_oncebox").into()).into()
}

/// A directory nobody uses yet.
pub(crate) fn fresh_directory(name: &str) -> PathBuf {
    let place = facts::scratch().join(format!("{name}-{}-{}", std::process::id(), now_us()));
    fs::create_dir_all(&place).unwrap();
    place
}

impl Server {
    /// Starts one with an empty file.
    pub(crate) fn start(name: &str) -> Self {
        Self::start_on(&fresh_directory(name)).with_its_directory()
    }

    /// Starts one on a directory that is kept afterwards.
    pub(crate) fn start_on(data: &Path) -> Self {
        Self::start_under(&[], data)
    }

    /// Starts one on a directory that goes with it, with more lines of settings.
    pub(crate) fn start_with(data: &Path, lines: &str) -> Self {
        Self::start_configured(&[], data, lines).with_its_directory()
    }

    /// The same, run by another program that is given it as its last arguments.
    pub(crate) fn start_under(runner: &[String], data: &Path) -> Self {
        Self::start_configured(runner, data, "")
    }

    /// Lets the directory go with the server.
    pub(crate) fn with_its_directory(mut self) -> Self {
        self.keep = false;
        self
    }

    fn start_configured(runner: &[String], data: &Path, lines: &str) -> Self {
        let config = data.join("oncebox.toml");
        let own = "[delivery]\nallow = [\"127.0.0.0/8\"]\nsteps = [\"1h\"]\n[disk]\nreserve = 0\n";
        fs::write(&config, format!("{own}{lines}")).unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let begun = Instant::now();
        let own = program().display().to_string();
        let mut words = runner.iter().chain([&own]);
        let child = Command::new(words.next().unwrap())
            .args(words)
            .arg("serve")
            .arg("--config")
            .arg(&config)
            .arg("--data")
            .arg(data)
            .args(["--listen", &free.to_string()])
            .env("RUST_LOG", "error")
            .stdout(Stdio::null())
            .stderr(Stdio::from(fs::File::create(data.join("stderr.log")).unwrap()))
            .spawn()
            .unwrap();
        let address = free.to_string();
        let ready = || matches!(wire::ask(&address, "GET", "/readyz", "", ""), Ok((200, _)));
        while !ready() {
            assert!(begun.elapsed() < Duration::from_mins(1), "the server did not get ready");
            rest(Duration::from_micros(500));
        }
        let ready_after = begun.elapsed();
        let token = fs::read_to_string(data.join("admin.token")).unwrap().trim().to_owned();
        Self { child, address, data: data.to_owned(), token, ready_after, keep: true }
    }

    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn cpu_seconds(&self) -> f64 {
        facts::cpu_seconds(self.process())
    }

    pub(crate) fn rss_mib(&self) -> f64 {
        facts::rss_mib(self.process())
    }

    pub(crate) fn own_mib(&self) -> f64 {
        facts::own_mib(self.process())
    }

    /// Asks the API; what is not a success ends the bench.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        self.ask_as(&self.token, method, path, body)
    }

    /// The same with another token.
    fn ask_as(&self, token: &str, method: &str, path: &str, body: &Value) -> Value {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let (status, told) = wire::ask(&self.address, method, path, token, &body).unwrap();
        assert!((200..300).contains(&status), "{method} {path}: {status} {told}");
        told
    }

    /// Makes a subscription and returns the secret its requests are signed with.
    pub(crate) fn subscribe(
        &self,
        name: &str,
        url: &str,
        source: &str,
        event_type: &str,
    ) -> String {
        let subscription = json!({
            "name": name, "url": url, "source": source, "event_types": [event_type],
            "secret": SECRET,
        });
        let told = self.ask("POST", "/v1/subscriptions", &subscription);
        told["secret"].as_str().unwrap().to_owned()
    }

    /// Makes a subscription to the outbox of a token's tenant.
    pub(crate) fn subscribe_as(&self, token: &str, name: &str, url: &str, event_type: &str) {
        let subscription = json!({ "name": name, "url": url, "event_types": [event_type] });
        self.ask_as(token, "POST", "/v1/subscriptions", &subscription);
    }

    /// Makes a tenant and returns a token of its administrator.
    pub(crate) fn tenant(&self, name: &str) -> String {
        self.ask("POST", "/v1/tenants", &json!({ "name": name, "pii": "allow" }));
        let token = json!({ "name": "admin", "role": "admin", "tenant": name });
        let told = self.ask("POST", "/v1/tokens", &token);
        told["token"].as_str().unwrap().to_owned()
    }

    /// Gives a subscription an order.
    pub(crate) fn order(&self, name: &str, ordering: &str) {
        self.ask("PATCH", &format!("/v1/subscriptions/{name}"), &json!({ "ordering": ordering }));
    }

    pub(crate) fn pause(&self, name: &str) {
        self.ask("POST", &format!("/v1/subscriptions/{name}/pause"), &Value::Null);
    }

    /// Makes a provider of the standard scheme.
    pub(crate) fn provide(&self, name: &str) {
        let scheme = json!({ "kind": "standard" });
        let provider = json!({ "name": name, "scheme": scheme, "pii": "allow", "secret": SECRET });
        self.ask("POST", "/v1/providers", &provider);
    }

    /// Transactions and jobs the writer has done.
    pub(crate) fn writer(&self) -> (f64, f64) {
        let stats = self.ask("GET", "/v1/stats", &Value::Null);
        let number = |name: &str| stats[name].as_f64().unwrap_or(f64::NAN);
        (number("writer_commits"), number("writer_jobs"))
    }

    /// Stops it in order, and waits for its end.
    pub(crate) fn stop(mut self) {
        let asked = Command::new("kill").arg(self.process().to_string()).status().unwrap();
        assert!(asked.success() && self.child.wait().unwrap().success(), "the stop was not clean");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        if !self.keep {
            drop(fs::remove_dir_all(&self.data));
        }
    }
}

/// What everything in the benches is signed with.
pub(crate) const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
