//! What the file of a page needs: what it reads, its elements, and its buttons.

pub(super) use maud::{Markup, html};
pub(super) use serde_json::Value;

pub(super) use crate::console::actions;
pub(super) use crate::console::cells::{Cells, Computed, cell};
pub(super) use crate::console::elements::{
    EmptyNote, beginning, button, code, counted, cut, facts, folded, grouped, held_back, hidden,
    json, link, link_of, millis, name_of, nothing, number, span, state, table, text_or, time, told,
    took,
};
pub(super) use crate::console::error::PageError;
pub(super) use crate::console::form::{segment, with_query};
pub(super) use crate::console::json::Fields;
pub(super) use crate::console::list::{FORMS, FilterInput, List};
pub(super) use crate::console::page::{Content, View};
pub(super) use crate::console::standing::Standing;
pub(super) use crate::console::words::{explained, word};
pub(super) use crate::model::token::Right::{Admin, Operate};
