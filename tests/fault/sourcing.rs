//! Sources under kill -9: an ERP goes on writing while the service is killed; afterwards the counts are equal.

use crate::fault::process::prelude::*;

/// Facts the ERP writes, and rows of all files together.
const FACTS: usize = 3_000;
const FILES: usize = 40;
const ROWS: usize = 25;

/// An ERP that writes a few facts a transaction, beside a reader.
fn write_facts(path: &Path) {
    let conn = Connection::open(path).unwrap();
    conn.busy_timeout(ms(10_000)).unwrap();
    conn.run(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;
         CREATE TABLE IF NOT EXISTS outbox
             (id INTEGER PRIMARY KEY AUTOINCREMENT, event_type TEXT NOT NULL, payload TEXT NOT NULL)",
    );
    for first in (0..FACTS).step_by(10) {
        let tx = conn.unchecked_transaction().unwrap();
        for n in first..first + 10 {
            let sql = "INSERT INTO outbox (event_type, payload) VALUES ('fact', ?1)";
            tx.execute(sql, [n.to_string()]).unwrap();
        }
        tx.commit().unwrap();
        thread::sleep(ms(2));
    }
}

/// A program that drops files by renaming them.
fn drop_files(folder: &Path) {
    for n in 0..FILES {
        let begun = folder.join(format!("{n}.csv.tmp"));
        let rows: Vec<String> = (0..ROWS).map(|row| format!("{n}-{row}")).collect();
        fs::write(&begun, format!("x\n{}\n", rows.join("\n"))).unwrap();
        fs::rename(begun, folder.join(format!("{n}.csv"))).unwrap();
        thread::sleep(ms(15));
    }
}

fn add(process: &Process, name: &str, kind: &str, settings: &Value) {
    process.post("/v1/sources", &json!({ "name": name, "kind": kind, "settings": settings }));
}

#[test]
fn kills_while_an_erp_writes_lose_no_row_and_double_none() {
    let home = tempfile::tempdir().unwrap();
    let (erp, folder) = (home.path().join("erp.db"), home.path().join("drop"));
    fs::create_dir(&folder).unwrap();
    let mut process = Process::start(home.path());
    add(&process, "erp", "sqlite", &json!({ "path": erp }));
    // For ever: what the kernel says of a file is not by the clock that the tests may be run with.
    let defaults = json!({ "event_type": "row" });
    add(
        &process,
        "files",
        "drop",
        &json!({ "path": folder, "defaults": defaults, "done_days": 0 }),
    );
    let database = home.path().join("data/oncebox.db");
    let read = |source: &str| -> usize {
        let sql = format!("SELECT count(*) FROM outbox WHERE source_system = '{source}'");
        file::lines(&file::open(&database), &sql)[0].parse().unwrap()
    };
    let moved = || fs::read_dir(folder.join("done")).map_or(0, Iterator::count);
    process = thread::scope(|scope| {
        let writers = [scope.spawn(|| write_facts(&erp)), scope.spawn(|| drop_files(&folder))];
        for n in 0..number("ONCEBOX_KILLS", 2) {
            // What it reads at two ends in a row it refuses, so it gets on before each.
            let (facts, files) = (read("erp"), moved());
            until("it reads both", || {
                (facts == FACTS || read("erp") > facts) && (files == FILES || moved() > files)
            });
            thread::sleep(ms(n * 37 % 90));
            process = process.killed(home.path());
        }
        for writer in writers {
            writer.join().unwrap();
        }
        process
    });
    let all = (FACTS + FILES * ROWS).to_string();
    let count = || file::lines(&file::open(&database), "SELECT count(*) FROM outbox");
    until("all of it is there", || count() == [all.as_str()]);
    until("the last file is moved", || moved() == FILES);
    process.stop();
    file::check(&database);
    let conn = file::open(&database);
    let of = |source: &str| -> BTreeSet<String> {
        let sql =
            format!("SELECT CAST(payload AS TEXT) FROM outbox WHERE source_system = '{source}'");
        file::lines(&conn, &sql).into_iter().collect()
    };
    assert_eq!(of("erp"), (0..FACTS).map(|n| n.to_string()).collect());
    assert_eq!(of("files").len(), FILES * ROWS);
    assert_eq!(file::lines(&conn, "SELECT sum(duplicate_count) FROM outbox"), ["0"]);
    let counted = "SELECT event_count FROM sources ORDER BY seq";
    assert_eq!(file::lines(&conn, counted), [FACTS.to_string(), (FILES * ROWS).to_string()]);
    let rejected = fs::read_dir(folder.join("rejected")).unwrap().count();
    assert_eq!(rejected, 0);
}

/// Items of a list, and of a page of it.
const ITEMS: usize = 600;
const PAGE: usize = 20;

#[test]
fn kills_while_a_list_is_read_lose_no_item_and_double_none() {
    let home = tempfile::tempdir().unwrap();
    let list = Receiver::new();
    list.decide(|request| {
        let page = request.first_line.split("page=").nth(1).map_or("1", |rest| {
            rest.split(|letter: char| !letter.is_ascii_digit()).next().unwrap()
        });
        let begin = (page.parse::<usize>().unwrap() - 1) * PAGE;
        let items: Vec<Value> =
            (begin..ITEMS.min(begin + PAGE)).map(|n| json!({ "id": n })).collect();
        thread::sleep(ms(10));
        Reply::Answer(200, Vec::new(), json!(items).to_string().into_bytes())
    });
    let mut process = Process::start(home.path());
    let settings = json!({
        "url": list.url(), "item_id": ["/id"], "next": { "by": "page", "parameter": "page" },
        "interval_ms": 1_000, "defaults": { "event_type": "item" },
    });
    add(&process, "list", "http", &settings);
    let database = home.path().join("data/oncebox.db");
    let count = || -> usize {
        file::lines(&file::open(&database), "SELECT count(*) FROM outbox")[0].parse().unwrap()
    };
    for n in 0..number("ONCEBOX_KILLS", 2) {
        let before = count();
        until("it is read", || count() == ITEMS || count() > before);
        thread::sleep(ms(n * 37 % 90));
        process = process.killed(home.path());
    }
    until("all of it is there", || count() == ITEMS);
    process.stop();
    file::check(&database);
    let conn = file::open(&database);
    let keys = "SELECT count(DISTINCT idempotency_key), sum(duplicate_count) FROM outbox";
    assert_eq!(file::lines(&conn, keys), [format!("{ITEMS} 0")]);
    assert_eq!(file::lines(&conn, "SELECT event_count FROM sources"), [ITEMS.to_string()]);
}

/// A run that is killed again and again takes each missing item in once, and counts what one without a kill counts.
#[test]
fn kills_while_a_list_is_compared_change_none_of_its_numbers() {
    let home = tempfile::tempdir().unwrap();
    let list = Receiver::new();
    let now = Clock::machine().wall();
    // The first half of the list is older than what is compared.
    let at = move |n: usize| now.minus(secs(600 + 60 * (ITEMS - n) as u64));
    list.decide(move |request| {
        let number = |name: &str| -> Option<i64> {
            let rest = request.first_line.split(name).nth(1)?;
            rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
        };
        let begin = usize::try_from(number("page=").unwrap_or(1) - 1).unwrap() * PAGE;
        let since = number("since=").unwrap_or(0);
        let listed = (0..ITEMS).filter(|n| at(*n).secs() >= since).skip(begin).take(PAGE);
        let items: Vec<Value> = listed
            .map(|n| json!({ "id": format!("evt_{n}"), "type": "a", "created": at(n).secs() }))
            .collect();
        thread::sleep(ms(10));
        Reply::Answer(200, Vec::new(), json!(items).to_string().into_bytes())
    });
    let mut process = Process::start(home.path());
    let provider = json!({ "name": "hub", "scheme": { "kind": "stripe" }, "pii": "allow", "secret": "whsec_0123456789abcdef" });
    process.post("/v1/providers", &provider);
    let settings = json!({
        "url": list.url(), "item_id": ["/id"], "time": "/created", "next": { "by": "page", "parameter": "page" },
        "newer_than": { "parameter": "since", "form": "unix_seconds" }, "interval_ms": 86_400_000, "provider": "hub",
    });
    // Its rounds ask for what comes from now on, of which there is nothing.
    let source = json!({ "name": "list", "kind": "http", "settings": settings, "from": "now" });
    process.post("/v1/sources", &source);
    // Their times are whole seconds.
    let half = at(ITEMS / 2).minus(secs(1));
    process.post("/v1/providers/hub/reconciliations", &json!({ "since": half.to_string() }));
    let database = home.path().join("data/oncebox.db");
    let one = |sql: &str| file::lines(&file::open(&database), sql).remove(0);
    let state = || one("SELECT state FROM reconciliations");
    for n in 0..number("ONCEBOX_KILLS", 2) {
        let before = list.count();
        until("it is read", || state() != "RUNNING" || list.count() > before + 5);
        thread::sleep(ms(n * 37 % 90));
        process = process.killed(home.path());
    }
    until("the run has ended", || state() != "RUNNING");
    process.stop();
    file::check(&database);
    let conn = file::open(&database);
    let sum = "SELECT r.state, sum(d.value ->> 'sent'), sum(d.value ->> 'missing'), sum(d.value ->> 'taken_in')
                 FROM reconciliations AS r, json_each(r.days) AS d";
    let wanted = ITEMS / 2;
    assert_eq!(file::lines(&conn, sum), [format!("DONE {wanted} {wanted} {wanted}")]);
    let events = "SELECT count(*), count(DISTINCT provider_event_id) FROM webhook_events WHERE origin = 'reconciled'";
    assert_eq!(file::lines(&conn, events), [format!("{wanted} {wanted}")]);
}
