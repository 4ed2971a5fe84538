//! An ERP and its bookkeeping in one file, without a server of their own but for the one that takes webhooks.
//!
//! The ERP keeps its tables in `oncebox.db` and writes an invoice and its event in one transaction. The bookkeeping
//! takes the webhook, checks who sent it, and books it exactly once in its own `ledger.db`, although it comes twice.
//! `examples/README.md` has the commands around it.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    reason = "a program of its own, which prints and opens its own files"
)]

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use oncebox::guard::{self, Once};
use oncebox::outbox::{self, Appended, Event};
use oncebox::rusqlite::{self, Connection, Transaction, TransactionBehavior};
use oncebox::webhook;
use serde_json::{Value, json};
use tiny_http::{Request, Response, Server};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("erp: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, oncebox_db, secret_file, address] = &arguments[..] else {
        return Err("usage: erp ONCEBOX.DB SECRET-FILE ADDRESS".into());
    };
    let secret = std::fs::read_to_string(secret_file)?.trim().to_owned();
    let server = Server::http(address).map_err(|error| format!("{address}: {error}"))?;

    // The ERP sells something.
    let oncebox_db = Path::new(oncebox_db);
    let mut erp = open(oncebox_db)?;
    erp.execute_batch(
        "CREATE TABLE IF NOT EXISTS invoices (number INTEGER PRIMARY KEY, total TEXT NOT NULL)",
    )?;
    let (number, event) = sell(&mut erp, "99.00")?;
    println!("invoice {number} and its event {} are committed", event.webhook_id);
    // A second look, as after a crash: the event is there already, and nothing is sent twice.
    let again = announce(&mut erp, number, "99.00")?;
    println!("appended again: already there = {}", again.already_there);

    // The bookkeeping takes it twice: the first answer is a failure, after the booking was made.
    let mut ledger = open(&oncebox_db.with_file_name("ledger.db"))?;
    ledger.execute_batch(
        "CREATE TABLE IF NOT EXISTS bookings (invoice INTEGER NOT NULL, total TEXT NOT NULL)",
    )?;
    let mut fails = true;
    for mut request in server.incoming_requests() {
        match receive(&mut request, &secret, &mut ledger, number) {
            Err(error) => {
                println!("refused: {error}");
                request.respond(Response::empty(401))?;
            }
            Ok(once) => {
                println!("a webhook came: {once:?}");
                request.respond(Response::empty(if fails { 500 } else { 200 }))?;
                if !fails {
                    break;
                }
                fails = false;
            }
        }
    }
    let booked = "SELECT count(*) FROM bookings WHERE invoice = ?1";
    let count: i64 = ledger.query_row(booked, [number], |row| row.get(0))?;
    println!("invoice {number} was booked {count} time(s)");
    if count == 1 { Ok(()) } else { Err("it had to be once".into()) }
}

fn open(path: &Path) -> rusqlite::Result<Connection> {
    let db = Connection::open(path)?;
    // Somebody else may be writing: wait for a while instead of failing.
    db.busy_timeout(Duration::from_secs(10))?;
    Ok(db)
}

fn begin(db: &mut Connection) -> rusqlite::Result<Transaction<'_>> {
    db.transaction_with_behavior(TransactionBehavior::Immediate)
}

/// The invoice and its event: both, or neither.
fn sell(erp: &mut Connection, total: &str) -> Result<(i64, Appended), Box<dyn Error>> {
    let tx = begin(erp)?;
    tx.execute("INSERT INTO invoices (total) VALUES (?1)", [total])?;
    let number = tx.last_insert_rowid();
    let appended = outbox::append(&tx, invoice_created(number, total))?;
    tx.commit()?;
    Ok((number, appended))
}

fn announce(erp: &mut Connection, number: i64, total: &str) -> Result<Appended, Box<dyn Error>> {
    let tx = begin(erp)?;
    let appended = outbox::append(&tx, invoice_created(number, total))?;
    tx.commit()?;
    Ok(appended)
}

fn invoice_created(number: i64, total: &str) -> Event {
    Event::new("invoice.created")
        .key(format!("invoice.created:{number}"))
        .aggregate("invoice", number.to_string())
        .occurred_at(SystemTime::now())
        .json(&json!({ "number": number, "total": total }))
}

/// Checks a webhook and books it, unless it was booked before.
fn receive(
    request: &mut Request,
    secret: &str,
    ledger: &mut Connection,
    expected: i64,
) -> Result<Once<()>, Box<dyn Error>> {
    // The raw body, before anything parses it: it is what was signed.
    let mut body = Vec::new();
    request.as_reader().read_to_end(&mut body)?;
    let headers = request.headers().iter().map(|header| {
        (header.field.as_str().as_str().to_owned(), header.value.as_str().to_owned())
    });
    let verified = webhook::verify(&[secret], headers, &body)?;
    let invoice: Value = serde_json::from_slice(&body)?;
    if invoice["number"] != expected {
        return Ok(Once::Before); // of an earlier run of this example
    }

    let tx = begin(ledger)?;
    let once = guard::once(&tx, "bookkeeping", &verified.id, |tx| book(tx, &invoice))?;
    tx.commit()?; // only now may it be answered
    Ok(once)
}

fn book(tx: &Transaction<'_>, invoice: &Value) -> rusqlite::Result<()> {
    let row = (invoice["number"].as_i64(), invoice["total"].as_str());
    tx.execute("INSERT INTO bookings (invoice, total) VALUES (?1, ?2)", row).map(drop)
}
