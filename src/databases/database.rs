//! The databases of the settings: a bounded set of connections to each.
//!
//! A connection that is given back between two transactions is kept for the next who asks; any other is ended. The password is
//! read for each new connection, so that a new one needs no restart.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::base::clock::Clock;
use crate::base::secret::SecretBytes;
use crate::config::databases::DatabaseAt;
use crate::config::{environment, own_variables};
use crate::databases::connection::{Connection, Error, Lost, Row, Statement};
use crate::databases::connection_string::connection_string;
use crate::databases::failure::{Class, Failure, judge};
use crate::databases::helper::{Deadlines, Helper, Start, candidates, find};
use crate::databases::product::Product;
use crate::databases::state::DatabaseHealth;
use crate::sys::files;

/// A connection that was not used for so long is not used again: a firewall may have forgotten it.
const IDLE_MOST: Duration = Duration::from_secs(45);

/// Where machines keep the authorities that they trust.
const MACHINES_CA: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
];

/// The machine, as far as databases need it.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Time.
    pub clock: Clock,
    /// Where our own program is.
    pub own_program: Option<PathBuf>,
    /// The variable `PATH`.
    pub path: String,
    /// How long is waited for answers.
    pub deadlines: Deadlines,
}

impl Machine {
    /// This machine, for this program.
    pub fn ours(clock: &Clock) -> Self {
        Self {
            clock: clock.clone(),
            own_program: std::env::current_exe().ok(),
            path: environment("PATH").unwrap_or_default(),
            deadlines: Deadlines::default(),
        }
    }
}

/// All databases of the settings. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Databases(Arc<BTreeMap<String, Arc<Database>>>);

impl Databases {
    /// Those of the settings. Nothing is connected yet.
    pub fn of(settings: &BTreeMap<String, DatabaseAt>, machine: &Machine) -> Self {
        let one = |(name, settings): (&String, &DatabaseAt)| {
            let database = Database::new(name, settings.clone(), machine.clone())?;
            Some((name.clone(), Arc::new(database)))
        };
        Self(Arc::new(settings.iter().filter_map(one).collect()))
    }

    /// A database by its name.
    pub fn get(&self, name: &str) -> Option<&Arc<Database>> {
        self.0.get(name)
    }

    /// The database of that name, if this tenant may use it.
    pub fn of_tenant(&self, name: &str, tenant: &str) -> Option<&Arc<Database>> {
        self.get(name).filter(|database| database.may_be_used_by(tenant))
    }

    /// All of them, by their names.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Database>> {
        self.0.values()
    }
}

/// A database of the settings.
#[derive(Debug)]
pub struct Database {
    name: String,
    settings: DatabaseAt,
    product: Product,
    machine: Machine,
    slots: Mutex<Slots>,
    /// Somebody gave a connection back.
    returned: Condvar,
    state: Mutex<DatabaseHealth>,
}

/// The connections that there are.
#[derive(Debug, Default)]
struct Slots {
    in_use: u32,
    idle: Vec<Idle>,
}

#[derive(Debug)]
struct Idle {
    helper: Helper,
    /// By the monotonic clock.
    since: Duration,
}

impl Database {
    /// `None` if the settings do not say what kind of database it is, which is refused where they are read.
    fn new(name: &str, settings: DatabaseAt, machine: Machine) -> Option<Self> {
        let product = settings.product()?;
        let state = Mutex::new(DatabaseHealth::new(machine.clock.now()));
        let name = name.to_owned();
        let slots = Mutex::default();
        let returned = Condvar::new();
        Some(Self { name, settings, product, machine, slots, returned, state })
    }

    /// Its name in the settings.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What kind of database it is.
    pub fn product(&self) -> Product {
        self.product
    }

    /// Its settings.
    pub fn settings(&self) -> &DatabaseAt {
        &self.settings
    }

    /// Whether the sources and subscriptions of a tenant may use it.
    pub fn may_be_used_by(&self, tenant: &str) -> bool {
        self.settings.tenants.iter().any(|name| name == tenant)
    }

    /// How it is.
    pub fn state(&self) -> DatabaseHealth {
        let mut state = self.state.lock().clone();
        state.in_use = usize::try_from(self.slots.lock().in_use).unwrap_or(usize::MAX);
        state
    }

    /// What follows from an error of this database.
    pub fn judge(&self, error: &Error) -> Failure {
        judge(self.product, error)
    }

    /// An idle connection, or a new one. While all are in use, waits as long as connecting may take.
    pub fn connection(self: &Arc<Self>) -> Result<Lease, Error> {
        let idle = self.slot()?;
        let mut lease = Lease {
            database: Arc::clone(self),
            helper: idle,
            is_open: false,
            is_fresh: false,
            is_test: false,
        };
        if lease.helper.is_none() {
            lease.connect()?;
        }
        Ok(lease)
    }

    /// The same for a test, which tries what may be refused: such a refusal is not an error of the database.
    pub fn connection_of_test(self: &Arc<Self>) -> Result<Lease, Error> {
        let mut lease = self.connection()?;
        lease.is_test = true;
        Ok(lease)
    }

    /// A place for a connection, with one if one is idle.
    fn slot(&self) -> Result<Option<Helper>, Error> {
        let within = self.machine.deadlines.connect;
        let mut slots = self.slots.lock();
        let is_full = |slots: &mut Slots| slots.in_use >= self.settings.connections;
        let waited = self.returned.wait_while_for(&mut slots, is_full, within);
        if waited.timed_out() && is_full(&mut slots) {
            let connections = usize::try_from(slots.in_use).unwrap_or(usize::MAX);
            return Err(Lost::Busy { connections, after: within }.into());
        }
        slots.in_use = slots.in_use.saturating_add(1);
        let oldest = self.machine.clock.monotonic().saturating_sub(IDLE_MOST);
        slots.idle.retain(|idle| idle.since >= oldest);
        Ok(slots.idle.pop().map(|idle| idle.helper))
    }

    fn give_back(&self, helper: Option<Helper>) {
        let mut slots = self.slots.lock();
        slots.in_use = slots.in_use.saturating_sub(1);
        let since = self.machine.clock.monotonic();
        slots.idle.extend(helper.map(|helper| Idle { helper, since }));
        drop(slots);
        self.returned.notify_one();
    }

    fn connect(&self) -> Result<Helper, Error> {
        Helper::connect(&self.start()?)
    }

    /// All that a connection needs, looked at now.
    fn start(&self) -> Result<Start, Lost> {
        let unfit = |why: String| Lost::Unfit { why: format!("databases.{} {why}", self.name) };
        let program = match &self.settings.program {
            Some(program) => find([program.clone()])?,
            None => find(candidates(self.machine.own_program.as_deref(), &self.machine.path))?,
        };
        let password = self.settings.password_file.as_deref().map(files::read_secret).transpose();
        let password = password.map_err(|error| {
            let path = self.settings.password_file.clone().unwrap_or_default();
            unfit(format!("cannot read its password_file {}: {error}", path.display()))
        })?;
        let machines_ca = MACHINES_CA.into_iter().find(|path| Path::new(path).exists());
        let password = password.as_ref().map(|password| password.as_str());
        let text = connection_string(&self.settings, self.product, password, machines_ca)
            .map_err(unfit)?;
        Ok(Start {
            program,
            without: own_variables(),
            connection_string: SecretBytes::new(text.as_bytes().to_vec()),
            product: self.product,
            deadlines: self.machine.deadlines,
            clock: self.machine.clock.clone(),
        })
    }

    /// Notes what a call led to.
    fn note<T>(&self, done: &Result<T, Error>, is_test: bool) {
        let now = self.machine.clock.now();
        let Err(error) = done else {
            self.state.lock().answered(now);
            return;
        };
        let Failure { class, words } = self.judge(error);
        let mut state = self.state.lock();
        match class {
            // Our own limit says nothing about the database.
            Class::Away if matches!(error, Error::Lost(Lost::Busy { .. })) => {}
            Class::Away => state.went(now, &words),
            Class::AuthHold | Class::SchemaHold if !is_test => state.complained(now, &words),
            Class::AuthHold
            | Class::SchemaHold
            | Class::Again
            | Class::Refused
            | Class::Unknown => state.answered(now),
        }
    }
}

/// A lent connection. A drop between transactions gives the connection back; a drop within a transaction ends it.
#[derive(Debug)]
pub struct Lease {
    database: Arc<Database>,
    helper: Option<Helper>,
    /// Whether a transaction is open.
    is_open: bool,
    /// Whether it was connected for this lease.
    is_fresh: bool,
    /// Whether a refusal was to be expected.
    is_test: bool,
}

impl Lease {
    fn connect(&mut self) -> Result<(), Error> {
        let connected = self.database.connect();
        if let Err(error) = &connected {
            let words = self.database.judge(error).words;
            // Whatever the reason: nobody can use it.
            self.database.state.lock().went(self.database.machine.clock.now(), &words);
        }
        self.helper = Some(connected?);
        self.is_fresh = true;
        Ok(())
    }

    /// Calls, and notes what came of it.
    fn call<T>(&mut self, what: impl FnOnce(&mut Helper) -> Result<T, Error>) -> Result<T, Error> {
        let Some(helper) = &mut self.helper else { return Err(Lost::Ended.into()) };
        let done = what(helper);
        self.database.note(&done, self.is_test);
        let is_away = |error: &Error| self.database.judge(error).class == Class::Away;
        if done.as_ref().is_err_and(is_away) {
            self.end();
        }
        done
    }

    /// Ends a connection that is of no more use.
    fn end(&mut self) {
        self.helper = None;
        let mut state = self.database.state.lock();
        state.restarts = state.restarts.saturating_add(1);
    }

    /// Gives up a connection of which nobody knows whether a transaction is open: the next one begins on another. SQL Server
    /// ends a transaction at most errors by itself, and then refuses to roll it back.
    fn give_up(&mut self) {
        self.helper = None;
        self.is_fresh = false;
    }

    /// The id of the process, while there is one.
    #[cfg(any(test, feature = "internals"))]
    pub fn process(&self) -> Option<u32> {
        self.helper.as_ref().and_then(Helper::id)
    }
}

impl Connection for Lease {
    fn begin(&mut self) -> Result<(), Error> {
        let mut begun = self.call(Helper::begin);
        // Nothing was done yet: a kept connection may have died meanwhile, which says nothing about the database.
        if begun.is_err() && self.helper.is_none() && !self.is_fresh {
            self.connect()?;
            begun = self.call(Helper::begin);
        }
        self.is_open = begun.is_ok();
        if begun.is_err() {
            self.give_up();
        }
        begun
    }

    fn commit(&mut self) -> Result<(), Error> {
        let done = self.call(Helper::commit);
        self.is_open = self.is_open && done.is_err();
        done
    }

    fn roll_back(&mut self) -> Result<(), Error> {
        self.is_open = false;
        let Some(helper) = &mut self.helper else { return Err(Lost::Ended.into()) };
        let done = helper.roll_back();
        let Err(error) = &done else {
            self.database.note(&done, self.is_test);
            return done;
        };
        // That nothing is there to roll back says nothing about the database.
        if self.database.judge(error).class == Class::Away {
            self.database.note(&done, self.is_test);
            self.end();
        }
        self.give_up();
        done
    }

    fn run(&mut self, statement: &Statement) -> Result<Option<u64>, Error> {
        self.call(|helper| helper.run(statement))
    }

    fn rows(&mut self, statement: &Statement, most: usize) -> Result<Vec<Row>, Error> {
        self.call(|helper| helper.rows(statement, most))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let helper = self.helper.take().filter(|helper| !self.is_open && !helper.is_lost());
        self.database.give_back(helper);
    }
}
