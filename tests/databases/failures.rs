//! What real databases say when they refuse.
use crate::site::{sites, words};
use oncebox::base::secret::SecretBytes;
use oncebox::databases::connection::{Connection, Statement};
use oncebox::databases::helper::Helper;

#[test]
fn scratch() {
    for site in sites() {
        let mut start = site.start();
        start.connection_string = SecretBytes::new(site.connection_string("wrong").into_bytes());
        println!("{} password: {}", site.product, words(&Helper::connect(&start).unwrap_err()));
        let string = site.connection_string("wrong").replace("Port=", "Port=1;X=");
        start.connection_string = SecretBytes::new(string.into_bytes());
        println!("{} port: {}", site.product, words(&Helper::connect(&start).unwrap_err()));
        let string =
            site.connection_string(crate::site::PASSWORD).replace("Database=", "Database=no");
        start.connection_string = SecretBytes::new(string.into_bytes());
        println!("{} database: {}", site.product, words(&Helper::connect(&start).unwrap_err()));
        let string = site.connection_string("wrong").replace("Unicode", "Unicorn");
        start.connection_string = SecretBytes::new(string.into_bytes());
        println!("{} driver: {}", site.product, words(&Helper::connect(&start).unwrap_err()));
        let mut c = site.connect();
        c.begin().unwrap();
        c.run(&Statement::new("CREATE TABLE refuse (id INTEGER PRIMARY KEY, sku VARCHAR(5) NOT NULL UNIQUE, n INTEGER CHECK (n > 0), d DATE)")).unwrap();
        c.run(&Statement::new("INSERT INTO refuse VALUES (1, 'abc', 1, NULL)")).unwrap();
        c.commit().unwrap();
        for sql in [
            "INSERT INTO refuse VALUES (1, 'abd', 1, NULL)",
            "INSERT INTO refuse VALUES (2, 'abc', 1, NULL)",
            "INSERT INTO refuse VALUES (2, NULL, 1, NULL)",
            "INSERT INTO refuse VALUES (2, 'abcdefg', 1, NULL)",
            "INSERT INTO refuse VALUES (2, 'abf', -1, NULL)",
            "INSERT INTO refuse VALUES (2, 'abf', 1, '2020-13-45')",
            "INSERT INTO refuse VALUES (2, 'abf', 'x''y', NULL)",
            "INSERT INTO nothere VALUES (1)",
            "INSERT INTO refuse (nocol) VALUES (1)",
            "INSERT INTO",
            "SELECT nofunc(1)",
            "CALL noproc(1)",
            "INSERT INTO refuse (id) VALUES (9)",
            "SELECT ?, ?",
            "INSERT INTO refuse VALUES (2, 'abf', 99999999999, NULL)",
        ] {
            c.begin().unwrap();
            println!(
                "{} {sql}: {}",
                site.product,
                c.run(&Statement::new(sql)).map_or_else(|e| words(&e), |n| format!("ok {n:?}"))
            );
            c.roll_back().unwrap();
        }
        c.begin().unwrap();
        println!(
            "{} param: {}",
            site.product,
            c.run(
                &Statement::new("INSERT INTO refuse (id, sku, n) VALUES (5, 'a', ?)")
                    .with("geheim 'x")
            )
            .map_or_else(|e| words(&e), |n| format!("ok {n:?}"))
        );
        c.roll_back().unwrap();
        c.begin().unwrap();
        println!(
            "{} param2: {}",
            site.product,
            c.run(
                &Statement::new("INSERT INTO refuse (id, sku, n) VALUES (5, ?, 3)")
                    .with("geheim 'x")
            )
            .map_or_else(|e| words(&e), |n| format!("ok {n:?}"))
        );
        c.roll_back().unwrap();
        c.begin().unwrap();
        println!(
            "{} param3: {}",
            site.product,
            c.run(
                &Statement::new("INSERT INTO refuse (id, sku, n) VALUS (5, ?, 3)")
                    .with("geheim 'x")
            )
            .map_or_else(|e| words(&e), |n| format!("ok {n:?}"))
        );
        c.roll_back().unwrap();
    }
}
