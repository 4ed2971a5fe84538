//! SIGHUP: the settings are read again, and what can be taken without a restart is taken.
//!
//! Not here: who takes what (`Appliance::reload`).

use std::fmt::Display;

use crate::app::Appliance;
use crate::config::Sources;
use crate::config::settings::Key;

/// Reads the settings again and tells the log what came of it. With a mistake in them nothing changes.
pub(super) fn run(appliance: &Appliance, sources: &Sources) {
    let refused = |error: &dyn Display| {
        tracing::error!(%error, "the settings cannot be used; what held before still holds");
    };
    let loaded = match sources.load() {
        Ok(loaded) => loaded,
        Err(error) => return refused(&error),
    };
    let change = match appliance.reload(&loaded.settings) {
        Ok(change) => change,
        Err(error) => return refused(&error),
    };
    tracing::info!(changed = named(&change.taken), "the settings were read again");
    if !change.waiting.is_empty() {
        let keys = named(&change.waiting);
        tracing::warn!(keys, "settings changed that take effect with the next start only");
    }
}

fn named(keys: &[&Key]) -> String {
    let paths: Vec<String> = keys.iter().map(|key| key.path()).collect();
    if paths.is_empty() { "nothing".to_owned() } else { paths.join(", ") }
}
