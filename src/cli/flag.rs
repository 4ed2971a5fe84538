//! The flags of an operation of the API: one for each parameter and each simple field of its body, with the type, the
//! bounds and the description that the API gives it.
//!
//! A noun's table ([`super::verb`]) has lines only for what differs, written as on a help page:
//! `field --flag --alias <VALUE>  help`. The first word may also be `<field>` or `[field]` (an argument, not a flag),
//! `!field` (no flag; `!*`: none for all fields without a line), `field.*` (the fields of an object), `--flag` (no field:
//! the command reads it itself) or `Heading:` (of the flags after it). More words: `needs:OTHER`, `not:OTHER`,
//! `of:WORD,WORD` and `required`. Lines about fields that the operation does not have are ignored, so that creating and
//! changing can share lines.

use clap::builder::{BoolValueParser, PossibleValuesParser, TypedValueParser, ValueParser};
use clap::{Arg, ArgAction, ArgMatches, value_parser};
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use crate::api::route::{Body, Place, Route};
use crate::cli::input;

/// Fields that never become flags: secrets, which every user of the machine could read in the process list; bytes, which
/// commands read from files; and what commands decide themselves.
const NO_FLAGS: [&str; 6] = ["secret", "secrets", "password", "payload_base64", "dry_run", "try"];
/// Parameters that every list has, with the same flags ([`super::noun::Listing`]).
const OF_LISTS: [&str; 4] = ["limit", "after", "since", "until"];

/// What `--since` says, wherever it is.
pub(super) const SINCE: &str = "Only rows from this time on: 2026-01-31T12:00:00Z, the day 2026-01-31 (UTC), or 2h for two hours ago";
/// What `--until` says, wherever it is.
pub(super) const UNTIL: &str = "Only rows before this time";

/// A parameter of an operation, or a field of its body: `policy.steps` is a field of the object `policy`.
pub(super) struct Field {
    pub(super) name: String,
    pub(super) part: Part,
    kind: FlagKind,
    about: String,
    required: bool,
}

/// The part of a request that has a field.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Path,
    Query,
    Body,
}

/// What a field may be.
enum FlagKind {
    Switch,
    Number(u64, u64),
    Words(Vec<String>),
    Time,
    Text,
    /// An object with any members; each value of the flag is one of them.
    Map,
    Many(Box<Self>),
    /// Something else: no flag follows from it.
    Other,
}

/// The parameters of an operation, then the fields of its body.
pub(super) fn fields(route: &Route) -> Vec<Field> {
    let settings = SchemaSettings::draft2020_12().for_deserialize();
    let mut schemas = settings.with(|it| it.inline_subschemas = true).into_generator();
    let mut all = Vec::new();
    for param in route.doc.params.iter().filter(|param| param.place != Place::Header) {
        let is_path = param.place == Place::Path;
        let part = if is_path { Part::Path } else { Part::Query };
        let kind = FlagKind::of((param.describe)(&mut schemas).as_value());
        let name = param.name.to_owned();
        let about = help_text(param.about);
        all.push(Field { name, part, kind, about, required: is_path });
    }
    if let Some(Body::Json { describe, .. }) = route.doc.body {
        add_members("", describe(&mut schemas).as_value(), &mut all);
    }
    all
}

/// Adds the members of an object; if it has several forms, those of all forms.
fn add_members(within: &str, schema: &Value, all: &mut Vec<Field>) {
    let forms = forms(schema);
    let is_required = |name: &str| {
        let names = |form: &&Value| {
            let required = form.get("required").and_then(Value::as_array);
            required.is_some_and(|names| names.iter().any(|known| known == name))
        };
        within.is_empty() && forms.iter().all(names)
    };
    let members = forms.iter().filter_map(|form| form.get("properties")?.as_object()).flatten();
    for (member, schema) in members {
        let name = format!("{within}{member}");
        let kind = FlagKind::of(schema);
        if let Some(known) = all.iter_mut().find(|field| field.name == name) {
            // Each form of the object has its own word.
            if let (FlagKind::Words(words), FlagKind::Words(more)) = (&mut known.kind, kind) {
                words.extend(more);
            }
            continue;
        }
        if matches!(kind, FlagKind::Other) && within.is_empty() {
            add_members(&format!("{name}."), schema, all);
        }
        let about =
            help_text(schema.get("description").and_then(Value::as_str).unwrap_or_default());
        all.push(Field { name, part: Part::Body, kind, about, required: is_required(member) });
    }
}

/// The forms of a value, without null.
fn forms(schema: &Value) -> Vec<&Value> {
    let of = |word: &str| schema.get(word).and_then(Value::as_array);
    let forms = of("oneOf").or_else(|| of("anyOf"));
    let all = forms.map_or_else(|| vec![schema], |forms| forms.iter().collect());
    all.into_iter().filter(|form| form.get("type").is_none_or(|kind| kind != "null")).collect()
}

/// A description of the API as a help text.
fn help_text(about: &str) -> String {
    about.replace('\n', " ").replace('`', "").trim_end_matches('.').to_owned()
}

impl FlagKind {
    fn of(schema: &Value) -> Self {
        let forms = forms(schema);
        let [schema] = forms.as_slice() else { return Self::Other };
        let listed = schema.get("enum").and_then(Value::as_array).cloned();
        let words = listed.or_else(|| schema.get("const").map(|word| vec![word.clone()]));
        if let Some(words) = words {
            let words = words.iter().filter_map(Value::as_str).map(str::to_owned);
            let words: Vec<String> = words.collect();
            let is_switch = words.iter().all(|word| word == "true" || word == "false");
            return if is_switch { Self::Switch } else { Self::Words(words) };
        }
        let bound = |name: &str| schema.get(name).and_then(Value::as_u64);
        let types = schema.get("type");
        let of_type = |word: &str| {
            types.is_some_and(|types| match types {
                Value::Array(types) => types.iter().any(|known| known == word),
                one => one == word,
            })
        };
        if of_type("boolean") {
            Self::Switch
        } else if of_type("integer") {
            Self::Number(bound("minimum").unwrap_or(0), bound("maximum").unwrap_or(u64::MAX))
        } else if of_type("array") {
            Self::Many(Box::new(Self::of(schema.get("items").unwrap_or(&Value::Null))))
        } else if of_type("string") {
            let is_time = schema.get("format").is_some_and(|format| format == "date-time");
            if is_time { Self::Time } else { Self::Text }
        } else if of_type("object") && schema.get("properties").is_none() {
            Self::Map
        } else {
            Self::Other
        }
    }

    /// The placeholder of a value; empty: the flag's name.
    fn placeholder(&self) -> &'static str {
        match self {
            Self::Number(..) => "N",
            Self::Time => "TIME",
            _ => "",
        }
    }

    /// Reads a value of a flag; its placeholder says in which form people write it.
    fn parser(&self, placeholder: &str, field: &str) -> ValueParser {
        let text = |read: fn(&str) -> Result<String, String>| {
            ValueParser::new(move |given: &str| read(given).map(Value::from))
        };
        let number = |read: fn(&str) -> Result<u64, String>| {
            ValueParser::new(move |given: &str| read(given).map(Value::from))
        };
        let member = |read: fn(&str) -> Result<(String, String), String>| {
            ValueParser::new(move |given: &str| {
                let (name, value) = read(given)?;
                Ok::<_, String>(Value::Object(Map::from_iter([(name, value.into())])))
            })
        };
        match (placeholder, self) {
            (_, Self::Many(one)) => one.parser(placeholder, field),
            ("SPAN", Self::Number(..)) if field.ends_with("_ms") => number(input::millis),
            ("SPAN", Self::Number(..)) => number(input::seconds),
            ("SPAN" | "SPANS", _) => text(input::span),
            ("TIME", _) if field.ends_with("since") || field.ends_with("until") => {
                text(input::time)
            }
            ("CONDITION", _) => ValueParser::new(input::condition),
            ("PROBE", _) => ValueParser::new(input::probe),
            (_, Self::Map) if placeholder.contains('=') => member(input::pair),
            (_, Self::Map) => member(input::header),
            ("BOOL", Self::Switch) => BoolValueParser::new().map(Value::from).into(),
            (_, Self::Number(least, most)) => {
                value_parser!(u64).range(*least..=*most).map(Value::from).into()
            }
            (_, Self::Words(words)) => {
                let known = words.clone();
                let exact = move |given: String| {
                    let found = known.iter().find(|word| word.eq_ignore_ascii_case(&given));
                    Value::from(found.unwrap_or(&given).as_str())
                };
                PossibleValuesParser::new(words.clone()).map(exact).into()
            }
            _ => ValueParser::new(|given: &str| Ok::<_, String>(Value::from(given))),
        }
    }
}

/// A line of a noun's table.
#[derive(Default)]
struct FlagLine<'a> {
    first: &'a str,
    flags: Vec<&'a str>,
    placeholder: &'a str,
    needs: Vec<&'a str>,
    not: Vec<&'a str>,
    of: Vec<&'a str>,
    required: bool,
    help: &'a str,
}

impl<'a> FlagLine<'a> {
    fn read(line: &'a str) -> Self {
        let (head, help) = line.split_once("  ").unwrap_or((line, ""));
        let mut words = head.split(' ');
        let mut read = Self { help, first: words.next().unwrap_or_default(), ..Self::default() };
        read.flags.extend(read.first.strip_prefix("--"));
        for word in words {
            match word.split_once(':') {
                Some(("needs", other)) => read.needs.push(other),
                Some(("not", others)) => read.not.extend(others.split(',')),
                Some(("of", words)) => read.of.extend(words.split(',')),
                _ if word == "required" => read.required = true,
                _ => match word.strip_prefix("--") {
                    Some(flag) => read.flags.push(flag),
                    None => read.placeholder = word.trim_matches(['<', '>']),
                },
            }
        }
        read
    }

    /// The field, or the flag without a field, that it is about.
    fn name(&self) -> &'a str {
        self.first.trim_start_matches("--").trim_matches(['<', '>', '[', ']', '!'])
    }

    /// The argument or the flag of this line.
    fn arg(&self, field: Option<&Field>) -> Arg {
        let name = self.name();
        let last = name.rsplit('.').next().unwrap_or(name);
        let long =
            self.flags.first().map_or_else(|| last.replace('_', "-"), |flag| (*flag).to_owned());
        let is_argument = self.first.starts_with(['<', '['])
            || field.is_some_and(|field| field.part == Part::Path);
        let is_required = self.required || field.is_some_and(|field| field.required);
        let mut arg = Arg::new(name.to_owned());
        if is_argument {
            arg = arg.required(!self.first.starts_with('['));
        } else {
            let aliases = self.flags.iter().skip(1).map(|flag| (*flag).to_owned());
            arg = arg.long(long.clone()).required(is_required).visible_aliases(aliases);
        }
        arg = arg.conflicts_with_all(self.not.iter().map(|other| (*other).to_owned()));
        arg = self.needs.iter().fold(arg, |arg, other| arg.requires((*other).to_owned()));
        let given = FlagKind::Words(self.of.iter().map(|word| (*word).to_owned()).collect());
        let kind = if self.of.is_empty() {
            field.map_or(&FlagKind::Text, |field| &field.kind)
        } else {
            &given
        };
        let is_many =
            matches!(kind, FlagKind::Many(_) | FlagKind::Map) || self.placeholder.ends_with("...");
        arg = arg.help(self.help(field, last, is_many && !is_argument));
        let placeholder = self.placeholder.trim_end_matches("...");
        let is_switch = matches!(kind, FlagKind::Switch) || (field.is_none() && !is_argument);
        if is_switch && placeholder.is_empty() {
            return arg.action(ArgAction::SetTrue);
        }
        let shown = if placeholder.is_empty() { kind.placeholder() } else { placeholder };
        // The service checks the words of filters: it may know more of them than this program.
        let is_open = self.of.is_empty() && field.is_some_and(Field::is_filter);
        let kind =
            if is_open && matches!(kind, FlagKind::Words(_)) { &FlagKind::Text } else { kind };
        arg = arg.value_parser(kind.parser(shown, name)).ignore_case(true);
        if is_argument && is_many {
            arg = arg.num_args(1..);
        }
        if matches!(kind, FlagKind::Switch) {
            arg = arg.num_args(0..=1).default_missing_value("true");
        }
        if shown == "SPANS" {
            arg = arg.value_delimiter(',');
        }
        let usual = || long.replace('-', "_").to_ascii_uppercase();
        let shown = if shown.is_empty() { usual() } else { shown.to_owned() };
        arg.value_name(shown).action(if is_many { ArgAction::Append } else { ArgAction::Set })
    }

    fn help(&self, field: Option<&Field>, last: &str, is_repeated: bool) -> String {
        match field {
            _ if last == "since" => SINCE.to_owned(),
            _ if last == "until" => UNTIL.to_owned(),
            Some(Field { about, kind: FlagKind::Words(words), .. })
                if self.help.is_empty() && field.is_some_and(Field::is_filter) =>
            {
                format!("{about}: {}", words.join(", "))
            }
            Some(Field { about, .. }) if self.help.is_empty() => {
                format!("{about}{}", if is_repeated { "; may be repeated" } else { "" })
            }
            _ => self.help.to_owned(),
        }
    }
}

/// The arguments and flags of an operation: of the path, then as the lines of the table say, then of all other fields.
pub(super) fn args(fields: &[Field], table: &[&'static str], is_list: bool) -> Vec<Arg> {
    let lines: Vec<FlagLine<'static>> = table.iter().map(|line| FlagLine::read(line)).collect();
    let is_free = |field: &&Field| lines.iter().all(|line| line.name() != field.name);
    let mut heading = None;
    let mut args = Vec::new();
    for field in fields.iter().filter(|field| field.part == Part::Path).filter(is_free) {
        args.push(FlagLine::read(&field.name).arg(Some(field)));
    }
    for line in &lines {
        if let Some(title) = line.first.strip_suffix(':') {
            heading = Some(title);
        } else if let Some(object) = line.first.strip_suffix(".*") {
            let inner = fields.iter().filter(|field| {
                field.name.strip_prefix(object).is_some_and(|rest| rest.starts_with('.'))
            });
            args.extend(
                inner.filter(is_free).map(|field| {
                    FlagLine::read(&field.name).arg(Some(field)).help_heading(heading)
                }),
            );
        } else if !line.first.starts_with('!') {
            let field = fields.iter().find(|field| field.name == line.name());
            if field.is_some() || line.first.starts_with(['-', '[']) || fields.is_empty() {
                args.push(line.arg(field).help_heading(heading));
            }
        }
    }
    let is_simple = |field: &&Field| {
        let name = field.name.as_str();
        let is_of_list = is_list && field.part == Part::Query && OF_LISTS.contains(&name);
        let has_flag = !is_of_list && !name.contains('.') && !NO_FLAGS.contains(&name);
        has_flag
            && field.part != Part::Path
            && !matches!(field.kind, FlagKind::Other | FlagKind::Map)
    };
    let is_open = lines.iter().all(|line| line.first != "!*");
    let rest = fields.iter().filter(|_| is_open).filter(is_simple).filter(is_free);
    args.extend(rest.map(|field| FlagLine::read(&field.name).arg(Some(field))));
    args
}

/// The placeholder that a table gives to a field.
pub(super) fn placeholder(table: &[&'static str], field: &str) -> &'static str {
    let lines = table.iter().map(|line| FlagLine::read(line));
    lines
        .filter(|line| line.name() == field)
        .map(|line| line.placeholder)
        .next()
        .unwrap_or_default()
}

/// The given values of an argument or a flag.
pub(super) fn values(given: &ArgMatches, name: &str) -> Vec<Value> {
    if is_set(given, name) {
        return vec![true.into()];
    }
    let values = given.try_get_many::<Value>(name).ok().flatten();
    values.into_iter().flatten().cloned().collect()
}

/// Whether a flag without a value was given.
pub(super) fn is_set(given: &ArgMatches, name: &str) -> bool {
    given.try_get_one::<bool>(name).ok().flatten() == Some(&true)
}

impl Field {
    /// Whether it chooses among rows.
    fn is_filter(&self) -> bool {
        self.part == Part::Query || self.name.starts_with("filter.")
    }

    /// The flag's value in the form of the API.
    pub(super) fn value(&self, given: &ArgMatches) -> Option<Value> {
        let mut values = values(given, &self.name);
        match self.kind {
            _ if values.is_empty() => None,
            FlagKind::Many(_) => Some(Value::Array(values)),
            FlagKind::Map => {
                let members = values.into_iter().filter_map(|value| match value {
                    Value::Object(member) => Some(member),
                    _ => None,
                });
                Some(Value::Object(members.flatten().collect()))
            }
            _ => values.pop(),
        }
    }
}

/// Whether a line of a table says something of these fields, or of none.
#[cfg(test)]
pub(super) fn is_about(line: &'static str, fields: &[Field]) -> bool {
    let line = FlagLine::read(line);
    let object = line.name().strip_suffix('*');
    let is_known = |field: &Field| {
        field.name == line.name() || object.is_some_and(|object| field.name.starts_with(object))
    };
    line.first.starts_with(['-', '['])
        || line.first.ends_with(':')
        || fields.is_empty()
        || fields.iter().any(is_known)
}
