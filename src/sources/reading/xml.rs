//! XML 1.0 with namespaces: the elements at a path are rows; fields are found in them by paths.
//!
//! The crate `xml` reads events, so memory is needed for one row at a time. It refuses what is not well-formed.
//! Document types are refused here, so there are no entities but the five of XML itself: nothing is fetched, and nothing
//! expands. Nesting, attributes, and the namespaces in scope are limited, because each costs with every element.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};
use xml::common::{Position as _, XmlVersion};
use xml::name::OwnedName;
use xml::namespace::{NS_XML_PREFIX, NS_XML_URI, NS_XMLNS_PREFIX, NS_XMLNS_URI, Namespace};
use xml::reader::{Error, ErrorKind, ParserConfig, XmlEvent};

use crate::model::event_field::EventField;
use crate::sources::cell::Cell;
use crate::sources::draft::Draft;
use crate::sources::folder_settings::{FolderSettings, MAX_COLUMNS, MAX_NODES};
use crate::sources::reading::{FileRow, Position, Rows, line_ends, too_long};

/// The deepest nesting of elements.
const MAX_DEPTH: usize = 64;
/// The most namespaces that are declared where an element stands. The reader copies all of them for each element.
const MAX_NAMESPACES: usize = 100;
/// The most bytes of their names.
const MAX_NAMESPACES_BYTES: usize = 8_192;
/// Encodings of which each file is UTF-8, too.
const PARTS_OF_UTF8: [&str; 5] = ["utf-8", "utf8", "us-ascii", "ascii", "ansi_x3.4-1968"];
/// Beginnings of the names of encodings that agree with UTF-8 in ASCII characters.
const LIKE_ASCII: [&str; 5] = ["iso-8859-", "iso8859-", "latin", "windows-125", "cp125"];

/// The name of an element or an attribute.
#[derive(Clone, Debug, Default)]
struct Name {
    local: String,
    prefix: Option<String>,
    /// The number of its namespace in [`XmlRowReader::namespaces`]; 0: none.
    namespace: usize,
    /// Whether the prefix belongs to the name, because beside it is the same local name of another namespace.
    is_qualified: bool,
}

#[derive(Debug)]
struct Attribute {
    name: Name,
    value: String,
}

/// The text of an element. Spaces at both ends are layout, but not in CDATA and under `xml:space="preserve"`.
#[derive(Debug, Default)]
struct Content {
    text: String,
    /// The bytes of `text` from the first CDATA section to the end of the last one.
    verbatim: Option<(usize, usize)>,
}

/// A row or an element in it.
#[derive(Debug, Default)]
struct Element {
    name: Name,
    attributes: Vec<Attribute>,
    content: Content,
    children: Vec<Self>,
    /// Whether `xml:space="preserve"` holds in it.
    keeps_space: bool,
}

/// An open element outside rows.
struct Open {
    name: Name,
    has_children: bool,
    keeps_space: bool,
}

/// The state while a file is read.
struct XmlRowReader<'a> {
    settings: &'a FolderSettings,
    path: Vec<&'a str>,
    /// The line of the current event.
    line: usize,
    open: Vec<Open>,
    /// The open elements of a row, the row itself first.
    row: Vec<Element>,
    /// The line of the row.
    began: usize,
    /// Elements and attributes of the row.
    nodes: usize,
    /// Whether an element whose children would be rows is there and has no children.
    has_empty_parent: bool,
    /// The numbers of the namespaces in the row.
    namespaces: BTreeMap<String, usize>,
    rows: Rows,
}

pub(super) fn rows(settings: &FolderSettings, text: &str) -> Result<Vec<FileRow>, String> {
    let Some(path) = &settings.row else {
        let why = "the source's settings lack the path of the element that is a row: set row, such as Orders/Order";
        return Err(why.to_owned());
    };
    if text.trim().is_empty() {
        return Err(format!("line 1: {TRUNCATED}"));
    }
    let mut state = XmlRowReader {
        settings,
        path: path.split('/').collect(),
        line: 1,
        open: Vec::new(),
        row: Vec::new(),
        began: 1,
        nodes: 0,
        has_empty_parent: false,
        namespaces: BTreeMap::new(),
        rows: Rows::default(),
    };
    // The bytes are UTF-8 by now, whatever the declaration says; that is judged by `declared`.
    let mut reader = ParserConfig::new()
        .override_encoding(Some(xml::Encoding::Utf8))
        .ignore_invalid_encoding_declarations(true)
        .allow_multiple_root_elements(false)
        .whitespace_to_characters(true)
        .max_attributes(MAX_COLUMNS)
        .max_name_length(MAX_NAME_BYTES)
        .create_reader(text.as_bytes());
    loop {
        let event = reader.next().map_err(|error| malformed(&error))?;
        state.line = line_of(reader.position().row());
        match event {
            XmlEvent::EndDocument => break,
            XmlEvent::StartDocument { encoding, version, .. } => {
                state.declared(&encoding, text)?;
                check_characters(text, version == XmlVersion::Version11)?;
            }
            XmlEvent::StartElement { name, attributes, namespace } => {
                let attributes = attributes.into_iter().map(|a| (a.name, a.value)).collect();
                state.start(name, attributes, &namespace)?;
            }
            XmlEvent::EndElement { .. } => state.end()?,
            XmlEvent::Characters(text) | XmlEvent::Whitespace(text) => state.put_text(&text),
            XmlEvent::CData(text) => state.put_verbatim(&text),
            XmlEvent::Doctype { .. } => {
                let why = "it has a DOCTYPE, which is not accepted: nothing is fetched, and no entities are defined";
                return Err(state.fault(why));
            }
            XmlEvent::ProcessingInstruction { name, .. } if name.contains(':') => {
                let why =
                    format!("it is not XML: the name of the instruction <?{name} has a colon");
                return Err(state.fault(&why));
            }
            XmlEvent::ProcessingInstruction { .. } | XmlEvent::Comment(_) => {}
        }
    }
    // A wrong path must not pass for a file without rows.
    if state.rows.rows.is_empty() && !state.has_empty_parent {
        let why = format!(
            "it contains no row: no element has the path {path} (the source's setting row), and there is other content"
        );
        return Err(why);
    }
    Ok(state.rows.rows)
}

/// Why a file is refused that ends inside its root element, or has none.
const TRUNCATED: &str =
    "it ends before its root element does: was it still being written? Check the setting writer";

/// Bytes of a name at most.
const MAX_NAME_BYTES: usize = 1_000;

fn malformed(error: &Error) -> String {
    let line = line_of(error.position().row());
    let why = match error.kind() {
        ErrorKind::UnexpectedEof => TRUNCATED.to_owned(),
        ErrorKind::Syntax(why) if why.starts_with("Unexpected end of stream") => {
            TRUNCATED.to_owned()
        }
        ErrorKind::Syntax(why) if why.contains("allowed by the parser's configuration") => format!(
            "an element has more than {MAX_COLUMNS} attributes, or a name more than {MAX_NAME_BYTES} bytes"
        ),
        ErrorKind::Syntax(why) => format!("it is not well-formed XML: {why}"),
        _ => format!("it is not XML: {error}"),
    };
    format!("line {line}: {why}")
}

/// Refuses characters that may not stand in XML (productions 2 and 2a of XML 1.0 and 1.1). The reader overlooks
/// some of them in comments and CDATA.
fn check_characters(text: &str, is_version_11: bool) -> Result<(), String> {
    let is_refused = |c: char| match c {
        '\t' | '\n' | '\r' | '\u{85}' => false,
        '\u{fffe}' | '\u{ffff}' => true,
        '\u{7f}'..='\u{9f}' => is_version_11,
        c => c < ' ',
    };
    let Some((at, c)) = text.char_indices().find(|(_, c)| is_refused(*c)) else {
        return Ok(());
    };
    let before = text.as_bytes().get(..at).unwrap_or_default();
    let line = line_ends(before).saturating_add(1);
    let code = u32::from(c);
    Err(format!("line {line}: it is not XML: the character U+{code:04X} is not allowed there"))
}

/// The number of a line, counted from 1, by the reader's number, which counts from 0.
fn line_of(row: u64) -> usize {
    usize::try_from(row).unwrap_or(usize::MAX).saturating_add(1)
}

impl XmlRowReader<'_> {
    fn fault(&self, why: &str) -> String {
        format!("line {}: {why}", self.line)
    }

    /// Judges the encoding that the file declares. Its bytes are UTF-8: a declaration that they fit as well is accepted.
    fn declared(&self, encoding: &str, text: &str) -> Result<(), String> {
        let lower = encoding.to_ascii_lowercase();
        let is_like_ascii = LIKE_ASCII.iter().any(|begin| lower.starts_with(begin));
        if PARTS_OF_UTF8.contains(&lower.as_str()) || (is_like_ascii && text.is_ascii()) {
            return Ok(());
        }
        let shown: String = encoding.chars().take(40).collect();
        Err(self.fault(&format!(
            "its declaration is wrong: it says encoding={shown:?}, and the bytes are UTF-8. Write \
             encoding=\"UTF-8\", or leave it out; or save the file as {shown} declares, and convert it to UTF-8"
        )))
    }

    fn check_namespaces(&self, namespaces: &Namespace) -> Result<(), String> {
        let mut bytes: usize = 0;
        for (prefix, uri) in namespaces {
            bytes = bytes.saturating_add(prefix.len()).saturating_add(uri.len());
            let is_reserved = (uri == NS_XML_URI && prefix != NS_XML_PREFIX)
                || (uri == NS_XMLNS_URI && prefix != NS_XMLNS_PREFIX);
            if is_reserved {
                let why =
                    format!("it is not XML: the prefix {prefix} has a namespace that is reserved");
                return Err(self.fault(&why));
            }
        }
        if namespaces.0.len() > MAX_NAMESPACES || bytes > MAX_NAMESPACES_BYTES {
            let why = format!(
                "an element is in the scope of more than {MAX_NAMESPACES} namespaces, or of more than \
                 {MAX_NAMESPACES_BYTES} bytes of their names"
            );
            return Err(self.fault(&why));
        }
        Ok(())
    }

    fn name(&mut self, what: &str, name: OwnedName) -> Result<Name, String> {
        if let Some(why) = too_long(what, &name.local_name) {
            return Err(self.fault(&why));
        }
        if let Some(why) = name.prefix.as_deref().and_then(|prefix| too_long(what, prefix)) {
            return Err(self.fault(&why));
        }
        let next = self.namespaces.len().saturating_add(1);
        let namespace = match name.namespace {
            Some(uri) => *self.namespaces.entry(uri).or_insert(next),
            None => 0,
        };
        let local = name.local_name;
        let prefix = name.prefix;
        Ok(Name { local, prefix, namespace, is_qualified: false })
    }

    fn start(
        &mut self,
        name: OwnedName,
        attributes: Vec<(OwnedName, String)>,
        namespaces: &Namespace,
    ) -> Result<(), String> {
        let depth = self.open.len().saturating_add(self.row.len());
        if depth >= MAX_DEPTH {
            let why = format!("elements may be nested {MAX_DEPTH} deep at most");
            return Err(self.fault(&why));
        }
        self.check_namespaces(namespaces)?;
        if self.row.is_empty() {
            self.namespaces.clear();
        }
        let name = self.name("an element", name)?;
        let mut own = Vec::with_capacity(attributes.len());
        for (name, value) in attributes {
            own.push(Attribute { name: self.name("an attribute", name)?, value });
        }
        self.qualify(own.iter_mut().map(|attribute| &mut attribute.name).collect())?;
        let keeps_space = self.keeps_space(&own);
        if self.row.is_empty() {
            if let Some(parent) = self.open.last_mut() {
                parent.has_children = true;
            }
            if !self.is_row(&name) {
                self.open.push(Open { name, has_children: false, keeps_space });
                return Ok(());
            }
            self.began = self.line;
            self.nodes = 0;
        }
        self.nodes = self.nodes.saturating_add(own.len()).saturating_add(1);
        if self.nodes > MAX_NODES {
            let why = format!("a row has more than {MAX_NODES} elements and attributes");
            return Err(self.fault(&why));
        }
        self.row.push(Element { name, attributes: own, keeps_space, ..Element::default() });
        Ok(())
    }

    /// Whether an element in the open ones is at the path of rows.
    fn is_row(&self, name: &Name) -> bool {
        self.is_at(name, &self.path)
    }

    /// Whether the children of an element in the open ones are at the path of rows.
    fn is_parent_of_rows(&self, name: &Name) -> bool {
        self.path.split_last().is_some_and(|(_, path)| self.is_at(name, path))
    }

    fn is_at(&self, name: &Name, path: &[&str]) -> bool {
        let names = self.open.iter().map(|open| &open.name).chain([name]);
        let depth = self.open.len().saturating_add(1);
        path.len() == depth && names.zip(path).all(|(name, step)| name.fits(step))
    }

    /// Whether spaces are content in an element with these attributes: `xml:space` of itself, else of what it is in.
    fn keeps_space(&self, attributes: &[Attribute]) -> bool {
        let of_xml = |name: &Name| name.prefix.as_deref() == Some(NS_XML_PREFIX);
        let own = attributes.iter().find(|a| of_xml(&a.name) && a.name.local == "space");
        match own {
            Some(own) => own.value == "preserve",
            None => match self.row.last() {
                Some(element) => element.keeps_space,
                None => self.open.last().is_some_and(|open| open.keeps_space),
            },
        }
    }

    /// Lets names keep their prefixes where another namespace has the same local name beside them.
    fn qualify(&self, names: Vec<&mut Name>) -> Result<(), String> {
        let mut first: BTreeMap<&str, usize> = BTreeMap::new();
        let mut shared: BTreeSet<String> = BTreeSet::new();
        for name in &names {
            if *first.entry(&name.local).or_insert(name.namespace) != name.namespace {
                shared.insert(name.local.clone());
            }
        }
        if shared.is_empty() {
            return Ok(());
        }
        let mut namespaces: BTreeMap<String, usize> = BTreeMap::new();
        for name in names {
            name.is_qualified = shared.contains(&name.local);
            let shown = name.shown();
            if *namespaces.entry(shown.clone()).or_insert(name.namespace) != name.namespace {
                let why = format!(
                    "in one element {shown} stands for names of two namespaces: give them different prefixes"
                );
                return Err(self.fault(&why));
            }
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), String> {
        let Some(mut done) = self.row.pop() else {
            let ended = self.open.pop();
            let empty = ended.filter(|ended| !ended.has_children);
            self.has_empty_parent |= empty.is_some_and(|empty| self.is_parent_of_rows(&empty.name));
            return Ok(());
        };
        self.qualify(done.children.iter_mut().map(|child| &mut child.name).collect())?;
        if let Some(parent) = self.row.last_mut() {
            parent.children.push(done);
            return Ok(());
        }
        let draft = draft(self.settings, &done);
        self.rows.push(FileRow { draft, position: Position::Line(self.began) })
    }

    fn put_text(&mut self, text: &str) {
        if let Some(element) = self.row.last_mut() {
            element.content.text.push_str(text);
        }
    }

    fn put_verbatim(&mut self, text: &str) {
        let Some(element) = self.row.last_mut() else { return };
        let content = &mut element.content;
        let began = content.verbatim.map_or(content.text.len(), |(began, _)| began);
        content.text.push_str(text);
        content.verbatim = Some((began, content.text.len()));
    }
}

impl Name {
    /// The name in paths and payloads.
    fn shown(&self) -> String {
        match &self.prefix {
            Some(prefix) if self.is_qualified => format!("{prefix}:{}", self.local),
            _ => self.local.clone(),
        }
    }

    /// Whether a step of a path means it: the name as shown, or with its prefix.
    fn fits(&self, step: &str) -> bool {
        match step.split_once(':') {
            Some((prefix, local)) => self.prefix.as_deref() == Some(prefix) && self.local == local,
            None => self.local == step && (self.prefix.is_none() || !self.is_qualified),
        }
    }
}

impl Content {
    /// The text without the spaces that are layout.
    fn trimmed(&self, keeps_space: bool) -> &str {
        let is_space = |c: char| matches!(c, ' ' | '\t' | '\n' | '\r');
        if keeps_space {
            return &self.text;
        }
        let Some((began, ended)) = self.verbatim else { return self.text.trim_matches(is_space) };
        let before = self.text.get(..began).unwrap_or_default();
        let after = self.text.get(ended..).unwrap_or_default();
        let start = before.len().saturating_sub(before.trim_start_matches(is_space).len());
        let end = ended.saturating_add(after.trim_end_matches(is_space).len());
        self.text.get(start..end).unwrap_or_default()
    }
}

fn draft(settings: &FolderSettings, row: &Element) -> Draft {
    let mut draft = Draft::default();
    for field in EventField::ALL {
        if let Some(text) = row.at(settings.name(field)) {
            draft.put(field, Cell::Text(text));
        }
    }
    if draft.get(EventField::Payload).is_none() {
        draft.put(EventField::Payload, Cell::Text(row.to_json().to_string()));
    }
    draft
}

impl Element {
    /// Its text. Beside child elements, spaces alone are layout, unless they stand in CDATA.
    fn text(&self) -> &str {
        let has_content = self.children.is_empty() || self.content.verbatim.is_some();
        let is_layout = !has_content && self.content.trimmed(false).is_empty();
        if is_layout { "" } else { self.content.trimmed(self.keeps_space) }
    }

    /// The text at a path of elements, which may end with `@` and an attribute; `.` is the element itself.
    fn at(&self, path: &str) -> Option<String> {
        let (step, rest) = path.split_once('/').unwrap_or((path, ""));
        if let Some(name) = step.strip_prefix('@') {
            let found = self.attributes.iter().find(|attribute| attribute.name.fits(name));
            return found.map(|attribute| attribute.value.clone());
        }
        if step == "." {
            return Some(self.text().to_owned());
        }
        let child = self.children.iter().find(|child| child.name.fits(step))?;
        if rest.is_empty() { Some(child.text().to_owned()) } else { child.at(rest) }
    }

    /// The element as JSON: attributes as `@name`, elements by name, repeated elements as a list, text as `#text`. An
    /// element with text only becomes that text.
    fn to_json(&self) -> Value {
        let text = self.text();
        if self.attributes.is_empty() && self.children.is_empty() {
            return text.into();
        }
        let mut object = Map::new();
        for attribute in &self.attributes {
            object.insert(format!("@{}", attribute.name.shown()), attribute.value.as_str().into());
        }
        for child in &self.children {
            let value = child.to_json();
            let name = child.name.shown();
            match object.get_mut(&name) {
                None => {
                    object.insert(name, value);
                }
                Some(Value::Array(list)) => list.push(value),
                Some(one) => *one = Value::Array(vec![one.take(), value]),
            }
        }
        if !text.is_empty() {
            object.insert("#text".to_owned(), text.into());
        }
        Value::Object(object)
    }
}
