//! Filters of prefixes: queried only through their own extractor, checked by `verify`, and left out
//! if the extractor was seen to break its contract.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use trommel_base::EntryKind;
use trommel_filter::{FilterSpec, hash};
use trommel_sstable::{FilterPlan, PrefixExtractor, TableOptions};

use crate::common::{Entry, InMemory, TABLE_ID};

#[derive(Debug)]
struct First {
    bytes: usize,
    name: &'static str,
    distrusted: AtomicUsize,
}

impl First {
    fn new(bytes: usize, name: &'static str) -> Arc<Self> {
        Arc::new(Self { bytes, name, distrusted: AtomicUsize::new(0) })
    }
}

impl PrefixExtractor for First {
    fn name(&self) -> &str {
        self.name
    }

    fn prefix_len(&self, key: &[u8]) -> Option<usize> {
        // The extractor with this name breaks its contract.
        if self.name == "whole" {
            return Some(key.len());
        }
        (key.len() >= self.bytes).then_some(self.bytes)
    }

    fn distrust(&self, _breach: &'static str) {
        self.distrusted.fetch_add(1, Ordering::Relaxed);
    }
}

fn table(keys: FilterSpec, extractor: Arc<First>) -> InMemory {
    let key = |i: u32| format!("{:03}", i).into_bytes();
    let entries: Vec<Entry> = (0..300)
        .map(|i| Entry { key: key(i), seqno: 1, kind: EntryKind::Put, value: vec![7; 20] })
        .chain([b"9".to_vec(), b"9000".to_vec()].map(|key| Entry {
            key,
            seqno: 1,
            kind: EntryKind::Put,
            value: Vec::new(),
        }))
        .collect();
    let prefixes = Some(("paired:20".parse().unwrap(), extractor as Arc<dyn PrefixExtractor>));
    let filters = FilterPlan { keys, prefixes, ..FilterPlan::default() };
    InMemory::new(TableOptions { filters, ..TableOptions::new(TABLE_ID) }, &entries)
}

#[test]
fn a_prefix_filter_is_queried_only_by_its_own_extractor() {
    for keys in [FilterSpec::NONE, "blocked:10".parse().unwrap()] {
        let table = table(keys, First::new(2, "first-2")).open().unwrap();
        let filters = table.filters();
        assert_eq!(filters.prefixes_part().unwrap().extractor, "first-2");
        // 00 to 29, and 90; the key "9" has none.
        assert_eq!(filters.prefix_facts().keys, 31);
        let maybe = |prefix: &[u8], name| filters.query_prefix(prefix, hash(prefix), name).maybe;
        assert!((0..30).all(|i| maybe(format!("{i:02}").as_bytes(), "first-2")));
        let denied = (30..90).filter(|i| !maybe(format!("{i:02}").as_bytes(), "first-2")).count();
        assert!(denied >= 59, "{denied} of 60");
        assert!((30..90).all(|i| maybe(format!("{i:02}").as_bytes(), "first-3")));
    }
}

#[test]
fn verify_queries_each_prefix() {
    let made = table("paired:16".parse().unwrap(), First::new(2, "first"));
    let table = made.open().unwrap();
    table.verify().unwrap();
    table.verify_with(Some(First::new(2, "first"))).unwrap();
    table.verify_with(Some(First::new(3, "another"))).unwrap();
    let changed = table.verify_with(Some(First::new(3, "first"))).unwrap_err().to_string();
    assert!(changed.contains("denies the prefix"), "{changed}");
    let broken = table.verify_with(Some(First::new(2, "whole")));
    assert!(broken.is_ok(), "it has another name, so it is not queried");
}

#[test]
fn a_broken_contract_costs_the_filter_and_nothing_else() {
    let extractor = First::new(0, "whole");
    let table = table("paired:16".parse().unwrap(), Arc::clone(&extractor)).open().unwrap();
    assert_eq!(extractor.distrusted.load(Ordering::Relaxed), 1);
    assert_eq!(table.filters().prefixes_part(), None);
    assert!(table.filters().query_prefix(b"x", hash(b"x"), "whole").maybe);
    table.verify_with(Some(extractor)).unwrap();
}
