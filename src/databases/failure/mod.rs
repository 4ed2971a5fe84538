//! What follows from an error of a database, and its words without the data of rows.
//!
//! Databases tell by a state of five letters and digits, the standard's, and by a number of their own. The number goes first: `MariaDB`
//! and SQL Server have one state for many things.

use std::fmt;

use crate::databases::connection::{Error, Lost, Refusal};
use crate::databases::product::Product;

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The database is not there now, or cannot work: wait, whatever it was. The connection is dropped.
    Away,
    /// Another transaction was in the way: roll back, and once more at once, a few times.
    Again,
    /// The user may not: wait until a person has granted it.
    AuthHold,
    /// A table, a column or a function is not there or another: wait until a person has changed that or the statement. The
    /// words name it.
    SchemaHold,
    /// The database refuses this row, today and tomorrow.
    Refused,
    /// Nothing is known of it: an attempt that failed, tried again by its schedule.
    Unknown,
}

/// An error, judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What follows.
    pub class: Class,
    /// The database's words, without the data of rows; at most [`MOST_LETTERS`] and the codes.
    pub words: String,
}

/// So much of a message is kept.
pub const MOST_LETTERS: usize = 300;

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

/// Judges an error.
pub fn judge(product: Product, error: &Error) -> Failure {
    match error {
        Error::Refused(refusal) => {
            Failure { class: class_of(product, refusal), words: scrubbed(product, refusal) }
        }
        Error::Lost(lost) => Failure { class: class_of_lost(lost), words: lost.to_string() },
        Error::TooLarge(why) => Failure { class: Class::Refused, words: why.clone() },
    }
}

fn class_of_lost(lost: &Lost) -> Class {
    match lost {
        Lost::NoProgram { .. }
        | Lost::NotStarted { .. }
        | Lost::Ended
        | Lost::Silent { .. }
        | Lost::OtherVersion { .. }
        | Lost::Unfit { .. }
        | Lost::Busy { .. } => Class::Away,
    }
}

fn class_of(product: Product, refusal: &Refusal) -> Class {
    let Refusal { sqlstate, native, message } = refusal;
    let by_number = match product {
        Product::Postgresql => None,
        Product::Mariadb => of_mariadb(*native),
        Product::SqlServer => of_sql_server(*native),
    };
    if by_number.is_none() && is_only_an_error_of_sql_server(product, refusal) {
        return Class::Unknown;
    }
    by_number.or_else(|| of_log_on(sqlstate, message)).unwrap_or_else(|| of_state(sqlstate))
}

/// Drivers of SQL Server say 42000 for each error that they do not know: a mistake in a statement or anything else.
fn is_only_an_error_of_sql_server(product: Product, refusal: &Refusal) -> bool {
    product == Product::SqlServer && refusal.sqlstate == "42000" && refusal.native != 0
}

/// psqlodbc has one state for every failure to connect: the words tell, in the language of the server.
fn of_log_on(sqlstate: &str, message: &str) -> Option<Class> {
    if !sqlstate.starts_with("08") {
        return None;
    }
    let message = message.to_lowercase();
    let says = |parts: &[&str]| parts.iter().any(|part| message.contains(part));
    if says(&["authenti", "autenti", "autoryzac", "pg_hba.conf", "role \"", "login failed"]) {
        return Some(Class::AuthHold);
    }
    says(&["database \""]).then_some(Class::SchemaHold)
}

fn of_mariadb(native: i32) -> Option<Class> {
    Some(match native {
        // Too many connections, full disks and tables, shutting down, read only, too slow, gone.
        1021
        | 1037
        | 1038
        | 1040
        | 1041
        | 1053
        | 1114
        | 1129
        | 1203
        | 1226
        | 1290
        | 1317
        | 1792
        | 1836
        | 1969
        | 2000..=2061
        | 3024 => Class::Away,
        1020 | 1205 | 1206 | 1213 => Class::Again,
        1044 | 1045 | 1130 | 1142 | 1143 | 1227 | 1370 | 1410 | 1698 | 1820 | 1862 | 4151 => {
            Class::AuthHold
        }
        1046 | 1049 | 1054 | 1064 | 1109 | 1136 | 1146 | 1149 | 1193 | 1305 | 1318 | 1347
        | 1356 | 1422 | 1582 => Class::SchemaHold,
        1048 | 1062 | 1216 | 1217 | 1264 | 1265 | 1292 | 1364 | 1366 | 1406 | 1411 | 1451
        | 1452 | 1586 | 1644 | 1690 | 3819 | 4025 => Class::Refused,
        _ => return None,
    })
}

fn of_sql_server(native: i32) -> Option<Class> {
    Some(match native {
        -2 | 233 | 596 | 701 | 802 | 845 | 1105 | 3906 | 6005 | 9002 | 10053 | 10054 | 10060
        | 10928 | 10929 | 20003 | 20004 | 20006 | 20009 | 20047 | 40197 | 40501 | 40613 => {
            Class::Away
        }
        1204 | 1205 | 1222 | 3960 => Class::Again,
        229 | 230 | 262 | 297 | 300 | 916 | 4060 | 18452 | 18456 | 18486 | 18487 | 18488 => {
            Class::AuthHold
        }
        // The statement has a mistake, or what it names is not there. 266, 3902, 3903: a procedure ended the transaction, or
        // left another one open. 334: OUTPUT on a table with a trigger. 1934: a setting that an index does not allow.
        102..=105
        | 107
        | 109
        | 110
        | 120
        | 121
        | 137
        | 156
        | 170
        | 174
        | 195
        | 201
        | 206
        | 207
        | 208
        | 213
        | 214
        | 257
        | 266
        | 319
        | 334
        | 402
        | 911
        | 1088
        | 1934
        | 2809
        | 2812
        | 3902
        | 3903
        | 4104
        | 4121
        | 4145
        | 8117
        | 8120
        | 8144
        | 8145
        | 8146
        | 8162 => Class::SchemaHold,
        220
        | 232
        | 241
        | 242
        | 245
        | 248
        | 515
        | 547
        | 2601
        | 2627
        | 2628
        | 8114
        | 8115
        | 8152
        | 50000.. => Class::Refused,
        _ => return None,
    })
}

fn of_state(sqlstate: &str) -> Class {
    match sqlstate {
        // Not completed for a reason of the server's own; a limit of time; a server that only reads.
        // 01000 and IM: no driver of that name, or one that cannot be loaded.
        "01000" | "01S00" | "25006" | "40003" | "57014" | "70100" | "IM002" | "IM003" | "IM004"
        | "IM005" | "HYT00" | "HYT01" => return Class::Away,
        "40001" | "40P01" | "55P03" => return Class::Again,
        "42501" => return Class::AuthHold,
        // 54000: our own limits (`frame.rs`), and those of the server.
        "45000" | "P0001" | "44000" | "21000" | "54000" => return Class::Refused,
        // The statement has other parameters than were given.
        "07001" | "07002" => return Class::SchemaHold,
        _ => {}
    }
    let class = sqlstate.get(..2).unwrap_or_default();
    match class {
        "08" | "53" | "57" | "58" | "XX" => Class::Away,
        "28" => Class::AuthHold,
        // 2D: a procedure commits or rolls back.
        "0A" | "2D" | "3D" | "3F" | "42" => Class::SchemaHold,
        "22" | "23" | "P0" => Class::Refused,
        _ => Class::Unknown,
    }
}

/// The words without the data of rows, and the codes.
fn scrubbed(product: Product, refusal: &Refusal) -> String {
    let Refusal { sqlstate, native, message } = refusal;
    let words = first_words(product, message);
    let words = match product {
        Product::Postgresql if has_value_of_postgresql(sqlstate) => without_quoted(words, '"'),
        Product::Mariadb => without_values_of_mariadb(*native, words),
        Product::SqlServer => without_values_of_sql_server(*native, words),
        Product::Postgresql => words.to_owned(),
    };
    let shown: String = words.chars().filter(|c| !c.is_control()).take(MOST_LETTERS).collect();
    let cut = if words.chars().count() > MOST_LETTERS { "…" } else { "" };
    let next = if ends_transaction(product, refusal) { ENDS_TRANSACTION } else { "" };
    // psqlodbc has small numbers of its own, which nobody can look up.
    match (sqlstate.as_str(), product) {
        ("", _) => format!("{shown}{cut}{next}"),
        (state, Product::Postgresql) => format!("{shown}{cut} ({state}){next}"),
        (state, _) => format!("{shown}{cut} ({state}, {native}){next}"),
    }
}

/// The next step where a statement or a procedure ends its transaction.
const ENDS_TRANSACTION: &str =
    "; it runs in a transaction of Oncebox: take COMMIT, ROLLBACK and BEGIN TRANSACTION out of it";

/// Whether the cause is a statement or a procedure that ends its own transaction.
fn ends_transaction(product: Product, refusal: &Refusal) -> bool {
    let numbers: &[i32] = match product {
        Product::Postgresql => &[],
        Product::Mariadb => &[1422],
        Product::SqlServer => &[266, 3902, 3903],
    };
    refusal.sqlstate.starts_with("2D") || numbers.contains(&refusal.native)
}

/// The message itself: what follows it, such as the details of `PostgreSQL`, has the row.
fn first_words(product: Product, message: &str) -> &str {
    let mut words = message;
    while let Some((_, rest)) = words.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        words = rest;
    }
    let words = words.trim_start();
    let words = if product == Product::Postgresql {
        words.lines().next().unwrap_or_default()
    } else {
        words
    };
    // A level, in the language of the server: a word in capital letters.
    let level = |word: &str| word.len() > 3 && word.chars().all(|c| c.is_uppercase() || c == ' ');
    let words = match words.split_once(": ") {
        Some((first, rest)) if product == Product::Postgresql && level(first) => rest.trim_start(),
        _ => words,
    };
    words.trim_end_matches([';', ' ', '\n'])
}

/// Whether a message of `PostgreSQL` quotes a value. Others quote names only.
fn has_value_of_postgresql(sqlstate: &str) -> bool {
    let quotes_an_encoding = ["22021", "22P05"].contains(&sqlstate);
    sqlstate.starts_with("22") && !quotes_an_encoding
}

fn without_values_of_mariadb(native: i32, words: &str) -> String {
    match native {
        // The last quoted word is the key's name.
        1062 | 1586 => {
            let before_key = words.rmatch_indices('\'').nth(2).map(|(at, _)| at);
            let value = words.find('\'').zip(before_key).filter(|(from, to)| from < to);
            value.map_or_else(|| without_quoted(words, '\''), |(from, to)| between(words, from, to))
        }
        // Names stand in backticks, or in quotes alone.
        1292 | 1366 | 1411 | 1525 | 1690 => without_quoted(words, '\''),
        // What stands near the mistake is our statement; its values are bound, and not in it.
        _ => words.to_owned(),
    }
}

fn without_values_of_sql_server(native: i32, words: &str) -> String {
    match native {
        2601 | 2627 => match (words.find('('), words.rfind(')')) {
            (Some(from), Some(to)) if from < to => between(words, from, to),
            _ => words.to_owned(),
        },
        // The names come first, and the value last.
        2628 => match words.rfind(": '") {
            Some(at) => format!("{}: …", words.get(..at).unwrap_or_default()),
            None => words.to_owned(),
        },
        220 | 244 | 245 | 248 => without_quoted(words, '\''),
        _ => words.to_owned(),
    }
}

/// Everything between the first and the last of these quotes is left out: a value may have quotes itself.
fn without_quoted(words: &str, quote: char) -> String {
    match (words.find(quote), words.rfind(quote)) {
        (Some(from), Some(to)) if from < to => between(words, from, to),
        _ => words.to_owned(),
    }
}

/// The words with `…` between two places, which are one byte each.
fn between(words: &str, from: usize, to: usize) -> String {
    let before = words.get(..=from).unwrap_or_default();
    let after = words.get(to..).unwrap_or_default();
    format!("{before}…{after}")
}

#[cfg(test)]
mod tests;
