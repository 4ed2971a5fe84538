//! A line that falls silent: its connections stay, new ones are taken, and nothing comes any more.

use crate::databases::erp::{self, Erp, erps};
use crate::databases::line::Line;
use crate::databases::process::prelude::*;

/// How long it may go unnoticed, and until a person is told.
const NOTICED: Duration = secs(35);
const TOLD: Duration = secs(60);
/// The deadlines of the defaults: of an answer, and of a connection.
const ANSWER: Duration = secs(33);
const CONNECT: Duration = secs(15);

/// A service whose time passes as the test says, with a source and a target in one database.
struct Beside {
    rig: Rig,
    line: Line,
    is_real: bool,
}

impl Beside {
    fn start(erp: &Erp) -> Self {
        erp.run("CREATE TABLE seen (id VARCHAR(40))");
        erp.tables_of_targets();
        erp.run(&format!("GRANT INSERT ON seen TO {}", erp.user()));
        let line = Line::start(erp.port(), 0);
        let rig = Rig::with(|settings| {
            let password = settings.database.directory.with_file_name("erp.password");
            let database = erp.database_at(line.port, password);
            settings.databases.all = [("erp".to_owned(), database)].into();
        });
        let source = json!({ "database": "erp", "mode": "mark" });
        rig.source("erp", "database", &source);
        let target = json!({
            "name": "seen", "url": "database:erp", "event_types": ["seen"],
            "template": { "effect": "INSERT INTO seen VALUES (:aggregate_id)" },
        });
        rig.post("/v1/subscriptions", &target).is(201);
        Self { rig, line, is_real: number("ONCEBOX_REAL_TIME", 0) > 0 }
    }

    /// Time passes until this holds: `first` at once, then two seconds whenever nothing has come for long, because the next
    /// try may be due only then. Where time is real, a second takes one.
    #[track_caller]
    fn passes_until(&self, first: Duration, what: &str, mut holds: impl FnMut() -> bool) {
        if !self.is_real {
            self.rig.advance(first);
            let mut since = Instant::now();
            until(what, || {
                if since.elapsed() > secs(20) {
                    self.rig.advance(secs(2));
                    since = Instant::now();
                }
                holds()
            });
            return;
        }
        let end = Instant::now() + 2 * TOLD;
        while !holds() {
            assert!(Instant::now() < end, "waited in vain: {what}");
            thread::sleep(secs(1));
            self.rig.advance(secs(1));
        }
    }

    fn stands(&self) -> Value {
        self.rig.get("/v1/databases")["items"][0].clone()
    }

    /// The classes of what is told to people and not over.
    fn open_escalations(&self) -> BTreeSet<String> {
        let all = self.rig.items("/v1/escalations");
        let open = all.iter().filter(|one| one["resolved_at"].is_null());
        open.map(|one| text(one, "class")).collect()
    }

    fn facts(&self) -> usize {
        erp::stored(self.rig.home().as_path()).len()
    }
}

/// With `ONCEBOX_REAL_TIME=1` by the clock on the wall; else no more time passes than the deadlines, at once.
#[test]
fn a_silent_line_is_noticed_and_told_in_time_and_all_resumes_by_itself() {
    for erp in erps("mark") {
        let beside = Beside::start(&erp);
        let Beside { rig, line, .. } = &beside;
        erp.facts(0..3);
        until("they are stored", || beside.facts() == 3);
        rig.publish_id("seen", &json!({ "aggregate_type": "a", "aggregate_id": "before" }));
        until("it is done", || erp.run("SELECT count(*) FROM seen") == "1");
        assert_eq!(beside.stands()["state"], "up");

        line.silence(true);
        let silent_at = rig.now();
        let lasts =
            || Duration::from_millis(u64::try_from(rig.now().ms() - silent_at.ms()).unwrap());
        rig.publish_id("seen", &json!({ "aggregate_type": "a", "aggregate_id": "meanwhile" }));
        erp.facts(3..6);
        // The source and the target have asked something.
        beside.passes_until(Duration::ZERO, "both ask", || line.kept() >= 2);
        // One of them may have asked for a connection of its own.
        let connections = line.connections();
        beside.passes_until(ANSWER, "it is noticed", || beside.stands()["state"] == "away");
        assert!(lasts() <= NOTICED, "noticed after {:?}", lasts());
        assert_ne!(text(&beside.stands(), "last_error"), "");

        let told = ["source.failing", "subscription.breaker"];
        // Each tries a new connection.
        beside.passes_until(Duration::ZERO, "both try again", || {
            line.connections() >= connections + 2
        });
        beside.passes_until(CONNECT, "people are told", || {
            told.iter().all(|class| beside.open_escalations().contains(*class))
        });
        assert!(lasts() <= TOLD, "told after {:?}", lasts());
        assert_eq!(erp.run("SELECT count(*) FROM seen"), "1");

        line.silence(false);
        rig.passing("all goes on", secs(1), || {
            beside.facts() == 6 && erp.run("SELECT count(*) FROM seen") == "2"
        });
        until("all is marked", || erp.unmarked() == "0");
        rig.passing("all is over", secs(1), || beside.open_escalations().is_empty());
        assert_eq!(beside.stands()["state"], "up");
    }
}
