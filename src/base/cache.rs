//! Values read from the file, kept in memory until they change.
//!
//! The code that commits a change calls [`Cache::forget`] before the change is answered, so that no older value
//! is used afterwards. A cache has a limit, of values or of bytes. One that is full is emptied and starts again.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::RwLock;

/// Values by key, each read when it is first asked for.
#[derive(Debug)]
pub struct Cache<K, V> {
    /// The weight of all values at most.
    most: usize,
    weigh: fn(&K, &V) -> usize,
    entries: RwLock<Entries<K, V>>,
}

#[derive(Debug)]
struct Entries<K, V> {
    /// Incremented by [`Cache::forget`]: a value whose read began before it must not be cached after it.
    generation: u64,
    weight: usize,
    values: HashMap<K, Arc<V>>,
}

impl<K: Eq + Hash, V> Cache<K, V> {
    /// An empty cache of at most `most` values.
    pub fn new(most: usize) -> Self {
        Self::of_bytes(most, |_, _| 1)
    }

    /// An empty cache of values that `weigh` at most `most` bytes together.
    pub fn of_bytes(most: usize, weigh: fn(&K, &V) -> usize) -> Self {
        let entries = Entries { generation: 0, weight: 0, values: HashMap::new() };
        Self { most, weigh, entries: RwLock::new(entries) }
    }

    /// Forgets everything; called after the commit that changed something.
    pub fn forget(&self) {
        let mut entries = self.entries.write();
        entries.generation = entries.generation.wrapping_add(1);
        entries.clear();
    }

    /// Forgets the value of one key. A value of any key that is being read meanwhile is not cached.
    pub fn forget_one(&self, key: &K) {
        let mut entries = self.entries.write();
        entries.generation = entries.generation.wrapping_add(1);
        if let Some((key, value)) = entries.values.remove_entry(key) {
            entries.weight = entries.weight.saturating_sub((self.weigh)(&key, &value));
        }
    }

    /// Forgets the values of these keys. A value of any key that is being read meanwhile is not cached.
    pub fn forget_those(&self, has_changed: impl Fn(&K) -> bool) {
        let mut entries = self.entries.write();
        let Entries { generation, weight, values } = &mut *entries;
        *generation = generation.wrapping_add(1);
        values.retain(|key, value| {
            let is_gone = has_changed(key);
            if is_gone {
                *weight = weight.saturating_sub((self.weigh)(key, value));
            }
            !is_gone
        });
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
        let weight = (self.weigh)(&key, &fresh);
        let mut entries = self.entries.write();
        if entries.generation == generation && weight <= self.most {
            if entries.weight.saturating_add(weight) > self.most {
                entries.clear();
            }
            // Another thread may have read the same value, which weighs the same.
            if entries.values.insert(key, Arc::clone(&fresh)).is_none() {
                entries.weight = entries.weight.saturating_add(weight);
            }
        }
        Ok(Some(fresh))
    }
}

impl<K, V> Entries<K, V> {
    fn clear(&mut self) {
        self.weight = 0;
        self.values.clear();
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
    fn one_value_is_forgotten_and_others_stay() {
        let cache = Cache::of_bytes(8, |_, value: &&str| value.len());
        for key in [1, 2] {
            assert_eq!(get(&cache, key, || Ok(Some("four"))), Ok(Some("four")));
        }
        cache.forget_one(&1);
        cache.forget_one(&7);
        assert_eq!(get(&cache, 2, || Err(())), Ok(Some("four")));
        assert_eq!(get(&cache, 1, || Ok(Some("more"))), Ok(Some("more")));
        assert_eq!(get(&cache, 2, || Err(())), Ok(Some("four")), "its weight was given back");
        let stale = get(&cache, 3, || {
            cache.forget_one(&3);
            Ok(Some("old"))
        });
        assert_eq!((stale, get(&cache, 3, || Err(()))), (Ok(Some("old")), Err(())));
    }

    #[test]
    fn values_of_some_keys_are_forgotten_with_their_weight() {
        let cache = Cache::of_bytes(8, |_, value: &&str| value.len());
        for key in [1, 2] {
            assert_eq!(get(&cache, key, || Ok(Some("four"))), Ok(Some("four")));
        }
        cache.forget_those(|key| *key == 1);
        assert_eq!(get(&cache, 2, || Err(())), Ok(Some("four")));
        assert_eq!(get(&cache, 1, || Ok(Some("more"))), Ok(Some("more")));
        assert_eq!(get(&cache, 2, || Err(())), Ok(Some("four")), "there was room for both");
    }

    #[test]
    fn a_missing_value_is_not_cached_and_a_full_cache_starts_again() {
        let cache = Cache::new(1);
        assert_eq!(get(&cache, 1, || Ok(None)), Ok(None));
        assert_eq!(get(&cache, 1, || Ok(Some("first"))), Ok(Some("first")));
        assert_eq!(get(&cache, 2, || Ok(Some("second"))), Ok(Some("second")));
        assert_eq!(get(&cache, 2, || Err(())), Ok(Some("second")));
        assert_eq!(get(&cache, 1, || Ok(Some("again"))), Ok(Some("again")));
    }

    #[test]
    fn values_are_cached_up_to_a_number_of_bytes() {
        let cache = Cache::of_bytes(10, |_, value: &&str| value.len());
        assert_eq!(get(&cache, 1, || Ok(Some("four"))), Ok(Some("four")));
        assert_eq!(get(&cache, 2, || Ok(Some("larger than all"))), Ok(Some("larger than all")));
        assert_eq!(get(&cache, 3, || Ok(Some("sixsix"))), Ok(Some("sixsix")));
        for (key, kept) in [(1, "four"), (3, "sixsix")] {
            assert_eq!(get(&cache, key, || Err(())), Ok(Some(kept)));
        }
        assert_eq!(get(&cache, 2, || Err(())), Err(()));
        assert_eq!(get(&cache, 4, || Ok(Some("one more"))), Ok(Some("one more")));
        assert_eq!(get(&cache, 1, || Err(())), Err(()));
        assert_eq!(get(&cache, 4, || Err(())), Ok(Some("one more")));
    }
}
