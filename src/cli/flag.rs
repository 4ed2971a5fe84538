//! The flags of an operation of the API: one for each parameter and each simple field of its body, with the type, the
//! bounds and the description that the API gives it.
//!
//! A row of a noun's table ([`super::verb`]) has a [`Flag`] only for what differs. Flags about fields that the operation does
//! not have are ignored, so that creating and changing can share them.

use clap::builder::{BoolValueParser, PossibleValuesParser, TypedValueParser, ValueParser};
use clap::{Arg, ArgAction, ArgMatches, value_parser};
use serde_json::{Map, Value};

use crate::api::described_value::{DescribedValue, ValueKind};
use crate::api::route::{Place, Route};
use crate::cli::input;

/// Fields that never become flags: secrets, which every user of the machine could read in the process list; bytes, which
/// commands read from files; and what commands decide themselves.
const NO_FLAGS: [&str; 7] =
    ["secret", "secrets", "password", "payload_base64", "dry_run", "try", "what_if"];
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
    let mut all = Vec::new();
    for param in route.doc.params.iter().filter(|param| param.place != Place::Header) {
        let is_path = param.place == Place::Path;
        all.push(Field {
            name: param.name.to_owned(),
            part: if is_path { Part::Path } else { Part::Query },
            kind: FlagKind::of(param.sent().value()),
            about: help_text(param.about),
            required: is_path,
        });
    }
    if let Some(body) = route.doc.sent_body() {
        add_members("", body.value(), &mut all);
    }
    all
}

/// Adds the members of an object; if it has several forms, those of all forms.
fn add_members(within: &str, object: DescribedValue<'_>, all: &mut Vec<Field>) {
    let forms = object.forms();
    for (member, value) in forms.iter().flat_map(|form| form.members()) {
        let name = format!("{within}{member}");
        let kind = FlagKind::of(value);
        if let Some(known) = all.iter_mut().find(|field| field.name == name) {
            // Each form of the object has its own word.
            if let (FlagKind::Words(words), FlagKind::Words(more)) = (&mut known.kind, kind) {
                words.extend(more);
            }
            continue;
        }
        if matches!(kind, FlagKind::Other) && within.is_empty() {
            add_members(&format!("{name}."), value, all);
        }
        let required = within.is_empty() && forms.iter().all(|form| form.requires(member));
        all.push(Field { name, part: Part::Body, kind, about: help_text(value.about()), required });
    }
}

/// A description of the API as a help text.
fn help_text(about: &str) -> String {
    about.replace('\n', " ").replace('`', "").trim_end_matches('.').to_owned()
}

impl FlagKind {
    fn of(value: DescribedValue<'_>) -> Self {
        match value.kind() {
            ValueKind::Words(words) => {
                let is_switch = words.iter().all(|word| word == "true" || word == "false");
                if is_switch { Self::Switch } else { Self::Words(words) }
            }
            ValueKind::Boolean => Self::Switch,
            ValueKind::Integer { least, most } => {
                Self::Number(least.unwrap_or(0), most.unwrap_or(u64::MAX))
            }
            ValueKind::List(item) => Self::Many(Box::new(Self::of(item))),
            ValueKind::Time => Self::Time,
            ValueKind::Text { .. } | ValueKind::Bytes => Self::Text,
            ValueKind::Map { .. } => Self::Map,
            ValueKind::Number | ValueKind::Object | ValueKind::Other => Self::Other,
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
            ("JSON|@FILE", Self::Map) => ValueParser::new(|given: &str| {
                let object = input::object("it", given);
                object.map(Value::Object).map_err(|failure| failure.message)
            }),
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

/// What a noun's table says of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flag {
    /// The field, or the flag without a field, that it is about.
    name: &'static str,
    form: Form,
    long: &'static str,
    also: &'static [&'static str],
    value: &'static str,
    needs: &'static [&'static str],
    not: &'static [&'static str],
    words: &'static [&'static str],
    is_required: bool,
    help: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// A flag for a field.
    Field,
    /// A flag that the command reads itself.
    Own,
    /// An argument, not a flag.
    Argument,
    OptionalArgument,
    /// The field has no flag.
    Without,
    /// Fields that are not named have none.
    WithoutOthers,
    /// Flags for the fields of an object that are not named.
    Members,
    /// The title of the flags after it.
    Heading,
}

/// A field without anything that differs.
const PLAIN: Flag = Flag {
    name: "",
    form: Form::Field,
    long: "",
    also: &[],
    value: "",
    needs: &[],
    not: &[],
    words: &[],
    is_required: false,
    help: "",
};

/// Fields that are not named get no flag.
pub(super) const ONLY_THESE: Flag = Flag { form: Form::WithoutOthers, ..PLAIN };

/// A flag for this field of the operation.
pub(super) const fn field(name: &'static str) -> Flag {
    Flag { name, ..PLAIN }
}

/// A flag that the command reads itself.
pub(super) const fn own(name: &'static str) -> Flag {
    Flag { name, form: Form::Own, long: name, ..PLAIN }
}

/// An argument.
pub(super) const fn argument(name: &'static str) -> Flag {
    Flag { name, form: Form::Argument, ..PLAIN }
}

/// An argument that may be left out.
pub(super) const fn optional(name: &'static str) -> Flag {
    Flag { name, form: Form::OptionalArgument, ..PLAIN }
}

/// No flag for this field.
pub(super) const fn without(name: &'static str) -> Flag {
    Flag { name, form: Form::Without, ..PLAIN }
}

/// Flags for the fields of this object that are not named.
pub(super) const fn members(name: &'static str) -> Flag {
    Flag { name, form: Form::Members, ..PLAIN }
}

/// A title for the flags after it.
pub(super) const fn heading(name: &'static str) -> Flag {
    Flag { name, form: Form::Heading, ..PLAIN }
}

impl Flag {
    /// Sets its name on the command line, if that is not the field's.
    pub(super) const fn long(self, long: &'static str) -> Self {
        Self { long, ..self }
    }

    /// Adds other names.
    pub(super) const fn also(self, also: &'static [&'static str]) -> Self {
        Self { also, ..self }
    }

    /// Sets the placeholder of its value, which also says in which form people write it; with `...` it may be repeated.
    pub(super) const fn value(self, value: &'static str) -> Self {
        Self { value, ..self }
    }

    /// It is only taken together with these.
    pub(super) const fn needs(self, needs: &'static [&'static str]) -> Self {
        Self { needs, ..self }
    }

    /// It is not taken together with these.
    pub(super) const fn not(self, not: &'static [&'static str]) -> Self {
        Self { not, ..self }
    }

    /// Sets the words that it may be.
    pub(super) const fn words(self, words: &'static [&'static str]) -> Self {
        Self { words, ..self }
    }

    /// It must be given.
    pub(super) const fn required(self) -> Self {
        Self { is_required: true, ..self }
    }

    /// Sets its help text, if that is not the API's description.
    pub(super) const fn help(self, help: &'static str) -> Self {
        Self { help, ..self }
    }

    const fn is_argument(&self) -> bool {
        matches!(self.form, Form::Argument | Form::OptionalArgument)
    }

    /// Whether this is the object that the field is in.
    fn has_member(&self, field: &Field) -> bool {
        field.name.strip_prefix(self.name).is_some_and(|rest| rest.starts_with('.'))
    }

    /// Whether it can stand without a field of the operation.
    const fn stands_alone(&self) -> bool {
        matches!(self.form, Form::Own | Form::OptionalArgument)
    }

    /// The argument or the flag, of this name.
    fn arg(&self, name: &str, field: Option<&Field>) -> Arg {
        let last = name.rsplit('.').next().unwrap_or(name);
        let long = if self.long.is_empty() { last.replace('_', "-") } else { self.long.to_owned() };
        let is_argument = self.is_argument() || field.is_some_and(|field| field.part == Part::Path);
        let is_required = self.is_required || field.is_some_and(|field| field.required);
        let mut arg = Arg::new(name.to_owned());
        if is_argument {
            arg = arg.required(self.form != Form::OptionalArgument);
        } else {
            let arg_of = arg.long(long.clone()).required(is_required);
            arg = arg_of.visible_aliases(self.also.iter().copied());
        }
        arg = arg.conflicts_with_all(self.not.iter().copied());
        arg = self.needs.iter().fold(arg, |arg, other| arg.requires(*other));
        let given = FlagKind::Words(self.words.iter().map(|word| (*word).to_owned()).collect());
        let kind = if self.words.is_empty() {
            field.map_or(&FlagKind::Text, |field| &field.kind)
        } else {
            &given
        };
        let is_many =
            matches!(kind, FlagKind::Many(_) | FlagKind::Map) || self.value.ends_with("...");
        arg = arg.help(self.help_text(field, last, is_many && !is_argument));
        let placeholder = self.value.trim_end_matches("...");
        let is_switch = matches!(kind, FlagKind::Switch) || (field.is_none() && !is_argument);
        if is_switch && placeholder.is_empty() {
            return arg.action(ArgAction::SetTrue);
        }
        let shown = if placeholder.is_empty() { kind.placeholder() } else { placeholder };
        // The service checks the words of filters: it may know more of them than this program.
        let is_open = self.words.is_empty() && field.is_some_and(Field::is_filter);
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

    fn help_text(&self, field: Option<&Field>, last: &str, is_repeated: bool) -> String {
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

/// The arguments and flags of an operation: of the path, then as the table says, then of all other fields.
pub(super) fn args(fields: &[Field], table: &[Flag], is_list: bool) -> Vec<Arg> {
    let is_free = |field: &&Field| table.iter().all(|flag| flag.name != field.name);
    let plain = |field: &Field| PLAIN.arg(&field.name, Some(field));
    let mut title = None;
    let mut args = Vec::new();
    let of_path = fields.iter().filter(|field| field.part == Part::Path);
    args.extend(of_path.filter(is_free).map(plain));
    for flag in table {
        match flag.form {
            Form::Heading => title = Some(flag.name),
            Form::Members => {
                let inner = fields.iter().filter(|field| flag.has_member(field)).filter(is_free);
                args.extend(inner.map(|field| plain(field).help_heading(title)));
            }
            Form::Without | Form::WithoutOthers => {}
            Form::Field | Form::Own | Form::Argument | Form::OptionalArgument => {
                let field = fields.iter().find(|field| field.name == flag.name);
                if field.is_some() || flag.stands_alone() || fields.is_empty() {
                    args.push(flag.arg(flag.name, field).help_heading(title));
                }
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
    let is_open = table.iter().all(|flag| flag.form != Form::WithoutOthers);
    let rest = fields.iter().filter(|_| is_open).filter(is_simple).filter(is_free);
    args.extend(rest.map(plain));
    args
}

/// The placeholder that a table gives to a field.
pub(super) fn placeholder(table: &[Flag], field: &str) -> &'static str {
    table.iter().find(|flag| flag.name == field).map_or("", |flag| flag.value)
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

/// Whether a flag of a table says something of these fields, or of none.
#[cfg(test)]
pub(super) fn is_about(flag: &Flag, fields: &[Field]) -> bool {
    let is_known = |field: &Field| match flag.form {
        Form::Members => flag.has_member(field),
        _ => field.name == flag.name,
    };
    let is_free = matches!(flag.form, Form::Heading | Form::WithoutOthers);
    is_free || flag.stands_alone() || fields.is_empty() || fields.iter().any(is_known)
}
