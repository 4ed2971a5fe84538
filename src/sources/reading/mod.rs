//! Reads the rows of a file: JSON, lines of JSON, CSV and XML.
//!
//! All or nothing: a file with any error gives no rows, but a reason with its position. Not here: whether a row can
//! be an event ([`super::draft`]).

mod csv;
mod json;
mod xml;

use std::fmt;

use data_encoding::HEXLOWER;
use ring::digest::{SHA256, digest};

use crate::sources::draft::Draft;
use crate::sources::folder_settings::{
    FolderSettings, Format, MAX_FILE_ROWS, MAX_NAME_CHARS, MAX_ROWS_BYTES,
};

/// A row of a file, and its position.
#[derive(Clone, Debug, PartialEq)]
pub struct FileRow {
    /// The row.
    pub draft: Draft,
    /// Its position.
    pub position: Position,
}

/// A position in a file, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// This line.
    Line(usize),
    /// This row.
    Row(usize),
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(n) => write!(f, "line {n}"),
            Self::Row(n) => write!(f, "row {n}"),
        }
    }
}

/// Reads the rows of a file; fails on the first error in it, with its position. A file may have no rows.
pub fn rows(settings: &FolderSettings, name: &str, bytes: &[u8]) -> Result<Vec<FileRow>, String> {
    let text = text(bytes)?;
    if text.is_empty() {
        return Err("it is empty: was it still being written? Check the setting writer".to_owned());
    }
    // Programs of DOS end a file with one of these marks, or with several.
    let unmarked = text.trim_end_matches('\u{1a}');
    match settings.format.of(name) {
        Some(Format::Json) => json::rows(settings, unmarked),
        Some(Format::Ndjson) => json::line_rows(settings, unmarked),
        Some(Format::Csv) => csv::rows(settings, unmarked),
        Some(Format::Xml) => xml::rows(settings, text),
        Some(Format::Auto) | None => {
            let why = "the ending of its name is none of .json, .ndjson, .csv and .xml: rename it, or set the \
                       format of the source";
            Err(why.to_owned())
        }
    }
}

/// The rows of a file while it is read, limited so that no file takes all the memory.
#[derive(Debug, Default)]
struct Rows {
    rows: Vec<FileRow>,
    bytes: usize,
}

impl Rows {
    fn push(&mut self, row: FileRow) -> Result<(), String> {
        if self.rows.len() >= MAX_FILE_ROWS {
            return Err(format!(
                "it has more than {MAX_FILE_ROWS} rows; at most {MAX_FILE_ROWS} are taken at once, because \
                 one file is one transaction: split it"
            ));
        }
        self.bytes = self.bytes.saturating_add(row.draft.bytes());
        if self.bytes > MAX_ROWS_BYTES {
            return Err(format!(
                "{}: the rows up to here have more than {MAX_ROWS_BYTES} bytes as events, with the names of all \
                 columns in each; that is the limit for one file: split it",
                row.position
            ));
        }
        self.rows.push(row);
        Ok(())
    }
}

/// Why the name of a column or an element is refused, if it is too long.
fn too_long(what: &str, name: &str) -> Option<String> {
    let is_long = name.chars().nth(MAX_NAME_CHARS).is_some();
    let begin: String = name.chars().take(40).collect();
    is_long.then(|| {
        format!("the name of {what} that begins with {begin:?} has more than {MAX_NAME_CHARS} characters")
    })
}

/// Identifies the rows of a file together with their numbers: the file's SHA-256 in hex. For XML it includes the path
/// of rows in the settings, because with another path row 1 is another element.
pub fn fingerprint(settings: &FolderSettings, name: &str, sha256: &[u8]) -> String {
    match (settings.format.of(name), &settings.row) {
        (Some(Format::Xml), Some(row)) => {
            let of_rows = [sha256, row.as_bytes()].concat();
            HEXLOWER.encode(digest(&SHA256, &of_rows).as_ref())
        }
        _ => HEXLOWER.encode(sha256),
    }
}

/// The text of a file, without a byte order mark.
fn text(bytes: &[u8]) -> Result<&str, String> {
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err("it is UTF-16; save it as UTF-8".to_owned());
    }
    let bytes = bytes.strip_prefix(&[0xef, 0xbb, 0xbf]).unwrap_or(bytes);
    std::str::from_utf8(bytes).map_err(|error| {
        let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let line = line_ends(before).saturating_add(1);
        let odd = bytes.get(error.valid_up_to()).copied().unwrap_or_default();
        format!(
            "line {line}: the byte 0x{odd:02X} is not UTF-8 (Latin-1, perhaps); save it as UTF-8"
        )
    })
}

fn line_ends(bytes: &[u8]) -> usize {
    bytes.split(|byte| *byte == b'\n').count().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::base::clock::Clock;
    use crate::model::event_field::EventField;
    use crate::sources::Settings;
    use crate::sources::cell::Cell;

    fn settings(more: Value) -> FolderSettings {
        let mut given = json!({ "path": "/drop" });
        if let (Value::Object(given), Value::Object(more)) = (&mut given, more) {
            given.extend(more);
        }
        match Settings::read("drop", given).unwrap() {
            Settings::Drop(folder) => folder,
            Settings::Sqlite(_) | Settings::Database(_) | Settings::Http(_) => panic!("no folder"),
        }
    }

    fn field(row: &FileRow, field: EventField) -> String {
        match row.draft.get(field) {
            Some(Cell::Text(text)) => text.clone(),
            other => format!("{other:?}"),
        }
    }

    #[track_caller]
    fn refused(more: Value, name: &str, bytes: &[u8], why: &str) {
        let error = rows(&settings(more), name, bytes).unwrap_err();
        assert!(error.contains(why), "{error}");
    }

    #[test]
    fn json_is_one_event_or_many_byte_for_byte() {
        let none = settings(json!({}));
        let one = rows(&none, "a.json", br#"{"event_type":"a","payload":{ "x" : 1.10 }}"#).unwrap();
        assert_eq!(field(&one[0], EventField::Payload), r#"{ "x" : 1.10 }"#);
        let text =
            "\u{feff}[{\"event_type\":\"a\",\"payload\":1},\n{\"event_type\":\"b\",\"payload\":2}]";
        assert_eq!(rows(&none, "a.json", text.as_bytes()).unwrap().len(), 2);
        // With mapped fields the whole object is the payload.
        let mapped = settings(json!({ "fields": { "event_type": "kind", "aggregate_id": "no" } }));
        let one = rows(&mapped, "a.json", br#"{"kind":"a","no":7,"more":[]}"#).unwrap();
        assert_eq!(field(&one[0], EventField::Payload), r#"{"kind":"a","no":7,"more":[]}"#);
        assert_eq!(field(&one[0], EventField::AggregateId), "7");
        // Members that fill no field are left to the receiver.
        let one = rows(&mapped, "a.json", br#"{"kind":"a","more":1,"more":2}"#).unwrap();
        assert_eq!(field(&one[0], EventField::Payload), r#"{"kind":"a","more":1,"more":2}"#);
        let lines =
            b"{\"event_type\":\"a\",\"payload\":1}\r\n\n{\"event_type\":\"b\",\"payload\":2}";
        let lines = rows(&none, "a.ndjson", lines).unwrap();
        assert_eq!(lines[1].position, Position::Line(3));
    }

    #[test]
    fn numbers_in_json_keep_their_text() {
        let mapped =
            settings(json!({ "fields": { "event_type": "kind", "idempotency_key": "no" } }));
        let key = |number: &str| {
            let text = format!(r#"{{"kind":"a","no":{number},"aggregate_id":{number}}}"#);
            let row = rows(&mapped, "a.json", text.as_bytes()).unwrap().remove(0);
            assert_eq!(field(&row, EventField::AggregateId), number);
            field(&row, EventField::IdempotencyKey)
        };
        for number in
            ["20261121123456000001", "20261121123456000002", "-0", "1e3", "1000", "1.10", "0.1E+2"]
        {
            assert_eq!(key(number), number);
        }
    }

    #[test]
    fn wrong_json_is_refused_with_its_position() {
        refused(json!({}), "a.json", b"{\n\"a\":,}", "line 2");
        refused(json!({}), "a.json", b"[1]", "row 1: it is not an object");
        let twice = br#"{"event_type":"a","payload":1,"payload":2}"#;
        refused(json!({}), "a.json", twice, "row 1: the name \"payload\" occurs twice");
        let mapped = json!({ "fields": { "event_type": "kind" } });
        refused(mapped, "a.json", br#"{"kind":"a","kind":"b"}"#, "the name \"kind\" occurs twice");
        let typo = br#"{"event_typ":"a","payload":1}"#;
        refused(json!({}), "a.json", typo, "row 1: there is no field \"event_typ\"");
        refused(json!({}), "a.ndjson", b"{\"event_type\":\"a\",\"payload\":1}\n{", "line 2");
        refused(json!({}), "a.ndjson", b"{}{}", "line 1");
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        let deep = format!(r#"{{"event_type":"a","payload":{deep}}}"#);
        refused(json!({}), "a.json", deep.as_bytes(), "nested deeper than 128");
        refused(json!({}), "a.txt", b"{}", "ending");
        let many = format!("[{}{{}}]", "{},".repeat(MAX_FILE_ROWS));
        refused(json!({}), "a.json", many.as_bytes(), "at most 10000");
        let wide = format!(r#"{{"event_type":"a"{}}}"#, r#","":0"#.repeat(50_000));
        refused(json!({}), "a.json", wide.as_bytes(), "more than 50000 members");
        let headers = format!(
            r#"{{"event_type":"a","payload":1,"headers":{{"a":"{}"}}}}"#,
            "a".repeat(16_384)
        );
        refused(json!({}), "a.json", headers.as_bytes(), "headers has more than 16384 bytes");
    }

    #[test]
    fn csv_has_a_line_of_names_and_any_quoting() {
        let shop = settings(json!({
            "delimiter": ";", "fields": { "event_type": "Kind", "idempotency_key": "No" },
        }));
        let text = "\u{feff}No;Kind;Text\r\n1;a;\"x;\"\"y\"\"\nz\"\r\n2;b;\r\n";
        let found = rows(&shop, "a.csv", text.as_bytes()).unwrap();
        assert_eq!(found.len(), 2);
        let payload = field(&found[0], EventField::Payload);
        assert_eq!(payload, r#"{"No":"1","Kind":"a","Text":"x;\"y\"\nz"}"#);
        assert_eq!(
            (field(&found[1], EventField::IdempotencyKey), found[1].position),
            ("2".into(), Position::Line(4))
        );
    }

    #[test]
    fn wrong_csv_is_refused_with_its_line() {
        let none = || json!({ "defaults": { "event_type": "a" } });
        refused(
            none(),
            "a.csv",
            b"a,b\n1,2\n1\n",
            "line 3: it has 1 values, the line of names has 2",
        );
        refused(
            none(),
            "a.csv",
            b"a,b\n1,\"2\n3,4\n",
            "line 2: a quote is opened and never closed",
        );
        refused(none(), "a.csv", b"a,b\n1,\"2\"x\n", "line 2: after a closing quote");
        refused(none(), "a.csv", b"a,b\n1,2\"x\n", "line 2: a quote in the middle");
        refused(none(), "a.csv", b"a,a\n1,2\n", "line 1: there are two columns named \"a\"");
        refused(none(), "a.csv", b"a,,c\n1,,2\n", "line 1: column 2 has no name");
        let surplus = "line 2: it has 2 values, the line of names has 1";
        refused(none(), "a.csv", b"a,\n1,2\n", surplus);
        refused(none(), "a.csv", b"a\n1,2\n", surplus);
        refused(
            none(),
            "a.csv",
            b"sep=;\na,b\n1,2\n",
            "line 2: there is one column, with ',' in its name",
        );
        refused(none(), "a.csv", b"sep=;x\na\n1\n", "delimiter");
        refused(none(), "a.csv", b"a;b\n1;2\n", "delimiter");
        refused(none(), "a.csv", b"a,b\nx,Gr\xf6\xdfe\n", "line 2: the byte 0xF6 is not UTF-8");
        refused(none(), "a.csv", b"\xff\xfea\0", "UTF-16");
        let long = format!("{}\n1\n", "n".repeat(201));
        refused(none(), "a.csv", long.as_bytes(), "has more than 200 characters");
        let wide = format!("a{}\n", ",a".repeat(1_000));
        refused(none(), "a.csv", wide.as_bytes(), "line 1: it has more than 1000 columns");
        let names: Vec<String> = (0..1_000).map(|n| format!("{n:0>200}")).collect();
        let large =
            format!("{}\n{}", names.join(","), format!("1{}\n", ",".repeat(999)).repeat(170));
        refused(none(), "a.csv", large.as_bytes(), "bytes as events");
        let many = format!("a\n{}", "1\n".repeat(MAX_FILE_ROWS + 1));
        refused(none(), "a.csv", many.as_bytes(), "at most 10000");
    }

    #[test]
    fn what_programs_add_to_csv_without_a_value_is_no_row_and_no_column() {
        let settings = settings(json!({ "defaults": { "event_type": "a" } }));
        let payloads = |text: &str| -> Vec<String> {
            let rows = rows(&settings, "a.csv", text.as_bytes()).unwrap();
            rows.iter().map(|row| field(row, EventField::Payload)).collect()
        };
        let one = [r#"{"a":"1","b":"2"}"#];
        for text in [
            "a,b\r\n1,2\r\n,\r\n,\r\n",
            "a,b\n\n,,,\n1,2\n",
            "sep=;\r\na;b\r\n1;2",
            "SEP=|\ra|b\r1|2\r",
            "sep=\t\na\tb\n1\t2",
            "sep=;;\na;b\n1;2",
            "\u{feff}sep=,\na,b\n1,2",
            "a,b,\n1,2,\n",
            "a,b,,\n1,2\n",
            "a,b\n1,2,\n",
            "\"a\",\"b\",\"\"\n\"1\",\"2\",\"\"\n",
            "a,b\n1,2\n\u{1a}",
            "a,b\n1,2\u{1a}\u{1a}",
        ] {
            assert_eq!(payloads(text), one, "{text:?}");
        }
        // The line is counted, and a quoted empty value is one.
        let found = rows(&settings, "a.csv", b"sep=;\na;b\n;\n1;\"\"\n").unwrap();
        assert_eq!(found[0].position, Position::Line(4));
        assert_eq!(payloads("a\n\"\"\n\n1\n"), [r#"{"a":""}"#, r#"{"a":"1"}"#]);
        // A name that only begins like the line of Excel.
        assert_eq!(payloads("sep\n=\n"), [r#"{"sep":"="}"#]);
    }

    #[test]
    fn a_file_without_rows_is_no_mistake() {
        for (name, text) in [
            ("a.json", "[]"),
            ("a.ndjson", "\n"),
            ("a.csv", "No;Kind\n"),
            ("a.csv", "No;Kind\n;\n"),
            ("a.csv", "\n"),
            ("a.xml", "<Orders/>"),
            ("a.xml", "<Orders>\n</Orders>"),
        ] {
            let settings = settings(
                json!({ "row": "Orders/Order", "delimiter": ";", "fields": { "event_type": "Kind" } }),
            );
            assert_eq!(rows(&settings, name, text.as_bytes()), Ok(Vec::new()), "{text:?}");
        }
        refused(orders(), "a.xml", b"<Orders><order/></Orders>", "no element has the path");
        for name in ["a.json", "a.ndjson", "a.csv", "a.xml"] {
            refused(orders(), name, b"", "it is empty");
        }
    }

    const ORDERS: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<!-- daily --><Orders xmlns="urn:x">
 <Order id="7"><Header><No>RE&#45;1</No></Header><Line n="1">a &amp; b</Line><Line n="2"><![CDATA[<c>]]></Line></Order>
 <Order id="8"><Header><No>RE-2</No></Header><Empty/></Order>
</Orders>"#;

    fn orders() -> Value {
        json!({
            "row": "Orders/Order",
            "fields": { "idempotency_key": "Header/No", "aggregate_id": "@id" },
            "defaults": { "event_type": "order.placed" },
        })
    }

    #[test]
    fn xml_is_read_by_paths_and_a_repeated_element_is_a_row() {
        let found = rows(&settings(orders()), "a.xml", ORDERS.as_bytes()).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(field(&found[0], EventField::IdempotencyKey), "RE-1");
        assert_eq!(field(&found[1], EventField::AggregateId), "8");
        assert_eq!(
            field(&found[0], EventField::Payload),
            r##"{"@id":"7","Header":{"No":"RE-1"},"Line":[{"@n":"1","#text":"a & b"},{"@n":"2","#text":"<c>"}]}"##
        );
        assert_eq!(found[1].position, Position::Line(4));
    }

    #[test]
    fn hostile_and_wrong_xml_is_refused() {
        let bomb = "<!DOCTYPE x [<!ENTITY a \"aaaa\"><!ENTITY b \"&a;&a;\">]>\n<Orders><Order>&b;</Order></Orders>";
        refused(orders(), "a.xml", bomb.as_bytes(), "DOCTYPE");
        let file = "<!DOCTYPE x SYSTEM \"file:///etc/passwd\"><Orders/>";
        refused(orders(), "a.xml", file.as_bytes(), "DOCTYPE");
        refused(
            orders(),
            "a.xml",
            b"<orders><order/></orders>",
            "no element has the path Orders/Order",
        );
        refused(orders(), "a.xml", b"<Orders><Order/>", "was it still being written?");
        let entity = "<Orders>\n<Order>&x;</Order></Orders>";
        refused(orders(), "a.xml", entity.as_bytes(), "line 2: it is not well-formed XML");
        let many = format!("<Orders><Order>{}</Order></Orders>", "<a/>".repeat(50_000));
        refused(orders(), "a.xml", many.as_bytes(), "more than 50000 elements and attributes");
        let wide: Vec<String> = (0..1_001).map(|n| format!("a{n}=''")).collect();
        let wide = format!("<Orders {}/>", wide.join(" "));
        refused(
            orders(),
            "a.xml",
            wide.as_bytes(),
            "line 1: an element has more than 1000 attributes",
        );
        let long = format!("<Orders><Order><{0}></{0}></Order></Orders>", "n".repeat(201));
        refused(orders(), "a.xml", long.as_bytes(), "has more than 200 characters");
        let deep = format!("<Orders>{}", "<a>".repeat(10_000));
        refused(orders(), "a.xml", deep.as_bytes(), "nested");
        refused(orders(), "a.xml", b"<Orders>\n<Order></Orders>", "line 2");
        refused(orders(), "a.xml", b"<Orders><Order>", "ends before");
        refused(orders(), "a.xml", b"<Orders/><Orders/>", "not well-formed");
        refused(orders(), "a.xml", b"<Orders a='1' a='2'/>", "line 1");
        refused(orders(), "a.xml", b"<Other/>", "no row");
        refused(json!({}), "a.xml", b"<Orders/>", "row");
        let spaces: Vec<String> = (0..200).map(|n| format!("xmlns:a{n}='urn:{n}'")).collect();
        let spaces = format!("<Orders {}/>", spaces.join(" "));
        refused(orders(), "a.xml", spaces.as_bytes(), "more than 100 namespaces");
        let long = format!("<Orders xmlns='{}'/>", "n".repeat(10_000));
        refused(orders(), "a.xml", long.as_bytes(), "8192 bytes");
    }

    #[test]
    fn xml_that_is_not_well_formed_is_refused() {
        for text in [
            "<Orders><Order a=1/></Orders>",
            "<Orders><Order a/></Orders>",
            "<Orders><Order a='1'b='2'/></Orders>",
            "<Orders><Order a='<'/></Orders>",
            "<Orders><Order a='1' a='2'/></Orders>",
            "<Orders><Order>&</Order></Orders>",
            "<Orders><Order>&#0;</Order></Orders>",
            "<Orders><Order>&#xFFFF;</Order></Orders>",
            "<Orders><Order>&amp</Order></Orders>",
            "<Orders><Order>]]></Order></Orders>",
            "<Orders><Order>\u{8}</Order></Orders>",
            "<Orders><!-- \u{8} --><Order/></Orders>",
            "<Orders><Order>\u{ffff}</Order></Orders>",
            "<Orders><!-- a -- b --><Order/></Orders>",
            "<Orders><!-- a ---><Order/></Orders>",
            "<Orders><?xml version='1.0'?><Order/></Orders>",
            "<Orders><?XML x?><Order/></Orders>",
            "<Orders><?a:b x?><Order/></Orders>",
            " <?xml version='1.0'?><Orders><Order/></Orders>",
            "<?xml version='2.0'?><Orders><Order/></Orders>",
            "<?xml encoding='UTF-8'?><Orders><Order/></Orders>",
            "<?xml version='1.0' standalone='maybe'?><Orders><Order/></Orders>",
            "<Orders><1Order/></Orders>",
            "<Orders>< Order/></Orders>",
            "<Orders><Order / ></Orders>",
            "<Orders><Order></ Order></Orders>",
            "<Orders><Order></Orders></Order>",
            "<Orders><Order></order></Orders>",
            "<Orders><Order/></Orders>text",
            "text<Orders><Order/></Orders>",
            "<Orders><Order/></Orders><![CDATA[ ]]>",
            "<Orders><Order/></Orders></Orders>",
            "<Orders><a:Order/></Orders>",
            "<Orders><Order a:b='1'/></Orders>",
            "<Orders xmlns:a=''><Order/></Orders>",
            "<Orders xmlns:xml='urn:a'><Order/></Orders>",
            "<Orders xmlns:a='http://www.w3.org/XML/1998/namespace'><Order/></Orders>",
            "<Orders xmlns:a='urn:a' xmlns:b='urn:a'><Order a:c='1' b:c='2'/></Orders>",
            "<Orders><a:b:c/><Order/></Orders>",
            "<?xml version='1.1'?><Orders><Order>\u{82}</Order></Orders>",
        ] {
            let found = rows(&settings(orders_without_keys()), "a.xml", text.as_bytes());
            let why = found.unwrap_err();
            assert!(why.contains("XML") && why.starts_with("line "), "{text:?}: {why}");
        }
        let fine = "<?xml version='1.0' standalone='yes' ?><?a b?><!-- c -->\r\n<Orders ><Order a = \"'\" >]] &#x9;&#13;&gt;</Order\n></Orders >\n<!-- d -->";
        let found = rows(&settings(orders_without_keys()), "a.xml", fine.as_bytes()).unwrap();
        assert_eq!(field(&found[0], EventField::Payload), r##"{"@a":"'","#text":"]] \t\r>"}"##);
    }

    fn orders_without_keys() -> Value {
        json!({ "row": "Orders/Order", "defaults": { "event_type": "order.placed" } })
    }

    fn payload_of_xml(text: &str) -> String {
        let found = rows(&settings(orders_without_keys()), "a.xml", text.as_bytes()).unwrap();
        field(&found[0], EventField::Payload)
    }

    #[test]
    fn names_of_two_namespaces_keep_their_prefixes() {
        let within = |attributes: &str, inside: &str| {
            let spaces = "xmlns:a='urn:a' xmlns:b='urn:b' xmlns:c='urn:a'";
            payload_of_xml(&format!(
                "<Orders {spaces}><Order {attributes}>{inside}</Order></Orders>"
            ))
        };
        assert_eq!(within("a:n='1' m='2'", ""), r#"{"@n":"1","@m":"2"}"#);
        assert_eq!(within("n='1' a:n='2'", ""), r#"{"@n":"1","@a:n":"2"}"#);
        assert_eq!(within("b:n='1' a:n='2'", ""), r#"{"@b:n":"1","@a:n":"2"}"#);
        assert_eq!(
            within("", "<a:n>1</a:n><b:n>2</b:n><a:n>3</a:n><m/>"),
            r#"{"a:n":["1","3"],"b:n":"2","m":""}"#
        );
        assert_eq!(within("", "<n>1</n><b:n>2</b:n>"), r#"{"n":"1","b:n":"2"}"#);
        // Two prefixes of one namespace are one name.
        assert_eq!(within("", "<a:n>1</a:n><c:n>2</c:n>"), r#"{"n":["1","2"]}"#);
        let same = "<Orders><Order><p:n xmlns:p='urn:a'/><p:n xmlns:p='urn:b'/></Order></Orders>";
        refused(orders_without_keys(), "a.xml", same.as_bytes(), "different prefixes");
        let none = "<Orders><Order><n xmlns='urn:a'/><n xmlns='urn:b'/></Order></Orders>";
        refused(orders_without_keys(), "a.xml", none.as_bytes(), "different prefixes");
    }

    #[test]
    fn a_path_may_name_a_prefix() {
        let text = "<Orders xmlns:a='urn:a' xmlns:b='urn:b'><a:Order n='1' a:n='2'><a:k>3</a:k><b:k>4</b:k><b:l>5</b:l></a:Order><b:Order/></Orders>";
        let found = |path: &str| {
            let settings = settings(json!({
                "row": "Orders/a:Order", "fields": { "aggregate_id": path },
                "defaults": { "event_type": "order.placed" },
            }));
            let found = rows(&settings, "a.xml", text.as_bytes()).unwrap();
            assert_eq!(found.len(), 1);
            found[0].draft.get(EventField::AggregateId).cloned()
        };
        let is = |text: &str| Some(Cell::Text(text.to_owned()));
        assert_eq!(found("@n"), is("1"));
        assert_eq!(found("@a:n"), is("2"));
        assert_eq!(found("b:k"), is("4"));
        assert_eq!(found("l"), is("5"));
        assert_eq!(found("b:l"), is("5"));
        // Which one is meant is not known.
        assert_eq!(found("k"), None);
    }

    #[test]
    fn spaces_in_cdata_and_under_xml_space_are_content() {
        let inside =
            |text: &str| payload_of_xml(&format!("<Orders><Order><a>1</a>{text}</Order></Orders>"));
        for (text, payload) in [
            ("<b>\n 7 \n</b>", r#"{"a":"1","b":"7"}"#),
            ("<b>\u{a0}7\u{a0}</b>", "{\"a\":\"1\",\"b\":\"\u{a0}7\u{a0}\"}"),
            ("<b><![CDATA[ 7 ]]></b>", r#"{"a":"1","b":" 7 "}"#),
            ("<b>\n <![CDATA[ 7 ]]>\n <![CDATA[ 8 ]]>\n </b>", r#"{"a":"1","b":" 7 \n  8 "}"#),
            ("<b>\n 6<![CDATA[ 7 ]]></b>", r#"{"a":"1","b":"6 7 "}"#),
            ("<b><![CDATA[ ]]></b>", r#"{"a":"1","b":" "}"#),
            ("<b><![CDATA[]]></b>", r#"{"a":"1","b":""}"#),
            (
                "<b xml:space='preserve'> 7\r\n</b>",
                r##"{"a":"1","b":{"@space":"preserve","#text":" 7\n"}}"##,
            ),
            (
                "<b xml:space='preserve'> <c> 7 </c> <d xml:space='default'> 8 </d> </b>",
                r##"{"a":"1","b":{"@space":"preserve","c":" 7 ","d":{"@space":"default","#text":"8"}}}"##,
            ),
        ] {
            assert_eq!(inside(text), payload, "{text}");
        }
        let above = "<Orders xml:space='preserve'> <Order> <a> 1 </a> </Order></Orders>";
        assert_eq!(payload_of_xml(above), r#"{"a":" 1 "}"#);
    }

    #[test]
    fn the_bytes_of_xml_count_and_not_the_name_of_its_encoding() {
        let text = |encoding: &str, inside: &str| {
            format!(
                "<?xml version='1.0' encoding='{encoding}'?><Orders><Order>{inside}</Order></Orders>"
            )
        };
        for encoding in ["UTF-8", "utf8", "UTF8", "US-ASCII", "ascii", "ISO-8859-1", "windows-1252"]
        {
            assert_eq!(payload_of_xml(&text(encoding, "a")), "\"a\"", "{encoding}");
        }
        assert_eq!(payload_of_xml(&text("utf8", "ä")), "\"ä\"");
        for encoding in ["utf-16", "UTF-16LE", "ISO-8859-15", "EBCDIC", "", " utf-8", "utf-8x"] {
            let text = text(encoding, "ä");
            refused(orders_without_keys(), "a.xml", text.as_bytes(), "its declaration is wrong");
        }
    }

    #[test]
    fn four_times_the_file_takes_about_four_times_the_time() {
        let csv = |n: usize| {
            let names: Vec<String> = (0..1_000).map(|n| n.to_string()).collect();
            format!("{}\n{}", names.join(","), format!("{}\n", "\"a\"\"b\",".repeat(999)).repeat(n))
        };
        let json = |n: usize| format!("[{}{{}}]", r#"{"a":"b\n","c":[1]},"#.repeat(n * 50));
        let xml = |n: usize| {
            format!(
                "<Orders>{}</Orders>",
                format!("<Order>{}</Order>", "<a b='c'>&amp;</a>".repeat(500)).repeat(n)
            )
        };
        let fields = json!({ "row": "Orders/Order", "defaults": { "event_type": "a" } });
        let settings = settings(fields);
        let clock = Clock::machine();
        let time = |name: &str, text: &str| {
            let began = clock.monotonic();
            rows(&settings, name, text.as_bytes()).unwrap();
            clock.monotonic().saturating_sub(began)
        };
        let check = |name: &str, text: &dyn Fn(usize) -> String| {
            // Whoever shares the machine may stop either: one undisturbed pair in a hundred is enough.
            let one = text(20);
            let four = text(80);
            let is_linear = || time(name, &four) < time(name, &one) * 10;
            assert!(
                (0..100).any(|_| is_linear()),
                "{name}: four times as much takes ten times the time"
            );
        };
        check("a.csv", &csv);
        check("a.json", &json);
        check("a.xml", &xml);
    }
}
