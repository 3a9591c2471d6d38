//! Filter rebuilds by a policy: it is called as for new tables, and its faults lose nothing.

use super::*;
use trommel::RebuildOptions;

/// A store that was filled without a policy, opened with one.
fn filled_before(policy: &Arc<Prints>) -> (Arc<MemoryVfs>, Db) {
    let vfs = Arc::new(MemoryVfs::new());
    let db = Db::open(DIR, options(&vfs)).unwrap();
    fill(&db);
    db.close().unwrap();
    let db = open(&vfs, policy);
    (vfs, db)
}

#[test]
fn a_rebuild_calls_the_policy_and_is_read_where_that_is_known() {
    let policy = prints("prints", Fault::Nothing);
    let (vfs, db) = filled_before(&policy);
    let all = RebuildOptions::default();
    let plan = db.filter_rebuild_plan(&all).unwrap();
    let [table] = &plan.tables[..] else { panic!("{plan:?}") };
    assert_eq!((&*table.from, &*table.to), ("blocked:10", "\"prints\""));
    assert_eq!(db.rebuild_filters(&all).unwrap().rebuilt, 1);
    let request = policy.requests.lock().unwrap().pop().unwrap();
    assert_eq!((request.reason, request.expected_keys), (FilterReason::Rebuild, Some(KEYS)));
    check_all(&db);
    let report = db.filter_report();
    assert_eq!(tables(&report, "user"), 1, "{report}");
    assert_eq!(db.filter_rebuild_plan(&all).unwrap().tables, [], "what it has made stays");
    let verified = db.verify().unwrap();
    assert_eq!((verified.sidecars, verified.foreign_filters), (1, 0));
    db.close().unwrap();
    // Where the policy is not known the table's own filter answers, which a spec would build.
    let db = Db::open(DIR, options(&vfs)).unwrap();
    check_all(&db);
    let report = db.filter_report();
    assert!(report.levels[0].counts.negatives > KEYS, "{report}");
    assert_eq!(db.verify().unwrap().foreign_filters, 1);
    assert_eq!(db.rebuild_filters(&all).unwrap().dropped, 1);
    assert_eq!(db.verify().unwrap().foreign_filters, 0);
    check_all(&db);
}

#[test]
fn a_sidecar_that_denies_a_key_is_found() {
    let policy = prints("prints", Fault::DeniesAll);
    let (vfs, db) = filled_before(&prints("prints", Fault::Nothing));
    db.rebuild_filters(&RebuildOptions::default()).unwrap();
    db.close().unwrap();
    let db = open(&vfs, &policy);
    policy.lies.store(true, Relaxed);
    let error = db.verify().unwrap_err().to_string();
    assert!(error.contains(".flt") && error.contains("denies a key"), "{error}");
}

#[test]
fn what_a_policy_does_wrong_in_a_rebuild_costs_nothing_that_was_there() {
    use Fault::*;
    for fault in [
        PanicsAdding,
        PanicsFinishing,
        PanicsBuiltAndDropped,
        PanicsOpening,
        PanicsStating,
        PanicsDropped,
        RefusesToOpen,
        EndsInNothing,
        EndsInHalf,
        StatesNonsense,
        StatesNothing,
    ] {
        let policy = prints("wrong", fault);
        let (_, db) = filled_before(&policy);
        let report = db.rebuild_filters(&RebuildOptions::default()).unwrap();
        assert_eq!(report.rebuilt as usize + report.skipped.len(), 1, "{fault:?}: {report:?}");
        // Stated sizes are accepted as far as possible, and a dropped filter had been built.
        let is_usable = matches!(fault, PanicsDropped | StatesNonsense | StatesNothing);
        assert!(is_usable || report.rebuilt == 0, "{fault:?}: {report:?}");
        check_all(&db);
        db.verify().unwrap();
        db.put(key(1), b"x").unwrap();
    }
}
