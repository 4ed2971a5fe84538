//! The target `folder` under kill -9: between the content and the name, and between the name and the outcome.

use std::time::SystemTime;

use crate::fault::process::prelude::*;

/// How often a kill is tried at each moment until one hits it.
const MAX_TRIES: u64 = 60;
/// Large enough that its sync takes a while.
const PAYLOAD_BYTES: usize = 900_000;

/// A moment at which the process is killed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// The content is under its temporary name.
    Written,
    /// The file has its name, and the outcome is not stored.
    Renamed,
}

struct Rig {
    home: TempDir,
    out: PathBuf,
    process: Option<Process>,
}

impl Rig {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let out = home.path().join("out");
        fs::create_dir(&out).unwrap();
        let process = Process::start(home.path());
        let url = format!("folder:{}", out.display());
        process.post("/v1/subscriptions", &json!({ "name": "files", "url": url }));
        Self { home, out, process: Some(process) }
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.out).unwrap().map(Result::unwrap);
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn leftovers(&self) -> Vec<String> {
        self.names().into_iter().filter(|name| name.starts_with(".oncebox-")).collect()
    }

    fn publish(&self, n: u64) -> String {
        let payload = format!("{n}{}", "x".repeat(PAYLOAD_BYTES));
        let event = json!({ "event_type": "a", "payload": payload });
        let made = self.process.as_ref().unwrap().post("/v1/events", &event);
        format!("{}.json", text(&made["events"][0], "webhook_id"))
    }

    /// Publishes an event and kills the process at a moment; whether it was hit, and the name of the file.
    fn killed_at(&mut self, moment: Moment, n: u64) -> (bool, String) {
        let before = self.leftovers().len();
        let name = self.publish(n);
        let path = self.out.join(&name);
        until("the moment comes", || {
            let is_there = path.exists();
            is_there || (moment == Moment::Written && self.leftovers().len() > before)
        });
        self.process.take().unwrap().kill();
        let database = file::open(&self.home.path().join("data/oncebox.db"));
        let pending = "SELECT count(*) FROM deliveries WHERE state = 'pending'";
        let is_pending = file::lines(&database, pending) == ["1"];
        let is_hit = match moment {
            Moment::Written => !path.exists() && self.leftovers().len() > before,
            Moment::Renamed => path.exists() && is_pending,
        };
        // What it dies on twice in a row it refuses, so it ends what it has before it is killed again.
        self.process = Some(Process::start(self.home.path()));
        self.finish();
        (is_hit, name)
    }

    fn finish(&self) {
        let process = self.process.as_ref().unwrap();
        until("all is written", || process.pending() == Some(0));
    }
}

#[test]
fn a_kill_at_any_moment_ends_with_one_file_an_event() {
    let mut rig = Rig::new();
    let mut names = BTreeMap::new();
    for moment in [Moment::Written, Moment::Renamed] {
        let is_hit = (0..MAX_TRIES).any(|_| {
            let n = u64::try_from(names.len()).unwrap();
            let (is_hit, name) = rig.killed_at(moment, n);
            names.insert(name, n);
            is_hit
        });
        if !is_hit {
            skipped("no kill hit the moment: the disk is too fast for it");
        }
    }
    for (name, n) in &names {
        let found: Value = serde_json::from_slice(&fs::read(rig.out.join(name)).unwrap()).unwrap();
        assert!(found.as_str().unwrap().starts_with(&format!("{n}x")), "{name}");
    }
    let left = rig.leftovers();
    assert_eq!(rig.names().len(), names.len() + left.len(), "{:?}", rig.names());
    println!("{} events, {} temporary files left by kills", names.len(), left.len());
    let already = "SELECT count(*) FROM attempts WHERE excerpt LIKE 'already done: %'";
    let database = file::open(&rig.home.path().join("data/oncebox.db"));
    println!("already done: {:?}", file::lines(&database, already));
    // Old ones are removed by the first write after a start.
    let hours_ago = SystemTime::UNIX_EPOCH + secs(1_700_000_000);
    for name in &left {
        let file = fs::OpenOptions::new().write(true).open(rig.out.join(name)).unwrap();
        file.set_modified(hours_ago).unwrap();
    }
    rig.process = Some(rig.process.take().unwrap().killed(rig.home.path()));
    rig.publish(0);
    rig.finish();
    until("they are removed", || rig.leftovers().is_empty());
    rig.process.take().unwrap().finish_and_check(rig.home.path());
}
