//! Invoices of an ERP on `PostgreSQL` become bookings of an ERP on `MariaDB`, each once, while everything in between, and both
//! servers, are killed again and again, and lines are cut at commits.
//!
//! `ONCEBOX_INVOICES`, `ONCEBOX_KILLS` and `ONCEBOX_CUTS` say how many; `ONCEBOX_SEED` which kills.

use oncebox::base::faults::SplitMix64;
use oncebox::base::secret::SecretBytes;
use oncebox::databases::connection::{Connection as _, Error, Statement};
use oncebox::databases::failure::{Class, judge};
use oncebox::databases::helper::{Deadlines, Helper, Start};
use oncebox::databases::product::Product;

use crate::databases::erp::{Erp, erps, oncebox};
use crate::databases::line::Line;
use crate::databases::process::prelude::*;
use crate::databases::service::children;
use crate::databases::site::{program, words};
use crate::databases::stock::states;

const WRITERS: usize = 4;
/// How long nothing may be booked, once nothing is killed any more.
const PATIENCE: Duration = secs(120);

/// What is killed.
#[derive(Clone, Copy, Debug)]
enum Victim {
    Postgresql,
    Mariadb,
    Oncebox,
    Helpers,
    Lines,
}

const VICTIMS: [Victim; 5] =
    [Victim::Postgresql, Victim::Mariadb, Victim::Oncebox, Victim::Helpers, Victim::Lines];

/// What the ERP's programs have seen.
#[derive(Default)]
struct Seen {
    /// Invoices that are committed.
    written: AtomicUsize,
    /// How many may be begun by now, so that kills and work go together.
    allowed: AtomicUsize,
    /// Errors while their own server was away.
    outages: AtomicU64,
    /// All other errors.
    errors: Mutex<Vec<String>>,
}

/// The two ERPs, and what connects them.
struct Chain {
    finance: Erp,
    stock: Erp,
    from: Line,
    to: Line,
    process: Option<Process>,
    home: TempDir,
}

impl Chain {
    /// `None` after saying what is missing.
    fn start() -> Option<Self> {
        let mut all = erps("mark").into_iter();
        let Some((finance, stock)) = all.next().zip(all.next()) else {
            skipped("needs both servers");
            return None;
        };
        finance.run(
            "CREATE TABLE invoices (number text PRIMARY KEY, total numeric NOT NULL);
             CREATE ROLE finance LOGIN PASSWORD 'secret'; GRANT SELECT, INSERT ON invoices TO finance",
        );
        finance.run(&finance.printed_trigger());
        stock.tables_of_targets();
        stock.run(
            "CREATE TABLE bookings (id BIGINT AUTO_INCREMENT PRIMARY KEY, invoice VARCHAR(40) NOT NULL);
             GRANT INSERT ON bookings TO oncebox@'%'",
        );
        let cuts = number("ONCEBOX_CUTS", 4);
        let [from, to] = [&finance, &stock].map(|erp| Line::start(erp.port(), cuts));
        let home = tempfile::tempdir().unwrap();
        let sections = [("erp", &finance), ("stock", &stock)];
        let sections = sections.map(|(name, erp)| erp.section(home.path(), name)).join("");
        fs::write(home.path().join("oncebox.toml"), format!("{SOON}\n{sections}")).unwrap();
        for line in [&from, &to] {
            line.put_into(home.path());
        }
        let process = Process::start(home.path());
        crate::databases::erp::add(&process, "mark");
        let effect = home.path().join("book.sql");
        fs::write(&effect, "INSERT INTO bookings (invoice) VALUES (:aggregate_id)").unwrap();
        let effect = effect.to_str().unwrap();
        let create = ["subscription", "create", "stock", "--database", "stock", "--effect-file"];
        oncebox(home.path(), &[create.as_slice(), &[effect, "--event-type", "invoice.*"]].concat());
        Some(Self { finance, stock, from, to, process: Some(process), home })
    }

    /// kill -9 of a victim, and its start.
    fn kill(&mut self, victim: Victim, draw: &mut SplitMix64) {
        match victim {
            Victim::Postgresql => self.finance.kill_and_start(),
            Victim::Mariadb => self.stock.kill_and_start(),
            Victim::Oncebox => {
                self.process = self.process.take().map(|process| process.killed(self.home.path()));
            }
            Victim::Helpers => {
                let box_id = self.process.as_ref().map_or(0, Process::id);
                for helper in children(box_id) {
                    let id = helper.file_name().unwrap().to_owned();
                    // It may have ended meanwhile.
                    drop(Command::new("kill").arg("-9").arg(id).output());
                }
            }
            Victim::Lines => {
                for line in [&self.from, &self.to] {
                    line.break_down(draw.between(ms(10), ms(300)));
                }
            }
        }
    }

    fn invoices(&self) -> BTreeSet<String> {
        self.finance.run("SELECT number FROM invoices").lines().map(str::to_owned).collect()
    }

    /// Waits as long as more and more is booked; else says how the service is.
    #[track_caller]
    fn wait_until_booked(&self, invoices: usize) {
        let mut booked = 0;
        let mut grew_at = Instant::now();
        while booked < invoices {
            thread::sleep(ms(50));
            let now = self.stock.run("SELECT count(*) FROM bookings").parse().unwrap();
            if now > booked {
                grew_at = Instant::now();
            }
            booked = now;
            if grew_at.elapsed() > PATIENCE {
                let process = self.process.as_ref().unwrap();
                let shown = ["/v1/subscriptions/stock", "/v1/sources/erp", "/v1/databases"]
                    .map(|path| process.call("GET", path, &Value::Null).text());
                panic!("{booked} of {invoices} are booked: {}", shown.join("\n"));
            }
        }
    }

    fn bookings(&self) -> Vec<String> {
        self.stock.run("SELECT invoice FROM bookings").lines().map(str::to_owned).collect()
    }

    /// How an ERP's program connects, without a line in between.
    fn writer(&self) -> Start {
        let text = format!(
            "Driver={{PostgreSQL Unicode}};Server=127.0.0.1;Port={};Database=postgres;UID=finance;PWD=secret;\
             Protocol=7.4-0",
            self.finance.port()
        );
        Start {
            program: program().unwrap(),
            without: Vec::new(),
            connection_string: SecretBytes::new(text.into_bytes()),
            product: Product::Postgresql,
            deadlines: Deadlines::default(),
            clock: Clock::machine(),
        }
    }
}

impl Seen {
    /// A program of the ERP: writes each `WRITERS`th invoice, and after an error looks whether it is there.
    fn write(&self, start: &Start, invoices: usize, writer: usize) {
        let mut connection = None;
        for n in (writer..invoices).step_by(WRITERS) {
            while self.allowed.load(Ordering::SeqCst) <= n {
                thread::sleep(ms(2));
            }
            while let Err(error) = write_one(start, &mut connection, &format!("RE-{n}")) {
                connection = None;
                if judge(Product::Postgresql, &error).class == Class::Away {
                    self.outages.fetch_add(1, Ordering::SeqCst);
                } else {
                    self.errors.lock().unwrap().push(words(&error));
                }
                thread::sleep(ms(50));
            }
            self.written.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// One transaction of the ERP. Over a new connection it first looks whether an earlier one was committed after all.
fn write_one(start: &Start, open: &mut Option<Helper>, invoice: &str) -> Result<(), Error> {
    if open.is_none() {
        let connection = open.insert(Helper::connect(start)?);
        connection.begin()?;
        let find = Statement::new("SELECT number FROM invoices WHERE number = ?").with(invoice);
        let is_there = !connection.rows(&find, 1)?.is_empty();
        connection.roll_back()?;
        if is_there {
            return Ok(());
        }
    }
    let Some(connection) = open else { return Ok(()) };
    connection.begin()?;
    let insert = "INSERT INTO invoices (number, total) VALUES (?, 119.00)";
    connection.run(&Statement::new(insert).with(invoice))?;
    connection.commit()
}

#[test]
fn each_invoice_is_booked_once_while_everything_is_killed_and_cut() {
    let Some(mut chain) = Chain::start() else { return };
    let invoices = usize::try_from(number("ONCEBOX_INVOICES", 200)).unwrap();
    let kills = usize::try_from(number("ONCEBOX_KILLS", 10)).unwrap();
    let seed = u32::try_from(number("ONCEBOX_SEED", 1)).unwrap();
    let mut draw = SplitMix64::of(seed, "chain", 0);
    let witness = Seen::default();
    let begun = Instant::now();
    let start = chain.writer();
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let witness = &witness;
            let start = &start;
            scope.spawn(move || witness.write(start, invoices, writer));
        }
        let mut left = Vec::new();
        for n in 0..kills {
            witness.allowed.store(invoices * (n + 1) / (kills + 1), Ordering::SeqCst);
            let before = invoices * n / (kills + 1);
            until("the ERP writes", || witness.written.load(Ordering::SeqCst) > before);
            thread::sleep(draw.between(ms(0), ms(200)));
            if left.is_empty() {
                left = VICTIMS.to_vec();
            }
            let chosen = draw.below(u64::try_from(left.len()).unwrap());
            let victim = left.swap_remove(usize::try_from(chosen).unwrap());
            chain.kill(victim, &mut draw);
        }
        witness.allowed.store(invoices, Ordering::SeqCst);
    });
    let all = chain.invoices();
    assert_eq!(all.len(), invoices);
    chain.wait_until_booked(invoices);
    until("all is done", || states(chain.home.path()) == format!("completed {invoices}"));
    until("all is marked", || chain.finance.unmarked() == "0");
    let bookings = chain.bookings();
    let once: BTreeSet<String> = bookings.iter().cloned().collect();
    assert_eq!(once, all, "none is lost (seed {seed})");
    assert_eq!(bookings.len(), invoices, "none is doubled (seed {seed})");
    let errors = witness.errors.into_inner().unwrap();
    assert_eq!(errors, [""; 0], "seed {seed}");
    assert!(chain.to.cuts() > 0, "seed {seed}");
    say(&format!(
        "{invoices} invoices, {kills} kills (seed {seed}), {} and {} cuts, {} transactions of the ERP while its server \
         was down: 0 lost, 0 doubled, in {} s",
        chain.from.cuts(),
        chain.to.cuts(),
        witness.outages.into_inner(),
        begun.elapsed().as_secs()
    ));
    chain.process.take().unwrap().stop();
    file::check(&chain.home.path().join("data/oncebox.db"));
}

#[expect(clippy::print_stdout, reason = "who runs it long wants to know what it did")]
fn say(what: &str) {
    println!("{what}");
}
