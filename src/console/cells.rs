//! Tables and facts about objects of the API: a row says which field is shown, and how.
//!
//! A cell's label is the name of a text ([`super::texts`]). What a row cannot say, a page computes, by the label.

use maud::{Markup, Render, html};
use serde_json::Value;

use crate::console::elements::{
    EmptyNote, facts, folded, id, link, number, state, table, text_or, time,
};
use crate::console::json::Fields;
use crate::console::page::View;
use crate::console::texts::Texts;
use crate::console::words::{explained, word};

/// The cells that a page computes, by their labels.
pub(super) type Computed<'a> = &'a [(&'a str, &'a dyn Fn(&Value) -> Markup)];

/// The shown values of an object, with the computed ones.
#[derive(Clone, Copy)]
pub(super) struct Cells<'a>(pub(super) &'a [Cell], pub(super) Computed<'a>);

/// A shown value.
#[derive(Clone, Copy)]
pub(super) struct Cell {
    name: &'static str,
    /// The field, `outer.inner` for a field of a field.
    field: &'static str,
    /// The field that is shown where the first is missing; empty: none.
    other: &'static str,
    look: Look,
    /// Whether it is only shown when it was chosen.
    is_further: bool,
}

/// How a value looks.
#[derive(Clone, Copy)]
enum Look {
    Plain,
    Time,
    State,
    Word,
    Code,
    Id,
    Told,
    /// A text, or the mark of a missing one.
    Filled,
    /// A link to the object of this name on a page.
    Link(&'static str),
}

/// The field of this name, as it is.
pub(super) const fn cell(name: &'static str) -> Cell {
    Cell { name, field: name, other: "", look: Look::Plain, is_further: false }
}

impl Cell {
    const fn shows(self, field: &'static str, look: Look) -> Self {
        Self { field, look, ..self }
    }

    /// The field, if its name differs from the label's.
    pub(super) const fn of(self, field: &'static str) -> Self {
        self.shows(field, Look::Plain)
    }

    /// A time.
    pub(super) const fn time(self, field: &'static str) -> Self {
        self.shows(field, Look::Time)
    }

    /// A state as a badge.
    pub(super) const fn state(self, field: &'static str) -> Self {
        self.shows(field, Look::State)
    }

    /// A word of the API in the reader's language.
    pub(super) const fn word(self, field: &'static str) -> Self {
        self.shows(field, Look::Word)
    }

    /// A text that people copy.
    pub(super) const fn code(self, field: &'static str) -> Self {
        self.shows(field, Look::Code)
    }

    /// An id, shortened.
    pub(super) const fn id(self, field: &'static str) -> Self {
        self.shows(field, Look::Id)
    }

    /// A long text.
    pub(super) const fn told(self, field: &'static str) -> Self {
        self.shows(field, Look::Told)
    }

    /// A text, or the mark of a missing one.
    pub(super) const fn filled(self, field: &'static str) -> Self {
        self.shows(field, Look::Filled)
    }

    /// A link to the page of this object.
    pub(super) const fn link(self, page: &'static str, field: &'static str) -> Self {
        self.shows(field, Look::Link(page))
    }

    /// The field that is shown where the first is missing.
    pub(super) const fn or(self, other: &'static str) -> Self {
        Self { other, ..self }
    }

    /// It is only shown when it was chosen.
    pub(super) const fn further(self) -> Self {
        Self { is_further: true, ..self }
    }

    fn markup(&self, t: &Texts, object: &Value, computed: Computed<'_>) -> Markup {
        if let Some((_, of)) = computed.iter().find(|(known, _)| *known == self.name) {
            return of(object);
        }
        let field = |path: &str| path.split('.').fold(object, |object, name| object.field(name));
        let fields = [self.field, self.other];
        let named = fields.into_iter().filter(|path| !path.is_empty());
        let found = named.map(field).find(|field| !field.is_null());
        let text = found.and_then(Value::as_str).unwrap_or_default();
        match self.look {
            Look::Time => time(text),
            Look::State => state(text),
            Look::Word => html! { span data-word=[explained(text)] { (word(text)) } },
            Look::Code => html! { code { (text) } },
            Look::Id => id(t, text),
            Look::Told => folded(text),
            Look::Filled => text_or(Some(text).filter(|text| !text.is_empty())),
            Look::Link(page) => link(page, text),
            Look::Plain => match found {
                None | Some(Value::String(_)) => html! { (text) },
                Some(other) => other.as_i64().map_or_else(|| html! { (other) }, number),
            },
        }
    }
}

impl Cells<'_> {
    /// The cells that were chosen; if none was, the usual ones.
    fn shown(&self, chosen: &[&str]) -> Vec<Cell> {
        let is_chosen = |cell: &&Cell| chosen.contains(&cell.name);
        let is_any = self.0.iter().any(|cell| is_chosen(&cell));
        let shown =
            self.0.iter().filter(|cell| if is_any { is_chosen(cell) } else { !cell.is_further });
        shown.copied().collect()
    }

    /// The columns that can be chosen: name, label, whether it is shown.
    pub(super) fn offered(
        &self,
        view: &View<'_>,
        chosen: &[&str],
    ) -> Vec<(&'static str, &'static str, bool)> {
        let shown: Vec<&str> = self.shown(chosen).iter().map(|cell| cell.name).collect();
        let offered = self.0.iter();
        offered
            .map(|cell| (cell.name, view.t.named(cell.name), shown.contains(&cell.name)))
            .collect()
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
        let cells = self.shown(chosen);
        let heads: Vec<_> = cells.iter().map(|cell| view.t.named(cell.name)).collect();
        let row = |object| cells.iter().map(|cell| cell.markup(view.t, object, self.1)).collect();
        table(caption, &heads, &objects.iter().map(row).collect::<Vec<_>>())
    }

    /// Labels with their values, without those that have none.
    pub(super) fn facts(&self, view: &View<'_>, object: &Value) -> Markup {
        let fact = |cell: &Cell| (view.t.named(cell.name), cell.markup(view.t, object, self.1));
        facts(&self.0.iter().map(fact).collect::<Vec<_>>())
    }
}
