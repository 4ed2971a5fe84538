//! `oncebox escalation`: failures that a person must see.

use crate::cli::prelude::*;
use crate::cli::show::cut;

const TABLE: &str = "
escalation  Failures that a person must see
  columns: ID 0 id; CLASS 1 class; SUBJECT 1 subject; LAST (UTC) 1 last_at; COUNT 2 count; ACKNOWLEDGED BY 3 acknowledged_by; DETAIL 2 detail
  fields: class; subject; detail; first = @first_at; last = @last_at; count; acknowledged = @acknowledged_at; by = acknowledged_by; resolved = @resolved_at
  list = listEscalations  Open escalations, newest first
    all --resolved  Also list resolved ones
  show = getEscalation  One escalation: what happened, since when, how often
  acknowledge = acknowledgeEscalation  Mark an escalation as seen; it stays open until its cause is gone
";

pub(super) const COMMANDS: Commands = Commands::new(&ESCALATIONS, TABLE, &[]);

const ESCALATIONS: Noun = Noun::new("/v1/escalations", "Escalation", "open escalations", TABLE)
    .time("last_at")
    .by(&[("detail", |e| cut(&text(e, "detail"), 100))]);
