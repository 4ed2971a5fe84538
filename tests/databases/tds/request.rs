//! What a client asks for.

use super::packet;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// The log-on. `is_odbc`: the server is to keep to the settings of ANSI, as indexes of some kinds need them.
    LogIn { user: String, database: String, program: String, is_odbc: bool },
    /// A statement: as text, or in a call of a procedure that runs it.
    Statement { sql: String, types: String, values: Vec<Value>, is_call: bool },
    /// A transaction begins.
    Begin,
    /// A transaction is committed, and perhaps the next one begins.
    Commit { begins: bool },
    /// A transaction is rolled back, and perhaps the next one begins.
    RollBack { begins: bool },
    /// The statement that runs is to end.
    Attention,
}

/// A value of a statement, as it is on the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// A text in UTF-16.
    Wide(String),
    /// A text in the letters of a code page.
    Narrow(Vec<u8>),
    /// A whole number.
    Number(i64),
    Null,
}

impl Request {
    /// Whether the statement runs in a procedure, whose results end with other tokens.
    pub(super) fn runs_procedure(&self) -> bool {
        match self {
            Self::Statement { sql, is_call, .. } => *is_call || sql.starts_with("EXEC"),
            _ => false,
        }
    }

    pub(super) fn into_statement(self) -> Option<(String, Vec<Value>)> {
        match self {
            Self::Statement { sql, values, .. } => Some((sql, values)),
            _ => None,
        }
    }

    pub(super) fn short(&self) -> Option<String> {
        Some(match self {
            Self::LogIn { .. } => return None,
            Self::Statement { sql, .. } => sql.split(' ').take(3).collect::<Vec<_>>().join(" "),
            Self::Begin => "begin".to_owned(),
            Self::Commit { begins: true } => "commit, begin".to_owned(),
            Self::Commit { begins: false } => "commit".to_owned(),
            Self::RollBack { begins: true } => "roll back, begin".to_owned(),
            Self::RollBack { begins: false } => "roll back".to_owned(),
            Self::Attention => "attention".to_owned(),
        })
    }
}

/// Reads a message.
pub(super) fn read(kind: u8, bytes: &[u8]) -> Request {
    let mut reader = Reader(bytes);
    match kind {
        packet::LOGIN => log_in(bytes),
        packet::BATCH => {
            reader.headers();
            let sql = wide(reader.0);
            Request::Statement { sql, types: String::new(), values: Vec::new(), is_call: false }
        }
        packet::CALL => call(&mut reader),
        packet::TRANSACTION => transaction(&mut reader),
        packet::ATTENTION => Request::Attention,
        other => panic!("a message of the kind {other:#x}: {bytes:x?}"),
    }
}

fn log_in(bytes: &[u8]) -> Request {
    // Places and lengths of texts stand at fixed places.
    let text = |at: usize| {
        let mut reader = Reader(&bytes[at..]);
        let start = usize::from(reader.u16());
        let letters = usize::from(reader.u16());
        wide(&bytes[start..start + letters * 2])
    };
    let is_odbc = bytes[25] & 2 != 0;
    Request::LogIn { user: text(40), program: text(48), database: text(68), is_odbc }
}

fn transaction(reader: &mut Reader<'_>) -> Request {
    reader.headers();
    let kind = reader.u16();
    if kind == 5 {
        return Request::Begin;
    }
    let name = usize::from(reader.u8());
    reader.take(name);
    let begins = reader.u8() & 1 != 0;
    match kind {
        7 => Request::Commit { begins },
        8 => Request::RollBack { begins },
        other => panic!("a request of transactions of the kind {other}"),
    }
}

fn call(reader: &mut Reader<'_>) -> Request {
    reader.headers();
    let letters = reader.u16();
    let procedure = match letters {
        0xFFFF => reader.u16(),
        letters => panic!("a call of {}", wide(reader.take(usize::from(letters) * 2))),
    };
    let _options = reader.u16();
    let mut values = Vec::new();
    while !reader.0.is_empty() && ![0x80, 0xFF].contains(&reader.0[0]) {
        values.push(reader.parameter());
    }
    let mut values = values.into_iter();
    let mut text = || match values.next() {
        Some(Value::Wide(text)) => text,
        Some(Value::Null) => String::new(),
        other => panic!("a text of procedure {procedure}: {other:?}"),
    };
    assert_eq!(procedure, 10, "only sp_executesql is used");
    let sql = text();
    let types = text();
    Request::Statement { sql, types, values: values.collect(), is_call: true }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, size: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(size);
        self.0 = rest;
        taken
    }

    fn u8(&mut self) -> u8 {
        self.take(1)[0]
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.take(2).try_into().unwrap())
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take(4).try_into().unwrap())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take(8).try_into().unwrap())
    }

    /// What comes first in messages: their size, and what is in it.
    fn headers(&mut self) {
        let size = self.u32();
        self.take(usize::try_from(size).unwrap() - 4);
    }

    fn parameter(&mut self) -> Value {
        let letters = self.u8();
        self.take(usize::from(letters) * 2);
        let _status = self.u8();
        match self.u8() {
            // nvarchar, varchar.
            0xE7 => self.text().map_or(Value::Null, |bytes| Value::Wide(wide(&bytes))),
            0xA7 => self.text().map_or(Value::Null, Value::Narrow),
            // ntext, text.
            0x63 => self.long_text().map_or(Value::Null, |bytes| Value::Wide(wide(&bytes))),
            0x23 => self.long_text().map_or(Value::Null, Value::Narrow),
            0x26 => self.number(),
            other => panic!("a value of the type {other:#x}"),
        }
    }

    fn number(&mut self) -> Value {
        let _most = self.u8();
        let size = usize::from(self.u8());
        let mut bytes = [0; 8];
        bytes[..size].copy_from_slice(self.take(size));
        if size == 0 { Value::Null } else { Value::Number(i64::from_le_bytes(bytes)) }
    }

    fn text(&mut self) -> Option<Vec<u8>> {
        let most = self.u16();
        let _collation = self.take(5);
        if most == 0xFFFF {
            return self.parts();
        }
        match self.u16() {
            0xFFFF => None,
            size => Some(self.take(usize::from(size)).to_vec()),
        }
    }

    fn long_text(&mut self) -> Option<Vec<u8>> {
        let _most = self.u32();
        let _collation = self.take(5);
        match self.u32() {
            u32::MAX => None,
            size => Some(self.take(usize::try_from(size).unwrap()).to_vec()),
        }
    }

    /// A value in parts, each with its size.
    fn parts(&mut self) -> Option<Vec<u8>> {
        if self.u64() == u64::MAX {
            return None;
        }
        let mut bytes = Vec::new();
        loop {
            let size = self.u32();
            if size == 0 {
                return Some(bytes);
            }
            bytes.extend(self.take(usize::try_from(size).unwrap()));
        }
    }
}

fn wide(bytes: &[u8]) -> String {
    let units: Vec<u16> =
        bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
    String::from_utf16(&units).unwrap()
}
