//! The limit on open table files, shared by several stores.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use super::table_cache::TableCache;
use crate::sync::{Mutex, lock};

/// The number of table files that the stores of an environment have open, and its limit.
#[derive(Debug)]
pub(crate) struct SharedFiles {
    most: usize,
    open: Arc<AtomicUsize>,
    stores: Mutex<Vec<Weak<TableCache>>>,
}

impl SharedFiles {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, open: Arc::default(), stores: Mutex::default() })
    }

    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// The count of open files.
    pub(crate) fn open(&self) -> &Arc<AtomicUsize> {
        &self.open
    }

    /// Adds a store.
    pub(crate) fn add(&self, tables: &Arc<TableCache>) {
        let mut stores = lock(&self.stores);
        stores.retain(|store| store.strong_count() > 0);
        stores.push(Arc::downgrade(tables));
    }

    /// Closes tables of the stores with the most open ones, until one more may be opened or none
    /// can be closed. The caller must hold no lock of a table cache.
    pub(crate) fn close_excess(&self) {
        while self.open.load(Ordering::Relaxed) >= self.most {
            let stores = lock(&self.stores);
            let open: Vec<_> = stores.iter().filter_map(Weak::upgrade).collect();
            drop(stores);
            let fullest = open.iter().max_by_key(|store| store.open_tables());
            if !fullest.is_some_and(|store| store.close_any()) {
                return;
            }
        }
    }
}
