//! What a server answers: tokens, one after another.

/// The answer to a statement.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// Done, and no number of rows is said.
    Done,
    /// So many rows were changed.
    Changed(u64),
    /// Rows of texts.
    Rows(Vec<Vec<Option<String>>>),
    /// An error.
    Error {
        number: i32,
        severity: u8,
        words: String,
        /// Whether it ends the transaction, as a deadlock does, and most errors under `XACT_ABORT`.
        ends_transaction: bool,
    },
    /// Words that are no error.
    Words(String),
    /// The statement ends the transaction itself, without an error.
    Ends,
    /// One result after another.
    Several(Vec<Self>),
    /// The line is cut.
    Cut,
}

impl Answer {
    /// An error of a statement, which ends the transaction under `XACT_ABORT`.
    pub(crate) fn error(number: i32, words: &str) -> Self {
        Self::Error { number, severity: 16, words: words.to_owned(), ends_transaction: true }
    }

    /// One row with one value.
    pub(crate) fn value(text: &str) -> Self {
        Self::Rows(vec![vec![Some(text.to_owned())]])
    }

    pub(super) fn ends_transaction(&self) -> bool {
        match self {
            Self::Error { ends_transaction, .. } => *ends_transaction,
            Self::Ends => true,
            Self::Several(answers) => answers.iter().any(Self::ends_transaction),
            Self::Done | Self::Changed(_) | Self::Rows(_) | Self::Words(_) | Self::Cut => false,
        }
    }

    /// The tokens, with the end of the transaction `ended`. A procedure ends with its own token.
    pub(super) fn tokens(&self, ended: Option<u64>, in_procedure: bool) -> Vec<u8> {
        let mut results = Vec::new();
        self.results(&mut results);
        let has_failed = results.iter().any(|result| matches!(result, Self::Error { .. }));
        let mut tokens = Vec::new();
        let count = results.len();
        for (n, result) in (1..).zip(results) {
            let is_last = n == count && !in_procedure;
            tokens.extend(result.one(in_procedure, is_last));
        }
        if let Some(number) = ended {
            // The tokens of an end come before the last one of the answer.
            let at = if in_procedure { tokens.len() } else { tokens.len() - DONE_SIZE };
            tokens.splice(at..at, Transaction::RolledBack.tokens(number));
        }
        if in_procedure {
            // What the procedure returns, and its end.
            tokens.push(0x79);
            tokens.extend(i32::from(has_failed).to_le_bytes());
            let status = if has_failed { ERROR } else { 0 };
            tokens.extend(done_token(DONE_PROCEDURE, status, None));
        }
        tokens
    }

    fn results<'a>(&'a self, into: &mut Vec<&'a Self>) {
        match self {
            Self::Several(answers) => answers.iter().for_each(|answer| answer.results(into)),
            one => into.push(one),
        }
    }

    fn one(&self, in_procedure: bool, is_last: bool) -> Vec<u8> {
        let token = if in_procedure { DONE_IN_PROCEDURE } else { DONE };
        let more = if is_last { 0 } else { MORE };
        match self {
            Self::Done | Self::Ends | Self::Cut | Self::Several(_) => done_token(token, more, None),
            Self::Changed(rows) => done_token(token, more, Some(*rows)),
            Self::Words(words) => {
                [message(INFORMATION, 0, 0, words), done_token(token, more, None)].concat()
            }
            Self::Rows(rows) => {
                let mut tokens = columns(rows.first().map_or(1, Vec::len));
                for row in rows {
                    tokens.push(0xD1);
                    for value in row {
                        text_in_parts(value.as_deref(), &mut tokens);
                    }
                }
                let count = u64::try_from(rows.len()).unwrap();
                tokens.extend(done_token(token, more, Some(count)));
                tokens
            }
            Self::Error { number, severity, words, .. } => {
                let mut tokens = error(*number, *severity, words);
                tokens.extend(done_token(token, more | ERROR, None));
                tokens
            }
        }
    }
}

const FAILURE: u8 = 0xAA;
const INFORMATION: u8 = 0xAB;
const DONE: u8 = 0xFD;
const DONE_PROCEDURE: u8 = 0xFE;
const DONE_IN_PROCEDURE: u8 = 0xFF;
const DONE_SIZE: usize = 13;
/// More results follow.
const MORE: u16 = 1;
const ERROR: u16 = 2;
const COUNT: u16 = 0x10;
const STOPPED: u16 = 0x20;

fn done_token(token: u8, status: u16, rows: Option<u64>) -> Vec<u8> {
    let status = if rows.is_some() { status | COUNT } else { status };
    let mut bytes = vec![token];
    bytes.extend(status.to_le_bytes());
    // An INSERT, as a driver takes the number of rows from some commands alone.
    bytes.extend(0xC3_u16.to_le_bytes());
    bytes.extend(rows.unwrap_or(0).to_le_bytes());
    bytes
}

/// The end of an answer without an error.
pub(super) fn done(rows: Option<u64>) -> Vec<u8> {
    done_token(DONE, 0, rows)
}

/// The end of an answer with an error.
pub(super) fn failed() -> Vec<u8> {
    done_token(DONE, ERROR, None)
}

/// The answer to the wish to stop.
pub(super) fn attention() -> Vec<u8> {
    done_token(DONE, STOPPED, None)
}

/// The answer before the log-on: this server does not encrypt.
pub(super) fn not_encrypted() -> Vec<u8> {
    // Two options with the places of their values, and the end of the list.
    vec![0, 0, 11, 0, 6, 1, 0, 17, 0, 1, 0xFF, 16, 0, 0, 0, 0, 0, 2]
}

/// An error.
pub(super) fn error(number: i32, severity: u8, words: &str) -> Vec<u8> {
    message(FAILURE, number, severity, words)
}

fn message(token: u8, number: i32, severity: u8, words: &str) -> Vec<u8> {
    let mut body = number.to_le_bytes().to_vec();
    body.extend([1, severity]);
    let units: Vec<u16> = words.encode_utf16().collect();
    body.extend(u16::try_from(units.len()).unwrap().to_le_bytes());
    body.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
    // No name of a server, none of a procedure, line 1.
    body.extend([0, 0, 1, 0, 0, 0]);
    sized(token, &body)
}

fn sized(token: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![token];
    bytes.extend(u16::try_from(body.len()).unwrap().to_le_bytes());
    bytes.extend(body);
    bytes
}

/// The answer to a log-on.
pub(super) fn logged_in() -> Vec<u8> {
    let mut body = vec![1, 0x74, 0, 0, 4];
    short_text("Stand-in", &mut body);
    body.extend([16, 0, 0, 0]);
    [sized(0xAD, &body), done(None)].concat()
}

/// What happened to a transaction.
#[derive(Clone, Copy)]
pub(super) enum Transaction {
    Begun,
    Committed,
    RolledBack,
}

impl Transaction {
    pub(super) fn tokens(self, number: u64) -> Vec<u8> {
        let mut named = vec![8];
        named.extend(number.to_le_bytes());
        let body = match self {
            Self::Begun => [&[8], named.as_slice(), &[0]].concat(),
            Self::Committed => [&[9, 0], named.as_slice()].concat(),
            Self::RolledBack => [&[10, 0], named.as_slice()].concat(),
        };
        sized(0xE3, &body)
    }
}

fn short_text(text: &str, into: &mut Vec<u8>) {
    let units: Vec<u16> = text.encode_utf16().collect();
    into.push(u8::try_from(units.len()).unwrap());
    into.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
}

/// Columns of the type nvarchar(max).
fn columns(count: usize) -> Vec<u8> {
    let mut tokens = vec![0x81];
    tokens.extend(u16::try_from(count).unwrap().to_le_bytes());
    for n in 0..count {
        // No type of a user, NULL is allowed, nvarchar without a limit, the collation.
        tokens.extend([0, 0, 0, 0, 1, 0, 0xE7, 0xFF, 0xFF, 9, 4, 0xD0, 0, 0x34]);
        short_text(&format!("c{n}"), &mut tokens);
    }
    tokens
}

/// A text in one part.
fn text_in_parts(text: Option<&str>, into: &mut Vec<u8>) {
    let Some(text) = text else {
        into.extend(u64::MAX.to_le_bytes());
        return;
    };
    let bytes: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    into.extend(u64::try_from(bytes.len()).unwrap().to_le_bytes());
    if !bytes.is_empty() {
        into.extend(u32::try_from(bytes.len()).unwrap().to_le_bytes());
        into.extend(&bytes);
    }
    into.extend(0_u32.to_le_bytes());
}
