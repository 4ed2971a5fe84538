//! The providers of webhooks with their opened secrets, cached until a provider changes.

use std::collections::BTreeSet;

use zeroize::Zeroizing;

use crate::base::cache::Cache;
use crate::base::faults::Step;
use crate::pipeline::prelude::*;
use crate::signatures::provider::Provider;
use crate::store::credential_uses::{CredentialUses, LastUse};
use crate::store::{credentials, providers, tenants};

/// Providers in the cache at most; further ones are read for each request.
const MAX_OPEN: usize = 10_000;

/// A provider with what it takes to verify its requests.
#[derive(Debug)]
pub struct VerifiedProvider {
    /// Its row.
    pub provider: Provider,
    /// Its secrets in force, newest first.
    pub secrets: Vec<Zeroizing<String>>,
    /// The credentials they come from, in the same order.
    pub key_ids: Vec<String>,
    /// When each ends by itself, in the same order.
    pub valid_until: Vec<Option<Timestamp>>,
    /// When each was last used, in the same order.
    pub uses: Vec<Arc<LastUse>>,
    /// Whether its tenant is suspended: nothing may come in.
    pub suspended: bool,
}

/// The cache. A provider is read when it is first needed.
#[derive(Debug)]
pub struct ProviderCache {
    env: Env,
    uses: Arc<CredentialUses>,
    /// By tenant and name.
    open: Cache<(String, String), VerifiedProvider>,
}

impl ProviderCache {
    /// An empty cache.
    pub fn new(env: Env, uses: Arc<CredentialUses>) -> Self {
        Self { env, uses, open: Cache::new(MAX_OPEN) }
    }

    /// When credentials were last used.
    pub fn uses(&self) -> &Arc<CredentialUses> {
        &self.uses
    }

    /// Forgets the providers of these tenants; called after a commit that changed one of them, or their tenant.
    pub fn forget(&self, tenants: &BTreeSet<String>) {
        if !tenants.is_empty() {
            self.open.forget_those(|(tenant, _)| tenants.contains(tenant));
        }
    }

    /// A provider with its secrets; `None` where there is no such provider.
    /// Fails when the file cannot be read, or holds a secret that the master key does not open.
    pub fn of(&self, tenant: &str, name: &str) -> Result<Option<Arc<VerifiedProvider>>> {
        if self.env.faults.hit(Step::ReadIntake) {
            return Err(Error::Busy);
        }
        let key = (tenant.to_owned(), name.to_owned());
        self.open.get(key, |(tenant, name)| self.read(tenant, name))
    }

    fn read(&self, tenant: &str, name: &str) -> Result<Option<VerifiedProvider>> {
        let found = self.env.store.look_up(|tx| {
            let Some(provider) = providers::by_name(tx, tenant, name)? else { return Ok(None) };
            let sealed = credentials::of_provider(tx, provider.seq)?;
            Ok(Some((provider, sealed, tenants::is_suspended(tx, tenant)?)))
        })?;
        let Some((provider, sealed, suspended)) = found else { return Ok(None) };
        let mut read = VerifiedProvider {
            provider,
            secrets: Vec::new(),
            key_ids: Vec::new(),
            valid_until: Vec::new(),
            uses: Vec::new(),
            suspended,
        };
        for credential in sealed {
            let context = credentials::context(&credential.id);
            let unreadable =
                |value: String| Error::Unreadable { column: "credentials.sealed", value };
            let opened = self
                .env
                .keyring
                .open(&context, &credential.sealed)
                .map_err(|error| unreadable(format!("{}: {error}", credential.id)))?;
            let text = std::str::from_utf8(opened.expose())
                .map_err(|error| unreadable(format!("{}: {error}", credential.id)))?;
            read.secrets.push(Zeroizing::new(text.to_owned()));
            read.uses.push(self.uses.track(vec![credential.id.clone()]));
            read.key_ids.push(credential.id);
            read.valid_until.push(credential.valid_until);
        }
        Ok(Some(read))
    }
}
