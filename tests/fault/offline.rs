//! A real link is pulled for some seconds: the service and its receiver stand in network namespaces of their own.
//! Needs root and `ip`. `tests/it/offline.rs` tries a week with a clock that stands still.

use std::fs::File;
use std::net::Ipv4Addr;

use rustix::fd::AsFd as _;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::fault::process::prelude::*;

/// The receiver's, behind the gateway. No address for public use, so the settings allow it.
const FAR: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
/// The receiver's on the site's own network, which is not over the line; and its name.
const NEAR: Ipv4Addr = Ipv4Addr::new(10, 204, 0, 1);
const NEAR_NAME: &str = "erp.example";
/// How long the link is down.
const DOWN: Duration = Duration::from_secs(8);

/// Two namespaces with a link between them: the site, and the world with the receiver. Dropped, they are gone.
struct Net {
    site: String,
    world: String,
}

fn ip(command: &str) -> bool {
    let done = Command::new("ip").args(command.split(' ')).output();
    done.is_ok_and(|done| done.status.success())
}

impl Net {
    fn new(name: &str) -> Option<Self> {
        let of = |part: &str| format!("oncebox-{name}-{part}-{}", std::process::id());
        let net = Self { site: of("site"), world: of("world") };
        let Self { site, world } = &net;
        if !ip(&format!("netns add {site}")) || !ip(&format!("netns add {world}")) {
            skipped("network namespaces cannot be made: that needs root and ip of iproute2");
            return None;
        }
        for command in [
            format!("link add line netns {site} type veth peer name line netns {world}"),
            format!("-n {site} link set lo up"),
            format!("-n {world} link set lo up"),
            format!("-n {site} address add 10.203.0.2/24 dev line"),
            format!("-n {world} address add 10.203.0.1/24 dev line"),
            format!("-n {world} address add {FAR}/32 dev lo"),
            format!("-n {world} link set line up"),
            format!("link add near netns {site} type veth peer name near netns {world}"),
            format!("-n {site} address add 10.204.0.2/24 dev near"),
            format!("-n {world} address add {NEAR}/24 dev near"),
            format!("-n {site} link set near up"),
            format!("-n {world} link set near up"),
        ] {
            assert!(ip(&command), "{command}");
        }
        // `ip netns exec` shows these files in place of those under /etc.
        let etc = Path::new("/etc/netns").join(site);
        fs::create_dir_all(&etc).unwrap();
        fs::write(etc.join("hosts"), format!("127.0.0.1 localhost\n{NEAR} {NEAR_NAME}\n")).unwrap();
        net.site_up();
        Some(net)
    }

    fn site_up(&self) {
        let Self { site, .. } = self;
        assert!(ip(&format!("-n {site} link set line up")));
        assert!(ip(&format!("-n {site} route add default via 10.203.0.1")));
    }

    fn site_down(&self) {
        assert!(ip(&format!("-n {} link set line down", self.site)));
    }

    /// The cable: the site's interface stays as it is, and so does its default route.
    fn cable(&self, state: &str) {
        assert!(ip(&format!("-n {} link set line {state}", self.world)));
    }

    /// Runs something on a thread in one of them. What it starts stays there.
    fn within<T: Send>(&self, name: &str, run: impl FnOnce(&Self) -> T + Send) -> T {
        let space = File::open(format!("/run/netns/{name}")).unwrap();
        thread::scope(|scope| {
            let inside = scope.spawn(move || {
                move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
                run(self)
            });
            inside.join().unwrap()
        })
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        ip(&format!("netns delete {}", self.site));
        fs::remove_dir_all(Path::new("/etc/netns").join(&self.site)).unwrap();
        ip(&format!("netns delete {}", self.world));
    }
}

/// The reasons for which a subscription is not called.
fn holds(process: &Process, name: &str) -> Vec<String> {
    let shown = process.call("GET", &format!("/v1/subscriptions/{name}"), &Value::Null).json();
    let holds = shown["holds"].as_array().unwrap().iter();
    holds.map(|hold| text(hold, "reason")).collect()
}

fn settings(delivery: &str) -> String {
    let allowed = format!("allow = [\"{FAR}/32\", \"{NEAR}/32\"]");
    let settings = SOON.replace("allow = [\"127.0.0.0/8\"]", &allowed);
    settings.replace("[delivery]", &format!("[delivery]\n{delivery}"))
}

/// Publishes while the link is down, and looks at what came of it.
fn lose_nothing(
    net: &Net,
    (delivery, open_connections): (&str, usize),
    (down, up): (impl Fn(&Net), impl Fn(&Net)),
) {
    let home = tempfile::tempdir().unwrap();
    let [receiver, near] =
        [FAR, NEAR].map(|ip| net.within(&net.world, |_| Receiver::at(ip.into())));
    fs::write(home.path().join("oncebox.toml"), settings(delivery)).unwrap();
    // `ip` shows the service the interfaces of its namespace under /sys as well.
    let enter = format!("exec ip netns exec {} sh -c 'shift; exec \"$@\"' sh ", net.site);
    let process = Process::start_under(home.path(), &enter);
    for (name, ordering) in [("strict", "strict"), ("free", "none")] {
        let body = json!({
            "name": name, "url": format!("{}/{name}", receiver.url()), "ordering": ordering, "event_types": ["a"]
        });
        process.post("/v1/subscriptions", &body);
    }
    let url = near.url().replace(&NEAR.to_string(), NEAR_NAME);
    process
        .post("/v1/subscriptions", &json!({ "name": "near", "url": url, "event_types": ["near"] }));
    let call_near = || process.post("/v1/events", &json!({ "event_type": "near", "payload": 1 }));
    call_near();
    until("a host on the site is called", || near.count() == 1);
    let mut published = Vec::new();
    let mut publish = || {
        let payload = json!(format!("{:03}", published.len()));
        process.post("/v1/events", &json!({ "event_type": "a", "payload": payload }));
        published.push(payload.to_string());
    };
    // One after another, so that no more than one connection of each subscription is open.
    for _ in 0..5 {
        publish();
        until("the line works", || process.pending() == Some(0));
    }
    // Idle connections are kept for four seconds.
    thread::sleep(ms(if open_connections > 0 { 200 } else { 4500 }));

    down(net);
    let (since, mut is_shown, mut last) = (Instant::now(), false, Vec::new());
    while since.elapsed() < DOWN {
        publish();
        last = ["strict", "free"].map(|name| holds(&process, name)).to_vec();
        is_shown |= last == [["offline"], ["offline"]];
        thread::sleep(ms(200));
    }
    assert!(is_shown, "the hold is shown while the link is down: {last:?}");
    let open = || process.call("GET", "/v1/escalations", &Value::Null).json()["items"].clone();
    assert_eq!(open()[0]["class"], "site.offline");
    assert_eq!(receiver.count(), 10);
    call_near();
    until("a host on the site is called without the line", || near.count() == 2);
    assert_eq!(holds(&process, "near"), Vec::<String>::new());
    up(net);

    until("everything is delivered", || process.pending() == Some(0));
    assert_eq!((holds(&process, "strict"), holds(&process, "free")), (vec![], vec![]));
    assert_eq!(open(), json!([]));
    process.stop();
    let conn = file::open(&home.path().join("data/oncebox.db"));
    assert_eq!(file::lines(&conn, "SELECT count(*) FROM attempts WHERE counted = 1"), ["0"]);
    let unfinished = "SELECT count(*) FROM deliveries WHERE state <> 'completed'";
    assert_eq!(file::lines(&conn, unfinished), ["0"]);
    for name in ["strict", "free"] {
        let seen = receiver.seen();
        let to = format!("POST /hook/{name} ");
        let seen = seen.iter().filter(|request| request.first_line.starts_with(&to));
        let bodies = seen.map(|request| String::from_utf8_lossy(&request.body).into_owned());
        let (mut first, mut again) = (Vec::new(), Vec::new());
        for body in bodies {
            if first.contains(&body) { again.push(body) } else { first.push(body) }
        }
        if name == "free" {
            first.sort();
        }
        assert_eq!(first, published, "{name}");
        // The kernel sends what it had taken for an open connection when the link is back, whoever waits for an answer.
        assert!(again.len() <= open_connections, "{name}: {again:?} arrived twice");
    }
}

#[test]
fn a_pulled_cable_costs_no_attempt() {
    let Some(net) = Net::new("cable") else { return };
    let settings = "connect_timeout = \"1s\"";
    net.within(&net.site, |net| {
        lose_nothing(
            net,
            (settings, 2),
            (|net: &Net| net.cable("down"), |net: &Net| net.cable("up")),
        );
    });
}

#[test]
fn an_interface_that_is_down_costs_no_attempt_where_addresses_are_probed() {
    let Some(net) = Net::new("probe") else { return };
    // Nobody listens there: a refusal shows that the line works.
    let settings = format!("line_probe = [\"{FAR}:53\"]");
    net.within(&net.site, |net| {
        lose_nothing(net, (&settings, 0), (Net::site_down, Net::site_up));
    });
}
