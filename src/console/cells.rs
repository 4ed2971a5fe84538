//! Tables and facts about objects of the API, as a text says: `label = how field; …`.
//!
//! The label is the name of a text ([`super::texts`]); alone, it is the field, too. `how` is one of the words of
//! [`Cell::of`]; without it, the field is shown as it is. Of `one|other` the first that is there is shown, and `outer.inner` is
//! a field of a field. A page computes what a text cannot say, by the label. `+label` is shown only when it was chosen.

use maud::{Markup, Render, html};
use serde_json::Value;

use crate::console::elements::{
    EmptyNote, facts, id, link, number, state, table, text_or, time, told, word,
};
use crate::console::json::Fields;
use crate::console::page::View;
use crate::console::texts::Texts;

/// The cells that a page computes, by their labels.
pub(super) type Computed<'a> = &'a [(&'a str, &'a dyn Fn(&Value) -> Markup)];

/// The shown values of an object, with the computed ones.
#[derive(Clone, Copy)]
pub(super) struct Cells<'a>(pub(super) &'a str, pub(super) Computed<'a>);

struct Cell<'a> {
    name: &'a str,
    /// Whether it is shown when nothing was chosen.
    is_usual: bool,
    label: &'static str,
    value: &'a str,
    computed: Option<&'a dyn Fn(&Value) -> Markup>,
}

impl Cell<'_> {
    fn of(&self, t: &Texts, object: &Value) -> Markup {
        if let Some(of) = self.computed {
            return of(object);
        }
        let (how, fields) = self.value.rsplit_once(' ').unwrap_or(("", self.value));
        let field = |path: &str| path.split('.').fold(object, |object, name| object.field(name));
        let found = fields.split('|').map(field).find(|field| !field.is_null());
        let text = found.and_then(Value::as_str).unwrap_or_default();
        match how {
            "time" => time(text),
            "state" => state(text),
            "word" => html! { (word(text)) },
            "code" => html! { code { (text) } },
            "id" => id(t, text),
            "told" => told(text),
            "if" => text_or(Some(text).filter(|text| !text.is_empty())),
            "" => match found {
                None | Some(Value::String(_)) => html! { (text) },
                Some(other) => other.as_i64().map_or_else(|| html! { (other) }, number),
            },
            page => link(page.trim_start_matches("link "), text),
        }
    }
}

impl<'a> Cells<'a> {
    fn each(&self, view: &View<'_>) -> Vec<Cell<'a>> {
        let Self(text, computed) = *self;
        let cell = |part: &'a str| {
            let (given, value) = part.split_once(" = ").unwrap_or((part, part));
            let name = given.trim_start_matches('+');
            let computed = computed.iter().find(|(known, _)| *known == name).map(|(_, of)| *of);
            let label = view.t.named(name);
            let value = value.trim_start_matches('+');
            Cell { name, is_usual: name == given, label, value, computed }
        };
        text.split("; ").map(cell).collect()
    }

    /// The cells that were chosen; if none was, the usual ones.
    fn shown(&self, view: &View<'_>, chosen: &[&str]) -> Vec<Cell<'a>> {
        let mut cells = self.each(view);
        let is_chosen = |cell: &Cell<'_>| chosen.contains(&cell.name);
        let is_any = cells.iter().any(is_chosen);
        cells.retain(|cell| if is_any { is_chosen(cell) } else { cell.is_usual });
        cells
    }

    /// The columns that can be chosen: name, label, whether it is shown.
    pub(super) fn offered(
        &self,
        view: &View<'_>,
        chosen: &[&str],
    ) -> Vec<(&'a str, &'static str, bool)> {
        let shown: Vec<&str> = self.shown(view, chosen).iter().map(|cell| cell.name).collect();
        let cells = self.each(view);
        cells.iter().map(|cell| (cell.name, cell.label, shown.contains(&cell.name))).collect()
    }

    /// A table of objects; `empty` is shown if there are none.
    pub(super) fn table(
        &self,
        view: &View<'_>,
        caption: &str,
        objects: &[Value],
        empty: EmptyNote<'_>,
    ) -> Markup {
        self.chosen(view, &[], caption, objects, empty)
    }

    /// The same with the columns that were chosen.
    pub(super) fn chosen(
        &self,
        view: &View<'_>,
        chosen: &[&str],
        caption: &str,
        objects: &[Value],
        empty: EmptyNote<'_>,
    ) -> Markup {
        if objects.is_empty() {
            return empty.render();
        }
        let cells = self.shown(view, chosen);
        let heads: Vec<_> = cells.iter().map(|cell| cell.label).collect();
        let row = |object| cells.iter().map(|cell| cell.of(view.t, object)).collect();
        table(caption, &heads, &objects.iter().map(row).collect::<Vec<_>>())
    }

    /// Labels with their values, without those that have none.
    pub(super) fn facts(&self, view: &View<'_>, object: &Value) -> Markup {
        let cells = self.each(view);
        facts(&cells.iter().map(|cell| (cell.label, cell.of(view.t, object))).collect::<Vec<_>>())
    }
}
