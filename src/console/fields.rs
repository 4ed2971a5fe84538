//! The fields of a form: those of the request's type in the API, so that a new field there is one here.
//!
//! An action says which it shows, in words: `name` is a field or all of an object, `name!` must be filled in, `name=value` is
//! always that, `{name}` a part of the path, `*` is all others, and `-name` is left out.

use serde_json::{Map, Value, json};

use crate::api::body_of;
use crate::console::actions::Action;
use crate::console::json::Fields as _;

/// A longer text has several lines.
const MAX_LINE: i64 = 4_096;
/// Names of secrets. The API shows them nowhere, so a form is not filled with them.
pub(super) const SECRETS: [&str; 4] = ["secret", "password", "current", "new"];
/// Objects in objects that have fields of their own. What is deeper is JSON.
const MAX_DEPTH: usize = 3;

/// A field of a form.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Field {
    /// Its path in the JSON body: `reason`, `filter.subscription`.
    pub(super) path: String,
    /// What it means.
    pub(super) about: String,
    pub(super) kind: FieldKind,
    pub(super) is_required: bool,
    /// The condition for its use; `None`: it is always used.
    pub(super) used_for: Option<UsedFor>,
    /// Whether it is one of the others: `*`.
    pub(super) is_further: bool,
    /// The value of an emptied field in a form of changes.
    pub(super) empty: Value,
}

/// Condition for the use of a field: another field has one of these values. A schema says it as `x-of`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct UsedFor {
    /// The path of the other field.
    pub(super) field: String,
    pub(super) values: Vec<String>,
}

/// What a field holds.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum FieldKind {
    Text,
    /// Lines of text.
    Lines,
    /// Lines of text, sent byte for byte as base64.
    Bytes,
    Number,
    /// One of these words.
    Choice(Vec<String>),
    /// Some of these words.
    Many(Vec<String>),
    /// A time in RFC 3339.
    Time,
    /// A list: one entry a line.
    List,
    /// Names with values: one a line.
    Pairs,
    /// A text that is not shown while it is typed.
    Secret,
    /// The same, with several lines: a key file.
    SecretLines,
    /// Any JSON; a word may stand without quotes.
    Json,
    /// A part of the request's path.
    Place,
    /// Always this value; nobody types it.
    Is(Value),
}

impl Field {
    fn new(path: &str, kind: FieldKind) -> Self {
        Self {
            path: path.to_owned(),
            about: String::new(),
            kind,
            is_required: false,
            used_for: None,
            is_further: false,
            empty: Value::Null,
        }
    }

    /// The object that it is in.
    pub(super) fn group(&self) -> &str {
        self.path.rsplit_once('.').map_or("", |(group, _)| group)
    }

    /// Its first part: the field of the API.
    pub(super) fn top(&self) -> &str {
        self.path.split('.').next().unwrap_or_default()
    }

    /// Its last part.
    pub(super) fn name(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or_default()
    }

    /// The name of its file, where it takes one.
    pub(super) fn file(&self) -> String {
        format!("{}.file", self.path)
    }

    fn is_named(&self, name: &str) -> bool {
        self.path.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

/// The fields of an action, in their order.
pub(super) fn of(action: &Action) -> Vec<Field> {
    if action.fields.is_empty() {
        return Vec::new();
    }
    let all = described(action);
    let words: Vec<&str> = action.fields.split_whitespace().collect();
    let is_listed = |field: &Field| {
        let name = |word: &&str| word.trim_matches(['!', '-']).to_owned();
        field.name() == "dry_run" || words.iter().any(|word| field.is_named(&name(word)))
    };
    let mut fields = Vec::new();
    for word in &words {
        let name = word.trim_end_matches('!');
        match (*word, word.split_once('=')) {
            ("*", _) => {
                let others = all.iter().filter(|field| !is_listed(field)).cloned();
                fields.extend(others.map(|field| Field { is_further: true, ..field }));
            }
            (_, Some((path, value))) => {
                let value = serde_json::from_str(value).unwrap_or_default();
                fields.push(Field::new(path, FieldKind::Is(value)));
            }
            _ if word.starts_with('{') => {
                let place = Field::new(word.trim_matches(['{', '}']), FieldKind::Place);
                fields.push(Field { is_required: true, ..place });
            }
            _ if word.starts_with('-') => {}
            _ => {
                let found = all.iter().filter(|field| field.is_named(name)).cloned();
                let must = word.ends_with('!');
                fields.extend(found.map(|field| Field {
                    is_required: field.is_required || (must && field.path == name),
                    ..field
                }));
            }
        }
    }
    fields
}

/// All fields of the request's type.
fn described(action: &Action) -> Vec<Field> {
    let Some((schema, named)) = body_of(action.method, action.path) else { return Vec::new() };
    let mut walk = Walk { named, found: Vec::new() };
    walk.add("", &schema, true, None);
    walk.found
}

/// A way through a schema.
struct Walk {
    named: Map<String, Value>,
    found: Vec<Field>,
}

impl Walk {
    /// A schema, without the name it has and without "or null".
    fn resolved(&self, schema: &Value) -> Value {
        let parts = schema.items("anyOf");
        let [only, null] = parts else { return self.referred(schema) };
        self.referred(if null.text("type") == "null" { only } else { schema })
    }

    fn referred(&self, schema: &Value) -> Value {
        let name = schema.maybe("$ref").and_then(|path| path.rsplit('/').next());
        match name.and_then(|name| self.named.get(name)) {
            Some(found) => self.resolved(found),
            None => schema.clone(),
        }
    }

    /// The fields of a value at a path: of an object those in it, of one of several objects those of each.
    fn add(&mut self, path: &str, schema: &Value, is_required: bool, used_for: Option<UsedFor>) {
        let inner = self.resolved(schema);
        let parts = [inner.items("anyOf"), inner.items("oneOf")].concat();
        let mut forms: Vec<Value> = parts.iter().map(|part| self.resolved(part)).collect();
        if forms.is_empty() {
            forms.push(inner.clone());
        }
        // Of a request that is one thing or many, a form has one.
        if path.is_empty() {
            forms.retain(has_members);
        }
        let is_deep = path.matches('.').count() >= MAX_DEPTH;
        if forms.iter().all(has_members) && !is_deep {
            return self.members(path, &forms, is_required, used_for.as_ref());
        }
        let about = schema.maybe("description").or_else(|| inner.maybe("description"));
        let about = about.unwrap_or_default().to_owned();
        let empty = emptied(schema);
        let is_secret = SECRETS.contains(&path.rsplit('.').next().unwrap_or(path));
        let kind = match self.kind(&inner) {
            FieldKind::Text if is_secret => FieldKind::Secret,
            FieldKind::Lines if is_secret => FieldKind::SecretLines,
            kind => kind,
        };
        self.found.push(Field { about, is_required, used_for, empty, ..Field::new(path, kind) });
    }

    fn members(
        &mut self,
        path: &str,
        forms: &[Value],
        is_required: bool,
        used_for: Option<&UsedFor>,
    ) {
        let at =
            |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        let mut names: Vec<&String> = Vec::new();
        for name in forms.iter().filter_map(|form| form.field("properties").as_object()).flatten() {
            if !names.contains(&name.0) {
                names.push(name.0);
            }
        }
        for name in names {
            let having = || forms.iter().filter(|form| !member(form, name).is_null());
            let kinds: Vec<String> =
                having().flat_map(|form| words(member(form, "kind"))).collect();
            let is_everywhere = having().count() == forms.len();
            let must = |form: &Value| form.items("required").iter().any(|one| one == name);
            let is_required = is_required && is_everywhere && having().all(must);
            let Some(first) = having().next() else { continue };
            let mut schema = member(first, name).clone();
            let declared =
                used_for_of(&schema).or_else(|| used_for_of(first).filter(|_| !is_everywhere));
            let used_for = match declared {
                Some(declared) => Some(declared),
                None if !is_everywhere && !kinds.is_empty() => {
                    Some(UsedFor { field: at("kind"), values: kinds.clone() })
                }
                None => used_for.cloned(),
            };
            if name == "kind" && forms.len() > 1 {
                schema = json!({ "enum": kinds });
            }
            self.add(&at(name), &schema, is_required, used_for);
        }
    }

    fn kind(&self, schema: &Value) -> FieldKind {
        let choices = words(schema);
        if !choices.is_empty() {
            return FieldKind::Choice(choices);
        }
        let types = schema.field("type");
        let first = types.as_array().and_then(|types| types.first()).unwrap_or(types);
        match first.as_str().unwrap_or_default() {
            "boolean" => FieldKind::Choice(vec!["true".to_owned(), "false".to_owned()]),
            "integer" | "number" => FieldKind::Number,
            "string" => match (schema.text("format"), schema.maybe("contentEncoding")) {
                ("date-time", _) => FieldKind::Time,
                (_, Some(_)) => FieldKind::Bytes,
                _ if schema.int("maxLength") > MAX_LINE => FieldKind::Lines,
                _ => FieldKind::Text,
            },
            "array" => {
                let item = self.resolved(schema.field("items"));
                match (words(&item), item.text("type")) {
                    (choices, _) if !choices.is_empty() => FieldKind::Many(choices),
                    (_, "string") => FieldKind::List,
                    _ => FieldKind::Json,
                }
            }
            "object" if schema.field("additionalProperties").text("type") == "string" => {
                FieldKind::Pairs
            }
            _ => FieldKind::Json,
        }
    }
}

fn has_members(schema: &Value) -> bool {
    schema.field("properties").as_object().is_some_and(|members| !members.is_empty())
}

fn member<'s>(schema: &'s Value, name: &str) -> &'s Value {
    schema.field("properties").field(name)
}

/// The condition that a schema declares for its use.
fn used_for_of(schema: &Value) -> Option<UsedFor> {
    let (field, values) = schema.field("x-of").as_object()?.iter().next()?;
    Some(UsedFor { field: field.clone(), values: words(values) })
}

/// The words that a value can be: those of a schema, or a list of them.
fn words(schema: &Value) -> Vec<String> {
    let list = schema.as_array().map_or_else(|| schema.items("enum"), Vec::as_slice);
    let only = schema.get("const");
    list.iter().chain(only).filter_map(Value::as_str).map(str::to_owned).collect()
}

/// What an emptied field is: an empty text or list if there may be one, else null.
fn emptied(schema: &Value) -> Value {
    let types = schema.field("type");
    let is = |name: &str| {
        types == name || types.as_array().is_some_and(|all| all.iter().any(|one| one == name))
    };
    let pattern = schema.maybe("pattern").and_then(|pattern| regex_lite::Regex::new(pattern).ok());
    let fits = schema.get("minLength").is_some_and(|least| least == 0)
        || pattern.is_some_and(|pattern| pattern.is_match(""));
    match () {
        () if is("string") && fits => "".into(),
        () if is("array") && schema.int("minItems") == 0 => json!([]),
        () if is("object") => json!({}),
        () => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::actions::ACTIONS;

    #[test]
    fn every_word_of_an_action_is_a_field_of_its_request() {
        for action in ACTIONS {
            let all = described(action);
            for word in
                action.fields.split_whitespace().filter(|word| !word.starts_with(['*', '{']))
            {
                let name = word.split('=').next().unwrap_or_default().trim_matches(['!', '-']);
                assert!(all.iter().any(|field| field.is_named(name)), "{}: {word}", action.name);
            }
        }
    }

    #[test]
    fn a_field_of_some_kinds_only_says_which() {
        let action = ACTIONS.iter().find(|action| action.name == "create-provider").unwrap();
        let all = of(action);
        let found = |path: &str| all.iter().find(|field| field.path == path).unwrap();
        assert!(found("name").is_required && found("scheme.kind").is_required);
        assert!(matches!(&found("scheme.kind").kind, FieldKind::Choice(words) if words.len() > 20));
        let used_for =
            UsedFor { field: "scheme.kind".to_owned(), values: vec!["paypal".to_owned()] };
        assert_eq!(found("scheme.webhook_id").used_for, Some(used_for));
        assert_eq!(found("secret").kind, FieldKind::Secret);
        assert!(
            found("tolerance_secs").is_further && found("tolerance_secs").kind == FieldKind::Number
        );
        assert_eq!(found("public_url").empty, "");
    }
}
