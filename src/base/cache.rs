//! Values read from the file, kept in memory until they change.
//!
//! The code that commits a change calls [`Cache::forget`] before the change is answered, so that no older value
//! is used afterwards.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::RwLock;

/// Values by key, each read when it is first asked for.
#[derive(Debug)]
pub struct Cache<K, V> {
    /// Values in the cache at most; further ones are read each time.
    most: usize,
    entries: RwLock<Entries<K, V>>,
}

#[derive(Debug)]
struct Entries<K, V> {
    /// Incremented by [`Cache::forget`]: a value whose read began before it must not be cached after it.
    generation: u64,
    values: HashMap<K, Arc<V>>,
}

impl<K: Eq + Hash, V> Cache<K, V> {
    /// An empty cache of at most `most` values.
    pub fn new(most: usize) -> Self {
        Self { most, entries: RwLock::new(Entries { generation: 0, values: HashMap::new() }) }
    }

    /// Forgets everything; called after the commit that changed something.
    pub fn forget(&self) {
        let mut entries = self.entries.write();
        entries.generation = entries.generation.wrapping_add(1);
        entries.values.clear();
    }

    /// The cached value of a key, if there is one. Takes a borrowed key, so that a lookup copies nothing.
    pub fn cached<Q>(&self, key: &Q) -> Option<Arc<V>>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.entries.read().values.get(key).cloned()
    }

    /// The value of a key: the cached one, else what `read` finds. A missing value is not cached, so that
    /// made-up keys take no room.
    pub fn get<E>(
        &self,
        key: K,
        read: impl FnOnce(&K) -> Result<Option<V>, E>,
    ) -> Result<Option<Arc<V>>, E> {
        let generation = {
            let entries = self.entries.read();
            if let Some(value) = entries.values.get(&key) {
                return Ok(Some(Arc::clone(value)));
            }
            entries.generation
        };
        let Some(fresh) = read(&key)?.map(Arc::new) else { return Ok(None) };
        let mut entries = self.entries.write();
        if entries.generation == generation && entries.values.len() < self.most {
            entries.values.insert(key, Arc::clone(&fresh));
        }
        Ok(Some(fresh))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Read = Result<Option<&'static str>, ()>;

    fn get(cache: &Cache<u8, &'static str>, key: u8, read: impl FnOnce() -> Read) -> Read {
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
    fn a_value_read_before_a_change_is_not_cached_after_it() {
        let cache = Cache::new(8);
        let stale = get(&cache, 1, || {
            cache.forget();
            Ok(Some("old"))
        });
        assert_eq!(
            stale,
            Ok(Some("old")),
            "a read that began before the change may see the old value"
        );
        assert_eq!(get(&cache, 1, || Ok(Some("new"))), Ok(Some("new")));
    }

    #[test]
    fn neither_a_missing_value_nor_one_beyond_the_limit_is_cached() {
        let cache = Cache::new(1);
        assert_eq!(get(&cache, 1, || Ok(None)), Ok(None));
        assert_eq!(get(&cache, 1, || Ok(Some("first"))), Ok(Some("first")));
        assert_eq!(get(&cache, 2, || Ok(Some("second"))), Ok(Some("second")));
        assert_eq!(get(&cache, 2, || Ok(Some("again"))), Ok(Some("again")));
        assert_eq!(get(&cache, 1, || Err(())), Ok(Some("first")));
    }
}
