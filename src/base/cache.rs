//! Values read from the file, kept in memory until they change.
//!
//! The code that commits a change calls [`Cache::forget`] before the change is answered, so that nothing older
//! is used from then on. Not here: what is kept, and who tells of changes.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::RwLock;

/// Values by key, each read when it is first asked for.
#[derive(Debug)]
pub struct Cache<K, V> {
    /// Values kept at most; what is beyond is read each time.
    most: usize,
    kept: RwLock<Kept<K, V>>,
}

#[derive(Debug)]
struct Kept<K, V> {
    /// How often everything was forgotten: what was read before that must not be kept after it.
    generation: u64,
    values: HashMap<K, Arc<V>>,
}

impl<K: Eq + Hash, V> Cache<K, V> {
    /// An empty cache of at most `most` values.
    pub fn new(most: usize) -> Self {
        Self { most, kept: RwLock::new(Kept { generation: 0, values: HashMap::new() }) }
    }

    /// Forgets everything; called after the commit that changed something.
    pub fn forget(&self) {
        let mut kept = self.kept.write();
        kept.generation = kept.generation.wrapping_add(1);
        kept.values.clear();
    }

    /// The value that is kept of a key, if one is. Takes the key as it is: nothing is copied to ask.
    pub fn kept<Q>(&self, key: &Q) -> Option<Arc<V>>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.kept.read().values.get(key).cloned()
    }

    /// The value of a key: the kept one, else what `read` finds. That there is none is not kept, so that
    /// keys made up by strangers take no room.
    ///
    /// # Errors
    /// What `read` returns.
    pub fn get<E>(
        &self,
        key: K,
        read: impl FnOnce(&K) -> Result<Option<V>, E>,
    ) -> Result<Option<Arc<V>>, E> {
        let generation = {
            let kept = self.kept.read();
            if let Some(value) = kept.values.get(&key) {
                return Ok(Some(Arc::clone(value)));
            }
            kept.generation
        };
        let Some(fresh) = read(&key)?.map(Arc::new) else { return Ok(None) };
        let mut kept = self.kept.write();
        if kept.generation == generation && kept.values.len() < self.most {
            kept.values.insert(key, Arc::clone(&fresh));
        }
        Ok(Some(fresh))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Found = Result<Option<&'static str>, ()>;

    fn get(cache: &Cache<u8, &'static str>, key: u8, read: impl FnOnce() -> Found) -> Found {
        cache.get(key, |_| read()).map(|value| value.map(|value| *value))
    }

    #[test]
    fn a_value_is_read_once_until_it_is_forgotten() {
        let cache = Cache::new(8);
        assert_eq!(get(&cache, 1, || Ok(Some("old"))), Ok(Some("old")));
        assert_eq!(get(&cache, 1, || Err(())), Ok(Some("old")));
        cache.forget();
        assert_eq!(get(&cache, 1, || Ok(Some("new"))), Ok(Some("new")));
    }

    #[test]
    fn what_was_read_before_a_change_is_not_kept_after_it() {
        let cache = Cache::new(8);
        let stale = get(&cache, 1, || {
            cache.forget();
            Ok(Some("old"))
        });
        assert_eq!(stale, Ok(Some("old")), "who asked before the change may be told the old value");
        assert_eq!(get(&cache, 1, || Ok(Some("new"))), Ok(Some("new")));
    }

    #[test]
    fn neither_what_is_missing_nor_what_is_too_many_takes_room() {
        let cache = Cache::new(1);
        assert_eq!(get(&cache, 1, || Ok(None)), Ok(None));
        assert_eq!(get(&cache, 1, || Ok(Some("first"))), Ok(Some("first")));
        assert_eq!(get(&cache, 2, || Ok(Some("second"))), Ok(Some("second")));
        assert_eq!(get(&cache, 2, || Ok(Some("again"))), Ok(Some("again")));
        assert_eq!(get(&cache, 1, || Err(())), Ok(Some("first")));
    }
}
