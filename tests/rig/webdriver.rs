//! A real Chromium, driven through `ChromeDriver` by the W3C `WebDriver` protocol.
//!
//! A start takes longer than most tests, so a browser that a test has left is used again: with a new tab, without cookies.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{PATIENCE, http, skipped};

const DRIVER: &str = "/usr/bin/chromedriver";
/// The first that is there is used. The shell draws no window and needs half the processor time.
const CHROMIUMS: [&str; 2] = ["/usr/bin/chromium-headless-shell", "/usr/bin/chromium"];
/// The member of an answer that names an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// Runs `ChromeDriver` until its input ends, which is also when this process is killed; then removes the profiles, into
/// which ending browsers still write for a moment. Nobody waits for that.
const SHELL: &str = "dir=$(mktemp -d); TMPDIR=$dir \"$0\" --port=0 & read -r _; kill $!; wait; \
    exec >/dev/null; for n in 1 2 3; do sleep 1; rm -rf \"$dir\"; done";

/// How long to wait before looking again whether something is there.
const PAUSE: Duration = Duration::from_millis(10);

/// `ChromeDriver`, and the browsers that no test uses now. All tests of a program share it.
pub(crate) struct Driver {
    address: SocketAddr,
    chromium: &'static str,
    idle: Mutex<Vec<String>>,
    /// Its input stays open as long as this process runs.
    _shell: Child,
}

impl Driver {
    /// The driver, which the first test starts; `None`, and a line that says so, where there is none.
    #[track_caller]
    pub(crate) fn start() -> Option<&'static Self> {
        static SHARED: OnceLock<Driver> = OnceLock::new();
        let chromium = CHROMIUMS.into_iter().find(|path| Path::new(path).exists());
        let Some(chromium) = chromium.filter(|_| Path::new(DRIVER).exists()) else {
            skipped("no chromedriver");
            return None;
        };
        Some(SHARED.get_or_init(|| Self::new(chromium)))
    }

    fn new(chromium: &'static str) -> Self {
        let mut shell = Command::new("sh")
            .args(["-c", SHELL, DRIVER])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(shell.stdout.take().unwrap()).lines();
        let port = lines.find_map(|line| {
            let line = line.unwrap();
            let port = line.split_once("successfully on port ")?.1;
            port.trim_end_matches('.').parse().ok()
        });
        let address = SocketAddr::from(([127, 0, 0, 1], port.expect("it says its port")));
        Self { address, chromium, idle: Mutex::default(), _shell: shell }
    }

    /// A Chromium as a new one: one tab, no cookies, nothing emulated.
    #[track_caller]
    pub(crate) fn browser(&self) -> Browser<'_> {
        let idle = self.idle.lock().unwrap().pop();
        if let Some(session) = idle {
            let browser = Browser { driver: self, session };
            browser.begin_anew();
            return browser;
        }
        let args = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-extensions",
            "--disable-component-extensions-with-background-pages",
            "--disable-default-apps",
            "--disable-features=Translate,OptimizationHints,MediaRouter,AutofillServerCommunication",
            "--hide-scrollbars",
            "--force-color-profile=srgb",
            // Without the driver at its other end, Chromium ends.
            "--remote-debugging-pipe",
            "--window-size=1200,900",
        ];
        let options = json!({ "binary": self.chromium, "args": args });
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome", "goog:chromeOptions": options,
        }}});
        let made = self.call("POST", "/session", &wanted).unwrap_or_else(|error| panic!("{error}"));
        let session = made["sessionId"].as_str().unwrap().to_owned();
        Browser { driver: self, session }
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        let body = if method == "POST" { body.to_string() } else { String::new() };
        let fields = [("Content-Type", "application/json")];
        let answer = http::send(self.address, method, path, &fields, body.as_bytes())
            .map_err(|error| format!("{method} {path}: {error}"))?;
        let value = answer.json()["value"].take();
        if answer.status == 200 {
            return Ok(value);
        }
        Err(format!("{method} {path}: {} {}", value["error"], value["message"]))
    }
}

/// One Chromium. What is found is named by a CSS selector.
pub(crate) struct Browser<'a> {
    driver: &'a Driver,
    session: String,
}

impl Browser<'_> {
    /// What a test did to its tab ends with it; cookies are the browser's.
    #[track_caller]
    fn begin_anew(&self) {
        let old = self.try_call("GET", "window/handles", &Value::Null).unwrap();
        let new = self.new_tab();
        for tab in old.as_array().unwrap() {
            self.switch_to(tab.as_str().unwrap());
            self.try_call("DELETE", "window", &Value::Null).unwrap();
        }
        self.switch_to(&new);
        self.cdp("Network.clearBrowserCookies", &json!({}));
    }

    fn try_call(&self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        self.driver.call(method, &format!("/session/{}/{path}", self.session), body)
    }

    #[track_caller]
    fn post(&self, path: &str, body: &Value) -> Value {
        self.try_call("POST", path, body).unwrap_or_else(|error| panic!("{error}"))
    }

    #[track_caller]
    fn get(&self, path: &str) -> String {
        let value = self.try_call("GET", path, &Value::Null);
        value.unwrap_or_else(|error| panic!("{error}")).as_str().unwrap_or_default().to_owned()
    }

    /// Opens an address, and waits until it is loaded.
    #[track_caller]
    pub(crate) fn open(&self, url: &str) {
        self.post("url", &json!({ "url": url }));
    }

    #[track_caller]
    pub(crate) fn reload(&self) {
        self.post("refresh", &json!({}));
    }

    #[track_caller]
    pub(crate) fn go_back(&self) {
        self.post("back", &json!({}));
    }

    #[track_caller]
    pub(crate) fn url(&self) -> String {
        self.get("url")
    }

    #[track_caller]
    pub(crate) fn title(&self) -> String {
        self.get("title")
    }

    /// The page as it is now, as HTML.
    #[track_caller]
    pub(crate) fn source(&self) -> String {
        self.get("source")
    }

    fn find(&self, css: &str) -> Option<String> {
        let body = json!({ "using": "css selector", "value": css });
        let found = self.try_call("POST", "elements", &body).ok()?;
        Some(found[0][ELEMENT].as_str()?.to_owned())
    }

    pub(crate) fn has(&self, css: &str) -> bool {
        self.find(css).is_some()
    }

    /// The first element, as soon as it is there.
    #[track_caller]
    fn element(&self, css: &str) -> String {
        let mut found = None;
        for _ in 0..200 {
            found = self.find(css);
            if found.is_some() {
                break;
            }
            thread::sleep(PAUSE);
        }
        found.unwrap_or_else(|| panic!("no {css} on {}:\n{}", self.url(), self.text("body")))
    }

    /// Clicks as a person does: what covers the element gets the click.
    #[track_caller]
    pub(crate) fn click(&self, css: &str) {
        self.click_on(|| self.element(css));
    }

    /// Clicks what is found. A page that refreshes itself may replace it in between: then it is looked for anew.
    #[track_caller]
    fn click_on(&self, find: impl Fn() -> String) {
        for _ in 0..20 {
            let clicked = self.try_call("POST", &format!("element/{}/click", find()), &json!({}));
            match clicked {
                Ok(_) => return,
                Err(error) if error.contains("stale element") => thread::sleep(PAUSE),
                Err(error) => panic!("{error}"),
            }
        }
        panic!("it is replaced all the time on {}", self.url());
    }

    /// Clicks a link or a button, and waits for the page that follows.
    #[track_caller]
    pub(crate) fn follow(&self, css: &str) {
        self.leave(|| self.click(css));
    }

    /// Follows the first link or button with this text.
    #[track_caller]
    pub(crate) fn press(&self, text: &str) {
        let quoted = Value::from(text);
        let path =
            format!("//*[self::a or self::button or self::summary][normalize-space()={quoted}]");
        let body = json!({ "using": "xpath", "value": path });
        let find = || {
            let found = self.post("elements", &body);
            let found = found[0][ELEMENT].as_str().map(str::to_owned);
            found.unwrap_or_else(|| {
                panic!("nothing says {text:?} on {}:\n{}", self.url(), self.text("body"))
            })
        };
        self.leave(|| self.click_on(find));
    }

    /// Waits until another page is loaded.
    #[track_caller]
    fn leave(&self, act: impl FnOnce()) {
        self.run("document.left = true");
        act();
        let is_new = "return !document.left && document.readyState === 'complete'";
        let ran = json!({ "script": is_new, "args": [] });
        let started = Instant::now();
        while !self.try_call("POST", "execute/sync", &ran).is_ok_and(|value| value == true) {
            assert!(started.elapsed() < PATIENCE, "no other page came: {}", self.url());
            thread::sleep(PAUSE);
        }
    }

    /// Replaces what is typed in a field.
    #[track_caller]
    pub(crate) fn fill(&self, css: &str, text: &str) {
        let element = self.element(css);
        self.post(&format!("element/{element}/clear"), &json!({}));
        self.post(&format!("element/{element}/value"), &json!({ "text": text }));
    }

    /// Presses a key of the keyboard so many times, by its code.
    #[track_caller]
    pub(crate) fn keys(&self, key: &str, count: u64) {
        let stroke = ["keyDown", "keyUp"].map(|kind| json!({ "type": kind, "value": key }));
        let strokes: Vec<_> = (0..count).flat_map(|_| stroke.clone()).collect();
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": strokes });
        self.post("actions", &json!({ "actions": [keyboard] }));
    }

    /// The text of the first element, as it is seen.
    #[track_caller]
    pub(crate) fn text(&self, css: &str) -> String {
        let script = "return document.querySelector(arguments[0])?.innerText ?? ''";
        self.run_with(script, &json!([css])).as_str().unwrap().to_owned()
    }

    /// Waits until the first element has this text in it.
    #[track_caller]
    pub(crate) fn wait_for(&self, css: &str, text: &str) {
        let started = Instant::now();
        while !self.text(css).contains(text) {
            let is_late = started.elapsed() > PATIENCE;
            assert!(!is_late, "waited in vain for {text:?} in {css}: {}", self.text("body"));
            thread::sleep(PAUSE);
        }
    }

    /// Runs a script in the page, and returns what it returns.
    #[track_caller]
    pub(crate) fn run(&self, script: &str) -> Value {
        self.run_with(script, &json!([]))
    }

    #[track_caller]
    pub(crate) fn run_with(&self, script: &str, args: &Value) -> Value {
        self.post("execute/sync", &json!({ "script": script, "args": args }))
    }

    /// Runs a script that calls the last of its arguments with what it returns.
    #[track_caller]
    pub(crate) fn run_until_done(&self, script: &str, args: &Value) -> Value {
        self.post("execute/async", &json!({ "script": script, "args": args }))
    }

    /// A command of Chromium's own protocol.
    #[track_caller]
    pub(crate) fn cdp(&self, command: &str, params: &Value) -> Value {
        self.post("goog/cdp/execute", &json!({ "cmd": command, "params": params }))
    }

    /// The size of the window, and how many dots a pixel has.
    #[track_caller]
    pub(crate) fn size(&self, width: u32, height: u32, zoom: u32) {
        let (width, height) = (width / zoom, height / zoom);
        let size = json!({
            "width": width, "height": height, "deviceScaleFactor": zoom, "mobile": false,
        });
        self.cdp("Emulation.setDeviceMetricsOverride", &size);
    }

    /// What the person prefers: `[("prefers-color-scheme", "dark")]`.
    #[track_caller]
    pub(crate) fn prefers(&self, features: &[(&str, &str)]) {
        let features: Vec<_> =
            features.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
        self.cdp("Emulation.setEmulatedMedia", &json!({ "features": features }));
    }

    /// Whether pages run scripts from now on.
    #[track_caller]
    pub(crate) fn scripts(&self, run: bool) {
        self.cdp("Emulation.setScriptExecutionDisabled", &json!({ "value": !run }));
    }

    /// What a screen reader is told: all nodes that are not ignored.
    #[track_caller]
    pub(crate) fn accessibility(&self) -> Vec<Value> {
        let tree = self.cdp("Accessibility.getFullAXTree", &json!({}));
        let nodes = tree["nodes"].as_array().unwrap().iter();
        nodes.filter(|node| node["ignored"] == false).cloned().collect()
    }

    /// The page as a picture, from its top on: `png`, or `webp`, which is small.
    #[track_caller]
    pub(crate) fn screenshot(&self, format: &str, height_max: u32) -> Vec<u8> {
        let size = self.run("return [innerWidth, document.documentElement.scrollHeight]");
        let height = size[1].as_u64().unwrap().min(height_max.into());
        let clip = json!({ "x": 0, "y": 0, "width": size[0], "height": height, "scale": 1 });
        let mut shot = json!({
            "format": format, "captureBeyondViewport": true, "clip": clip, "optimizeForSpeed": format == "png",
        });
        if format != "png" {
            shot["quality"] = json!(50);
        }
        let shot = self.cdp("Page.captureScreenshot", &shot);
        data_encoding::BASE64.decode(shot["data"].as_str().unwrap().as_bytes()).unwrap()
    }

    /// Opens a second tab, and returns its name. It is not shown until it is switched to.
    #[track_caller]
    pub(crate) fn new_tab(&self) -> String {
        let made = self.post("window/new", &json!({ "type": "tab" }));
        made["handle"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    pub(crate) fn tab(&self) -> String {
        self.get("window")
    }

    #[track_caller]
    pub(crate) fn switch_to(&self, tab: &str) {
        self.post("window", &json!({ "handle": tab }));
    }

    /// Forgets who is logged in.
    #[track_caller]
    pub(crate) fn forget(&self) {
        self.try_call("DELETE", "cookie", &Value::Null).unwrap();
    }

    #[track_caller]
    pub(crate) fn cookies(&self) -> Value {
        self.try_call("GET", "cookie", &Value::Null).unwrap()
    }
}

impl Drop for Browser<'_> {
    fn drop(&mut self) {
        // A browser in an unknown state is not used again.
        if thread::panicking() {
            drop(self.driver.call("DELETE", &format!("/session/{}", self.session), &Value::Null));
        } else if let Ok(mut idle) = self.driver.idle.lock() {
            idle.push(std::mem::take(&mut self.session));
        }
    }
}
