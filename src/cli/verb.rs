//! The commands of a noun: a table in the noun's file, from which flags, help pages and requests follow.
//!
//! ```text
//! job|~work  What the service does to many at once    a noun; a hidden name
//!   columns: ID 0 id; STATE 1 state                    of its lists; fields: those of one object (show.rs)
//!   show|look = getJob  One job, and how far it is     a verb; another name; the operation as the API names it
//!     --follow  Watch it to its end                    how its flags differ from the operation (flag.rs)
//!   cancel = cancelJob  Stop a job
//!     ? Cancel the job {id}                            what is asked before; {id} is the argument of this name
//!     > cancelled: {id}                                what is printed after, in place of the answer
//!     | What it has done stays done.                   the end of the help page
//! ```
//!
//! `  @name` begins lines that several verbs include with `    @name`. Without verbs, the first line is the command.
//! What a table cannot say is a function of the noun's file ([`online`], [`answered`], [`offline`]).
//!
//! Not here: the rows and fields that are printed ([`super::noun`]).

use clap::{ArgGroup, ArgMatches, Args, Command, FromArgMatches};
use data_encoding::BASE64;
use serde_json::{Map, Value};

use crate::api::route::{Body, Route};
use crate::api::routes;
use crate::base::text::without_mark;
use crate::cli::exit::Failure;
use crate::cli::flag::{self, Field, Part};
use crate::cli::noun::{Confirm, Listing, Noun, Query};
use crate::cli::remote::GlobalArgs;
use crate::cli::remote::{ConnectArgs, Remote, percent_encoded, with_query};
use crate::cli::{input, pii, secrets};
use crate::http::message::Method;
use crate::model::json::carried;

pub(super) type Done = Result<(), Failure>;

/// The commands of a noun.
pub(super) struct Commands {
    noun: &'static Noun,
    table: &'static str,
    custom: &'static [CustomVerb],
    inner: &'static [&'static Self],
}

/// Verbs, with `|` between them, that run in their own way.
pub(super) struct CustomVerb {
    verbs: &'static str,
    run: Run,
    more: fn(Command) -> Command,
}

#[derive(Clone, Copy)]
enum Run {
    Online(fn(&Call<'_>, &Remote) -> Done),
    Offline(fn(&Call<'_>) -> Done),
    Usual(Option<Show>),
}

/// Prints the answer to a call.
type Show = fn(&Call<'_>, &Remote, &Value) -> Done;

/// Exactly one of these flags is given; an error names them all.
pub(super) fn one_of(command: Command, flags: &'static [&'static str]) -> Command {
    command.group(ArgGroup::new("one").args(flags).required(true))
}

/// A verb that calls the service.
pub(super) const fn online(verbs: &'static str, run: fn(&Call<'_>, &Remote) -> Done) -> CustomVerb {
    CustomVerb { verbs, run: Run::Online(run), more: std::convert::identity }
}

/// A verb that does as usual, but shows the answer in its own way, unless as JSON.
pub(super) const fn answered(verbs: &'static str, show: Show) -> CustomVerb {
    CustomVerb { verbs, run: Run::Usual(Some(show)), more: std::convert::identity }
}

/// A verb that runs without the service, or calls it itself.
pub(super) const fn offline(verbs: &'static str, run: fn(&Call<'_>) -> Done) -> CustomVerb {
    CustomVerb { verbs, run: Run::Offline(run), more: std::convert::identity }
}

impl CustomVerb {
    /// Adds arguments, or says more about them.
    pub(super) const fn more(self, more: fn(Command) -> Command) -> Self {
        Self { more, ..self }
    }
}

/// What a table says of a command.
#[derive(Default)]
struct Entry {
    name: &'static str,
    shown: Vec<&'static str>,
    hidden: Vec<&'static str>,
    operation: &'static str,
    about: &'static str,
    flags: Vec<&'static str>,
    asks: &'static str,
    done: &'static str,
    after_help: Vec<&'static str>,
}

impl Entry {
    fn read(line: &'static str) -> Self {
        let (head, about) = line.split_once("  ").unwrap_or((line, ""));
        let (names, operation) = head.split_once(" = ").unwrap_or((head, ""));
        let mut names = names.split('|');
        let name = names.next().unwrap_or_default();
        let (hidden, shown): (Vec<&str>, Vec<&str>) = names.partition(|name| name.starts_with('~'));
        let hidden = hidden.into_iter().map(|name| name.trim_start_matches('~')).collect();
        Self { name, shown, hidden, operation, about, ..Self::default() }
    }

    /// Takes a line below the command.
    fn add(&mut self, line: &'static str) {
        match line.split_once(' ').unwrap_or((line, "")) {
            ("|", text) => self.after_help.push(text),
            ("?", asks) => self.asks = asks,
            (">", done) => self.done = done,
            _ => self.flags.push(line),
        }
    }

    fn route(&self) -> Option<&'static Route> {
        routes().find(|route| !self.operation.is_empty() && route.doc.id == self.operation)
    }

    fn command(&self) -> Command {
        let command = Command::new(self.name).visible_aliases(&self.shown).aliases(&self.hidden);
        let command = command.about(self.about);
        if self.after_help.is_empty() {
            command
        } else {
            command.after_help(self.after_help.join("\n"))
        }
    }

    fn with_flags(&self, command: Command) -> Command {
        let route = self.route();
        let fields = route.map(flag::fields).unwrap_or_default();
        let is_list = route.is_some_and(is_list);
        let mut command = command.args(flag::args(&fields, &self.flags, is_list));
        if is_list {
            command = Listing::augment_args(command);
        }
        if !self.asks.is_empty() {
            command = Confirm::augment_args(command);
        }
        command.about(self.about)
    }
}

fn is_list(route: &Route) -> bool {
    route.method == Method::Get && route.doc.params.iter().any(|param| param.name == "limit")
}

impl Commands {
    pub(super) const fn new(
        noun: &'static Noun,
        table: &'static str,
        custom: &'static [CustomVerb],
    ) -> Self {
        Self { noun, table, custom, inner: &[] }
    }

    /// Commands of a part of the noun.
    pub(super) const fn inner(self, inner: &'static [&'static Self]) -> Self {
        Self { inner, ..self }
    }

    /// The noun and its verbs, as the table has them.
    fn read(&self) -> (Entry, Vec<Entry>) {
        let mut entries: Vec<Entry> = Vec::new();
        for line in self.table.lines() {
            let text = line.trim_start();
            match (line.len() - text.len(), entries.last_mut()) {
                _ if text.is_empty() => {}
                (2, _) if ["columns: ", "fields: "].iter().any(|cells| text.starts_with(cells)) => {
                }
                (4.., Some(entry)) => entry.add(text),
                (2, Some(noun)) if text.starts_with('|') => noun.add(text),
                _ => entries.push(Entry::read(text)),
            }
        }
        let is_block = |entry: &Entry| entry.name.starts_with('@');
        let (blocks, mut entries): (Vec<Entry>, Vec<Entry>) =
            entries.into_iter().partition(is_block);
        for entry in &mut entries {
            let lines = std::mem::take(&mut entry.flags).into_iter();
            entry.flags = lines
                .flat_map(|line| match blocks.iter().find(|block| block.name == line) {
                    Some(block) => block.flags.clone(),
                    None => vec![line],
                })
                .collect();
        }
        let mut entries = entries.into_iter();
        (entries.next().unwrap_or_default(), entries.collect())
    }

    pub(super) fn name(&self) -> &'static str {
        self.read().0.name
    }

    /// The command, without its verbs and flags.
    pub(super) fn command(&self) -> Command {
        let (entry, verbs) = self.read();
        let is_noun = !verbs.is_empty();
        entry.command().subcommand_required(is_noun).arg_required_else_help(is_noun)
    }

    /// Adds the verbs with their flags, or the flags of a command without verbs.
    pub(super) fn complete(&self, command: Command) -> Command {
        let (entry, verbs) = self.read();
        let flags = |entry: &Entry, command| {
            let command = entry.with_flags(command);
            // Types that add arguments also bring a text about themselves.
            match self.custom_verb(entry.name) {
                Some(verb) => (verb.more)(command).about(entry.about),
                None => command,
            }
        };
        if verbs.is_empty() {
            return flags(&entry, command);
        }
        let inner = self.inner.iter().map(|inner| inner.complete(inner.command()));
        let verbs = verbs.iter().map(|verb| flags(verb, verb.command()));
        command.subcommands(inner).subcommands(verbs)
    }

    fn custom_verb(&self, name: &str) -> Option<&'static CustomVerb> {
        self.custom.iter().find(|verb| verb.verbs.split('|').any(|known| known == name))
    }

    pub(super) fn run(
        &self,
        given: &ArgMatches,
        connect: &ConnectArgs,
        global: &GlobalArgs,
    ) -> Done {
        let (entry, verbs) = self.read();
        let (name, given) = given.subcommand().unwrap_or((entry.name, given));
        if let Some(inner) = self.inner.iter().find(|inner| inner.name() == name) {
            return inner.run(given, connect, global);
        }
        let mut all = std::iter::once(entry).chain(verbs);
        let Some(verb) = all.find(|verb| verb.name == name) else { return Ok(()) };
        let call = Call { noun: self.noun, route: verb.route(), verb, given, connect, global };
        match self.custom_verb(name).map_or(Run::Usual(None), |verb| verb.run) {
            Run::Offline(run) => run(&call),
            Run::Online(run) => run(&call, &connect.open(global)?),
            Run::Usual(show) => call.usual(&connect.open(global)?, show),
        }
    }
}

/// A command that was given.
pub(super) struct Call<'a> {
    pub(super) noun: &'static Noun,
    verb: Entry,
    route: Option<&'static Route>,
    pub(super) given: &'a ArgMatches,
    pub(super) connect: &'a ConnectArgs,
    pub(super) global: &'a GlobalArgs,
}

impl Call<'_> {
    /// The text of an argument or a flag; empty if it was not given.
    pub(super) fn text(&self, name: &str) -> String {
        flag::values(self.given, name).first().map(shown).unwrap_or_default()
    }

    /// Whether an argument or a flag was given.
    pub(super) fn has(&self, name: &str) -> bool {
        !flag::values(self.given, name).is_empty()
    }

    /// The texts of an argument that may be repeated.
    pub(super) fn texts(&self, name: &str) -> Vec<String> {
        flag::values(self.given, name).iter().map(shown).collect()
    }

    /// Whether a flag without a value was given.
    pub(super) fn is(&self, name: &str) -> bool {
        flag::is_set(self.given, name)
    }

    /// Flags that are declared by a type.
    pub(super) fn flags<T: FromArgMatches>(&self) -> Result<T, Failure> {
        T::from_arg_matches(self.given).map_err(Failure::usage)
    }

    /// The path of the operation.
    pub(super) fn path(&self) -> String {
        self.path_of(|name| self.text(name))
    }

    fn path_of(&self, value: impl Fn(&str) -> String) -> String {
        let Some(route) = self.route else { return String::new() };
        let names = route.doc.params.iter().map(|param| param.name);
        names.fold(route.path.to_owned(), |path, name| {
            let variable = format!("{{{name}}}");
            if path.contains(&variable) {
                path.replace(&variable, &percent_encoded(&value(name)))
            } else {
                path
            }
        })
    }

    /// The query of the operation, of what was given.
    pub(super) fn query(&self) -> Query {
        let fields = self.fields().into_iter().filter(|field| field.part == Part::Query);
        let given = fields.map(|field| (field.value(self.given), field.name));
        given.filter_map(|(value, name)| Some((name, shown(&value?)))).collect()
    }

    fn fields(&self) -> Vec<Field> {
        self.route.map(flag::fields).unwrap_or_default()
    }

    /// The body of the operation, of what was given.
    pub(super) fn body(&self) -> Result<Map<String, Value>, Failure> {
        let mut body = Map::new();
        for field in self.fields().into_iter().filter(|field| field.part == Part::Body) {
            let Some(value) = field.value(self.given) else { continue };
            let value =
                content(&field.name, flag::placeholder(&self.verb.flags, &field.name), value)?;
            match field.name.split_once('.') {
                None => put(&mut body, &field.name, value),
                Some((object, name)) => {
                    let inner = body.entry(object).or_insert_with(|| Map::new().into());
                    if let Value::Object(inner) = inner {
                        put(inner, name, value);
                    }
                }
            }
        }
        Ok(body)
    }

    /// Calls the operation.
    pub(super) fn send(&self, remote: &Remote, body: Map<String, Value>) -> Result<Value, Failure> {
        self.send_to(remote, &self.path(), body)
    }

    /// Calls the operation, and prints the object that is answered.
    pub(super) fn print(&self, remote: &Remote, body: Map<String, Value>) -> Done {
        self.noun.print(remote, &self.send(remote, body)?)
    }

    /// Calls the operation for one of several ids.
    pub(super) fn send_for(&self, remote: &Remote, id: &str) -> Result<Value, Failure> {
        self.send_to(remote, &self.path_of(|_name| id.to_owned()), self.body()?)
    }

    fn send_to(
        &self,
        remote: &Remote,
        path: &str,
        body: Map<String, Value>,
    ) -> Result<Value, Failure> {
        let Some(route) = self.route else { return Ok(Value::Null) };
        let has_body = match route.doc.body {
            Some(Body::Json { is_optional, .. }) => !is_optional || !body.is_empty(),
            _ => false,
        };
        let body = has_body.then_some(Value::Object(body));
        remote.send(route.method.as_str(), &with_query(path, &self.query()), body.as_ref())
    }

    /// The body of a change. Of objects, such as the policy, what was not given stays.
    pub(super) fn changed(
        &self,
        remote: &Remote,
        mut body: Map<String, Value>,
    ) -> Result<Map<String, Value>, Failure> {
        if body.is_empty() {
            return Err(Failure::usage("there is nothing to change; see --help"));
        }
        if !body.values().any(Value::is_object) {
            return Ok(body);
        }
        let before = remote.get(&with_query(&self.path(), &self.query()))?;
        for (name, value) in &mut body {
            if let (true, Some(before)) = (value.is_object(), before.get(name)) {
                *value = merged(before.clone(), std::mem::take(value));
            }
        }
        Ok(body)
    }

    /// Asks for confirmation, as the table says.
    pub(super) fn confirm(&self) -> Done {
        if self.verb.asks.is_empty() {
            return Ok(());
        }
        self.flags::<Confirm>()?.ask(self.filled(self.verb.asks))
    }

    fn filled(&self, template: &str) -> String {
        self.fields().iter().fold(template.to_owned(), |said, field| {
            said.replace(&format!("{{{}}}", field.name), &self.texts(&field.name).join(", "))
        })
    }

    /// Lists what the operation answers, as rows of a noun.
    pub(super) fn list(&self, remote: &Remote, noun: &Noun, query: Query) -> Done {
        noun.rows(remote, &self.flags()?, &self.path(), query)
    }

    fn usual(&self, remote: &Remote, show: Option<Show>) -> Done {
        let Some(route) = self.route else { return Ok(()) };
        if is_list(route) {
            return self.list(remote, self.noun, self.query());
        }
        self.confirm()?;
        let mut body = self.body()?;
        if route.method == Method::Patch {
            body = self.changed(remote, body)?;
        }
        let answer = self.send(remote, body)?;
        match show {
            Some(show) if !remote.json() => show(self, remote, &answer),
            None if !self.verb.done.is_empty() => {
                remote.answer(&answer, self.filled(self.verb.done))
            }
            _ => self.noun.print(remote, &answer),
        }
    }
}

/// The value of a flag that may name a file.
fn content(field: &str, placeholder: &str, given: Value) -> Result<Value, Failure> {
    let Some(text) = given.as_str() else { return Ok(given) };
    let flag = format!("--{}", field.replace('_', "-"));
    match (field, placeholder) {
        ("template.body", _) => {
            String::from_utf8(without_mark(&input::file(text.as_ref())?).to_vec())
                .map(Value::from)
                .map_err(|error| {
                    Failure::input(format!("{text}: the template is not UTF-8: {error}"))
                })
        }
        (_, "FILE") => Ok(secrets::one_line(text.as_ref())?.as_str().into()),
        (_, "allow|FILE|JSON") => pii::policy_from_flag(&flag, text),
        ("payload_base64", _) => Ok(BASE64.encode(&input::bytes(text)?).into()),
        (_, shape) if shape.contains("@FILE") => carried::read(&input::bytes(text)?)
            .map_err(|error| Failure::input(format!("{flag} is not JSON: {error}"))),
        _ => Ok(given),
    }
}

/// The stored object, changed by the given flags.
fn merged(stored: Value, given: Value) -> Value {
    match (stored, given) {
        (Value::Object(mut all), Value::Object(given)) => {
            for (name, value) in given {
                let stored = all.get(&name).cloned().unwrap_or_default();
                put(&mut all, &name, merged(stored, value));
            }
            Value::Object(all)
        }
        (_, given) => given,
    }
}

/// Adds a member to an object; a member whose name differs only in case is replaced.
fn put(object: &mut Map<String, Value>, name: &str, value: Value) {
    object.retain(|known, _| !known.eq_ignore_ascii_case(name));
    object.insert(name.to_owned(), value);
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
impl Commands {
    /// Lines of the table that are about nothing, and flags without a help text.
    pub(super) fn faults(&self) -> Vec<String> {
        let (noun, verbs) = self.read();
        let mut faults: Vec<String> = self.inner.iter().flat_map(|inner| inner.faults()).collect();
        let known = |verb: &&CustomVerb| {
            verb.verbs
                .split('|')
                .all(|name| verbs.iter().any(|verb| verb.name == name) || noun.name == name)
        };
        let strays = self.custom.iter().filter(|verb| !known(verb));
        faults.extend(strays.map(|verb| format!("{} has no verb {}", noun.name, verb.verbs)));
        let mut used = Vec::new();
        for verb in &verbs {
            if verb.route().is_none() && !verb.operation.is_empty() {
                faults
                    .push(format!("{} {}: no operation {}", noun.name, verb.name, verb.operation));
            }
            let fields = verb.route().map(flag::fields).unwrap_or_default();
            used.extend(verb.flags.iter().filter(|line| flag::is_about(line, &fields)));
            let command = verb.with_flags(verb.command());
            let silent = command
                .get_arguments()
                .filter(|flag| flag.get_help().is_none_or(|help| help.to_string().is_empty()));
            faults.extend(
                silent.map(|flag| {
                    format!("{} {}: {} has no help", noun.name, verb.name, flag.get_id())
                }),
            );
        }
        let all = verbs.iter().flat_map(|verb| &verb.flags);
        let stray: std::collections::BTreeSet<_> =
            all.filter(|line| !used.contains(line)).collect();
        faults.extend(
            stray.into_iter().map(|line| format!("{}: {line:?} is about nothing", noun.name)),
        );
        faults
    }
}
