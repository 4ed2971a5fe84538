//! XML: the elements at a path are rows; fields are found in them by paths.
//!
//! Document types are refused, so there are no entities but the five of XML itself: nothing is fetched, and nothing
//! expands. Nesting is limited.

use quick_xml::XmlVersion;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesRef, BytesStart, Event};
use quick_xml::reader::Reader;
use serde_json::{Map, Value};

use crate::sources::draft::Draft;
use crate::sources::field::{Cell, Field};
use crate::sources::folder_settings::{FolderSettings, MAX_COLUMNS, MAX_NODES};
use crate::sources::reading::{FileRow, Position, Rows, line_ends, too_long};

/// The deepest nesting of elements.
const MAX_DEPTH: usize = 64;

/// A row or an element in it.
#[derive(Debug, Default)]
struct Element {
    name: String,
    attributes: Vec<(String, String)>,
    text: String,
    children: Vec<Self>,
}

/// The state while a file is read.
struct State<'a> {
    text: &'a str,
    path: Vec<&'a str>,
    /// Names of the open elements outside a row.
    open: Vec<String>,
    /// The open elements of a row, the row itself first.
    row: Vec<Element>,
    /// The offset of the row.
    began: usize,
    had_root: bool,
    /// The offset up to which lines were counted, and the line number there.
    counted: (usize, usize),
    /// Elements and attributes of the row.
    nodes: usize,
    rows: Rows,
}

pub(super) fn rows(settings: &FolderSettings, text: &str) -> Result<Vec<FileRow>, String> {
    let Some(path) = &settings.row else {
        let why = "the source's settings lack the path of the element that is a row: set row, such as Orders/Order";
        return Err(why.to_owned());
    };
    let mut state = State {
        text,
        path: path.split('/').collect(),
        open: Vec::new(),
        row: Vec::new(),
        began: 0,
        had_root: false,
        counted: (0, 1),
        nodes: 0,
        rows: Rows::default(),
    };
    let mut reader = Reader::from_str(text);
    reader.config_mut().expand_empty_elements = true;
    loop {
        let before = position(reader.buffer_position());
        let event = reader.read_event().map_err(|error| {
            let at = position(reader.error_position());
            state.fault(at, &format!("it is not XML: {error}"))
        })?;
        match event {
            Event::Eof => break,
            Event::Start(start) => state.start(&start, before)?,
            Event::End(_) => state.end(settings)?,
            Event::Text(text) => state.put_text(&text.xml10_content(), before)?,
            Event::CData(text) => state.put_text(&text.xml10_content(), before)?,
            Event::GeneralRef(reference) => state.put_reference(&reference, before)?,
            Event::DocType(_) => {
                let why = "it has a DOCTYPE, which is not accepted: nothing is fetched, and no entities are defined";
                return Err(state.fault(before, why));
            }
            Event::Decl(decl) => {
                if let Some(Ok(encoding)) = decl.encoding()
                    && !encoding.eq_ignore_ascii_case("utf-8")
                {
                    let why = format!("it says that it is {encoding}; save it as UTF-8");
                    return Err(state.fault(before, &why));
                }
            }
            // `expand_empty_elements` turns an empty element into a start and an end.
            Event::Empty(_) | Event::Comment(_) | Event::PI(_) => {}
        }
    }
    if state.had_root && state.rows.rows.is_empty() && state.open.is_empty() && state.row.is_empty()
    {
        let why = format!(
            "it contains no row: no element has the path {path} (the source's setting row)"
        );
        return Err(why);
    }
    if !state.open.is_empty() || !state.row.is_empty() || !state.had_root {
        return Err(state.fault(
            text.len(),
            "it ends before its root element does: was it still being written? Check the setting writer",
        ));
    }
    Ok(state.rows.rows)
}

fn position(at: u64) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}

impl State<'_> {
    fn line(&self, at: usize) -> usize {
        let before = self.text.as_bytes().get(..at).unwrap_or(self.text.as_bytes());
        line_ends(before).saturating_add(1)
    }

    fn fault(&self, at: usize, why: &str) -> String {
        format!("line {}: {why}", self.line(at))
    }

    fn start(&mut self, start: &BytesStart<'_>, at: usize) -> Result<(), String> {
        let depth = self.open.len().saturating_add(self.row.len());
        if depth >= MAX_DEPTH {
            let why = format!("elements may be nested {MAX_DEPTH} deep at most");
            return Err(self.fault(at, &why));
        }
        if depth == 0 && self.had_root {
            return Err(self.fault(at, "there is a second root element"));
        }
        self.had_root = true;
        let name = local(start.name().as_ref()).to_owned();
        if let Some(why) = too_long("an element", &name) {
            return Err(self.fault(at, &why));
        }
        let attributes = self.attributes(start, at)?;
        if self.row.is_empty() {
            let path = self.open.iter().map(String::as_str).chain([name.as_str()]);
            if !path.eq(self.path.iter().copied()) {
                self.open.push(name);
                return Ok(());
            }
            self.began = at;
            self.nodes = 0;
        }
        self.nodes = self.nodes.saturating_add(attributes.len()).saturating_add(1);
        if self.nodes > MAX_NODES {
            let why = format!("a row has more than {MAX_NODES} elements and attributes");
            return Err(self.fault(at, &why));
        }
        self.row.push(Element { name, attributes, ..Element::default() });
        Ok(())
    }

    fn attributes(
        &self,
        start: &BytesStart<'_>,
        at: usize,
    ) -> Result<Vec<(String, String)>, String> {
        let mut all = Vec::new();
        for (attribute, n) in start.attributes().zip(1..) {
            // Limited because each attribute is compared with all earlier ones.
            if n > MAX_COLUMNS {
                let why = format!("an element has more than {MAX_COLUMNS} attributes");
                return Err(self.fault(at, &why));
            }
            let attribute = attribute.map_err(|error| self.fault(at, &error.to_string()))?;
            let name = attribute.key.as_ref();
            if let Some(why) = too_long("an attribute", name) {
                return Err(self.fault(at, &why));
            }
            let value = attribute.normalized_value(XmlVersion::Implicit1_0);
            let value = value.map_err(|error| self.fault(at, &error.to_string()))?;
            // Namespace declarations are not content.
            if name != "xmlns" && !name.starts_with("xmlns:") {
                all.push((local(name).to_owned(), value.into_owned()));
            }
        }
        Ok(all)
    }

    fn end(&mut self, settings: &FolderSettings) -> Result<(), String> {
        let Some(done) = self.row.pop() else {
            self.open.pop();
            return Ok(());
        };
        if let Some(parent) = self.row.last_mut() {
            parent.children.push(done);
        } else {
            let (from, line) = self.counted;
            let between = self.text.as_bytes().get(from..self.began).unwrap_or_default();
            self.counted = (self.began, line.saturating_add(line_ends(between)));
            let position = Position::Line(self.counted.1);
            self.rows.push(FileRow { draft: draft(settings, &done), position })?;
        }
        Ok(())
    }

    fn put_text(&mut self, text: &str, at: usize) -> Result<(), String> {
        match self.row.last_mut() {
            Some(element) => element.text.push_str(text),
            None if self.open.is_empty() && !text.trim().is_empty() => {
                return Err(self.fault(at, "there is text outside the root element"));
            }
            None => {}
        }
        Ok(())
    }

    fn put_reference(&mut self, reference: &BytesRef<'_>, at: usize) -> Result<(), String> {
        let name = reference.xml10_content();
        let number = reference.resolve_char_ref();
        let text = match number.map_err(|error| self.fault(at, &error.to_string()))? {
            Some(c) => c.to_string(),
            None => match resolve_predefined_entity(&name) {
                Some(text) => text.to_owned(),
                None => return Err(self.fault(at, &format!("the entity &{name}; is not known"))),
            },
        };
        self.put_text(&text, at)
    }
}

/// A name without its namespace prefix.
fn local(name: &str) -> &str {
    name.rsplit(':').next().unwrap_or(name)
}

fn draft(settings: &FolderSettings, row: &Element) -> Draft {
    let mut draft = Draft::default();
    for field in Field::ALL {
        if let Some(text) = row.at(settings.name(field)) {
            draft.put(field, Cell::Text(text));
        }
    }
    if draft.get(Field::Payload).is_none() {
        draft.put(Field::Payload, Cell::Text(row.to_json().to_string()));
    }
    draft
}

impl Element {
    /// The text at a path of elements, which may end with `@` and an attribute; `.` is the element itself.
    fn at(&self, path: &str) -> Option<String> {
        let (step, rest) = path.split_once('/').unwrap_or((path, ""));
        if let Some(name) = step.strip_prefix('@') {
            let found = self.attributes.iter().find(|(have, _)| have == name);
            return found.map(|(_, value)| value.clone());
        }
        if step == "." {
            return Some(self.text.trim().to_owned());
        }
        let child = self.children.iter().find(|child| child.name == step)?;
        if rest.is_empty() { Some(child.text.trim().to_owned()) } else { child.at(rest) }
    }

    /// The element as JSON: attributes as `@name`, elements by name, repeated elements as a list, text as `#text`. An
    /// element with text only becomes that text.
    fn to_json(&self) -> Value {
        let text = self.text.trim();
        if self.attributes.is_empty() && self.children.is_empty() {
            return text.into();
        }
        let mut object = Map::new();
        for (name, value) in &self.attributes {
            object.insert(format!("@{name}"), value.as_str().into());
        }
        for child in &self.children {
            let value = child.to_json();
            match object.get_mut(&child.name) {
                None => {
                    object.insert(child.name.clone(), value);
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
