//! What real databases say when they refuse, and what follows. `src/databases/failure/tests.rs` has the whole table.

use oncebox::databases::connection::{Connection, Statement};
use oncebox::databases::failure::{Class, judge};
use oncebox::databases::product::Product;

use crate::databases::site::sites;

#[test]
fn what_a_database_refuses_is_judged_and_has_no_data_of_the_row() {
    for site in sites() {
        let mut connection = site.connect();
        connection.begin().unwrap();
        let table = "CREATE TABLE item (id INTEGER PRIMARY KEY, sku VARCHAR(9) NOT NULL, n INTEGER CHECK (n > 0))";
        connection.run(&Statement::new(table)).unwrap();
        connection.run(&Statement::new("INSERT INTO item VALUES (4711, 'secret', 1)")).unwrap();
        connection.commit().unwrap();
        let names = |names: [&'static str; 2]| match site.product {
            Product::Postgresql => names[0],
            Product::Mariadb | Product::SqlServer => names[1],
        };
        for (sql, class, name) in [
            (
                "INSERT INTO item VALUES (4711, 'other', 1)",
                Class::Refused,
                names(["item_pkey", "PRIMARY"]),
            ),
            ("INSERT INTO item VALUES (5, NULL, 4711)", Class::Refused, "sku"),
            ("INSERT INTO item VALUES (5, 'secret-secret', 4711)", Class::Refused, "too long"),
            ("INSERT INTO item VALUES (5, 'secret', -4711)", Class::Refused, "item"),
            ("INSERT INTO item VALUES (5, 'secret', 'secret')", Class::Refused, "integer"),
            ("INSERT INTO nothere VALUES (4711)", Class::SchemaHold, "nothere"),
            ("INSERT INTO item (nocolumn) VALUES (4711)", Class::SchemaHold, "nocolumn"),
            ("INSERT INTO item VALUS (4711)", Class::SchemaHold, "VALUS"),
        ] {
            connection.begin().unwrap();
            let failure = judge(site.product, &connection.run(&Statement::new(sql)).unwrap_err());
            connection.roll_back().unwrap();
            assert_eq!(failure.class, class, "{}: {sql}: {failure}", site.product);
            assert!(failure.words.to_lowercase().contains(&name.to_lowercase()), "{failure}");
            assert!(!failure.words.contains("secret"), "{failure}");
            let shows_the_statement = sql.contains("VALUS");
            assert!(shows_the_statement || !failure.words.contains("4711"), "{failure}");
        }
    }
}

#[test]
fn a_lock_of_another_is_waited_for_a_while_and_then_tried_again() {
    for site in sites() {
        let mut first = site.connect();
        first.begin().unwrap();
        first.run(&Statement::new("CREATE TABLE locked (id INTEGER PRIMARY KEY)")).unwrap();
        first.run(&Statement::new("INSERT INTO locked VALUES (1)")).unwrap();
        first.commit().unwrap();
        let lock = Statement::new("SELECT id FROM locked FOR UPDATE");
        first.begin().unwrap();
        first.rows(&lock, 1).unwrap();
        let mut second = site.connect();
        second.begin().unwrap();
        let failure = judge(site.product, &second.rows(&lock, 1).unwrap_err());
        assert_eq!(failure.class, Class::Again, "{failure}");
        second.roll_back().unwrap();
        first.roll_back().unwrap();
        second.begin().unwrap();
        assert_eq!(second.rows(&lock, 1).unwrap(), [[Some("1".to_owned())]]);
    }
}
