//! The reasons for drift, each in a store where it is the only one.

use std::path::Path;
use std::sync::Arc;

use trommel_vfs::Vfs;

use super::{DIR, budget, in_memory, key, options};
use crate::{Db, DriftReason, Options};

/// Options for tables large enough for their drift to exceed rounding.
fn large(vfs: &Arc<dyn Vfs>, filters: &str) -> Options {
    options(vfs, filters).compaction(|c| c.table_bytes(48 << 10))
}

/// A store whose tables were built under one policy and that now has another.
fn changed(vfs: &Arc<dyn Vfs>, built: &str, now: &str) -> Db {
    let db = Db::open(DIR, large(vfs, built)).unwrap();
    for i in 0..4_000 {
        db.put(key(i), format!("value of {i}")).unwrap();
    }
    db.compact_all().unwrap();
    db.set_filters(now.parse().unwrap()).unwrap();
    db
}

/// Checks that all tables have this reason, and that the report prints it in these words.
fn check_all(db: &Db, reason: DriftReason, words: &str) {
    let report = budget(db);
    assert!(report.tables.len() > 1, "{report}");
    assert!(report.tables.iter().all(|table| table.reason == reason), "{report}");
    assert_eq!(reason.to_string(), words);
    let reported = format!("differ ({} {words})", report.tables.len());
    assert_eq!(
        report.to_string().contains(&reported),
        reason != DriftReason::AsPlanned,
        "{report}"
    );
    let drifted: u64 = report.levels.iter().map(|level| level.drifted).sum();
    let all = if reason == DriftReason::AsPlanned { 0 } else { report.tables.len() as u64 };
    assert_eq!(drifted, all, "{report}");
}

#[test]
fn tables_built_under_this_budget_are_as_planned() {
    let db = changed(&in_memory(), "budget=10/key", "budget=10/key");
    check_all(&db, DriftReason::AsPlanned, "as planned");
}

#[test]
fn tables_built_under_other_budgets_have_larger_or_smaller_filters() {
    let db = changed(&in_memory(), "paired:16", "budget=6/key");
    check_all(&db, DriftReason::WasCheaper, "bytes were less scarce when it was built");
    let db = changed(&in_memory(), "paired:2", "budget=20/key");
    check_all(&db, DriftReason::WasDearer, "bytes were scarcer when it was built");
    let db = changed(&in_memory(), "none", "budget=20/key");
    check_all(&db, DriftReason::Unfiltered, "built without a filter");
}

#[test]
fn tables_built_under_other_policies_have_another_kind() {
    let db = changed(&in_memory(), "standard:4", "budget=10/key,kinds=paired");
    check_all(&db, DriftReason::OtherKind, "of another kind, built under another policy");
}

#[test]
fn corrupt_filters_are_reported_as_unusable() {
    let vfs = in_memory();
    let db = changed(&vfs, "paired:4", "budget=10/key");
    let mut places = Vec::new();
    for (_, table) in db.engine().version().tables() {
        let reader = db.engine().files.tables.reader(table).unwrap();
        places.push((table.number, reader.footer().filter_offset()));
    }
    db.close().unwrap();
    for (number, offset) in places {
        let path = Path::new(DIR).join(format!("{number:06}.sst"));
        let mut bytes = vfs.read(&path, u64::MAX).unwrap();
        bytes[offset as usize + 40] ^= 1;
        vfs.remove(&path).unwrap();
        vfs.create(&path).unwrap().append(&bytes).unwrap();
    }
    let db = Db::open(DIR, large(&vfs, "budget=10/key")).unwrap();
    check_all(&db, DriftReason::Unusable, "cannot be used");
    assert_eq!(db.stats().filters.unusable.len(), budget(&db).tables.len());
}

/// Tables that were written to level 0 and moved down unchanged, because there was nothing to
/// merge.
#[test]
fn moved_tables_have_the_filter_of_another_level() {
    let db =
        Db::open(DIR, large(&in_memory(), "paired:20").compaction(|c| c.l0_trigger(1))).unwrap();
    for i in 0..4_000 {
        db.put(key(i), format!("value of {i}")).unwrap();
        if i % 1_000 == 999 {
            db.flush().unwrap();
        }
    }
    db.wait_idle().unwrap();
    db.set_filters("budget=6/key".parse().unwrap()).unwrap();
    assert!(budget(&db).tables.iter().all(|table| table.level == 1));
    check_all(&db, DriftReason::Moved { from: 0 }, "built when it lay in L0");
}
