//! What goes in comes out, and what is committed is there.

use oncebox::databases::connection::{Connection, Statement};

use crate::databases::site::{sites, words};

#[test]
fn texts_and_null_come_back_as_they_were() {
    for site in sites() {
        let mut connection = site.connect();
        connection.begin().unwrap_or_else(|error| panic!("{}", words(&error)));
        let long: String = "Größe € Ω 😀 ".chars().cycle().take(1 << 20).collect();
        let odd = "tab\tline\nquote ' \" back \\ percent % question ?";
        for text in ["", " ", "Größe € Ω 😀", odd, &"x".repeat(4095), &long] {
            let statement = site.echo().with(text);
            let rows = connection.rows(&statement, 10).unwrap_or_else(|error| {
                panic!("{} of {} letters: {}", site.product, text.chars().count(), words(&error))
            });
            let found = rows[0][0].as_deref().unwrap();
            assert!(found == text, "{}: {} bytes of {}", site.product, found.len(), text.len());
        }
        let nothing = site.echo().with_optional(None::<String>);
        assert_eq!(connection.rows(&nothing, 10).unwrap(), [[None]]);
        connection.commit().unwrap();
    }
}

#[test]
fn what_is_committed_stays_and_what_is_rolled_back_does_not() {
    for site in sites() {
        let mut connection = site.connect();
        connection.begin().unwrap();
        let table = Statement::new("CREATE TABLE kept (id INTEGER PRIMARY KEY, text VARCHAR(50))");
        connection.run(&table).unwrap();
        connection.commit().unwrap();
        let insert = |id: &str| {
            Statement::new("INSERT INTO kept (id, text) VALUES (CAST(? AS DECIMAL(9)), ?)")
                .with(id)
                .with("Größe 😀")
        };
        connection.begin().unwrap();
        assert_eq!(connection.run(&insert("1")).unwrap(), Some(1));
        connection.commit().unwrap();
        connection.begin().unwrap();
        assert_eq!(connection.run(&insert("2")).unwrap(), Some(1));
        connection.roll_back().unwrap();
        let mut other = site.connect();
        other.begin().unwrap();
        let all = Statement::new("SELECT id, text FROM kept ORDER BY id");
        let one = [Some("1".to_owned()), Some("Größe 😀".to_owned())];
        assert_eq!(other.rows(&all, 10).unwrap(), [one]);
        assert_eq!(other.rows(&all, 0).unwrap(), Vec::<Vec<Option<String>>>::new());
        other.roll_back().unwrap();
        let outside = other.run(&insert("3")).unwrap_err();
        assert!(words(&outside).contains("no transaction has begun"), "{outside:?}");
    }
}
