//! The commands of a noun: a table in the noun's file, from which flags, help pages and requests follow.
//!
//! A row says which operation of the API a verb calls, how its flags differ from that, what is asked before and said after,
//! and, where that is not enough, which function of the noun's file runs.
//!
//! Not here: the flags ([`super::flag`]), and the rows and fields that are printed ([`super::noun`]).

use clap::{ArgGroup, ArgMatches, Args, Command, FromArgMatches};
use data_encoding::BASE64;
use serde_json::{Map, Value};

use crate::api::route::{Body, Route};
use crate::api::routes;
use crate::base::text::without_mark;
use crate::cli::exit::Failure;
use crate::cli::flag::{self, Field, Flag, Part};
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
    /// The noun; without verbs, the only command.
    own: CommandRow,
    verbs: &'static [CommandRow],
    inner: &'static [&'static Self],
}

/// How a command is carried out.
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

/// A row of a table of commands.
#[derive(Clone, Copy)]
pub(super) struct CommandRow {
    name: &'static str,
    also: &'static [&'static str],
    hidden: &'static [&'static str],
    operation: &'static str,
    about: &'static str,
    flags: &'static [&'static [Flag]],
    asks: &'static str,
    says: &'static str,
    ends: &'static [&'static str],
    run: Run,
    more: Option<fn(Command) -> Command>,
}

/// A command with its help text.
pub(super) const fn command(name: &'static str, about: &'static str) -> CommandRow {
    CommandRow {
        name,
        also: &[],
        hidden: &[],
        operation: "",
        about,
        flags: &[],
        asks: "",
        says: "",
        ends: &[],
        run: Run::Usual(None),
        more: None,
    }
}

impl CommandRow {
    /// Sets the operation of the API, as the API names it.
    pub(super) const fn calls(self, operation: &'static str) -> Self {
        Self { operation, ..self }
    }

    /// Adds other names.
    pub(super) const fn also(self, also: &'static [&'static str]) -> Self {
        Self { also, ..self }
    }

    /// Adds other names that no help page shows.
    pub(super) const fn hidden(self, hidden: &'static [&'static str]) -> Self {
        Self { hidden, ..self }
    }

    /// Says how its flags differ from the operation.
    pub(super) const fn flags(self, flags: &'static [&'static [Flag]]) -> Self {
        Self { flags, ..self }
    }

    /// Asks this before: `Cancel the job {id}`, where `{id}` is the argument of this name.
    pub(super) const fn asks(self, asks: &'static str) -> Self {
        Self { asks, ..self }
    }

    /// Prints this after, in place of the answer.
    pub(super) const fn says(self, says: &'static str) -> Self {
        Self { says, ..self }
    }

    /// Sets the lines at the end of its help page.
    pub(super) const fn ends(self, ends: &'static [&'static str]) -> Self {
        Self { ends, ..self }
    }

    /// Calls the service in its own way.
    pub(super) const fn online(self, run: fn(&Call<'_>, &Remote) -> Done) -> Self {
        Self { run: Run::Online(run), ..self }
    }

    /// Does as usual, but shows the answer in its own way, unless as JSON.
    pub(super) const fn answered(self, show: Show) -> Self {
        Self { run: Run::Usual(Some(show)), ..self }
    }

    /// Runs without the service, or calls it itself.
    pub(super) const fn offline(self, run: fn(&Call<'_>) -> Done) -> Self {
        Self { run: Run::Offline(run), ..self }
    }

    /// Adds arguments, or says more about them.
    pub(super) const fn more(self, more: fn(Command) -> Command) -> Self {
        Self { more: Some(more), ..self }
    }

    fn table(&self) -> Vec<Flag> {
        self.flags.concat()
    }

    fn route(&self) -> Option<&'static Route> {
        routes().find(|route| !self.operation.is_empty() && route.doc.id == self.operation)
    }

    /// The command, without its flags.
    fn bare(&self) -> Command {
        let names = Command::new(self.name).visible_aliases(self.also.iter().copied());
        let command = names.aliases(self.hidden.iter().copied()).about(self.about);
        if self.ends.is_empty() { command } else { command.after_help(self.ends.join("\n")) }
    }

    fn with_flags(&self, command: Command) -> Command {
        let route = self.route();
        let fields = route.map(flag::fields).unwrap_or_default();
        let is_list = route.is_some_and(is_list);
        let mut command = command.args(flag::args(&fields, &self.table(), is_list));
        if is_list {
            command = Listing::augment_args(command);
        }
        if !self.asks.is_empty() {
            command = Confirm::augment_args(command);
        }
        if let Some(more) = self.more {
            command = more(command);
        }
        // Types that add arguments also bring a text about themselves.
        command.about(self.about)
    }
}

fn is_list(route: &Route) -> bool {
    route.method == Method::Get && route.doc.params.iter().any(|param| param.name == "limit")
}

impl Commands {
    pub(super) const fn new(
        noun: &'static Noun,
        own: CommandRow,
        verbs: &'static [CommandRow],
    ) -> Self {
        Self { noun, own, verbs, inner: &[] }
    }

    /// Commands of a part of the noun.
    pub(super) const fn inner(self, inner: &'static [&'static Self]) -> Self {
        Self { inner, ..self }
    }

    pub(super) const fn name(&self) -> &'static str {
        self.own.name
    }

    /// The command, without its verbs and flags.
    pub(super) fn command(&self) -> Command {
        let is_noun = !self.verbs.is_empty();
        self.own.bare().subcommand_required(is_noun).arg_required_else_help(is_noun)
    }

    /// Adds the verbs with their flags, or the flags of a command without verbs.
    pub(super) fn complete(&self, command: Command) -> Command {
        if self.verbs.is_empty() {
            return self.own.with_flags(command);
        }
        let inner = self.inner.iter().map(|inner| inner.complete(inner.command()));
        let verbs = self.verbs.iter().map(|verb| verb.with_flags(verb.bare()));
        command.subcommands(inner).subcommands(verbs)
    }

    pub(super) fn run(
        &self,
        given: &ArgMatches,
        connect: &ConnectArgs,
        global: &GlobalArgs,
    ) -> Done {
        let (name, given) = given.subcommand().unwrap_or((self.own.name, given));
        if let Some(inner) = self.inner.iter().find(|inner| inner.name() == name) {
            return inner.run(given, connect, global);
        }
        let mut all = std::iter::once(&self.own).chain(self.verbs);
        let Some(row) = all.find(|row| row.name == name) else { return Ok(()) };
        let call = Call { noun: self.noun, route: row.route(), row: *row, given, connect, global };
        match row.run {
            Run::Offline(run) => run(&call),
            Run::Online(run) => run(&call, &connect.open(global)?),
            Run::Usual(show) => call.usual(&connect.open(global)?, show),
        }
    }
}

/// A command that was given.
pub(super) struct Call<'a> {
    pub(super) noun: &'static Noun,
    row: CommandRow,
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
        let flags = self.row.table();
        let mut body = Map::new();
        for field in self.fields().into_iter().filter(|field| field.part == Part::Body) {
            let Some(value) = field.value(self.given) else { continue };
            let value = content(&field.name, flag::placeholder(&flags, &field.name), value)?;
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
        if self.row.asks.is_empty() {
            return Ok(());
        }
        self.flags::<Confirm>()?.ask(self.filled(self.row.asks))
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
            None if !self.row.says.is_empty() => remote.answer(&answer, self.filled(self.row.says)),
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
    /// Flags of the table that are about nothing or have no help text, and operations that the API does not have.
    pub(super) fn faults(&self) -> Vec<String> {
        let mut faults: Vec<String> = self.inner.iter().flat_map(|inner| inner.faults()).collect();
        let name = self.name();
        let mut used = Vec::new();
        for verb in self.verbs {
            if verb.route().is_none() && !verb.operation.is_empty() {
                faults.push(format!("{name} {}: no operation {}", verb.name, verb.operation));
            }
            let fields = verb.route().map(flag::fields).unwrap_or_default();
            used.extend(verb.table().into_iter().filter(|flag| flag::is_about(flag, &fields)));
            let command = verb.with_flags(verb.bare());
            let is_silent =
                |arg: &&clap::Arg| arg.get_help().is_none_or(|help| help.to_string().is_empty());
            let silent = command.get_arguments().filter(is_silent);
            faults.extend(
                silent.map(|arg| format!("{name} {}: {} has no help", verb.name, arg.get_id())),
            );
        }
        let all = self.verbs.iter().flat_map(CommandRow::table);
        let stray = all.filter(|flag| !used.contains(flag));
        faults.extend(stray.map(|flag| format!("{name}: {flag:?} is about nothing")));
        faults
    }
}
