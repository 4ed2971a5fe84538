//! The gates webhooks come in by: each provider with its secrets opened, kept in memory until one
//! changes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use zeroize::Zeroizing;

use crate::domain::provider::Provider;
use crate::faults::{Faults, Step};
use crate::keyring::Keyring;
use crate::store::error::{Error, Result};
use crate::store::{Store, credentials, providers};

/// A provider, ready to be verified.
#[derive(Debug)]
pub struct Gate {
    /// Its row.
    pub provider: Provider,
    /// Its secrets in force, newest first.
    pub secrets: Vec<Zeroizing<String>>,
    /// The credentials they come from, in the same order.
    pub key_ids: Vec<String>,
}

/// All of them, opened when they are first needed.
#[derive(Debug)]
pub struct Gates {
    store: Store,
    key: Arc<Keyring>,
    faults: Faults,
    generation: AtomicU64,
    open: RwLock<HashMap<(String, String), Arc<Gate>>>,
}

impl Gates {
    /// None opened yet.
    pub fn new(store: Store, key: Arc<Keyring>, faults: Faults) -> Self {
        Self { store, key, faults, generation: AtomicU64::new(0), open: RwLock::default() }
    }

    /// Forgets them; called after a commit that changed a provider.
    pub fn forget(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
        self.open.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The gate of a provider; `None` where there is no such provider.
    ///
    /// # Errors
    /// When the file cannot be read, or holds a secret that the master key does not open.
    pub fn of(&self, tenant: &str, name: &str) -> Result<Option<Arc<Gate>>> {
        if self.faults.hit(Step::ReadIntake) {
            return Err(Error::Busy);
        }
        let place = (tenant.to_owned(), name.to_owned());
        let kept = self.open.read().unwrap_or_else(PoisonError::into_inner).get(&place).cloned();
        if kept.is_some() {
            return Ok(kept);
        }
        let generation = self.generation.load(Ordering::SeqCst);
        let Some(fresh) = self.read(tenant, name)?.map(Arc::new) else { return Ok(None) };
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        if self.generation.load(Ordering::SeqCst) == generation {
            open.insert(place, Arc::clone(&fresh));
        }
        Ok(Some(fresh))
    }

    fn read(&self, tenant: &str, name: &str) -> Result<Option<Gate>> {
        let found = self.store.look_up(|tx| {
            let Some(provider) = providers::by_name(tx, tenant, name)? else { return Ok(None) };
            let sealed = credentials::of_provider(tx, provider.seq)?;
            Ok(Some((provider, sealed)))
        })?;
        let Some((provider, sealed)) = found else { return Ok(None) };
        let mut gate = Gate { provider, secrets: Vec::new(), key_ids: Vec::new() };
        for credential in sealed {
            let context = credentials::context(&credential.id);
            let unreadable =
                |value: String| Error::Unreadable { column: "credentials.sealed", value };
            let opened = self
                .key
                .open(&context, &credential.sealed)
                .map_err(|error| unreadable(format!("{}: {error}", credential.id)))?;
            let text = std::str::from_utf8(opened.expose())
                .map_err(|error| unreadable(format!("{}: {error}", credential.id)))?;
            gate.secrets.push(Zeroizing::new(text.to_owned()));
            gate.key_ids.push(credential.id);
        }
        Ok(Some(gate))
    }
}
