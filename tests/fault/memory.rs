//! Little memory: no input ends the process, under what the unit allows it (`MemoryMax=512M`).

use crate::fault::process::prelude::*;

/// What the unit allows, in bytes.
const MAX_MEMORY: u64 = 512 << 20;
pub(crate) const SECRET: &str = "a-shared-secret-of-32-characters";

/// A place where a process has no more memory than the unit gives it.
pub(crate) enum Cage {
    /// A memory cgroup of its own; the file that tells the most it ever had.
    Group(PathBuf, &'static str),
    /// No cgroup can be made: a limit of what it maps to write, and its threads' stacks beside that.
    Limit,
}

impl Cage {
    pub(crate) fn new(name: &str) -> Option<Self> {
        let name = format!("oncebox-{name}-{}", std::process::id());
        let kinds = [
            ("/sys/fs/cgroup", "memory.max", "memory.swap.max", "memory.peak"),
            (
                "/sys/fs/cgroup/memory",
                "memory.limit_in_bytes",
                "memory.memsw.limit_in_bytes",
                "memory.max_usage_in_bytes",
            ),
        ];
        for (root, most, swap, peak) in kinds {
            let group = Path::new(root).join(&name);
            if fs::create_dir(&group).is_err() {
                continue;
            }
            // The kernel makes the files of a group: elsewhere it is a directory like any other.
            let is_group = group.join(most).exists();
            let set = is_group && fs::write(group.join(most), MAX_MEMORY.to_string()).is_ok();
            // The memory and swap of the first version are counted together.
            let swapped = if root.ends_with("memory") { MAX_MEMORY } else { 0 };
            if set {
                drop(fs::write(group.join(swap), swapped.to_string()));
            }
            if set {
                println!("within a cgroup: {}", group.display());
                return Some(Self::Group(group, peak));
            }
            drop(fs::remove_dir(&group));
        }
        let can = Command::new("sh").args(["-c", "ulimit -d 700000"]).status();
        if can.is_ok_and(|status| status.success()) {
            println!("within RLIMIT_DATA: no memory cgroup can be made here");
            return Some(Self::Limit);
        }
        skipped("neither a memory cgroup nor RLIMIT_DATA can be set here");
        None
    }

    pub(crate) fn start(&self, home: &Path) -> Process {
        let limit = match self {
            Self::Group(group, _) => {
                format!("echo $$ > {}; ", group.join("cgroup.procs").display())
            }
            Self::Limit => format!("ulimit -d {}; ", (MAX_MEMORY + (192 << 20)) / 1024),
        };
        Process::start_under(home, &limit)
    }

    /// Says the most it had, for whoever looks at the figures.
    pub(crate) fn tell(&self, what: &str) {
        if let Self::Group(group, peak) = self {
            let most = fs::read_to_string(group.join(peak)).unwrap_or_default();
            let most: u64 = most.trim().parse().unwrap_or(0);
            println!("{what}: at most {} MiB", most >> 20);
        }
    }
}

impl Drop for Cage {
    fn drop(&mut self) {
        if let Self::Group(group, _) = self {
            // Pages of files may be charged for a moment after the process is gone.
            until("the cgroup is empty", || fs::remove_dir(&*group).is_ok());
        }
    }
}

fn post(process: &Process, path: &str, fields: &[(&str, &str)], body: &[u8]) -> Answer {
    let bearer = format!("Bearer {}", process.token());
    let mut all = vec![("Authorization", bearer.as_str())];
    all.extend_from_slice(fields);
    http::send(process.address, "POST", path, &all, body).unwrap()
}

/// It lives, and goes on with other things.
fn lives(process: &Process, key: &str) {
    process.call("GET", "/livez", &Value::Null).is(200);
    let event = json!({ "event_type": "a", "idempotency_key": key, "payload": 1 });
    until("it takes an event", || process.call("POST", "/v1/events", &event).status == 201);
}

fn add(process: &Process, name: &str, kind: &str, settings: &Value) {
    process.post("/v1/sources", &json!({ "name": name, "kind": kind, "settings": settings }));
}

fn drop_file(folder: &Path, name: &str, contents: &[u8]) {
    let begun = folder.join(format!("{name}.tmp"));
    fs::write(&begun, contents).unwrap();
    fs::rename(begun, folder.join(name)).unwrap();
}

fn reason(folder: &Path, name: &str) -> String {
    let place = folder.join("rejected").join(format!("{name}.reason"));
    until(name, || place.exists() && !folder.join(name).exists());
    fs::read_to_string(place).unwrap()
}

/// `[0,0,…]` of so many bytes.
pub(crate) fn zeros(bytes: usize) -> String {
    format!("[0{}]", ",0".repeat(bytes / 2))
}

#[test]
fn files_that_would_take_all_the_memory_are_refused_with_the_reason() {
    let Some(cage) = Cage::new("files") else { return };
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("drop");
    fs::create_dir(&folder).unwrap();
    let process = cage.start(home.path());
    let settings = json!({ "path": folder, "defaults": { "event_type": "row" }, "row": "r" });
    add(&process, "files", "drop", &settings);
    let most = 16 << 20;
    let list = zeros(most - 100);
    let names: Vec<String> = (0..480_000).map(|n| format!("{n}")).collect();
    let wide = format!("{}\n", names.join(",")).into_bytes();
    let repeated: Vec<String> = (0..500).map(|n| format!("{n:0>190}")).collect();
    let repeated =
        format!("{}\n{}", repeated.join(","), format!("0{}\n", ",".repeat(499)).repeat(9_000));
    let many = format!("a\n{}", "1\n".repeat(most / 2 - 10));
    let objects = format!("[{}{{}}]", "{},".repeat(most / 3 - 10));
    let nodes = format!("<r>{}</r>", "<a/>".repeat(most / 4 - 10));
    let attributes: Vec<String> = (0..1_000_000).map(|n| format!("a{n}=''")).collect();
    let attributes = attributes.join(" ");
    let members = format!("{{{}\"\":0}}", "\"\":0,".repeat(most / 5 - 10));
    for (name, contents, why) in [
        (
            "name.csv",
            format!("{}\n{}", "n".repeat(400_000), "1\n".repeat(3_000)).into_bytes(),
            "200 characters",
        ),
        ("wide.csv", wide, "more than 1000 columns"),
        ("repeated.csv", repeated.into_bytes(), "bytes as events"),
        ("many.csv", many.into_bytes(), "more than 10000 rows"),
        ("list.json", format!("{{\"payload\":{list}}}").into_bytes(), "payload has 16777"),
        ("objects.json", objects.into_bytes(), "more than 10000 rows"),
        ("members.json", members.into_bytes(), "more than 50000 members"),
        ("objects.ndjson", "{}\n".repeat(most / 3).into_bytes(), "more than 10000 rows"),
        ("nodes.xml", nodes.into_bytes(), "more than 50000 elements"),
        ("attributes.xml", format!("<r {attributes}/>").into_bytes(), "more than 1000 attributes"),
    ] {
        drop_file(&folder, name, &contents);
        let said = reason(&folder, name);
        assert!(said.contains(why) && said.len() < 10_000, "{name}: {said}");
    }
    drop_file(&folder, "good.csv", b"a\n1\n");
    until("a good one is taken", || folder.join("done/good.csv").exists());
    lives(&process, "after");
    cage.tell("files");
    process.stop();
}

#[test]
fn a_row_that_would_take_all_the_memory_stops_its_source_alone() {
    let Some(cage) = Cage::new("rows") else { return };
    let home = tempfile::tempdir().unwrap();
    let process = cage.start(home.path());
    let columns = "id INTEGER PRIMARY KEY AUTOINCREMENT, event_type TEXT NOT NULL DEFAULT 'a'";
    let make = |name: &str, payload: &str| {
        let path = home.path().join(name);
        let conn = Connection::open(&path).unwrap();
        let sql = format!(
            "CREATE TABLE outbox ({columns}, n INTEGER, payload {payload}); INSERT INTO outbox (n) VALUES (1)"
        );
        conn.run(&sql);
        add(&process, name.strip_suffix(".db").unwrap(), "sqlite", &json!({ "path": path }));
    };
    make("hex.db", "TEXT AS (hex(zeroblob(225000000)))");
    make("zero.db", "BLOB AS (zeroblob(450000000))");
    make("good.db", "TEXT DEFAULT '1'");
    let shown =
        |name: &str| process.call("GET", &format!("/v1/sources/{name}"), &Value::Null).json();
    until("it says why", || {
        shown("hex")["last_error"].as_str().is_some_and(|why| why.contains("generated"))
    });
    until("the good one is read", || shown("good")["event_count"] == 1);
    lives(&process, "after");
    cage.tell("rows");
    process.stop();
}

#[test]
fn large_publishes_side_by_side_are_taken_or_put_off() {
    let Some(cage) = Cage::new("publishes") else { return };
    let home = tempfile::tempdir().unwrap();
    let process = cage.start(home.path());
    let payload = zeros((1 << 20) - 100);
    let answers: Vec<Answer> = thread::scope(|scope| {
        let publish = |n: usize| {
            let event = |m: usize| {
                format!(r#"{{"event_type":"a","idempotency_key":"{n}-{m}","payload":{payload}}}"#)
            };
            let body = format!("[{}]", (0..15).map(event).collect::<Vec<_>>().join(","));
            post(&process, "/v1/events", &[], body.as_bytes())
        };
        let all: [_; 16] = std::array::from_fn(|n| scope.spawn(move || publish(n)));
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let count = |status: u16| answers.iter().filter(|answer| answer.status == status).count();
    assert!(count(201) > 0 && count(201) + count(503) == 16, "{}", count(201));
    let reschedule = answers.iter().filter(|answer| answer.status == 503);
    assert!(reschedule.into_iter().all(|answer| answer.field("retry-after").is_some()));
    let too_large = format!(r#"{{"event_type":"a","payload":{}}}"#, zeros((16 << 20) - 100));
    post(&process, "/v1/events", &[], too_large.as_bytes()).is(422);
    let objects = format!("[{}{{}}]", r#"{"event_type":"","payload":0},"#.repeat(500_000));
    post(&process, "/v1/events", &[], objects.as_bytes());
    lives(&process, "after");
    cage.tell("publishes");
    process.stop();
}

#[test]
fn large_webhooks_to_several_subscriptions_are_delivered_one_after_the_other() {
    let Some(cage) = Cage::new("webhooks") else { return };
    let home = tempfile::tempdir().unwrap();
    let receivers = [Receiver::new(), Receiver::new(), Receiver::new()];
    let process = cage.start(home.path());
    for (n, receiver) in receivers.iter().enumerate() {
        let body = json!({ "name": format!("s{n}"), "url": receiver.url(), "source": "all" });
        process.post("/v1/subscriptions", &body);
    }
    let provider = json!({
        "name": "hub", "pii": "allow", "secret": SECRET, "scheme": { "kind": "github" },
        "body_bytes_max": 25 << 20,
    });
    process.post("/v1/providers", &provider);
    let list = zeros(24 << 20);
    let answers: Vec<Answer> = thread::scope(|scope| {
        let (process, list) = (&process, &list);
        let send = move |n: usize| {
            // The same signed bytes would count once.
            let (id, body) = (n.to_string(), format!("[{n},{list}]"));
            let signature = http::github(SECRET, body.as_bytes());
            let fields = [
                ("X-Hub-Signature-256", signature.as_str()),
                ("X-GitHub-Delivery", id.as_str()),
                ("X-GitHub-Event", "push"),
                ("Content-Type", "application/json"),
            ];
            post(process, "/in/hub", &fields, body.as_bytes())
        };
        let all: [_; 10] = std::array::from_fn(|n| scope.spawn(move || send(n)));
        let mut all: Vec<Answer> = all.into_iter().map(|one| one.join().unwrap()).collect();
        // As providers do; only some of them, as the receivers keep what they get.
        for (n, answer) in all.iter_mut().enumerate().take(3) {
            until("it is taken, sent again", || {
                let is_over = answer.status != 503;
                if !is_over {
                    *answer = send(n);
                }
                is_over
            });
        }
        all
    });
    let stored: Vec<_> = answers.iter().filter(|answer| answer.status == 200).collect();
    let reschedule = answers.iter().filter(|answer| answer.status == 503).count();
    assert!(stored.len() > 2 && stored.len() + reschedule == 10, "{}", stored.len());
    // On a slow machine an answer may come too late, and the request is repeated.
    until("all of them are delivered", || process.pending() == Some(0));
    assert!(receivers.iter().all(|receiver| receiver.count() >= stored.len()));
    // People and programs look at it, side by side.
    let id = stored[0].json()["id"].as_str().unwrap().to_owned();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let shown = process.call("GET", &format!("/v1/webhook-events/{id}"), &Value::Null);
                assert!(matches!(shown.status, 200 | 503), "{}", shown.status);
            });
        }
    });
    lives(&process, "after");
    cage.tell("webhooks");
    process.stop();
}

#[test]
fn a_schema_is_proposed_from_dense_payloads_without_taking_all_the_memory() {
    let Some(cage) = Cage::new("proposals") else { return };
    let home = tempfile::tempdir().unwrap();
    let process = cage.start(home.path());
    // A list of one item takes 44 times its text as a tree.
    let payload = format!("[[0]{}]", ",[0]".repeat(4_000));
    for n in 0..10 {
        let event = |m: usize| {
            format!(r#"{{"event_type":"a","idempotency_key":"{n}-{m}","payload":{payload}}}"#)
        };
        let body = format!("[{}]", (0..50).map(event).collect::<Vec<_>>().join(","));
        post(&process, "/v1/events", &[], body.as_bytes()).is(201);
    }
    let is_proposed = || {
        let answer = process.call("GET", "/v1/event-types/a/proposal", &Value::Null);
        if answer.status == 503 {
            return false;
        }
        let found = answer.is(200).json();
        has(&found, &json!({ "events": 500, "schema.items.items": { "type": "integer" } }));
        true
    };
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| until("the machine has the second that it takes", is_proposed));
        }
    });
    lives(&process, "after");
    cage.tell("proposals");
    process.stop();
}

#[test]
fn dense_filters_of_many_subscriptions_do_not_take_all_the_memory_at_the_next_start() {
    let Some(cage) = Cage::new("filters") else { return };
    let home = tempfile::tempdir().unwrap();
    let mut process = cage.start(home.path());
    for n in 0..250 {
        process.post("/v1/subscriptions", &json!({ "name": format!("s{n}"), "target": "pull" }));
    }
    process.stop();
    // As an older version stored them. Lists within a list take 44 times their text as values.
    let value = format!("[[0]{}]", ",[0]".repeat(4_000));
    let filter = format!(r#"[{{"path":"$.a","op":"not_equals","value":{value}}}]"#);
    let own = Connection::open(home.path().join("data/oncebox.db")).unwrap();
    let changed = own.execute("UPDATE subscriptions SET filter = ?1", [filter]).unwrap();
    assert_eq!(changed, 250);
    drop(own);
    process = cage.start(home.path());
    // A slow machine does not have the first of these in time, and says so.
    let found = [500, 50, 5].into_iter().find_map(|limit| {
        let path = format!("/v1/subscriptions?limit={limit}");
        let answer = process.call("GET", &path, &Value::Null);
        (answer.status != 503).then(|| answer.is(200).json())
    });
    assert!(found.unwrap()["next"].is_string(), "a page ends early");
    lives(&process, "after");
    cage.tell("filters");
    process.stop();
}

/// What is marked as in hand.
fn marked(home: &Path, item: &str) -> bool {
    // A mark of the start before is still there until this one marks anew.
    let sql = format!(
        "SELECT count(*) FROM meta WHERE key LIKE 'in_hand/{item}/%' \
            AND value LIKE (SELECT max(seq) FROM boots) || ':%'"
    );
    file::lines(&file::open(&home.join("data/oncebox.db")), &sql) == ["1"]
}

#[test]
fn what_was_in_hand_at_two_unclean_ends_in_a_row_is_set_aside() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("drop");
    fs::create_dir(&folder).unwrap();
    fs::write(home.path().join("oncebox.toml"), SOON.replace("\"2s\"", "\"1min\"")).unwrap();
    let receiver = Receiver::with(Reply::Hang);
    let mut process = Process::start(home.path());
    process.subscribe(&receiver.url());
    add(&process, "files", "drop", &json!({ "path": folder, "defaults": { "event_type": "row" } }));
    for (key, bytes) in [("large", 300_000), ("small", 3)] {
        let event =
            json!({ "event_type": "a", "idempotency_key": key, "payload": "x".repeat(bytes) });
        process.post("/v1/events", &event);
    }
    let state = |key: &str| {
        let sql = format!(
            "SELECT d.state, coalesce(d.last_class, '-') FROM deliveries AS d \
               JOIN outbox AS o ON o.seq = d.outbox_seq WHERE o.idempotency_key = '{key}'"
        );
        file::lines(&file::open(&home.path().join("data/oncebox.db")), &sql)
    };
    until("the large one is sent", || receiver.count() > 0);
    process.kill();
    // A file that takes a while.
    let row = format!("{}\n", "x,".repeat(300));
    let large = format!(
        "{}\n{}",
        (0..301).map(|n| format!("c{n}")).collect::<Vec<_>>().join(","),
        row.repeat(9_000)
    );
    let (apart, in_place) = (home.path().join("large.csv"), folder.join("large.csv"));
    fs::write(&apart, large).unwrap();
    for _ in 0..2 {
        process = Process::start(home.path());
        // The request hangs, so its mark stays. The file is read in a second: it comes last.
        until("the delivery is marked", || marked(home.path(), "delivery"));
        fs::rename(&apart, &in_place).unwrap();
        until("the file is marked", || marked(home.path(), "file"));
        process.kill();
        fs::rename(&in_place, &apart).unwrap();
    }
    fs::rename(&apart, &in_place).unwrap();
    process = Process::start(home.path());
    assert!(reason(&folder, "large.csv").contains("ended unexpectedly twice in a row"));
    until("the delivery is a dead letter", || state("large") == ["dead_letter poison"]);
    assert_eq!(state("small"), ["pending -"]);
    receiver.release();
    until("what is innocent goes on", || state("small") == ["completed success"]);
    process.stop();
    let left = "SELECT count(*) FROM meta WHERE key LIKE 'in_hand/%'";
    assert_eq!(file::lines(&file::open(&home.path().join("data/oncebox.db")), left), ["0"]);
}

#[test]
fn a_source_that_was_read_at_two_unclean_ends_in_a_row_is_set_aside_until_a_clean_start() {
    let home = tempfile::tempdir().unwrap();
    let mut process = Process::start(home.path());
    let erp = |name: &str| Connection::open(home.path().join(format!("{name}.db"))).unwrap();
    let row = "INSERT INTO outbox (event_type, payload) VALUES ('a', '1')";
    for name in ["suspect", "innocent"] {
        let table = "CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, event_type TEXT, payload TEXT)";
        erp(name).run(&format!("{table}; {row}"));
        let path = home.path().join(format!("{name}.db"));
        add(&process, name, "sqlite", &json!({ "path": path }));
    }
    let shown = |process: &Process, name: &str| {
        process.call("GET", &format!("/v1/sources/{name}"), &Value::Null).json()
    };
    for name in ["suspect", "innocent"] {
        until("its first row is read", || shown(&process, name)["event_count"] == 1);
        erp(name).run(row);
        until("its second row is read", || shown(&process, name)["event_count"] == 2);
    }
    process.kill();
    // What two ends in the middle of a read leave behind: a read takes too short a time to hit it.
    let file = Connection::open(home.path().join("data/oncebox.db")).unwrap();
    let marked = file.execute(
        "INSERT INTO meta (key, value)
         SELECT 'in_hand/source/' || seq || '/' || cursor, (SELECT max(seq) FROM boots) || ':1'
           FROM sources
          WHERE name = 'suspect'",
        [],
    );
    assert_eq!(marked.unwrap(), 1);
    drop(file);
    erp("suspect").run(row);
    erp("innocent").run(row);
    process = Process::start(home.path());
    until("the innocent one is read", || shown(&process, "innocent")["event_count"] == 3);
    until("it says why", || {
        let why = shown(&process, "suspect")["last_error"].clone();
        why.as_str().is_some_and(|why| why.contains("ended unexpectedly twice in a row"))
    });
    assert_eq!(shown(&process, "suspect")["event_count"], 2);
    process.stop();
    process = Process::start(home.path());
    until("it is read again", || shown(&process, "suspect")["event_count"] == 3);
    process.stop();
}
