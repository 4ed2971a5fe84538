//! `/v1/databases`: the databases of the settings, how they are, and a test of one.

use std::sync::Arc;

use crate::api::prelude::*;
use crate::databases::database::Database;
use crate::databases::inspect::{self, Guard};
use crate::databases::product::Product;
use crate::databases::state::{DatabaseHealth, LastError, Standing};
use crate::model::health::{Check, Level, worst};
use crate::model::token::Right::Box;
use crate::store;
use crate::store::database_users::{self, DatabaseUser, UserKind};

const NAME: Param = Param::path::<NameText>("name", "The database's name in the settings.", "erp");

/// Databases of others.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Databases",
    about: "Databases of others, such as an ERP's own: those of the settings (`[databases.NAME]`). Only for admin tokens of \
            the tenant `default`.",
    routes: &[
        get("/v1/databases", Box, Now(list))
            .doc("listDatabases", "List the databases", &[])
            .about("Each with whether it answers, what uses it, and its last error.")
            .returns(&[Returns::json::<DatabaseList>(200, "The databases, by their names.")]),
        post("/v1/databases/{name}/test", Box, ActLater("database.test", test))
            .doc("testDatabase", "Test a database", &[NAME])
            .about(
                "Connects, and looks at encryption, isolation, durability, letters and grants. Nothing is changed there. The \
                 grants that are missing are in the answer as lines to run.",
            )
            .returns(&[Returns::json::<DatabaseTest>(200, "What was found.")]),
    ],
};

/// The databases.
#[derive(Serialize, JsonSchema)]
struct DatabaseList {
    items: Vec<DatabaseAnswer>,
}

/// A database of the settings.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Database")]
struct DatabaseAnswer {
    name: String,
    product: Product,
    /// Whether it answers; `unknown` until something asks it.
    state: Standing,
    /// Since when it is in that state.
    since: Timestamp,
    /// The last error of the database itself, without data of rows.
    last_error: Option<String>,
    /// When that was.
    last_error_at: Option<Timestamp>,
    /// How many processes of connections ended before their time since the start.
    restarts: u64,
    /// How many connections there may be at once.
    connections: u32,
    /// How many are in use.
    in_use: usize,
    /// The tenants who may use it.
    tenants: Vec<String>,
    /// Its sources and subscriptions, of all tenants: `source default/shop`.
    used_by: Vec<String>,
}

/// What a test found.
#[derive(Serialize, JsonSchema)]
struct DatabaseTest {
    ok: bool,
    checks: Vec<Check>,
}

/// `GET /v1/databases`
fn list(api: &Api, _call: &Call) -> Result<Response, Problem> {
    let items = api.env.store.read(|tx| {
        let shown = |database: &Arc<Database>| {
            Ok(answer(database, &database_users::of(tx, database.name())?))
        };
        api.flow.databases.all().map(shown).collect::<store::error::Result<Vec<_>>>()
    })?;
    Ok(ok(&DatabaseList { items }))
}

fn answer(database: &Database, users: &[DatabaseUser]) -> DatabaseAnswer {
    let DatabaseHealth { standing, since, last_error, restarts, in_use } = database.state();
    let (last_error, last_error_at) = last_error.map(|LastError { at, words }| (words, at)).unzip();
    DatabaseAnswer {
        name: database.name().to_owned(),
        product: database.product(),
        state: standing,
        since,
        last_error,
        last_error_at,
        restarts,
        connections: database.settings().connections,
        in_use,
        tenants: database.settings().tenants.clone(),
        used_by: users.iter().map(ToString::to_string).collect(),
    }
}

/// `POST /v1/databases/{name}/test`
///
/// In a thread of its own: a server that is silent is waited for.
fn test(api: &Api, call: Call, reply: Reply) {
    let own = api.clone();
    let spawned = api.flow.spawner.spawn("database-test", move || {
        let done = tested(&own, &call);
        reply.send(own.acted(&call, done));
    });
    if let Err(error) = spawned {
        tracing::error!(%error, "a test of a database could not be started");
    }
}

fn tested(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let database = api.flow.databases.get(call.param(0)).or_not_found("database")?;
    let users = api.env.store.read(|tx| database_users::of(tx, database.name()))?;
    let is_written = users.iter().any(|user| user.kind == UserKind::Subscription);
    let guard = if is_written { Guard::Needed } else { Guard::NotNeeded };
    let checks = inspect::checks(database, guard);
    let found = DatabaseTest { ok: worst(&checks) != Level::Fail, checks };
    let name = call.param(0).to_owned();
    change(api, call, move |_tx| Ok(Change::changed("database", &name, &(), &found)))
}
