//! `oncebox apply`: changes the service to match a file; applying it again changes nothing. `oncebox export`: prints
//! the existing objects as such a file, without secrets.
//!
//! Not here: what a file may declare (`config::declared`), and the comparison of secrets, which the service makes.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

use crate::base::clock::Timestamp;
use crate::cli::noun::{self, Confirm, DryRun};
use crate::cli::prelude::*;
use crate::cli::remote::once;
use crate::cli::secrets;
use crate::config::declared::{Object, ObjectKind, SecretAt};
use crate::config::{Loaded, Sources, environment};
use crate::model::event::OWN_SOURCE;
use crate::model::subscription::SubscriptionTerms;
use crate::privacy::policy::Pii;
use crate::signatures::provider::SchemeSettings;
use crate::sources::Settings;
use crate::sys::files::NewFile;

#[derive(Debug, Args)]
pub(super) struct Apply {
    #[command(flatten)]
    connect: ConnectArgs,
    #[arg(
        long,
        short,
        value_name = "FILE",
        help = "File with [[tenant]], [[provider]], [[subscription]], [[token]] and [[source]] [default: the \
                settings file]"
    )]
    file: Option<PathBuf>,
    #[command(flatten)]
    dry_run: DryRun,
    /// Also delete undeclared providers, subscriptions and sources, if the file declares any of that kind,
    /// and withdraw undeclared secrets. Tenants and tokens stay
    #[arg(long)]
    prune: bool,
    #[command(flatten)]
    confirm: Confirm,
}

/// `oncebox export`
#[derive(Debug, Args)]
pub(super) struct Export {
    #[command(flatten)]
    connect: ConnectArgs,
}

/// What a run does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Looks for mistakes and says nothing else, so that a mistake in the last object is found before the first is changed.
    Rehearse,
    /// Says what would be done.
    DryRun,
    /// Does it.
    Apply,
}

/// Action of a step, of which there is one for each change to the service.
#[derive(Clone, Copy, Debug)]
enum StepAction {
    Create,
    Change,
    AddSecret,
    WithdrawSecret,
    Delete,
}

impl StepAction {
    /// The verb, as in "would create".
    const fn as_verb(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Change => "change",
            Self::AddSecret => "add",
            Self::WithdrawSecret => "withdraw",
            Self::Delete => "delete",
        }
    }

    /// The participle for a step that is done.
    const fn as_participle(self) -> &'static str {
        match self {
            Self::Create => "created",
            Self::Change => "changed",
            Self::AddSecret => "added",
            Self::WithdrawSecret => "withdrawn",
            Self::Delete => "deleted",
        }
    }
}

/// A run of `apply`: its settings, and the steps so far.
struct Work<'a> {
    remote: &'a Remote,
    mode: Mode,
    prune: bool,
    steps: Vec<Value>,
    unchanged: usize,
}

impl Apply {
    pub(super) fn run(&self, global: &GlobalArgs) -> Result<(), Failure> {
        let loaded = match &self.file {
            None => global.sources().load()?,
            Some(file) => Sources { file: Some(file.clone()), ..Sources::default() }.load()?,
        };
        let objects = declared(&loaded)?;
        let remote = self.connect.open(global)?;
        let dry_run = self.dry_run.dry_run;
        let prune = self.prune;
        if prune && !dry_run {
            self.confirm.ask("Delete undeclared objects and secrets")?;
        }
        if dry_run {
            return Work::run(&remote, Mode::DryRun, prune, objects)?.report();
        }
        Work::run(&remote, Mode::Rehearse, prune, objects)?;
        Work::run(&remote, Mode::Apply, prune, objects)?.report()
    }
}

fn declared(loaded: &Loaded) -> Result<&[Object], Failure> {
    let objects = loaded.declared.objects.as_slice();
    if objects.is_empty() {
        let file = loaded.file.as_deref().unwrap_or_else(|| Path::new("no file"));
        let example = "declare something with [[tenant]], [[provider]], [[subscription]], [[token]] or [[source]]";
        return Err(Failure::input(format!("{}: nothing is declared; {example}", file.display())));
    }
    Ok(objects)
}

impl<'a> Work<'a> {
    fn run(
        remote: &'a Remote,
        mode: Mode,
        prune: bool,
        objects: &[Object],
    ) -> Result<Self, Failure> {
        let mut work = Self { remote, mode, prune, steps: Vec::new(), unchanged: 0 };
        for kind in ObjectKind::ALL {
            work.kind(kind, objects)?;
        }
        Ok(work)
    }

    fn kind(&mut self, kind: ObjectKind, objects: &[Object]) -> Result<(), Failure> {
        let declared: Vec<&Object> = objects.iter().filter(|object| object.kind == kind).collect();
        if declared.is_empty() {
            return Ok(());
        }
        let existing = existing(self.remote, kind).map_err(|failure| {
            if kind == ObjectKind::Tenant && failure.code == exit::NOT_PERMITTED {
                return failure.and("[[tenant]] needs an admin token of the tenant default.");
            }
            failure
        })?;
        for object in &declared {
            let found = existing.iter().find(|item| text(item, "name") == object.name);
            let before = self.steps.len();
            self.object(object, found).map_err(|failure| {
                let Failure { code, message } = failure;
                Failure::new(code, format!("{} {}: {message}", kind.as_str(), object.name))
            })?;
            if self.steps.len() == before {
                self.unchanged = self.unchanged.saturating_add(1);
            }
        }
        if self.prune && !matches!(kind, ObjectKind::Tenant | ObjectKind::Token) {
            for item in &existing {
                let name = text(item, "name");
                if declared.iter().all(|object| object.name != name) {
                    self.send(|remote| remote.send("DELETE", &path(kind, &name), None).map(drop))?;
                    self.step(kind, &name, StepAction::Delete, "")?;
                }
            }
        }
        Ok(())
    }

    fn object(&mut self, object: &Object, found: Option<&Value>) -> Result<(), Failure> {
        let fields = fields(object)?;
        match (found, object.kind) {
            (None, ObjectKind::Token) => self.create_token(object, fields),
            (None, _) => self.create(object, fields),
            (Some(found), ObjectKind::Token) => compare_token(&fields, found),
            (Some(found), _) => self.change(object, &fields, found),
        }
    }

    fn create(&mut self, object: &Object, mut body: Map<String, Value>) -> Result<(), Failure> {
        let secrets = object.secrets.iter().map(read_secret).collect::<Result<Vec<_>, _>>()?;
        let scheme = body.get("scheme").cloned().unwrap_or_default();
        let has_secret = serde_json::from_value::<SchemeSettings>(scheme)
            .map_or(true, |one| one.scheme.has_secret());
        if secrets.is_empty() && object.kind == ObjectKind::Provider && has_secret {
            let why = "a new provider needs a secret: add secret_file, secret_env or \
                       secret_credential";
            return Err(Failure::input(why));
        }
        if object.kind == ObjectKind::Tenant && !body.contains_key("pii") {
            let why = "a new tenant says what happens to personal data in its events: add pii = \"allow\", or a policy";
            return Err(Failure::input(why));
        }
        body.insert("name".to_owned(), object.name.as_str().into());
        match (object.kind, secrets.first()) {
            (ObjectKind::Provider, _) => {
                let texts: Vec<&str> = secrets.iter().map(|secret| secret.as_str()).collect();
                body.insert("secrets".to_owned(), texts.into());
            }
            (_, Some(secret)) => {
                body.insert("secret".to_owned(), secret.as_str().into());
            }
            (_, None) => {}
        }
        let list = list_path(object.kind);
        self.send(|remote| remote.post(&list, Some(&Value::Object(body))).map(drop))?;
        self.step(object.kind, &object.name, StepAction::Create, "")
    }

    fn change(
        &mut self,
        object: &Object,
        declared: &Map<String, Value>,
        found: &Value,
    ) -> Result<(), Failure> {
        let differences = match object.kind {
            ObjectKind::Source => source_differences(declared, found)?,
            _ => differences(declared, found),
        };
        let path = path(object.kind, &object.name);
        if !differences.is_empty() {
            let detail: Vec<String> = differences.iter().map(ToString::to_string).collect();
            let body = differences.into_iter().map(|change| (change.field, change.to));
            let body = Value::Object(body.collect());
            self.send(|remote| remote.send("PATCH", &path, Some(&body)).map(drop))?;
            self.step(object.kind, &object.name, StepAction::Change, &detail.join(", "))?;
        }
        if object.secrets.is_empty() { Ok(()) } else { self.secrets(object, &path) }
    }

    /// Adds the declared secrets that the service does not have, oldest first, so that their order by age is kept.
    fn secrets(&mut self, object: &Object, path: &str) -> Result<(), Failure> {
        let address = format!("{path}/secrets");
        let max = if object.kind == ObjectKind::Provider { usize::MAX } else { 1 };
        let mut declared = Vec::new();
        for at in object.secrets.iter().take(max).rev() {
            let secret = read_secret(at)?;
            let body = |dry_run| json!({ "secret": secret.as_str(), "dry_run": dry_run });
            let answer = self.remote.post(&address, Some(&body(true)))?;
            if answer.get("already_in_force") == Some(&Value::Bool(true)) {
                declared.push(text(&answer, "id"));
                continue;
            }
            if self.mode == Mode::Apply {
                let answer = self.remote.post(&address, Some(&body(false)))?;
                declared.push(text(&answer, "id"));
            }
            self.step(object.kind, &object.name, StepAction::AddSecret, &describe_secret(at))?;
        }
        if object.kind == ObjectKind::Provider {
            self.withdraw(object, &address, &declared)
        } else {
            Ok(())
        }
    }

    /// Withdraws the provider's undeclared secrets with `--prune`, and names them without it.
    fn withdraw(
        &mut self,
        object: &Object,
        path: &str,
        declared: &[String],
    ) -> Result<(), Failure> {
        let existing = noun::items(&self.remote.get(path)?);
        for id in existing.iter().map(|secret| text(secret, "id")) {
            if declared.contains(&id) {
                continue;
            }
            if !self.prune && self.mode == Mode::Rehearse {
                continue;
            }
            if !self.prune {
                let name = &object.name;
                out::note(format_args!(
                    "provider {name}: the secret {id} is valid but not declared; --prune withdraws it"
                ));
                continue;
            }
            let what = format!("the secret {id}");
            self.send(|remote| {
                remote.send("DELETE", &format!("{path}/{}", percent_encoded(&id)), None).map(drop)
            })?;
            self.step(object.kind, &object.name, StepAction::WithdrawSecret, &what)?;
        }
        Ok(())
    }

    fn create_token(
        &mut self,
        object: &Object,
        mut body: Map<String, Value>,
    ) -> Result<(), Failure> {
        let Some(path) = &object.token_file else {
            let why = "a new token is written to a file: add token_file";
            return Err(Failure::input(why));
        };
        body.insert("name".to_owned(), object.name.as_str().into());
        let into = format!("written to {}", path.display());
        self.send(|remote| {
            // The file is created first, so that a new token is not lost because its file cannot be written.
            let failed = |error| secrets::unwritable(path, &error);
            let file = NewFile::create(path).map_err(failed)?;
            let made = remote.post("/v1/tokens", Some(&Value::Object(body)))?;
            let line = Zeroizing::new(format!("{}\n", once(&made, "token")?));
            file.finish(line.as_bytes()).map_err(failed)
        })?;
        self.step(object.kind, &object.name, StepAction::Create, &into)
    }

    /// Records a step, and prints what was done or would be done.
    fn step(
        &mut self,
        kind: ObjectKind,
        name: &str,
        action: StepAction,
        detail: &str,
    ) -> Result<(), Failure> {
        let verb = action.as_verb();
        self.steps.push(json!({
            "kind": kind.as_str(), "name": name, "action": verb, "detail": detail,
        }));
        if self.remote.json() || self.mode == Mode::Rehearse {
            return Ok(());
        }
        let what = if self.mode == Mode::DryRun {
            format!("would {verb}")
        } else {
            action.as_participle().to_owned()
        };
        let detail = if detail.is_empty() { String::new() } else { format!(": {detail}") };
        out::line(format_args!("{what} {} {name}{detail}", kind.as_str()))
    }

    fn send(&self, run: impl FnOnce(&Remote) -> Result<(), Failure>) -> Result<(), Failure> {
        if self.mode == Mode::Apply { run(self.remote) } else { Ok(()) }
    }

    fn report(self) -> Result<(), Failure> {
        let Self { remote, mode, steps, unchanged, .. } = self;
        let dry_run = mode == Mode::DryRun;
        if remote.json() {
            return out::json(
                &json!({ "dry_run": dry_run, "steps": steps, "unchanged": unchanged }),
            );
        }
        out::note(format_args!("{unchanged} unchanged"));
        Ok(())
    }
}

/// Refuses a declared token that differs from the existing one, because tokens cannot be changed.
fn compare_token(declared: &Map<String, Value>, found: &Value) -> Result<(), Failure> {
    let Some(difference) = differences(declared, found).into_iter().next() else {
        return Ok(());
    };
    let why = format!("{difference}: a token cannot be changed");
    Err(Failure::new(exit::CONFLICT, why).and(format_args!(
        "Revoke it (oncebox token revoke {}) and apply again.",
        text(found, "id")
    )))
}

/// The existing objects of a kind, without revoked tokens and the subscriptions of alert channels.
fn existing(remote: &Remote, kind: ObjectKind) -> Result<Vec<Value>, Failure> {
    let mut found = noun::collect(remote, &list_path(kind), &Vec::new())?;
    // Those of alert channels belong to their channel.
    found
        .retain(|item| text(item, "revoked_at").is_empty() && text(item, "owner_id") != OWN_SOURCE);
    Ok(found)
}

/// The API path of a kind's list.
fn list_path(kind: ObjectKind) -> String {
    format!("/v1/{kind}s")
}

fn path(kind: ObjectKind, name: &str) -> String {
    format!("{}/{}", list_path(kind), percent_encoded(name))
}

fn read_secret(at: &SecretAt) -> Result<Zeroizing<String>, Failure> {
    match at {
        SecretAt::File(path) => secrets::one_line(path),
        SecretAt::Environment(name) => environment(name)
            .map(Zeroizing::new)
            .ok_or_else(|| Failure::input(format!("the variable {name} is not set"))),
        SecretAt::Credential(name) => secrets::credential(name),
    }
}

fn describe_secret(at: &SecretAt) -> String {
    match at {
        SecretAt::File(path) => format!("the secret in {}", path.display()),
        SecretAt::Environment(name) => format!("the secret in the variable {name}"),
        SecretAt::Credential(name) => format!("the secret in the credential {name}"),
    }
}

/// A field whose existing value (`from`) differs from the declared one (`to`).
#[derive(Debug, PartialEq)]
struct Difference {
    field: String,
    from: Value,
    to: Value,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} -> {}", self.field, self.from, self.to)
    }
}

/// The declared fields in the form in which the API shows them.
fn fields(object: &Object) -> Result<Map<String, Value>, Failure> {
    let field =
        |(name, value): (&String, &Value)| Ok((name.clone(), normalized(object, name, value)?));
    object.fields.iter().map(field).collect()
}

fn normalized(object: &Object, name: &str, value: &Value) -> Result<Value, Failure> {
    let read = match (object.kind, name, value) {
        (ObjectKind::Provider, "scheme", Value::String(word)) => {
            reserialized::<SchemeSettings>(json!({ "kind": word }))
        }
        (ObjectKind::Provider, "scheme", other) => reserialized::<SchemeSettings>(other.clone()),
        (ObjectKind::Provider | ObjectKind::Tenant, "pii", other) => {
            return Pii::from_json(other)
                .map(|pii| pii.to_json())
                .map_err(|error| Failure::input(format!("{name}: {error}")));
        }
        // Texts are compared as they are declared.
        (ObjectKind::Subscription, term, Value::Array(_) | Value::Object(_)) => {
            reserialized::<SubscriptionTerms>(json!({ term: value }))
                .map(|mut terms| terms.get_mut(term).map(Value::take).unwrap_or_default())
        }
        (ObjectKind::Source, "settings", other) => {
            let kind = object.fields.get("kind").and_then(Value::as_str).unwrap_or_default();
            return Settings::read(kind, other.clone())
                .map(|settings| settings.to_json())
                .map_err(|error| Failure::input(format!("{name}: {error}")));
        }
        (ObjectKind::Token, "expires_at", other) => reserialized::<Timestamp>(other.clone()),
        (_, _, other) => Ok(other.clone()),
    };
    read.map_err(|error| Failure::input(format!("{name}: {error}")))
}

/// A value after it was parsed and written again.
fn reserialized<T: DeserializeOwned + Serialize>(value: Value) -> serde_json::Result<Value> {
    serde_json::to_value(serde_json::from_value::<T>(value)?)
}

/// The declared fields whose existing values differ. Undeclared fields are left alone.
fn differences(declared: &Map<String, Value>, existing: &Value) -> Vec<Difference> {
    let differs = |(field, to): (&String, &Value)| {
        let from = existing.get(field).cloned().unwrap_or_default();
        let is_unstated = field == "pii" && existing.get("pii_stated") == Some(&false.into());
        let to = if field == "reconcile" { with_the_rest(to, &from) } else { to.clone() };
        (from != to || is_unstated).then(|| Difference { field: field.clone(), from, to })
    };
    declared.iter().filter_map(differs).collect()
}

/// A declared object, completed with further members of the existing object.
fn with_the_rest(declared: &Value, existing: &Value) -> Value {
    let mut all = existing.as_object().cloned().unwrap_or_default();
    all.extend(declared.as_object().cloned().unwrap_or_default());
    Value::Object(all)
}

/// The differences of a source. Its kind cannot change, and `from` only matters when it is created.
fn source_differences(
    declared: &Map<String, Value>,
    existing: &Value,
) -> Result<Vec<Difference>, Failure> {
    let mut found = differences(declared, existing);
    if let Some(kind) = found.iter().find(|difference| difference.field == "kind") {
        let why = format!("{kind}: the kind of a source cannot be changed");
        return Err(Failure::new(exit::CONFLICT, why).and(
            "Remove it (oncebox source remove) and apply again: it is then read from the beginning.",
        ));
    }
    // A source without a limit on silence is declared with 0 and shown with null.
    found.retain(|difference| {
        let is_never = difference.from.is_null() && difference.to == 0;
        difference.field != "from" && !(difference.field == "silent_after_ms" && is_never)
    });
    Ok(found)
}

const HEAD: &str =
    "# The existing objects, for `oncebox apply`. Add where to find each secret before
# you apply this to an empty Oncebox.
";

impl Export {
    pub(super) fn run(&self, global: &GlobalArgs) -> Result<(), Failure> {
        let remote = self.connect.open(global)?;
        // Printed at the end, because a file that an error cut off would look complete.
        let mut toml = String::from(HEAD);
        for kind in ObjectKind::ALL {
            match export_kind(&remote, kind, &mut toml) {
                // A token of a tenant cannot list tenants.
                Err(failure)
                    if kind == ObjectKind::Tenant && failure.code == exit::NOT_PERMITTED =>
                {
                    toml.push_str(
                        "# Tenants are missing: they need an admin token of the tenant default.\n",
                    );
                }
                added => added?,
            }
        }
        out::exact(format!("{}\n", toml.trim_end()).as_bytes())
    }
}

fn export_kind(remote: &Remote, kind: ObjectKind, toml: &mut String) -> Result<(), Failure> {
    for item in existing(remote, kind)? {
        let mut lines = vec![format!("\n[[{}]]", kind.as_str())];
        for field in kind.fields() {
            match &*field.name {
                "secret_file" => {
                    let name = text(&item, "name");
                    lines.push(format!("# secret_file = \"secrets/{name}\""));
                }
                "secret_env" | "secret_credential" => {}
                "token_file" => lines.push("# token_file = \"token\"".to_owned()),
                name => lines.extend(line(name, item.get(name).unwrap_or(&Value::Null))),
            }
        }
        toml.push_str(&lines.join("\n"));
        toml.push('\n');
    }
    Ok(())
}

/// The line of a field; `None` if the field is empty.
fn line(name: &str, value: &Value) -> Option<String> {
    let is_empty = match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    // A scheme without settings is written as its name alone.
    let word = value.as_object().filter(|fields| name == "scheme" && fields.len() == 1);
    let value = word.and_then(|fields| fields.get("kind")).unwrap_or(value);
    (!is_empty).then(|| format!("{name} = {}", toml_of(value)))
}

/// A value in TOML. Strings are written as in JSON, which TOML accepts.
fn toml_of(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(_, value)| !value.is_null());
            let pairs: Vec<String> = fields
                .map(|(key, v)| format!("{} = {}", Value::from(key.as_str()), toml_of(v)))
                .collect();
            format!("{{ {} }}", pairs.join(", "))
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(toml_of).collect();
            format!("[{}]", items.join(", "))
        }
        // DEL is the only control character that JSON leaves unescaped and TOML refuses.
        Value::String(text) => Value::from(text.as_str()).to_string().replace('\u{7f}', "\\u007f"),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(kind: ObjectKind, fields: &Value) -> Object {
        let fields = fields.as_object().unwrap().clone();
        Object { kind, name: "x".to_owned(), fields, secrets: Vec::new(), token_file: None }
    }

    #[test]
    fn a_value_that_is_written_otherwise_is_no_difference() {
        let declared =
            object(ObjectKind::Provider, &json!({ "scheme": "stripe", "tolerance_secs": 300 }));
        let declared = fields(&declared).unwrap();
        let mut existing =
            json!({ "scheme": { "kind": "stripe" }, "tolerance_secs": 300, "id": 1 });
        assert_eq!(differences(&declared, &existing), []);
        existing["tolerance_secs"] = 60.into();
        let found = differences(&declared, &existing);
        assert_eq!(found[0].to_string(), "tolerance_secs 60 -> 300");
        let token =
            object(ObjectKind::Token, &json!({ "expires_at": "2027-01-01T01:00:00+01:00" }));
        let shown = json!({ "expires_at": "2027-01-01T00:00:00.000Z" });
        assert_eq!(differences(&fields(&token).unwrap(), &shown), []);
        // A term that states its default is shown without it.
        let order = json!({ "order": { "latest_only": false, "group": "g" } });
        let subscription = object(ObjectKind::Subscription, &order);
        let shown = json!({ "order": { "group": "g" } });
        assert_eq!(differences(&fields(&subscription).unwrap(), &shown), []);
    }

    #[test]
    fn what_cannot_be_read_is_refused_with_its_name() {
        let declared = object(ObjectKind::Subscription, &json!({ "policy": { "stepps": [] } }));
        let refusal = fields(&declared).unwrap_err().message;
        assert!(refusal.starts_with("policy: unknown field `stepps`"), "{refusal}");
    }

    #[test]
    fn what_is_written_is_read_back() {
        let value =
            json!({ "a b": "x\"\n\u{7f}\u{1}ü", "n": [1, true, { "deep": ["y"] }], "gone": null });
        let read: toml::Table = toml::from_str(&format!("v = {}", toml_of(&value))).unwrap();
        let read = serde_json::to_value(&read).unwrap();
        assert_eq!(read["v"]["a b"], value["a b"]);
        assert_eq!(read["v"]["n"], value["n"]);
    }
}
