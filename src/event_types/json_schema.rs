//! JSON Schema 2020-12 as far as event types need it, with a bound on the work of a check.
//!
//! A schema is compiled once. Each step of a check costs work, and a check has work in proportion to the payload. Keywords
//! and formats that are not known here are refused, so that none passes unchecked. Formats other than `date-time`, `date`
//! and `uuid` are annotations. Numbers are compared by their digits. docs/decisions/0003-dependencies.md says why this is not a
//! library.

use std::collections::{BTreeMap, BTreeSet};

use regex_lite::{Regex, RegexBuilder};

use crate::base::clock::Timestamp;
use crate::model::json::{Decimal, Json, Members, Unreadable, quoted};
use crate::model::sealed;

/// Bytes of a schema at most.
pub const MAX_SCHEMA_BYTES: usize = 64 * 1024;
/// Bytes of a payload that is checked at most: it is read as a whole, see [`Json`].
const MAX_PAYLOAD_BYTES: usize = 4 << 20;
/// Schemas within a schema at most.
const MAX_NODES: usize = 1000;
/// How deep schemas may be nested, references followed.
const MAX_DEPTH: usize = 32;
/// Bytes of a pattern at most.
const MAX_PATTERN_BYTES: usize = 256;
/// Sizes of compiled patterns that are tried, in KiB. The work of a match is in proportion.
const PATTERN_KIB: [u32; 4] = [1, 2, 4, 8];
/// Bytes that are counted for each KiB of a compiled pattern: a match takes memory too.
const BYTES_PER_KIB: usize = 2048;
/// Bytes of a compiled schema for each byte of its text, without patterns: a name of one letter takes the most.
const BYTES_PER_BYTE: usize = 24;
/// Work of any check.
const WORK_BASE: u64 = 10_000;
/// Work for each byte of the payload.
const WORK_PER_BYTE: u64 = 20;
/// Characters of a mistake that are told: names of members may be long.
const MAX_MISTAKE_CHARS: usize = 300;
/// Mistakes that are told of one payload.
const MAX_MISTAKES: usize = 5;

/// What `$schema` may be: the dialect that is checked here.
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// Formats that are checked.
const FORMATS: [&str; 3] = ["date-time", "date", "uuid"];
/// Formats of JSON Schema and OpenAPI that say nothing about whether a value is valid. Any other name is a mistake.
const FORMATS_NOTED: [&str; 23] = [
    "time",
    "duration",
    "email",
    "idn-email",
    "hostname",
    "idn-hostname",
    "ipv4",
    "ipv6",
    "uri",
    "uri-reference",
    "iri",
    "iri-reference",
    "uri-template",
    "json-pointer",
    "relative-json-pointer",
    "regex",
    "int32",
    "int64",
    "float",
    "double",
    "byte",
    "binary",
    "password",
];

/// The type that the value of an annotation must have: of a keyword that says nothing about whether a value is valid.
/// `None`: the keyword is not an annotation.
fn annotation(keyword: &str) -> Option<&'static str> {
    Some(match keyword {
        "$id" | "$comment" | "title" | "description" | "contentMediaType" => "string",
        "deprecated" | "readOnly" | "writeOnly" => "boolean",
        "examples" => "array",
        "$defs" => "object",
        "default" => "",
        _ => return None,
    })
}

/// A compiled schema.
#[derive(Debug)]
pub struct Schema {
    root: Node,
    defs: BTreeMap<String, Node>,
    /// Bytes that it takes in memory at most, about.
    pub(super) bytes: usize,
}

/// All demands of a schema object.
type Node = Vec<Rule>;

#[derive(Debug)]
enum Rule {
    Never,
    Types(Vec<String>),
    /// The values in one form each, so that 1 and 1.0 are the same.
    Enum(BTreeSet<String>),
    /// The bound as it is written.
    Number(Bound, String),
    Length(Bound, u64),
    Items(Bound, u64),
    Pattern(Regex, u64),
    Format(String),
    Required(Vec<String>),
    Properties {
        named: BTreeMap<String, Node>,
        others: Option<Node>,
    },
    Elements(Node),
    Unique,
    All(Vec<Node>),
    Any(Vec<Node>),
    One(Vec<Node>),
    Not(Node),
    Ref(String),
}

#[derive(Clone, Copy, Debug)]
enum Bound {
    Least,
    Most,
    Above,
    Below,
    MultipleOf,
}

impl Bound {
    const fn words(self) -> &'static str {
        match self {
            Self::Least => "at least",
            Self::Most => "at most",
            Self::Above => "more than",
            Self::Below => "less than",
            Self::MultipleOf => "a multiple of",
        }
    }

    fn holds(self, value: Decimal<'_>, bound: Decimal<'_>) -> bool {
        let order = value.compare(bound);
        match self {
            Self::Least => order.is_ge(),
            Self::Most => order.is_le(),
            Self::Above => order.is_gt(),
            Self::Below => order.is_lt(),
            Self::MultipleOf => value.is_multiple_of(bound),
        }
    }

    const fn allows(self, count: u64, bound: u64) -> bool {
        match self {
            Self::Most => count <= bound,
            _ => count >= bound,
        }
    }
}

impl Schema {
    /// Compiles a schema.
    /// Fails with what cannot be used, and where.
    pub fn compile(schema: &Json) -> Result<Self, String> {
        Self::compile_by(schema, Annotations::Checked)
    }

    /// Compiles a schema that was stored before, perhaps by a version that took any format and any annotation: those say
    /// nothing here, and what the schema demands is still checked.
    /// Fails with what cannot be used, and where.
    pub fn compile_stored(schema: &Json) -> Result<Self, String> {
        Self::compile_by(schema, Annotations::AsTheyAre)
    }

    fn compile_by(schema: &Json, annotations: Annotations) -> Result<Self, String> {
        let bytes = schema.to_string().len();
        if bytes > MAX_SCHEMA_BYTES {
            return Err(format!("it has {bytes} bytes; at most {MAX_SCHEMA_BYTES} are taken"));
        }
        let mut compiler = Compiler { nodes: 0, pattern_bytes: 0, annotations };
        let root = compiler.node(schema, "#", 0)?;
        let mut defs = BTreeMap::new();
        if let Some(given) = schema.get("$defs") {
            for (name, def) in object(given, "#/$defs")?.iter() {
                defs.insert(name.to_owned(), compiler.node(def, &format!("#/$defs/{name}"), 0)?);
            }
        }
        let bytes = bytes.saturating_mul(BYTES_PER_BYTE).saturating_add(compiler.pattern_bytes);
        let schema = Self { root, defs, bytes };
        let mut depths = BTreeMap::new();
        schema.depth(&schema.root, &mut Vec::new(), &mut depths)?;
        Ok(schema)
    }

    /// How deep a check of a node descends. Refuses references that are recursive or lead nowhere.
    fn depth<'s>(
        &'s self,
        node: &'s Node,
        open: &mut Vec<&'s str>,
        known: &mut BTreeMap<&'s str, usize>,
    ) -> Result<usize, String> {
        let mut deepest = 0;
        for rule in node {
            for inner in rule.inner() {
                deepest = deepest.max(self.depth(inner, open, known)?);
            }
            let Rule::Ref(name) = rule else { continue };
            let def = self.defs.get(name).ok_or_else(|| {
                format!("the $ref #/$defs/{name} leads nowhere: it must name one of $defs")
            })?;
            if open.contains(&name.as_str()) {
                return Err(format!("the $ref #/$defs/{name} is recursive; that is not taken"));
            }
            let depth = if let Some(depth) = known.get(name.as_str()) {
                *depth
            } else {
                open.push(name);
                let depth = self.depth(def, open, known)?;
                open.pop();
                known.insert(name, depth);
                depth
            };
            deepest = deepest.max(depth);
        }
        let depth = deepest.saturating_add(1);
        if depth > MAX_DEPTH {
            return Err(format!("it is nested more than {MAX_DEPTH} deep, references followed"));
        }
        Ok(depth)
    }

    /// Checks a payload; with `is_sealed` sealed values fit everywhere, because they were checked before they were
    /// sealed. `None`: it is valid; else what is wrong, without the payload's values.
    pub fn check(&self, payload: &[u8], is_sealed: bool) -> Option<String> {
        if payload.len() > MAX_PAYLOAD_BYTES {
            return Some(format!(
                "the payload has more than {MAX_PAYLOAD_BYTES} bytes, which is too much to check"
            ));
        }
        let bytes = u64::try_from(payload.len()).unwrap_or(u64::MAX);
        let work = WORK_BASE.saturating_add(bytes.saturating_mul(WORK_PER_BYTE));
        let value = match Json::read(payload) {
            Ok(value) => value,
            Err(Unreadable::NotJson(_)) => return Some("the payload is not JSON".to_owned()),
            Err(why) => return Some(format!("the payload cannot be checked: {why}")),
        };
        let mut run = Run { schema: self, is_sealed, work, mistakes: Vec::new(), quiet: 0 };
        if !run.names_are_clear(&value, &Place::Root) {
            return Some(run.mistakes.join("; "));
        }
        if run.node(&self.root, &value, &Place::Root) {
            return None;
        }
        if run.work == 0 {
            return Some(
                "checking it took too long: the type's schema is too costly for this payload"
                    .to_owned(),
            );
        }
        Some(run.mistakes.join("; "))
    }
}

impl Rule {
    /// The schemas within it.
    fn inner(&self) -> Vec<&Node> {
        match self {
            Self::Properties { named, others } => named.values().chain(others).collect(),
            Self::All(all) | Self::Any(all) | Self::One(all) => all.iter().collect(),
            Self::Not(node) | Self::Elements(node) => vec![node],
            _ => Vec::new(),
        }
    }
}

/// What is asked of keywords that say nothing about whether a value is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Annotations {
    /// They must be known, and of their type.
    Checked,
    /// Their names must be known.
    AsTheyAre,
}

struct Compiler {
    nodes: usize,
    pattern_bytes: usize,
    annotations: Annotations,
}

fn object<'v>(value: &'v Json, at: &str) -> Result<&'v Members, String> {
    let members = value.as_object().ok_or_else(|| format!("{at} must be an object"))?;
    match members.name_twice() {
        Some(name) => Err(format!("{at} has the name {name:?} twice")),
        None => Ok(members),
    }
}

impl Compiler {
    fn node(&mut self, schema: &Json, at: &str, depth: usize) -> Result<Node, String> {
        self.nodes = self.nodes.saturating_add(1);
        if self.nodes > MAX_NODES || depth > MAX_DEPTH {
            return Err(format!(
                "it has more than {MAX_NODES} schemas, or is nested more than {MAX_DEPTH} deep"
            ));
        }
        let keywords = match schema {
            Json::Bool(true) => return Ok(Vec::new()),
            Json::Bool(false) => return Ok(vec![Rule::Never]),
            Json::Object(_) => object(schema, at)?,
            _ => return Err(format!("{at} must be an object, true or false")),
        };
        let mut node = Vec::new();
        for (keyword, value) in keywords.iter() {
            let place = format!("{at}/{keyword}");
            node.extend(self.rule(keywords, keyword, value, &place, depth)?);
        }
        Ok(node)
    }

    fn rule(
        &mut self,
        all: &Members,
        keyword: &str,
        value: &Json,
        at: &str,
        depth: usize,
    ) -> Result<Option<Rule>, String> {
        let wrong = |what: &str| format!("{at} must be {what}");
        if let Some(rule) = of_values(keyword, value, at)? {
            return Ok(Some(rule));
        }
        let depth = depth.saturating_add(1);
        Ok(Some(match keyword {
            "pattern" => self.pattern(value.as_text().ok_or_else(|| wrong("a text"))?, at)?,
            "properties" => {
                let others = all.get("additionalProperties");
                let mut named = BTreeMap::new();
                for (name, inner) in object(value, at)?.iter() {
                    let inner = self.node(inner, &format!("{at}/{name}"), depth)?;
                    named.insert(name.to_owned(), inner);
                }
                let others = others.map(|node| self.node(node, at, depth)).transpose()?;
                Rule::Properties { named, others }
            }
            "additionalProperties" if all.get("properties").is_some() => return Ok(None),
            "additionalProperties" => {
                let others = Some(self.node(value, at, depth)?);
                Rule::Properties { named: BTreeMap::new(), others }
            }
            "items" => Rule::Elements(self.node(value, at, depth)?),
            "allOf" => Rule::All(self.nodes(value, at, depth)?),
            "anyOf" => Rule::Any(self.nodes(value, at, depth)?),
            "oneOf" => Rule::One(self.nodes(value, at, depth)?),
            "not" => Rule::Not(self.node(value, at, depth)?),
            "$ref" => {
                let name = value.as_text().and_then(|text| text.strip_prefix("#/$defs/"));
                let name = name.filter(|name| !name.contains(['/', '~', '%']));
                let name = name.ok_or_else(|| {
                    wrong("#/$defs/ and a name; nothing outside the schema is read")
                })?;
                Rule::Ref(name.to_owned())
            }
            _ if self.annotations == Annotations::AsTheyAre && is_annotation(keyword) => {
                return Ok(None);
            }
            _ => {
                check_annotation(keyword, value, at)?;
                return Ok(None);
            }
        }))
    }

    fn pattern(&mut self, text: &str, at: &str) -> Result<Rule, String> {
        let (regex, kib) = pattern(text, at)?;
        let bytes = usize::try_from(kib).unwrap_or(usize::MAX).saturating_mul(BYTES_PER_KIB);
        self.pattern_bytes = self.pattern_bytes.saturating_add(bytes);
        Ok(Rule::Pattern(regex, u64::from(kib).saturating_mul(4)))
    }

    fn nodes(&mut self, value: &Json, at: &str, depth: usize) -> Result<Vec<Node>, String> {
        let schemas = array(value, at)?;
        if schemas.is_empty() {
            return Err(format!("{at} must not be empty"));
        }
        schemas.iter().map(|schema| self.node(schema, at, depth)).collect()
    }
}

/// The rule of a keyword that has no schemas within it; `None`: it is another keyword, or says nothing.
fn of_values(keyword: &str, value: &Json, at: &str) -> Result<Option<Rule>, String> {
    let wrong = |what: &str| format!("{at} must be {what}");
    let number = || value.is_number().then(|| value.to_string()).ok_or_else(|| wrong("a number"));
    let count = || {
        let no_count = || wrong("a whole number from 0 on");
        value
            .with_number(|number| number.count().ok_or_else(no_count))
            .unwrap_or_else(|| Err(no_count()))
    };
    Ok(Some(match keyword {
        "type" => types(value, at)?,
        "enum" => Rule::Enum(array(value, at)?.iter().map(canonical).collect()),
        "const" => Rule::Enum(BTreeSet::from([canonical(value)])),
        "minimum" => Rule::Number(Bound::Least, number()?),
        "maximum" => Rule::Number(Bound::Most, number()?),
        "exclusiveMinimum" => Rule::Number(Bound::Above, number()?),
        "exclusiveMaximum" => Rule::Number(Bound::Below, number()?),
        "multipleOf" => {
            let divisor = number()?;
            if !Decimal::read(&divisor).is_some_and(Decimal::is_divisor) {
                return Err(wrong("more than 0, with at most 18 digits"));
            }
            Rule::Number(Bound::MultipleOf, divisor)
        }
        "minLength" => Rule::Length(Bound::Least, count()?),
        "maxLength" => Rule::Length(Bound::Most, count()?),
        "minItems" => Rule::Items(Bound::Least, count()?),
        "maxItems" => Rule::Items(Bound::Most, count()?),
        "format" => {
            let name = value.as_text().ok_or_else(|| wrong("a text"))?;
            if FORMATS.contains(&name) {
                return Ok(Some(Rule::Format(name.to_owned())));
            }
            return Ok(None);
        }
        "required" => Rule::Required(texts(array(value, at)?, at)?),
        "uniqueItems" => match value {
            Json::Bool(true) => Rule::Unique,
            Json::Bool(false) => return Ok(None),
            _ => return Err(wrong("true or false")),
        },
        _ => return Ok(None),
    }))
}

fn types(value: &Json, at: &str) -> Result<Rule, String> {
    let known = ["string", "number", "integer", "boolean", "null", "object", "array"];
    let types = match value {
        Json::Text(one) => vec![one.to_string()],
        several => texts(array(several, at)?, at)?,
    };
    if types.is_empty() || types.iter().any(|name| !known.contains(&name.as_str())) {
        return Err(format!("{at} must be one or more of {}", known.join(", ")));
    }
    Ok(Rule::Types(types))
}

fn is_annotation(keyword: &str) -> bool {
    matches!(keyword, "$schema" | "format" | "uniqueItems") || annotation(keyword).is_some()
}

/// Checks a keyword that says nothing about whether a value is valid; refuses one that is not known.
fn check_annotation(keyword: &str, value: &Json, at: &str) -> Result<(), String> {
    let text = || value.as_text().ok_or_else(|| format!("{at} must be a text"));
    match (keyword, annotation(keyword)) {
        ("uniqueItems", _) => Ok(()),
        ("$schema", _) if text()?.trim_end_matches('#') == DIALECT => Ok(()),
        ("$schema", _) => {
            Err(format!("{at} must be {DIALECT}, which is the dialect that is checked here"))
        }
        ("format", _) if FORMATS_NOTED.contains(&text()?) => Ok(()),
        ("format", _) => {
            let known = [&FORMATS[..], &FORMATS_NOTED].concat().join(", ");
            Err(format!("{at} is not a known format; known are {known}"))
        }
        (_, Some(kind)) if kind.is_empty() || type_of(value) == kind => Ok(()),
        (_, Some(kind)) => Err(format!("{at} must be of the type {kind}")),
        (_, None) => Err(format!(
            "{at} is a keyword that is not checked here; leave it out. docs/api.md lists those that are"
        )),
    }
}

fn array<'v>(value: &'v Json, at: &str) -> Result<&'v [Json], String> {
    value.as_list().ok_or_else(|| format!("{at} must be an array"))
}

fn texts(values: &[Json], at: &str) -> Result<Vec<String>, String> {
    let text = |value: &Json| value.as_text().map(str::to_owned);
    values.iter().map(|value| text(value).ok_or_else(|| format!("{at} must hold texts"))).collect()
}

fn pattern(text: &str, at: &str) -> Result<(Regex, u32), String> {
    if text.len() > MAX_PATTERN_BYTES {
        return Err(format!("{at} has more than {MAX_PATTERN_BYTES} bytes"));
    }
    let mut why = String::new();
    for kib in PATTERN_KIB {
        let limit = usize::try_from(kib).unwrap_or_default().saturating_mul(1024);
        match RegexBuilder::new(text).size_limit(limit).build() {
            Ok(regex) => return Ok((regex, kib)),
            Err(error) => why = error.to_string(),
        }
    }
    Err(format!("{at} cannot be used: {why}"))
}

/// A value in the one form that all equal values have. Its length is in proportion to the value.
fn canonical(value: &Json) -> String {
    let mut text = String::new();
    let _is_paid = write_canonical(value, &mut text, &mut |_| true);
    text
}

/// Pays for each part before it is written; nothing more is written once that fails.
fn write_canonical(value: &Json, into: &mut String, pay: &mut dyn FnMut(usize) -> bool) -> bool {
    let size = match value {
        Json::Object(members) => members.iter().map(|(name, _)| name.len()).sum(),
        Json::Text(text) | Json::Number(text) => text.len(),
        _ => 1,
    };
    if !pay(size.saturating_add(1)) {
        return false;
    }
    match value {
        Json::Object(members) => {
            into.push('{');
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_unstable_by_key(|(name, _)| *name);
            let is_paid = sorted.into_iter().all(|(name, value)| {
                into.push_str(&quoted(name));
                into.push(':');
                let is_paid = write_canonical(value, into, pay);
                into.push(',');
                is_paid
            });
            into.push('}');
            return is_paid;
        }
        Json::List(items) => {
            into.push('[');
            let is_paid = items.iter().all(|item| {
                let is_paid = write_canonical(item, into, pay);
                into.push(',');
                is_paid
            });
            into.push(']');
            return is_paid;
        }
        Json::Whole(_) | Json::Number(_) => {
            let _written = value.with_number(|number| number.write_form(into));
        }
        _ => into.push_str(&value.to_string()),
    }
    true
}

/// Where a value stands in the payload.
enum Place<'p> {
    Root,
    Member(&'p Self, &'p str),
    Item(&'p Self, usize),
}

impl Place<'_> {
    fn pointer(&self) -> String {
        match self {
            Self::Root => String::new(),
            Self::Member(parent, name) => {
                let name = name.replace('~', "~0").replace('/', "~1");
                format!("{}/{name}", parent.pointer())
            }
            Self::Item(parent, n) => format!("{}/{n}", parent.pointer()),
        }
    }
}

/// One check.
struct Run<'s> {
    schema: &'s Schema,
    is_sealed: bool,
    /// What is left of it; 0: the check has failed.
    work: u64,
    mistakes: Vec<String>,
    /// Above 0 where a mistake is none of the payload's, as in one branch of several.
    quiet: u32,
}

impl Run<'_> {
    fn pay(&mut self, work: usize) -> bool {
        self.work = self.work.saturating_sub(u64::try_from(work).unwrap_or(u64::MAX));
        self.work > 0
    }

    /// The one form of a value; `None`: there is no work left.
    fn canonical(&mut self, value: &Json) -> Option<String> {
        let mut text = String::new();
        write_canonical(value, &mut text, &mut |work| self.pay(work)).then_some(text)
    }

    /// Notes a mistake, unless the rule holds.
    fn judge(&mut self, holds: bool, at: &Place<'_>, what: impl FnOnce() -> String) -> bool {
        if !holds && self.quiet == 0 && self.mistakes.len() < MAX_MISTAKES {
            let pointer = at.pointer();
            let place = if pointer.is_empty() { "the payload" } else { &pointer };
            let mistake = format!("{place} {}", what());
            let shown: String = mistake.chars().take(MAX_MISTAKE_CHARS).collect();
            self.mistakes.push(if shown.len() < mistake.len() { shown + "…" } else { shown });
        }
        holds
    }

    /// Whether no name is twice in an object. What reads such a payload may see another value than was checked.
    fn names_are_clear(&mut self, value: &Json, at: &Place<'_>) -> bool {
        match value {
            Json::Object(members) => {
                if let Some(name) = members.name_twice() {
                    return self.judge(false, at, || format!("has the name {name:?} twice"));
                }
                let mut inner = members.iter();
                inner.all(|(name, value)| self.names_are_clear(value, &Place::Member(at, name)))
            }
            Json::List(items) => {
                let mut items = items.iter().enumerate();
                items.all(|(n, item)| self.names_are_clear(item, &Place::Item(at, n)))
            }
            _ => true,
        }
    }

    fn quietly(&mut self, node: &Node, value: &Json, at: &Place<'_>) -> bool {
        self.quiet = self.quiet.saturating_add(1);
        let holds = self.node(node, value, at);
        self.quiet = self.quiet.saturating_sub(1);
        holds
    }

    fn node(&mut self, node: &Node, value: &Json, at: &Place<'_>) -> bool {
        if self.is_sealed && value.as_text().is_some_and(sealed::is_token) {
            return true;
        }
        let mut holds = true;
        for rule in node {
            holds &= self.pay(1) && self.rule(rule, value, at);
            if self.work == 0 {
                return false;
            }
        }
        holds
    }

    fn rule(&mut self, rule: &Rule, value: &Json, at: &Place<'_>) -> bool {
        match rule {
            Rule::Never => self.judge(false, at, || "is not allowed".to_owned()),
            Rule::Types(types) => {
                let holds = types.iter().any(|name| is_of(value, name));
                self.judge(holds, at, || {
                    format!("must be {}, and is {}", types.join(" or "), type_of(value))
                })
            }
            Rule::Enum(allowed) => {
                let holds = self.canonical(value).is_some_and(|text| allowed.contains(&text));
                self.judge(holds, at, || "is none of the values that are allowed".to_owned())
            }
            Rule::Number(bound, than) => {
                let Some(limit) = Decimal::read(than) else { return true };
                let digits = if let Json::Number(text) = value { text.len() } else { 1 };
                let is_within = |number: Decimal<'_>| bound.holds(number, limit);
                let holds = self.pay(digits / 16) && value.with_number(is_within).unwrap_or(true);
                self.judge(holds, at, || format!("must be {} {than}", bound.words()))
            }
            Rule::Length(..) | Rule::Pattern(..) | Rule::Format(_) => {
                let Some(text) = value.as_text() else { return true };
                self.text(rule, text, at)
            }
            Rule::Items(bound, than) => {
                let count = value.as_list().map(<[Json]>::len);
                self.count(count, *bound, *than, at, "items")
            }
            Rule::Unique => {
                let Json::List(items) = value else { return true };
                let mut seen = BTreeSet::new();
                let is_new =
                    |item: &Json| self.canonical(item).is_some_and(|text| seen.insert(text));
                let holds = items.iter().all(is_new);
                self.judge(holds, at, || "must not hold an item twice".to_owned())
            }
            Rule::Required(_) | Rule::Properties { .. } => {
                let Json::Object(members) = value else { return true };
                self.members(rule, members, at)
            }
            Rule::Elements(node) => {
                let Json::List(items) = value else { return true };
                let mut holds = true;
                for (n, item) in items.iter().enumerate() {
                    holds &= self.pay(1) && self.node(node, item, &Place::Item(at, n));
                }
                holds
            }
            _ => self.combined(rule, value, at),
        }
    }

    fn text(&mut self, rule: &Rule, text: &str, at: &Place<'_>) -> bool {
        match rule {
            Rule::Length(bound, than) => {
                self.pay(text.len() / 16)
                    && self.count(Some(text.chars().count()), *bound, *than, at, "characters")
            }
            Rule::Pattern(regex, cost) => {
                let cost = usize::try_from(*cost).unwrap_or(usize::MAX);
                let holds = self.pay(text.len().saturating_mul(cost)) && regex.is_match(text);
                self.judge(holds, at, || format!("does not match the pattern {regex}"))
            }
            Rule::Format(format) => {
                let is_date = |text: &str| Timestamp::parse(text).is_some();
                if !self.pay(text.len()) {
                    return false;
                }
                let holds = match format.as_str() {
                    "date-time" => text.contains(['T', 't', ' ']) && is_date(text),
                    "date" => text.len() == 10 && is_date(&format!("{text}T00:00:00Z")),
                    "uuid" => text.len() == 36 && uuid::Uuid::try_parse(text).is_ok(),
                    _ => true,
                };
                self.judge(holds, at, || format!("is not a {format}"))
            }
            _ => true,
        }
    }

    fn members(&mut self, rule: &Rule, members: &Members, at: &Place<'_>) -> bool {
        let mut holds = true;
        match rule {
            Rule::Required(names) => {
                let has: BTreeSet<&str> = members.iter().map(|(name, _)| name).collect();
                if !self.pay(has.len()) {
                    return false;
                }
                for name in names {
                    let is_there = self.pay(1 + name.len() / 16) && has.contains(name.as_str());
                    holds &= self.judge(is_there, at, || format!("has no member {name:?}"));
                }
            }
            Rule::Properties { named, others } => {
                for (name, value) in members.iter() {
                    holds &= self.pay(1 + name.len() / 16);
                    let Some(node) = named.get(name).or(others.as_ref()) else { continue };
                    holds &= self.node(node, value, &Place::Member(at, name));
                }
            }
            _ => {}
        }
        holds
    }

    fn combined(&mut self, rule: &Rule, value: &Json, at: &Place<'_>) -> bool {
        match rule {
            Rule::All(all) => {
                let mut holds = true;
                for node in all {
                    holds &= self.node(node, value, at);
                }
                holds
            }
            Rule::Any(all) => {
                let holds = all.iter().any(|node| self.quietly(node, value, at));
                self.judge(holds, at, || format!("fits none of the {} in anyOf", all.len()))
            }
            Rule::One(all) => {
                let fitting = all.iter().filter(|node| self.quietly(node, value, at)).count();
                let of = all.len();
                self.judge(fitting == 1, at, || {
                    format!("fits {fitting} of the {of} in oneOf, not 1")
                })
            }
            Rule::Not(node) => {
                let holds = !self.quietly(node, value, at);
                self.judge(holds && self.work > 0, at, || "is what `not` forbids".to_owned())
            }
            Rule::Ref(name) => match self.schema.defs.get(name) {
                Some(node) => self.node(node, value, at),
                None => false,
            },
            _ => true,
        }
    }

    fn count(
        &mut self,
        count: Option<usize>,
        bound: Bound,
        than: u64,
        at: &Place<'_>,
        of: &str,
    ) -> bool {
        let count = count.map(|count| u64::try_from(count).unwrap_or(u64::MAX));
        let holds = count.is_none_or(|count| bound.allows(count, than));
        self.judge(holds, at, || format!("must have {} {than} {of}", bound.words()))
    }
}

fn is_of(value: &Json, name: &str) -> bool {
    if name == "integer" {
        let has_fraction = value.with_number(|number| !number.is_whole());
        return has_fraction == Some(false);
    }
    type_of(value) == name
}

/// The type of a value, in the words of JSON Schema.
const fn type_of(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "boolean",
        Json::Whole(_) | Json::Number(_) => "number",
        Json::Text(_) => "string",
        Json::List(_) => "array",
        Json::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::*;

    fn compiled(schema: &Value) -> Schema {
        Schema::compile(&Json::from(schema)).unwrap()
    }

    fn says(schema: &Value, payload: &Value) -> Option<String> {
        compiled(schema).check(payload.to_string().as_bytes(), false)
    }

    fn read(text: &str) -> Json {
        Json::read(text.as_bytes()).unwrap()
    }

    #[test]
    fn the_form_of_a_deep_value_is_as_long_as_the_value() {
        let nested = |deep: usize| format!("{}1{}", "[".repeat(deep), "]".repeat(deep));
        assert!(canonical(&read(&nested(120))).len() < 500);
        let object = read(r#"{"b":[1.0,"x"],"a":null}"#);
        assert_eq!(canonical(&object), r#"{"a":null,"b":[1e0,"x",],}"#);
        // 1e308 has 309 digits, and 5 characters.
        for number in ["1e308", "-1e308", "5e-324", "0.1", "-1e19", "18446744073709551616"] {
            let form = canonical(&read(number));
            assert!(form.len() <= 25, "{number}: {form}");
        }
        let same = [("1e18", "1000000000000000000"), ("-0.0", "0"), ("1E308", "10e307")];
        for (one, other) in same {
            assert_eq!(canonical(&read(one)), canonical(&read(other)));
        }
        let other = ["18446744073709551616", "18446744073709551617"];
        assert_ne!(canonical(&read(other[0])), canonical(&read(other[1])));
    }

    /// What floats cannot decide: the payload is given as it is written.
    #[test]
    fn numbers_are_checked_by_their_digits() {
        for (schema, payload, fits) in [
            (r#"{"multipleOf":0.01}"#, "19.99", true),
            (r#"{"multipleOf":0.01}"#, "19.991", false),
            (r#"{"multipleOf":0.01}"#, "5000000000000.055", false),
            (r#"{"multipleOf":0.01}"#, "5000000000000.05", true),
            (r#"{"multipleOf":2}"#, "9007199254740993", false),
            (r#"{"multipleOf":0.1}"#, "0.3", true),
            (r#"{"multipleOf":0.1}"#, "1e400", true),
            (r#"{"maximum":9007199254740992}"#, "9007199254740993", false),
            (r#"{"maximum":18446744073709551616}"#, "18446744073709551616", true),
            (r#"{"maximum":18446744073709551616}"#, "18446744073709551617", false),
            (r#"{"exclusiveMaximum":0.1}"#, "0.09999999999999999999", true),
            (r#"{"exclusiveMinimum":0.1}"#, "0.1000000000000000000001", true),
            (r#"{"minimum":-1e400}"#, "-1e401", false),
            (r#"{"const":18446744073709551617}"#, "18446744073709551617", true),
            (r#"{"const":18446744073709551617}"#, "18446744073709551616", false),
            (r#"{"enum":[1.10,2]}"#, "1.1", true),
            (r#"{"enum":[9007199254740992]}"#, "9007199254740993", false),
            (r#"{"uniqueItems":true}"#, "[9007199254740992,9007199254740993]", true),
            (r#"{"uniqueItems":true}"#, "[1,1.0]", false),
            (r#"{"type":"integer"}"#, "1e400", true),
            (r#"{"type":"integer"}"#, "9007199254740993.5", false),
            (r#"{"type":"integer"}"#, "123456789012345678901234567890.0", true),
            (r#"{"minLength":2.0}"#, "\"a\"", false),
            (r#"{"required":["a"]}"#, r#"{"a":1,"note":"cut \ud83d"}"#, true),
        ] {
            let schema = Schema::compile(&read(schema)).unwrap();
            let said = schema.check(payload.as_bytes(), false);
            assert_eq!(said.is_none(), fits, "{schema:?} {payload} {said:?}");
        }
    }

    #[test]
    fn a_payload_with_a_name_twice_fits_no_schema() {
        let schema = Schema::compile(&Json::Bool(true)).unwrap();
        let said = schema.check(br#"{"a":[{"b/c":{"x":1,"\u0078":2}}]}"#, false).unwrap();
        assert_eq!(said, "/a/0/b~1c has the name \"x\" twice");
    }

    #[test]
    fn what_a_schema_says_in_vain_is_refused() {
        for (schema, why) in [
            (r#"{"format":"datetime"}"#, "#/format is not a known format"),
            (r#"{"format":1}"#, "#/format must be a text"),
            (r#"{"$schema":"http://json-schema.org/draft-07/schema#"}"#, "draft/2020-12/schema"),
            (r#"{"$schema":true}"#, "#/$schema must be a text"),
            (r#"{"title":1}"#, "#/title must be of the type string"),
            (r#"{"properties":{"a":{"deprecated":"yes"}}}"#, "#/properties/a/deprecated must be"),
            (r#"{"examples":1}"#, "#/examples must be of the type array"),
            (r#"{"uniqueItems":"yes"}"#, "#/uniqueItems must be true or false"),
            (r#"{"minLength":1.5}"#, "whole number"),
            (r#"{"maximum":"5"}"#, "#/maximum must be a number"),
            (r#"{"multipleOf":-1}"#, "more than 0"),
            (r#"{"multipleOf":1.1234567890123456789}"#, "at most 18 digits"),
            (r#"{"type":"object","type":"array"}"#, "# has the name \"type\" twice"),
            (r#"{"properties":{"a":{},"a":{}}}"#, "#/properties has the name \"a\" twice"),
        ] {
            let said = Schema::compile(&read(schema)).unwrap_err();
            assert!(said.contains(why), "{schema}: {said}");
        }
        for schema in [
            r#"{"$schema":"https://json-schema.org/draft/2020-12/schema","$id":"a","default":[1]}"#,
            r#"{"$schema":"https://json-schema.org/draft/2020-12/schema#","format":"ipv4"}"#,
        ] {
            assert!(Schema::compile(&read(schema)).is_ok(), "{schema}");
        }
    }

    #[test]
    fn a_schema_that_an_earlier_version_took_is_still_checked() {
        for annotations in [
            r#""$schema":"http://json-schema.org/draft-07/schema#""#,
            r#""format":"iban","title":7,"examples":{}"#,
        ] {
            let schema = read(&format!(r#"{{"type":"string",{annotations}}}"#));
            assert!(Schema::compile(&schema).is_err());
            let stored = Schema::compile_stored(&schema).unwrap();
            assert!(stored.check(b"7", false).is_some(), "{annotations}");
            assert_eq!(stored.check(b"\"a\"", false), None);
        }
        assert!(Schema::compile_stored(&read(r#"{"contains":1}"#)).is_err());
    }

    #[test]
    fn a_mistake_quotes_a_part_of_a_long_name() {
        let closed = json!({ "additionalProperties": false });
        let said = says(&closed, &json!({ "n".repeat(100_000): 1 })).unwrap();
        assert!(said.chars().count() <= MAX_MISTAKE_CHARS + 50, "{}", said.len());
    }

    #[test]
    fn a_verdict_is_that_of_an_independent_library() {
        let schemas = [
            json!(true),
            json!(false),
            json!({ "type": "integer" }),
            json!({ "type": ["string", "null"] }),
            json!({ "enum": [1, "a", null, { "b": [1, 2] }] }),
            json!({ "const": 2.0 }),
            json!({ "minimum": 2, "exclusiveMaximum": 5.5 }),
            json!({ "exclusiveMinimum": 2, "maximum": 7, "multipleOf": 2.5 }),
            json!({ "minLength": 2, "maxLength": 3 }),
            json!({ "pattern": "^a+b?$" }),
            json!({ "required": ["a"], "properties": { "a": { "type": "string" } } }),
            json!({ "properties": { "a": {} }, "additionalProperties": false }),
            json!({ "additionalProperties": { "type": "number" } }),
            json!({ "items": { "minimum": 2 }, "minItems": 1, "maxItems": 3 }),
            json!({ "uniqueItems": true }),
            json!({ "allOf": [{ "type": "string" }, { "minLength": 3 }] }),
            json!({ "anyOf": [{ "type": "string" }, { "minimum": 3 }] }),
            json!({ "oneOf": [{ "type": "number" }, { "type": "integer" }, { "const": "a" }] }),
            json!({ "not": { "type": "object" } }),
            json!({ "$ref": "#/$defs/a", "$defs": { "a": { "items": { "$ref": "#/$defs/b" } }, "b": { "type": "number" } } }),
        ];
        let payloads = [
            json!(null),
            json!(true),
            json!(1),
            json!(2.0),
            json!(2.5),
            json!(5),
            json!(7.5),
            json!(1e300),
            json!("a"),
            json!("ab"),
            json!("aab"),
            json!("\u{fc}\u{fc}\u{fc}"),
            json!({}),
            json!({ "a": "x" }),
            json!({ "a": 1, "b": 2 }),
            json!({ "b": [1, 2.0] }),
            json!([]),
            json!([1, 1.0]),
            json!([2, 3]),
            json!([2, 3, 4, 5]),
            json!([{ "a": 1, "b": 2 }, { "b": 2, "a": 1 }]),
            json!(["a", 1]),
        ];
        for schema in &schemas {
            let library = jsonschema::draft202012::new(schema).unwrap();
            for payload in &payloads {
                let said = says(schema, payload);
                assert_eq!(
                    said.is_none(),
                    library.is_valid(payload),
                    "{schema} {payload} {said:?}"
                );
            }
        }
    }

    #[test]
    fn formats_that_are_checked() {
        for (format, good, bad) in [
            ("date-time", "2026-01-31T12:00:00+01:00", "2026-01-31"),
            ("date", "2026-01-31", "2026-02-31"),
            ("uuid", "019c1447-5800-7000-8000-000000000009", "019c1447"),
            ("email", "a@b", "anything"),
        ] {
            let schema = json!({ "format": format });
            assert_eq!(says(&schema, &json!(good)), None);
            assert_eq!(says(&schema, &json!(bad)).is_none(), format == "email", "{format}");
        }
    }

    /// How much work a check took, and whether that was all it had.
    fn work(schema: &Value, payload: &Value) -> (u64, bool) {
        let text = payload.to_string();
        let all = WORK_BASE + u64::try_from(text.len()).unwrap() * WORK_PER_BYTE;
        let schema = compiled(schema);
        let mut run =
            Run { schema: &schema, is_sealed: false, work: all, mistakes: Vec::new(), quiet: 0 };
        run.node(&schema.root, &read(&text), &Place::Root);
        (all - run.work, run.work == 0)
    }

    #[test]
    fn the_work_of_a_check_is_bounded_whatever_the_schema() {
        // Each level asks twice for the one below: 2 to the power of 30 looks at one value.
        let level = |n: u32| {
            let next = json!({ "$ref": format!("#/$defs/l{}", n + 1) });
            (format!("l{n}"), json!({ "allOf": [next, next] }))
        };
        let mut defs: Map<String, Value> = (0..15).map(level).collect();
        defs.insert("l15".to_owned(), json!({ "type": "number" }));
        let twice = json!({ "$ref": "#/$defs/l0", "$defs": defs });
        let branches: Vec<Value> = (0..400).map(|n| json!({ "const": n })).collect();
        let many: Vec<u32> = (0..10_000).collect();
        let long = "a".repeat(200_000);
        for (schema, payload) in [
            (twice, json!(1)),
            (json!({ "items": { "oneOf": branches } }), json!(many)),
            (json!({ "pattern": "(a|a|a)*(a|a)*[ab]{20}x$" }), json!(long)),
            (json!({ "uniqueItems": true }), json!(many)),
            (json!({ "enum": [0], "items": { "const": 0 } }), json!(vec![1e308; 10_000])),
            (
                json!({ "anyOf": vec![json!({ "uniqueItems": true }); 900] }),
                json!([long, 1e308, long]),
            ),
        ] {
            let (took, is_all) = work(&schema, &payload);
            let bytes = u64::try_from(payload.to_string().len()).unwrap();
            assert!(took <= WORK_BASE + bytes * WORK_PER_BYTE, "{took}");
            let mut run = Run {
                schema: &compiled(&schema),
                is_sealed: false,
                work: 1,
                mistakes: Vec::new(),
                quiet: 0,
            };
            assert_eq!(run.canonical(&Json::from(&payload)), None, "it is written without work");
            if is_all {
                let said = says(&schema, &payload).unwrap();
                assert!(said.contains("checking it took too long"), "{said}");
            }
        }
        // A schema of the usual kind takes a part of it.
        let usual = json!({ "items": { "type": "object", "required": ["id"], "properties": {
            "id": { "type": "string", "pattern": "^INV-[0-9]{1,9}$" }, "n": { "type": "integer", "minimum": 0 } } } });
        let lines: Vec<Value> =
            (0..1000).map(|n| json!({ "id": format!("INV-{n}"), "n": n })).collect();
        let (took, is_all) = work(&usual, &json!(lines));
        assert!(!is_all && says(&usual, &json!(lines)).is_none(), "{took}");
    }

    #[test]
    fn a_sealed_value_fits_where_it_was_checked_before() {
        let schema = compiled(&json!({ "type": "integer" }));
        let sealed = br#""obx-sealed.v.AAAA.""#;
        assert!(schema.check(sealed, true).is_none() && schema.check(sealed, false).is_some());
    }
}
