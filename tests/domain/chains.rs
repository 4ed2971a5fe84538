//! The chain of audit events: what is hashed, to the byte, and what each kind of tampering looks like.

use oncebox::base::clock::Timestamp;
use oncebox::model::audit::chain::{Break, Hash, Head, Report, Verifier, hash_of};
use oncebox::model::audit::changes::Changes;
use oncebox::model::audit::{Actor, AuditEvent, NewAuditEvent};
use ring::digest::{SHA256, digest};
use serde_json::json;

fn rows(count: i64) -> Vec<AuditEvent> {
    let mut head = Head::START;
    let mut rows = Vec::new();
    for n in 0..count {
        let event =
            NewAuditEvent::local(Timestamp::from_secs(n), "default", Actor::system(), "a.b");
        let changes = Changes::between(&json!({ "n": n }), &json!({ "n": n + 1 }));
        let row = event.of("a", &format!("id-{n}"), changes).chained(head);
        head = Head { seq: row.seq, hash: row.hash };
        rows.push(row);
    }
    rows
}

fn head_of(row: &AuditEvent) -> Head {
    Head { seq: row.seq, hash: row.hash }
}

fn report(rows: &[AuditEvent], head: Option<Head>) -> Report {
    let mut verifier = Verifier::new(Head::START);
    for row in rows {
        verifier.push(row);
    }
    verifier.finish(head)
}

/// What is found after `spoil`, with the head remembered as it was before.
fn breaks(spoil: impl FnOnce(&mut Vec<AuditEvent>)) -> Vec<Break> {
    let mut rows = rows(9);
    let head = head_of(&rows[8]);
    spoil(&mut rows);
    report(&rows, Some(head)).breaks
}

#[test]
fn the_hashed_bytes_are_those_of_the_document() {
    let row = &rows(2)[1];
    let mut bytes = b"oncebox audit 1\0".to_vec();
    bytes.extend(row.previous_hash.0);
    let number = |bytes: &mut Vec<u8>, number: i64| {
        bytes.push(1);
        bytes.extend(number.to_be_bytes());
    };
    let text = |bytes: &mut Vec<u8>, text: &str| {
        bytes.push(2);
        bytes.extend(u64::try_from(text.len()).unwrap().to_be_bytes());
        bytes.extend(text.as_bytes());
    };
    number(&mut bytes, 2);
    number(&mut bytes, 1000);
    for value in ["default", "system", "", "oncebox"] {
        text(&mut bytes, value);
    }
    bytes.extend([0, 0]);
    for value in ["a.b", "a", "id-1", "SUCCESS"] {
        text(&mut bytes, value);
    }
    bytes.extend([0; 5]);
    text(&mut bytes, r#"{"n":{"before":1,"after":2}}"#);
    assert_eq!(hash_of(row).0, digest(&SHA256, &bytes).as_ref());
    // Written down, so that no later version hashes otherwise.
    let known = "954580ab4fe2108ef083690fa7997254d957f0022abeda8ec7a10f83abcf446d";
    assert_eq!(rows(2)[1].hash.to_string(), known);
}

#[test]
fn a_whole_chain_holds() {
    let all = rows(9);
    let report = report(&all, Some(head_of(&all[8])));
    assert_eq!((report.breaks.len(), report.rows, report.end), (0, 9, head_of(&all[8])));
    assert_eq!(self::report(&[], None).breaks, []);
}

#[test]
fn every_column_of_a_row_is_held_by_its_hash() {
    let changed: [fn(&mut AuditEvent); 17] = [
        |row| row.at += 1,
        |row| row.tenant.push('x'),
        |row| row.actor_type.push('x'),
        |row| row.actor_id.push('x'),
        |row| row.actor_display.push('x'),
        |row| row.address = Some(String::new()),
        |row| row.user_agent = Some(String::new()),
        |row| row.action.push('x'),
        |row| row.resource_type.push('x'),
        |row| row.resource_id = None,
        |row| row.result.push('x'),
        |row| row.request_id = Some("1".to_owned()),
        |row| row.correlation_id = Some("1".to_owned()),
        |row| row.method = Some("GET".to_owned()),
        |row| row.path = Some("/".to_owned()),
        |row| row.status = Some(200),
        |row| row.changes = "{}".to_owned(),
    ];
    for (n, change) in changed.into_iter().enumerate() {
        assert_eq!(breaks(|rows| change(&mut rows[4])), [Break::Changed(5)], "column {n}");
    }
    assert_eq!(breaks(|rows| rows[4].previous_hash = Hash::ZERO), [Break::Changed(5)]);
    // What moves from one column to the next gives other bytes.
    let moved = |row: &mut AuditEvent| {
        row.resource_type = "ai".to_owned();
        row.resource_id = Some("d-4".to_owned());
    };
    assert_eq!(breaks(|rows| moved(&mut rows[4])), [Break::Changed(5)]);
}

#[test]
fn a_row_that_was_written_anew_is_not_what_its_neighbour_follows() {
    let anew = |row: &mut AuditEvent| {
        row.actor_display = "somebody else".to_owned();
        row.hash = hash_of(row);
    };
    assert_eq!(breaks(|rows| anew(&mut rows[4])), [Break::Unlinked { at: 6, after: 5 }]);
    assert_eq!(breaks(|rows| anew(&mut rows[8])), [Break::HeadDiffers(9)]);
}

#[test]
fn rows_that_were_taken_out_are_named() {
    assert_eq!(breaks(|rows| drop(rows.drain(3..6))), [Break::Missing { from: 4, to: 6 }]);
    assert_eq!(breaks(|rows| drop(rows.remove(0))), [Break::Missing { from: 1, to: 1 }]);
    assert_eq!(breaks(|rows| rows.truncate(7)), [Break::TailCut { from: 8, to: 9 }]);
    assert_eq!(breaks(Vec::clear), [Break::TailCut { from: 1, to: 9 }]);
    let renumbered = breaks(|rows| {
        rows.remove(3);
        for (row, seq) in rows.iter_mut().zip(1..) {
            row.seq = seq;
        }
    });
    assert_eq!(renumbered, [Break::Moved { at: 4, was: 5 }, Break::TailCut { from: 9, to: 9 }]);
}

#[test]
fn rows_that_were_put_in_are_named() {
    let put_in = |rows: &mut Vec<AuditEvent>| {
        let head = head_of(&rows[3]);
        let event =
            NewAuditEvent::local(Timestamp::from_secs(9), "default", Actor::system(), "x.y");
        rows.insert(4, event.chained(head));
        for (row, seq) in rows.iter_mut().zip(1..) {
            row.seq = seq;
        }
    };
    let found = breaks(put_in);
    let added = Break::TailAdded { from: 10, to: 10, head: 9 };
    assert_eq!(found, [Break::Moved { at: 6, was: 5 }, added]);
    let behind = breaks(|rows| {
        let event =
            NewAuditEvent::local(Timestamp::from_secs(9), "default", Actor::system(), "x.y");
        rows.push(event.chained(head_of(&rows[8])));
    });
    assert_eq!(behind, [Break::TailAdded { from: 10, to: 10, head: 9 }]);
    let twice = breaks(|rows| rows.insert(4, rows[3].clone()));
    assert_eq!(twice, [Break::OutOfOrder { at: 4, after: 4 }]);
}

#[test]
fn rows_that_change_places_are_named() {
    let lines = breaks(|rows| rows.swap(3, 4));
    assert_eq!(lines, [Break::Missing { from: 4, to: 4 }, Break::OutOfOrder { at: 4, after: 5 }]);
    let in_place = breaks(|rows| {
        rows.swap(3, 4);
        (rows[3].seq, rows[4].seq) = (4, 5);
    });
    assert_eq!(in_place, [Break::Moved { at: 4, was: 5 }, Break::Moved { at: 5, was: 4 }]);
}

#[test]
fn a_head_that_was_noted_elsewhere_tells_a_chain_that_was_made_anew() {
    let old = rows(9);
    let mut anew: Vec<AuditEvent> = Vec::new();
    for row in &old {
        let head = anew.last().map_or(Head::START, head_of);
        let actor = Actor { display: "nobody".to_owned(), ..Actor::system() };
        let event = NewAuditEvent::local(Timestamp::from_ms(row.at), "default", actor, "a.b");
        anew.push(event.chained(head));
    }
    let with = |noted: Head| {
        let mut verifier = Verifier::new(Head::START);
        verifier.expect(noted);
        for row in &anew {
            verifier.push(row);
        }
        verifier.finish(Some(head_of(&anew[8]))).breaks
    };
    assert_eq!(with(head_of(&old[6])), [Break::NotAsNoted(7)]);
    assert_eq!(with(head_of(&anew[6])), []);
    assert_eq!(with(Head { seq: 99, hash: Hash::ZERO }), [Break::NotedMissing(99)]);
}
