//! Policies that panic in unexpected places, and policies that are set too late.

use std::sync::Arc;

use trommel::{
    Db, Error, FilterChoice, FilterContext, FilterResidency, Options, UserFilterBuilder,
    UserFilterPolicy,
};
use trommel_sim::MemoryVfs;

use super::{DIR, Fault, Prints, check_all, fill, open, options, prints, tables};

/// A filter is dropped by its last user: a flush that has queried it, the reader whose block
/// replaces it in the cache, the thread that closes its table. A panic must not make any of them
/// fail, or leave a wrong count.
#[test]
fn filters_that_panic_when_they_are_dropped_stop_nothing() {
    for residency in [FilterResidency::Pinned, FilterResidency::Cached] {
        let vfs = Arc::new(MemoryVfs::new());
        let policy = prints("drops", Fault::PanicsDropped);
        let options = options(&vfs)
            .background_threads(1)
            .filtering(|f| f.user_filters(Arc::clone(&policy) as _));
        let options = options.filtering(|f| f.filter_residency(residency)).memory_limit(4 << 20);
        let db = Db::open(DIR, options).unwrap();
        for _ in 0..3 {
            fill(&db);
            check_all(&db);
        }
        let failures = || db.filter_report().policy.unwrap().failures;
        let of_flushes = failures();
        assert!(of_flushes >= 3, "{of_flushes}: of each sample");
        // The tables are removed, and their filters with them: at once, or when the cache shrinks.
        db.compact_all().unwrap();
        db.set_options(|options| options.reads(|r| r.cache_bytes(1 << 10))).unwrap();
        assert!(failures() > of_flushes + 1, "{residency:?}: {of_flushes}, then {}", failures());
        let first = db.filter_report().policy.unwrap().first_failure.unwrap();
        assert!(first.contains("dropped") && first.contains("as planned"), "{first}");
        check_all(&db);
        db.put("more", "value").unwrap();
        db.verify().unwrap();
        let stats = db.stats();
        assert!(stats.memory.total() <= 4 << 20, "{residency:?}: {stats}");
        db.close().unwrap();
    }
}

/// A panic's payload may panic when it is dropped, too.
#[test]
fn a_panic_whose_payload_panics_is_contained() {
    #[derive(Debug)]
    struct Throws;

    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("as planned, of what was thrown");
        }
    }

    impl UserFilterPolicy for Throws {
        fn name(&self) -> &str {
            "throws"
        }

        fn choose(&self, context: &FilterContext) -> FilterChoice {
            if context.level == 0 {
                return FilterChoice::User(Box::new(Throws));
            }
            std::panic::panic_any(Bomb)
        }
    }

    impl UserFilterBuilder for Throws {
        fn add(&mut self, _key: &[u8], _hash: u64) {
            std::panic::panic_any(Bomb)
        }

        fn finish(self: Box<Self>) -> Vec<u8> {
            Vec::new()
        }

        fn memory_bytes(&self) -> usize {
            0
        }
    }

    let vfs = Arc::new(MemoryVfs::new());
    let db = Db::open(DIR, options(&vfs).filtering(|f| f.user_filters(Arc::new(Throws)))).unwrap();
    fill(&db);
    db.compact_all().unwrap();
    check_all(&db);
    let report = db.filter_report();
    assert_eq!(report.policy.as_ref().unwrap().failures, 2, "{report}");
    assert_eq!(tables(&report, "blocked"), 1, "{report}");
}

#[test]
fn a_policy_cannot_be_changed_while_the_store_is_open() {
    let vfs = Arc::new(MemoryVfs::new());
    let policy = prints("prints", Fault::Nothing);
    let with = |policy: &Arc<Prints>| {
        let policy = Arc::clone(policy) as _;
        |options: Options| {
            options.reads(|r| r.block_bytes(512)).filtering(|f| f.user_filters(policy))
        }
    };
    let refused = |db: &Db, change: &Arc<Prints>| {
        let error = db.set_options(with(change)).unwrap_err();
        assert!(matches!(error, Error::InvalidOption { .. }), "{error}");
        let error = error.to_string();
        assert!(error.contains("user_filters") && error.contains("open"), "{error}");
        assert!(!db.options().settings().contains(&("block_bytes", "512".into())), "none of it");
    };
    let db = Db::open(DIR, options(&vfs)).unwrap();
    refused(&db, &policy);
    drop(db);
    let db = open(&vfs, &policy);
    refused(&db, &prints("prints", Fault::Nothing));
    let error =
        db.set_options(|_| options(&vfs).reads(|r| r.block_bytes(512))).unwrap_err().to_string();
    assert!(error.contains("user_filters"), "{error}");
    // Setting the same policy again is no change.
    db.set_options(with(&policy)).unwrap();
    assert!(db.options().settings().contains(&("block_bytes", "512".into())));
    let before = db.options();
    db.set_options(|_| before).unwrap();
    fill(&db);
    check_all(&db);
    assert_eq!(tables(&db.filter_report(), "user"), 1);
}
