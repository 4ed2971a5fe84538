//! One run, from two empty servers until each invoice is booked.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use data_encoding::HEXLOWER;
use parking_lot::Mutex;

use crate::base::clock::Clock;
use crate::base::id::{Draw, SystemDraw};
use crate::base::secret::SecretBytes;
use crate::base::stop::Stop;
use crate::databases::helper::{Deadlines, Start};
use crate::databases::product::Product;
use crate::demo::databases::erp::Erp;
use crate::demo::databases::machine::{Machine, POSTGRESQL_DRIVER};
use crate::demo::databases::plan::{self, Victim};
use crate::demo::databases::servers::Server;
use crate::demo::databases::service::{Ports, Service};
use crate::demo::databases::store;
use crate::demo::progress::say;
use crate::demo::site::{Error, four_ports};

/// Kills of a run: everything three times.
const KILLS: usize = 12;
const POLL: Duration = Duration::from_millis(50);
/// How often the progress is printed.
const SAY_EVERY: Duration = Duration::from_secs(3);
/// How long nothing may be booked, once nothing is killed any more.
const PATIENCE: Duration = Duration::from_mins(2);

/// What a run is given.
pub(super) struct Course<'a> {
    pub(super) invoices: u32,
    pub(super) seed: u32,
    pub(super) machine: &'a Machine,
    pub(super) interrupted: &'a AtomicBool,
    pub(super) clock: &'a Clock,
}

/// What was counted in the tables of both ERPs.
#[derive(Debug, Default)]
pub(super) struct Counted {
    invoices: usize,
    bookings: usize,
    lost: usize,
    doubled: usize,
    /// Errors of the ERP's own transactions, but for those while its server was down.
    errors: Vec<String>,
    outages: u32,
    lasted: Duration,
}

/// The processes of a run.
struct Site {
    postgresql: Server,
    mariadb: Server,
    service: Service,
}

impl Course<'_> {
    /// Runs all of it. No process is left when this returns.
    pub(super) fn run(&self, dir: &Path) -> Result<Counted, Error> {
        let [oncebox, postgresql, mariadb, _] = four_ports()?;
        let password = password();
        let from = Server::postgresql(self.machine, dir, postgresql, self.clock)?;
        let to = Server::mariadb(self.machine, dir, mariadb, self.clock)?;
        say(&format!("  servers    {}", from.sql(store::VERSION)?));
        say(&format!("             MariaDB {}", to.sql(store::VERSION)?));
        let ddl = self.printed(&["source", "ddl", "postgresql"])?;
        for sql in [store::invoices(&password), ddl.clone(), store::commented_out(&ddl)] {
            from.sql(&sql)?;
        }
        to.sql(&store::bookings(&password))?;
        to.sql(&self.printed(&["database", "ddl", "mariadb", "--user", "oncebox@'%'"])?)?;
        let ports = Ports { postgresql, mariadb };
        let service = Service::start(self.machine, dir, oncebox, ports, &password, self.clock)?;
        let erp = self.erp(postgresql.port(), &password);
        let mut site = Site { postgresql: from, mariadb: to, service };
        let begun = self.clock.monotonic();
        thread::scope(|scope| {
            scope.spawn(|| erp.write());
            let done = self.follow(&erp, &mut site);
            erp.stop.ask();
            done
        })?;
        let lasted = self.clock.monotonic().saturating_sub(begun);
        site.service.stop();
        let counted = count(&site, &erp, lasted)?;
        site.postgresql.stop();
        site.mariadb.stop();
        Ok(counted)
    }

    /// What this program prints.
    fn printed(&self, arguments: &[&str]) -> Result<String, Error> {
        let output = Command::new(&self.machine.oncebox).args(arguments).output();
        let output = output.map_err(Error::about("oncebox"))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The ERP's program, which connects as a user of its own.
    fn erp(&self, port: u16, password: &str) -> Erp {
        let connection_string = format!(
            "Driver={{{POSTGRESQL_DRIVER}}};Server=127.0.0.1;Port={port};Database=postgres;UID=erp;PWD={password};\
             SSLmode=disable;Protocol=7.4-0"
        );
        Erp {
            start: Start {
                program: self.machine.odbc.clone(),
                without: Vec::new(),
                connection_string: SecretBytes::new(connection_string.into_bytes()),
                product: Product::Postgresql,
                deadlines: Deadlines::default(),
                clock: self.clock.clone(),
            },
            invoices: self.invoices,
            allowed: AtomicU32::new(0),
            written: AtomicU32::new(0),
            outages: AtomicU32::new(0),
            errors: Mutex::default(),
            stop: Stop::new(),
        }
    }

    /// Lets the ERP write a part, kills something, lets it write on, and waits until all is booked.
    fn follow(&self, erp: &Erp, site: &mut Site) -> Result<(), Error> {
        let kills = plan::kills(self.seed, KILLS);
        let parts = u64::try_from(kills.len()).unwrap_or(0).saturating_add(1);
        let share = |part: u64| {
            let share = u64::from(erp.invoices).saturating_mul(part) / parts;
            u32::try_from(share).unwrap_or(erp.invoices)
        };
        for (part, kill) in (1..).zip(kills) {
            erp.allowed.store(share(part), Ordering::SeqCst);
            self.wait_for(kill.after)?;
            say(&format!("  kill -9    {}", kill.victim));
            match kill.victim {
                Victim::Postgresql => site.postgresql.kill_and_start()?,
                Victim::Mariadb => site.mariadb.kill_and_start()?,
                Victim::Oncebox => site.service.kill_and_start()?,
                Victim::Connections => site.service.kill_connections()?,
            }
        }
        erp.allowed.store(erp.invoices, Ordering::SeqCst);
        self.wait_until_booked(erp, site)
    }

    fn wait_until_booked(&self, erp: &Erp, site: &Site) -> Result<(), Error> {
        let mut last = 0;
        let mut grew_at = self.clock.monotonic();
        let mut said_at = grew_at;
        loop {
            self.wait_for(POLL)?;
            let booked: u32 = site.mariadb.sql(store::COUNT_OF_BOOKINGS)?.parse().unwrap_or(0);
            let written = erp.written.load(Ordering::SeqCst);
            let is_all_there = written >= erp.invoices && booked >= erp.invoices;
            if is_all_there && site.service.pending() == Some(0) {
                return Ok(());
            }
            let now = self.clock.monotonic();
            if booked > last {
                grew_at = now;
            }
            last = booked;
            if now.saturating_sub(said_at) >= SAY_EVERY {
                said_at = now;
                say(&format!("  {written} of {} written, {booked} booked", erp.invoices));
            }
            if now.saturating_sub(grew_at) > PATIENCE {
                let errors = erp.errors.lock().join("; ");
                let how = site.service.trouble();
                return Err(Error::Failed(format!(
                    "nothing is booked any more: {booked} of {written} written ones are\n{errors}\n{how}"
                )));
            }
        }
    }

    fn wait_for(&self, span: Duration) -> Result<(), Error> {
        let begun = self.clock.monotonic();
        let never = Stop::new();
        while self.clock.monotonic().saturating_sub(begun) < span {
            never.wait(span.min(POLL));
            if self.interrupted.load(Ordering::SeqCst) {
                return Err(Error::Interrupted);
            }
        }
        Ok(())
    }
}

/// A password for the run.
fn password() -> String {
    let mut bytes = [0; 16];
    SystemDraw::new().fill(&mut bytes);
    HEXLOWER.encode(&bytes)
}

/// Compares the tables of both ERPs.
fn count(site: &Site, erp: &Erp, lasted: Duration) -> Result<Counted, Error> {
    let mut booked: BTreeMap<String, usize> = BTreeMap::new();
    let bookings = site.mariadb.sql(store::ALL_BOOKINGS)?;
    for invoice in bookings.lines() {
        let times = booked.entry(invoice.to_owned()).or_default();
        *times = times.saturating_add(1);
    }
    let invoices = site.postgresql.sql(store::ALL_INVOICES)?;
    Ok(Counted {
        invoices: invoices.lines().count(),
        bookings: bookings.lines().count(),
        lost: invoices.lines().filter(|invoice| !booked.contains_key(*invoice)).count(),
        doubled: booked.values().map(|times| times.saturating_sub(1)).sum(),
        errors: erp.errors.lock().clone(),
        outages: erp.outages.load(Ordering::SeqCst),
        lasted,
    })
}

impl Counted {
    /// The result in one line.
    pub(super) fn verdict(&self) -> String {
        let Self { invoices, bookings, lost, doubled, errors, outages, lasted } = self;
        format!(
            "{invoices} invoices → {bookings} bookings, {lost} lost, {doubled} duplicated, {} errors in the ERP's own \
             transactions ({KILLS} kills, {outages} transactions tried again because the ERP's server was down, {} s)",
            errors.len(),
            lasted.as_secs(),
        )
    }

    /// What is wrong, if something is.
    pub(super) fn problem(&self) -> Option<String> {
        let is_well = self.lost == 0 && self.doubled == 0 && self.errors.is_empty();
        let is_well = is_well && self.invoices == self.bookings;
        (!is_well).then(|| {
            format!("the tables differ, or the ERP was disturbed: {}", self.errors.join("; "))
        })
    }
}
