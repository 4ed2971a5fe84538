//! The source that reads a provider's list, or what to do if there is none.

use crate::api::prelude::*;
use crate::model::name::Name;
use crate::signatures::provider::Provider;
use crate::sources::{Settings, Source, SourceState, tables};

/// The source that reads the provider's list. Several are told apart by name.
pub(super) fn of(api: &Api, provider: &Provider, name: Option<&Name>) -> Result<Source, Problem> {
    let own = &provider.new.name;
    let tenant = provider.new.tenant.as_str();
    let is_list = |source: &Source| match &source.new.settings {
        Settings::Http(list) => list.provider.as_ref() == Some(own),
        _ => false,
    };
    let all = api.env.store.read(|tx| tables::of_kind(tx, "http"))?.into_iter();
    let mut lists: Vec<Source> =
        all.filter(|source| source.new.tenant == tenant && is_list(source)).collect();
    if let Some(name) = name {
        lists.retain(|source| source.new.name == *name);
    }
    let source = match (lists.pop(), lists.is_empty()) {
        (Some(source), true) => source,
        (Some(_), false) => {
            return Err(Problem::conflict(format!(
                "Several sources read lists of the provider {own}. Say which as source."
            )));
        }
        (None, _) => return Err(without_list(own, name)),
    };
    let name = &source.new.name;
    if source.state == SourceState::Paused {
        return Err(Problem::conflict(format!(
            "The source {name} that reads the list is paused: oncebox source resume {name}"
        )));
    }
    let has_time = match &source.new.settings {
        Settings::Http(list) => list.terms().is_ok_and(|terms| terms.time.is_some()),
        _ => false,
    };
    if !has_time {
        return Err(Problem::conflict(format!(
            "Items of the list have no time, which says for which day they count. Set the path of an item's time: oncebox \
             source change {name} --time PATH"
        )));
    }
    Ok(source)
}

fn without_list(provider: &Name, source: Option<&Name>) -> Problem {
    match source {
        Some(source) => Problem::conflict(format!(
            "There is no source {source} that reads a list of the provider {provider}: oncebox source list"
        )),
        None => Problem::conflict(format!(
            "No source reads the list of the provider {provider}. Add one: oncebox source add {provider}-list --list stripe|json \
             --provider {provider} (docs/sources.md)"
        )),
    }
}
