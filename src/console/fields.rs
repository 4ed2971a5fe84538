//! The fields of a form. They are read from the request's type in the API: a new field there appears here by itself. The
//! entries of an action ([`crate::console::form_entry`]) choose among them.

use serde_json::Value;

use crate::api::body_of;
use crate::api::described_value::{DescribedValue, UsedFor, ValueKind};
use crate::console::actions::Action;
use crate::console::form_entry::FormEntry;

/// A longer text has several lines.
const MAX_LINE: u64 = 4_096;
/// Names of secrets. The API shows them nowhere, so a form is not filled with them.
pub(super) const SECRETS: [&str; 4] = ["secret", "password", "current", "new"];
/// The name of the policy for personal data.
const PERSONAL_DATA: &str = "pii";
/// Objects in objects that have fields of their own. What is deeper is JSON.
const MAX_DEPTH: usize = 4;

/// A field of a form.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Field {
    /// Its path in the JSON body: `reason`, `filter.subscription`.
    pub(super) path: String,
    /// What it means.
    pub(super) about: String,
    pub(super) kind: FieldKind,
    pub(super) is_required: bool,
    /// Whether it must be filled in where its condition holds.
    pub(super) is_needed: bool,
    /// The condition for its use; `None`: it is always used.
    pub(super) used_for: Option<UsedFor>,
    /// Whether it is one of the others, which are folded away.
    pub(super) is_further: bool,
    /// The value of an emptied field in a form of changes.
    pub(super) empty: Value,
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
    /// One of these alternatives: a word is the value, an object has fields of its own.
    OneOf(Vec<Alternative>),
    /// Some of these words.
    Many(Vec<String>),
    /// Some of these things, which the page names.
    SomeOf(Vec<Offered>),
    /// A time in RFC 3339.
    Time,
    /// A list: one entry a line.
    List,
    /// Names with values: one a line.
    Pairs,
    /// A text that is not shown while it is typed.
    Secret,
    /// The same, with a box that asks for a new one.
    NewSecret,
    /// The policy for personal data: one of the usual ones, or rules in JSON.
    PersonalData,
    /// A secret with several lines: a key file.
    SecretLines,
    /// Any JSON; a word may stand without quotes.
    Json,
    /// A part of the request's path.
    Place,
    /// Always this value; nobody types it.
    Is(Value),
}

/// One of the forms that a value may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Alternative {
    /// The word of the API.
    pub(super) name: String,
    /// What it means.
    pub(super) about: String,
}

/// A thing that can be chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Offered {
    /// Its name, which is sent.
    pub(super) name: String,
    /// Its state, in a word of the API.
    pub(super) state: String,
    /// Whether it is chosen at first.
    pub(super) is_chosen: bool,
}

impl Field {
    fn new(path: &str, kind: FieldKind) -> Self {
        Self {
            path: path.to_owned(),
            about: String::new(),
            kind,
            is_required: false,
            is_needed: false,
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

    /// The outermost object that it is in; empty: it is in none.
    pub(super) fn object(&self) -> &str {
        self.path.split_once('.').map_or("", |(object, _)| object)
    }

    /// Its last part.
    pub(super) fn name(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or_default()
    }

    /// The name of its file, where it takes one.
    pub(super) fn file(&self) -> String {
        format!("{}.file", self.path)
    }

    /// The name of the box that asks for a new one, where there is such a box.
    pub(super) fn make(&self) -> String {
        format!("{}.make", self.path)
    }

    /// Whether it has this path, or is in the object of this path.
    pub(super) fn is_in(&self, path: &str) -> bool {
        self.path.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

/// The fields of an action, in their order.
pub(super) fn of(action: &Action) -> Vec<Field> {
    if action.fields.is_empty() {
        return Vec::new();
    }
    let all = described(action);
    let is_named = |field: &&Field| {
        let mut named = action.fields.iter().filter_map(|entry| entry.path());
        field.name() == "dry_run" || named.any(|path| field.is_in(path))
    };
    let is_later = |entry: &FormEntry| match *entry {
        FormEntry::Later(path) => Some(path),
        _ => None,
    };
    let later: Vec<&str> = action.fields.iter().filter_map(is_later).collect();
    let mut fields = Vec::new();
    for entry in action.fields {
        match *entry {
            FormEntry::Others => {
                let others = all.iter().filter(|field| !is_named(field)).cloned();
                fields.extend(others.map(|field| Field { is_further: true, ..field }));
            }
            FormEntry::Always { path, value } => {
                fields.push(Field::new(path, FieldKind::Is(value.into())));
            }
            FormEntry::OfPath(name) => {
                fields.push(Field { is_required: true, ..Field::new(name, FieldKind::Place) });
            }
            FormEntry::Without(_) => {}
            FormEntry::Later(path) => {
                let later = all.iter().filter(|field| field.is_in(path)).cloned();
                fields.extend(later.map(|field| Field { is_further: true, ..field }));
            }
            FormEntry::NewSecret(path) => {
                let found = all.iter().filter(|field| field.path == path).cloned();
                fields.extend(found.map(|field| Field { kind: FieldKind::NewSecret, ..field }));
            }
            FormEntry::Receivers(path) => {
                let found = all.iter().filter(|field| field.path == path).cloned();
                let kind = FieldKind::SomeOf(Vec::new());
                fields.extend(found.map(|field| Field { kind: kind.clone(), ..field }));
            }
            FormEntry::Field { path, is_required } => {
                let is_later = |field: &&Field| later.iter().any(|path| field.is_in(path));
                let found =
                    all.iter().filter(|field| field.is_in(path) && !is_later(field)).cloned();
                fields.extend(found.map(|field| Field {
                    is_required: field.is_required || (is_required && field.path == path),
                    ..field
                }));
            }
        }
    }
    fields
}

/// All fields of the request's type.
fn described(action: &Action) -> Vec<Field> {
    let Some(sent) = body_of(action.method, action.path) else { return Vec::new() };
    let body = Described {
        value: sent.value(),
        path: String::new(),
        is_required: true,
        is_needed: true,
        used_for: None,
    };
    let mut fields = Vec::new();
    body.add_to(&mut fields);
    fields
}

/// A value in the request.
struct Described<'s> {
    value: DescribedValue<'s>,
    path: String,
    is_required: bool,
    is_needed: bool,
    used_for: Option<UsedFor>,
}

/// An alternative as a schema has it: a word, or an object with a single member of that name.
struct NamedForm<'s> {
    name: &'s str,
    about: &'s str,
    member: Option<DescribedValue<'s>>,
}

impl Described<'_> {
    /// Adds the fields of the value: of an object its members, of one of several objects those of each.
    fn add_to(self, fields: &mut Vec<Field>) {
        let mut forms = self.value.forms();
        // Of a request that is one thing or many, a form has one.
        if self.path.is_empty() {
            forms.retain(|form| has_members(*form));
        }
        let is_deep = self.path.matches('.').count() >= MAX_DEPTH;
        match alternatives(&forms) {
            Some(found) if !is_deep && !self.path.is_empty() => {
                return self.add_alternatives(&found, fields);
            }
            _ => {}
        }
        if forms.iter().all(|form| has_members(*form)) && !is_deep {
            return self.add_members(&forms, fields);
        }
        let Self { value, path, is_required, is_needed, used_for } = self;
        let is_secret = SECRETS.contains(&path.rsplit('.').next().unwrap_or(&path));
        let kind = match FieldKind::of(value) {
            _ if path == PERSONAL_DATA => FieldKind::PersonalData,
            FieldKind::Text if is_secret => FieldKind::Secret,
            FieldKind::Lines if is_secret => FieldKind::SecretLines,
            kind => kind,
        };
        let about = value.about().to_owned();
        let empty = value.emptied();
        let field = Field::new(&path, kind);
        fields.push(Field { about, is_required, is_needed, used_for, empty, ..field });
    }

    /// Adds a choice among the alternatives, and the fields of each.
    fn add_alternatives(self, found: &[NamedForm<'_>], fields: &mut Vec<Field>) {
        let Self { value, path, is_required, is_needed, used_for } = self;
        let offered = found
            .iter()
            .map(|form| Alternative { name: form.name.to_owned(), about: form.about.to_owned() });
        let choice = Field::new(&path, FieldKind::OneOf(offered.collect()));
        let about = value.about().to_owned();
        fields.push(Field { about, is_required, is_needed, used_for, ..choice });
        for form in found {
            let Some(value) = form.member else { continue };
            let used_for = UsedFor { field: path.clone(), values: vec![form.name.to_owned()] };
            let member = Described {
                value,
                path: format!("{path}.{}", form.name),
                is_required: false,
                is_needed: true,
                used_for: Some(used_for),
            };
            member.add_to(fields);
        }
    }

    fn add_members(&self, forms: &[DescribedValue<'_>], fields: &mut Vec<Field>) {
        let at = |name: &str| match self.path.as_str() {
            "" => name.to_owned(),
            path => format!("{path}.{name}"),
        };
        let mut names: Vec<&str> = Vec::new();
        for (name, _) in forms.iter().flat_map(|form| form.members()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        for name in names {
            let having: Vec<&DescribedValue<'_>> =
                forms.iter().filter(|form| form.member(name).is_some()).collect();
            let is_everywhere = having.len() == forms.len();
            let is_needed = having.iter().all(|form| form.requires(name));
            let Some(value) = having.first().and_then(|first| first.member(name)) else { continue };
            let kinds: Vec<String> =
                having.iter().filter_map(|form| form.member("kind")?.words()).flatten().collect();
            let of_form = || common_condition(&having).filter(|_| !is_everywhere);
            let of_kinds = || {
                let values = kinds.clone();
                (!is_everywhere && !kinds.is_empty()).then(|| UsedFor { field: at("kind"), values })
            };
            let used_for = value.used_for().or_else(of_form).or_else(of_kinds);
            let used_for = used_for.or_else(|| self.used_for.clone());
            let is_required = self.is_required && is_needed && is_everywhere;
            let is_needed = self.is_needed && is_needed;
            let path = at(name);
            if name == "kind" && forms.len() > 1 {
                let kind = Field::new(&path, FieldKind::Choice(kinds));
                fields.push(Field { is_required, is_needed, used_for, ..kind });
            } else {
                Described { value, path, is_required, is_needed, used_for }.add_to(fields);
            }
        }
    }
}

impl FieldKind {
    fn of(value: DescribedValue<'_>) -> Self {
        match value.kind() {
            ValueKind::Words(words) => Self::Choice(words),
            ValueKind::Boolean => Self::Choice(vec!["true".to_owned(), "false".to_owned()]),
            ValueKind::Integer { .. } | ValueKind::Number => Self::Number,
            ValueKind::Time => Self::Time,
            ValueKind::Bytes => Self::Bytes,
            ValueKind::Text { most_chars } if most_chars.is_some_and(|most| most > MAX_LINE) => {
                Self::Lines
            }
            ValueKind::Text { .. } => Self::Text,
            ValueKind::List(item) => match item.kind() {
                ValueKind::Words(words) => Self::Many(words),
                ValueKind::Text { .. } | ValueKind::Time | ValueKind::Bytes => Self::List,
                _ => Self::Json,
            },
            ValueKind::Map { of_texts: true } => Self::Pairs,
            ValueKind::Map { .. } | ValueKind::Object | ValueKind::Other => Self::Json,
        }
    }
}

fn has_members(form: DescribedValue<'_>) -> bool {
    form.members().next().is_some()
}

/// The condition for the use of a member that some forms have: one of their kinds.
fn common_condition(having: &[&DescribedValue<'_>]) -> Option<UsedFor> {
    let all: Option<Vec<UsedFor>> = having.iter().map(|form| form.used_for()).collect();
    let mut all = all?.into_iter();
    let first = all.next()?;
    all.try_fold(first, |mut sum, one| {
        let is_same = sum.field == one.field;
        sum.values.extend(one.values);
        is_same.then_some(sum)
    })
}

/// The alternatives, if a value has several forms: words, and objects with a single member each, all with different names.
fn alternatives<'s>(forms: &[DescribedValue<'s>]) -> Option<Vec<NamedForm<'s>>> {
    let each: Option<Vec<Vec<NamedForm<'s>>>> = forms.iter().copied().map(named_forms).collect();
    let found: Vec<NamedForm<'s>> = each?.into_iter().flatten().collect();
    let mut names: Vec<&str> = found.iter().map(|form| form.name).collect();
    names.sort_unstable();
    names.dedup();
    let has_objects = found.iter().any(|form| form.member.is_some());
    (has_objects && names.len() > 1 && names.len() == found.len()).then_some(found)
}

/// The alternatives in one of several forms.
fn named_forms(form: DescribedValue<'_>) -> Option<Vec<NamedForm<'_>>> {
    let about = form.about();
    if let Some(words) = form.fixed_texts() {
        return Some(
            words.into_iter().map(|name| NamedForm { name, about, member: None }).collect(),
        );
    }
    let mut members = form.members();
    let (name, member) = members.next()?;
    let is_only = members.next().is_none() && form.requires(name);
    is_only.then(|| vec![NamedForm { name, about, member: Some(member) }])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::actions::ACTIONS;

    #[test]
    fn every_entry_of_an_action_is_a_field_of_its_request() {
        for action in ACTIONS {
            let all = described(action);
            for path in action.fields.iter().filter_map(|entry| entry.path()) {
                assert!(all.iter().any(|field| field.is_in(path)), "{}: {path}", action.name);
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
        assert_eq!(found("secret").kind, FieldKind::NewSecret);
        assert!(found("scheme.repeats").is_further && !found("scheme.kind").is_further);
        assert!(
            found("tolerance_secs").is_further && found("tolerance_secs").kind == FieldKind::Number
        );
        assert_eq!(found("public_url").empty, "");
    }
}
