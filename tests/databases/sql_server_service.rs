//! The service with SQL Server, against a stand-in (`tds/`): what it sends for a target and for a source, and what follows
//! from the answers. What a real server makes of our SQL is not proved here.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use crate::databases::erp::{add, oncebox, source, stored, until_stored};
use crate::databases::process::prelude::*;
use crate::databases::site::write_secret;
use crate::databases::sql_server::{has, stand_in};
use crate::databases::stock::{said, states};
use crate::databases::tds::{Answer, Request, StandIn, Value};

const TEXT: &str = "Größe € Ω 😀";

/// The claim of an event.
const CLAIM: &str = "INSERT INTO processed_events";
/// The number of the open transaction.
const NUMBER: &str = "CURRENT_TRANSACTION_ID()";

/// A service that may use the stand-in.
fn service(server: &StandIn, more: &str) -> (TempDir, Process) {
    let home = tempfile::tempdir().unwrap();
    let password = home.path().join("erp.password");
    write_secret(&password, "secret");
    let settings = format!(
        "{SOON}\n{more}\n[databases.erp]\ndriver = \"FreeTDS\"\nserver = \"127.0.0.1\"\nport = {}\ndatabase = \"ERP\"\n\
         user = \"oncebox\"\ntls = false\npassword_file = {:?}\n",
        server.port,
        password.to_str().unwrap()
    );
    fs::write(home.path().join("oncebox.toml"), settings).unwrap();
    let process = Process::start(home.path());
    (home, process)
}

/// A subscription that calls a procedure for each event.
fn calls(home: &Path) {
    let effect = home.join("take.sql");
    fs::write(&effect, "EXEC take :aggregate_id").unwrap();
    let effect = effect.to_str().unwrap();
    oncebox(
        home,
        &["subscription", "create", "take", "--database", "erp", "--effect-file", effect],
    );
}

fn publish(process: &Process) {
    let event = json!({ "event_type": "taken", "payload": { "text": TEXT }, "aggregate_type": "article",
                        "aggregate_id": TEXT, "occurred_at": "2026-01-31T12:00:00.123Z" });
    process.post("/v1/events", &event);
}

/// A server whose transaction has a number.
fn numbered(request: &Request) -> Option<Answer> {
    has(request, NUMBER).then(|| Answer::value("4711"))
}

#[test]
fn a_row_of_an_inbox_is_one_transaction_with_its_claim_and_each_text_is_wide() {
    let Some(server) = stand_in(numbered) else { return };
    let (home, process) = service(&server, "");
    oncebox(
        home.path(),
        &["subscription", "create", "in", "--database", "erp", "--inbox", "oncebox_inbox"],
    );
    publish(&process);
    until("it is done", || states(home.path()) == "completed 1");
    assert_eq!(said(home.path()), ["success: 1 row"]);
    let number = "SELECT CAST(CURRENT_TRANSACTION_ID() AS";
    let insert = "INSERT INTO oncebox_inbox";
    let wanted =
        ["begin", "SET TRANSACTION ISOLATION", CLAIM, number, insert, number, "commit, begin"];
    assert_eq!(server.story(), wanted);
    let statements = server.statements();
    let (claim, key) = &statements[1];
    assert!(claim.contains("WITH (UPDLOCK, HOLDLOCK)"), "{claim}");
    assert_eq!(key[0], Value::Wide("in".to_owned()));
    assert_eq!(key[..2], key[2..], "what is looked for is what is inserted");
    let (_, row) = &statements[3];
    assert_eq!(row[4], Value::Wide(TEXT.to_owned()));
    assert_eq!(row[5], Value::Wide(json!({ "text": TEXT }).to_string()));
    assert_eq!(row[6], Value::Wide("2026-01-31T12:00:00.123Z".to_owned()));
    assert!(row.iter().all(|value| matches!(value, Value::Wide(_))), "{row:?}");
    process.stop();
}

/// What an error of the effect leads to: its number, its words, the state of the delivery, and the class of the attempt.
#[test]
fn errors_of_an_effect_lead_where_they_must() {
    for (number, message, state, class) in [
        (2627, "Cannot insert duplicate key.", "dead_letter 1", "validation"),
        (50000, "the period is closed", "dead_letter 1", "validation"),
        (229, "The EXECUTE permission was denied.", "pending 1", "auth"),
        (2812, "Could not find stored procedure 'take'.", "pending 1", "transient"),
        (266, "Transaction count after EXECUTE", "pending 1", "transient"),
    ] {
        let script = move |request: &Request| {
            let error = has(request, "EXEC take").then(|| Answer::error(number, message));
            error.or_else(|| numbered(request))
        };
        let Some(server) = stand_in(script) else { return };
        let (home, process) = service(&server, "");
        calls(home.path());
        publish(&process);
        until("it is tried", || !said(home.path()).is_empty());
        until("it is decided", || states(home.path()) == state);
        let said = said(home.path()).remove(0);
        assert!(said.starts_with(class) && said.contains(message), "{number}: {said}");
        let committed = server.heard().contains(&Request::Commit { begins: true });
        assert!(!committed, "{number}: {:?}", server.story());
        process.stop();
    }
}

/// A deadlock takes the transaction away, and SQL Server refuses to roll back what is not there.
#[test]
fn a_deadlock_is_tried_again_at_once_on_another_connection() {
    let tries = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&tries);
    let script = move |request: &Request| {
        if has(request, "EXEC take") && counted.fetch_add(1, Ordering::Relaxed) < 2 {
            return Some(Answer::error(1205, "Transaction was deadlocked."));
        }
        numbered(request)
    };
    let Some(server) = stand_in(script) else { return };
    let (home, process) = service(&server, "");
    calls(home.path());
    publish(&process);
    until("it is done", || states(home.path()) == "completed 1");
    assert_eq!(said(home.path()), ["success: 1 row"], "one attempt");
    assert_eq!(tries.load(Ordering::Relaxed), 3);
    process.stop();
}

/// A procedure that catches an error, rolls back and returns: nothing says so but the number of the transaction.
#[test]
fn a_procedure_that_ends_the_transaction_in_silence_is_no_success() {
    let has_ended = Arc::new(AtomicU32::new(0));
    let ended = Arc::clone(&has_ended);
    let script = move |request: &Request| {
        if has(request, "EXEC take") {
            ended.store(1, Ordering::Relaxed);
            return Some(Answer::Ends);
        }
        has(request, NUMBER).then(|| {
            Answer::value(if ended.swap(0, Ordering::Relaxed) == 0 { "4711" } else { "4712" })
        })
    };
    let Some(server) = stand_in(script) else { return };
    let (home, process) = service(&server, "");
    calls(home.path());
    publish(&process);
    until("it is tried", || !said(home.path()).is_empty());
    let said = said(home.path()).remove(0);
    assert!(said.starts_with("transient: "), "{said}");
    assert!(said.contains("has ended the transaction"), "{said}");
    assert!(said.contains("take COMMIT, ROLLBACK"), "{said}");
    assert_eq!(states(home.path()), "pending 1");
    assert!(!server.heard().contains(&Request::Commit { begins: true }));
    process.stop();
}

#[test]
fn a_line_that_is_cut_at_the_commit_is_tried_again_and_meets_its_claim() {
    let commits = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&commits);
    let script = move |request: &Request| {
        if *request == (Request::Commit { begins: true }) {
            return (counted.fetch_add(1, Ordering::Relaxed) == 0).then_some(Answer::Cut);
        }
        // The first one was committed: its answer was lost.
        let is_there = counted.load(Ordering::Relaxed) > 0;
        (is_there && has(request, CLAIM))
            .then_some(Answer::Changed(0))
            .or_else(|| numbered(request))
    };
    let Some(server) = stand_in(script) else { return };
    let (home, process) = service(&server, "");
    calls(home.path());
    publish(&process);
    until("it is done", || states(home.path()) == "completed 1");
    let said = said(home.path());
    assert!(said[0].starts_with("transient: "), "{said:?}");
    assert_eq!(said.last().unwrap(), "success: already done");
    let effects = server.heard().into_iter().filter(|heard| has(heard, "EXEC take")).count();
    assert_eq!(effects, 1);
    process.stop();
}

/// A table `outbox` with one row.
fn outbox(request: &Request, is_taken: &AtomicU32) -> Option<Answer> {
    let columns = ["id", "event_type", "payload", "taken_at", "taken_by"];
    let none = || Answer::Rows(Vec::new());
    let row = |values: &[&str]| {
        Answer::Rows(vec![values.iter().map(|value| Some((*value).to_owned())).collect()])
    };
    if has(request, "sys.columns") {
        return Some(Answer::Rows(
            columns.iter().map(|name| vec![Some((*name).to_owned())]).collect(),
        ));
    }
    if has(request, "SET taken_by") {
        is_taken.store(1, Ordering::Relaxed);
        return None;
    }
    if has(request, "SET taken_at") {
        is_taken.store(2, Ordering::Relaxed);
        return None;
    }
    let taken = is_taken.load(Ordering::Relaxed);
    if has(request, "taken_by IS NULL") {
        return Some(if taken == 0 { row(&["7"]) } else { none() });
    }
    if has(request, "count(*)") {
        return Some(row(&["0"]));
    }
    if has(request, "FROM [outbox]") {
        let payload = json!({ "name": TEXT }).to_string();
        let size = payload.len().to_string();
        return Some(if taken == 1 { row(&["7", "fact", &payload, &size]) } else { none() });
    }
    None
}

#[test]
fn rows_are_claimed_read_and_marked_without_waiting_for_what_is_locked() {
    let taken = AtomicU32::new(0);
    let Some(server) = stand_in(move |request| outbox(request, &taken)) else { return };
    let (home, process) = service(&server, "[box]\nname = \"north\"");
    add(&process, "claim");
    until_stored(home.path(), 1);
    assert_eq!(stored(home.path()), [TEXT]);
    let statements = server.statements();
    let find = |words: &str| statements.iter().find(|(sql, _)| sql.contains(words)).unwrap();
    let (claimed, _) = find("taken_by IS NULL");
    assert!(claimed.contains("WITH (READPAST, READCOMMITTEDLOCK, UPDLOCK, ROWLOCK)"), "{claimed}");
    let (read, _) = find("taken_by = @P1 ORDER BY [id]");
    assert!(read.contains("WITH (READPAST, READCOMMITTEDLOCK)"), "{read}");
    let (claim, owner) = find("SET taken_by");
    assert_eq!(claim, "UPDATE [outbox] SET taken_by = @P1 WHERE [id] IN (7)");
    assert_eq!(*owner, [Value::Wide("north".to_owned())]);
    until("it is marked", || server.heard().iter().any(|heard| has(heard, "SET taken_at")));
    assert!(source(&process)["last_error"].is_null());
    process.stop();
}

/// More rows than an answer takes: the rest is cut off, which ends the transaction of the read.
#[test]
fn large_rows_are_read_over_several_reads() {
    let waiting = Arc::new(Mutex::new((1..=20).collect::<BTreeSet<u32>>()));
    let rows = Arc::clone(&waiting);
    let script = move |request: &Request| {
        let Request::Statement { sql, .. } = request else { return None };
        let mut rows = rows.lock().unwrap();
        if let Some((_, ids)) = sql.split_once("IN (") {
            let ids = ids.trim_end_matches(')').split(", ");
            let marked: BTreeSet<u32> = ids.map(|id| id.parse().unwrap()).collect();
            rows.retain(|id| !marked.contains(id));
            return None;
        }
        if sql.contains("FROM [outbox]") && !sql.contains("count(*)") {
            let row = |id: &u32| {
                let payload =
                    json!({ "name": id.to_string(), "long": "x".repeat(700_000) }).to_string();
                let size = payload.len().to_string();
                vec![Some(id.to_string()), Some("fact".to_owned()), Some(payload), Some(size)]
            };
            return Some(Answer::Rows(rows.iter().map(row).collect()));
        }
        outbox(request, &AtomicU32::new(0))
    };
    let Some(server) = stand_in(script) else { return };
    let (home, process) = service(&server, "");
    add(&process, "mark");
    until_stored(home.path(), 20);
    until("all are marked", || waiting.lock().unwrap().is_empty());
    assert_eq!(stored(home.path()).len(), 20, "each once");
    assert!(server.heard().contains(&Request::Attention), "the rest was cut off");
    assert!(source(&process)["last_error"].is_null(), "{}", source(&process));
    process.stop();
}

/// The row that cannot be read is named, although the server has ended the transaction itself.
#[test]
fn a_source_says_what_the_server_said_and_not_that_nothing_is_there_to_roll_back() {
    let script = |request: &Request| {
        has(request, "sys.columns").then(|| Answer::error(229, "The SELECT permission was denied."))
    };
    let Some(server) = stand_in(script) else { return };
    let (_home, process) = service(&server, "");
    add(&process, "mark");
    crate::databases::erp::trouble(&process, "The SELECT permission was denied.");
    process.stop();
}

#[test]
fn the_test_of_a_database_says_what_the_driver_does_about_encryption() {
    let script = |request: &Request| {
        let facts =
            ["16.0.4135.4", "read committed", "DISABLED", "Latin1_General_CI_AS", "[oncebox]"];
        let mut row: Vec<Option<String>> = facts.map(|fact| Some(fact.to_owned())).to_vec();
        row.push(None);
        has(request, "SERVERPROPERTY").then(|| Answer::Rows(vec![row]))
    };
    let Some(server) = stand_in(script) else { return };
    let (home, process) = service(&server, "");
    let tested = oncebox(home.path(), &["database", "test", "erp"]);
    for part in ["sqlserver 16.0.4135.4", "read committed", "not encrypted: tls = false"] {
        assert!(tested.contains(part), "{part}: {tested}");
    }
    process.stop();
}
