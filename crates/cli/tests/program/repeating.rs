//! Exactly reproducible bench runs.

use crate::support::Program;

/// The kinds of workloads in which a tree grows: puts in any order, overwrites, deletes,
/// read-and-write.
const WORKLOADS: [&str; 3] = [
    "fillrandom,waitforcompaction",
    "filluniquerandom,overwrite,deleterandom,readrandomwriterandom",
    "fillrandom,compact,updaterandom",
];

/// Without background threads and with one writer, the seed determines the tree: the same tables
/// with the same numbers, sizes and key ranges in the same levels. Another seed makes another tree.
#[test]
fn a_seed_without_background_threads_makes_the_same_tables() {
    let program = Program::new();
    let tables = |name: &str, benchmarks: &str, seed: u32| {
        let db = program.path(name);
        let ran = program.run(&format!(
            "bench --db={} --benchmarks={benchmarks} --num=20000 --seed={seed} --threads=1 \
             --max-background-jobs=0 --write-buffer-size=256K --table-size=128K --base-level-size=512K",
            db.display()
        ));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let listed = program.run(&format!("properties --db={} --format=csv", db.display()));
        let (store, tables) = listed.out.split_once("\n\n").expect("a store and its tables");
        // The id of each store is random.
        let store = store.lines().last().and_then(|line| line.split_once(','));
        (store.expect("an id and more").1.to_owned(), tables.to_owned())
    };
    for (nth, benchmarks) in WORKLOADS.into_iter().enumerate() {
        let first = tables(&format!("first-{nth}"), benchmarks, 9);
        assert!(first.1.lines().count() > 8, "{benchmarks}: hardly any tables: {first:?}");
        assert_eq!(tables(&format!("second-{nth}"), benchmarks, 9), first, "{benchmarks}");
        assert_ne!(tables(&format!("other-{nth}"), benchmarks, 10), first, "{benchmarks}");
    }
}
