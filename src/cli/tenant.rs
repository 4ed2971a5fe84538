//! `oncebox tenant`: the tenants of this installation.
//!
//! Not here: a tenant's tokens (`oncebox token create … --tenant`).

use crate::cli::pii;
use crate::cli::prelude::*;

const TABLE: &str = "
tenant  Tenants of this installation; for its administrator
  columns: NAME 0 name; TITLE 1 title; SUSPENDED (UTC) 1 suspended_at; CREATED (UTC) 2 created_at
  fields: title; personal data = policy_of; suspended since = @suspended_at; created = @created_at
  list = listTenants  Tenants, oldest first
  show = getTenant  One tenant
  create = createTenant  Add a tenant
    <name>  1 to 63 characters of a-z, 0-9 and -; it never changes
  change = changeTenant  Give a tenant another title
  pii = changeTenant  Set the policy for personal data in published events
    <pii> <allow|FILE|JSON>  allow, or a policy (test it: oncebox pii test)
    !title
  suspend = suspendTenant  Refuse its tokens and webhooks, and hold its deliveries; nothing is deleted
  resume = resumeTenant  End a suspension: deliveries go on
";

pub(super) const COMMANDS: Commands = Commands::new(&TENANTS, TABLE, &[own("create", create)]);

const TENANTS: Noun = Noun::new("/v1/tenants", "Tenant", "tenants", TABLE)
    .time("created_at")
    .by(&[("policy_of", pii::policy_of)]);

fn create(call: &Call<'_>, remote: &Remote) -> Done {
    call.print(remote, call.body()?)?;
    if !remote.json() {
        let name = call.text("name");
        out::note(format_args!(
            "Its first token: oncebox token create {name}-admin --role admin --tenant {name}"
        ));
    }
    Ok(())
}
