//! The first ERP's program: writes invoices, each in a transaction of its own.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::base::stop::Stop;
use crate::databases::connection::{Connection as _, Error};
use crate::databases::failure::{Class, judge};
use crate::databases::helper::{Helper, Start};
use crate::demo::databases::store;

/// How long it waits after an error, and for the next invoice.
const AGAIN: Duration = Duration::from_millis(50);
const NEXT: Duration = Duration::from_millis(2);

/// The program, and what it has seen.
pub(super) struct Erp {
    pub(super) start: Start,
    pub(super) invoices: u32,
    /// How many may be written by now.
    pub(super) allowed: AtomicU32,
    pub(super) written: AtomicU32,
    /// Transactions that failed while its own server was down.
    pub(super) outages: AtomicU32,
    /// All other errors.
    pub(super) errors: Mutex<Vec<String>>,
    pub(super) stop: Stop,
}

impl Erp {
    /// Writes all invoices; after an error looks whether the one at hand is there. Ends early if it is told to stop.
    pub(super) fn write(&self) {
        let mut connection = None;
        for n in 0..self.invoices {
            while self.allowed.load(Ordering::SeqCst) <= n {
                if self.stop.wait(NEXT) {
                    return;
                }
            }
            while let Err(error) = write_one(&self.start, &mut connection, &format!("RE-{n}")) {
                connection = None;
                let failure = judge(self.start.product, &error);
                if failure.class == Class::Away {
                    self.outages.fetch_add(1, Ordering::SeqCst);
                } else {
                    self.errors.lock().push(failure.to_string());
                }
                if self.stop.wait(AGAIN) {
                    return;
                }
            }
            self.written.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Writes an invoice in one transaction. A new connection first looks whether the last try was committed after all.
fn write_one(start: &Start, open: &mut Option<Helper>, invoice: &str) -> Result<(), Error> {
    if open.is_none() {
        let connection = open.insert(Helper::connect(start)?);
        connection.begin()?;
        let is_there = !connection.rows(&store::find(invoice), 1)?.is_empty();
        connection.roll_back()?;
        if is_there {
            return Ok(());
        }
    }
    let Some(connection) = open else { return Ok(()) };
    connection.begin()?;
    connection.run(&store::write(invoice))?;
    connection.commit()
}
