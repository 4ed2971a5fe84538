//! The connection over which a source reads its database.

use std::sync::Arc;

use crate::databases::database::{Database, Databases, Lease};
use crate::databases::product::Product;
use crate::sources::database_settings::DatabaseSettings;
use crate::sources::shared::SourceError;
use crate::sources::tables::trouble;

/// A connection, and the kind of database that it leads to.
#[derive(Debug)]
pub(super) struct Connected {
    pub(super) product: Product,
    pub(super) lease: Lease,
}

/// The database of a source, if its tenant may use it; else why not, without a full stop.
pub fn find<'a>(
    databases: &'a Databases,
    tenant: &str,
    settings: &DatabaseSettings,
) -> Result<&'a Arc<Database>, String> {
    let name = &settings.database;
    databases.of_tenant(name.as_str(), tenant).ok_or_else(|| {
        format!(
            "there is no database {name} that the tenant {tenant} may use: add [databases.{name}] to the settings, with \
             the tenant in tenants, and restart the service"
        )
    })
}

/// Takes a connection to the database of a source, or waits for one.
pub(super) fn take(
    databases: &Databases,
    tenant: &str,
    settings: &DatabaseSettings,
) -> Result<Connected, SourceError> {
    let database = find(databases, tenant, settings).map_err(SourceError::lasting)?;
    let product = database.product();
    let lease = database.connection().map_err(|error| trouble::of(product, &error))?;
    Ok(Connected { product, lease })
}
