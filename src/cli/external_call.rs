//! `oncebox external-call`: the latest call about each entity, where a subscription protects external calls.

use crate::cli::noun::Noun;
use crate::cli::verb::Commands;

const TABLE: &str = "
external-call  The latest call about each entity, where a subscription protects external calls
  columns: ENTITY 0 entity_key; SUBSCRIPTION 1 subscription; STATE 0 state; FAILED 2 failed_count; DELIVERY 1 delivery; ACCEPTED 2 made_by; UPDATED (UTC) 1 updated_at
  list = listExternalCalls  The latest call about each entity, the latest first
    subscription <NAME>
";

pub(super) const COMMANDS: Commands = Commands::new(&CALLS, TABLE, &[]);

const CALLS: Noun =
    Noun::new("/v1/external-calls", "External call", "external calls", TABLE).time("updated_at");
