//! Histories written by hand, each with one anomaly: the checker finds it by name.

use super::checker::{Kind, check};
use super::history::{Execution, FIRST_REGISTER, Outcome};

const X: u32 = 1;
const Y: u32 = 2;
const R: u32 = FIRST_REGISTER + 1;
const S: u32 = FIRST_REGISTER + 2;

/// `read of key: writes; ...` as pairs, and its writes.
fn execution(reads: &[(u32, &[u32])], writes: &[(u32, u32)]) -> Execution {
    let reads = reads.iter().map(|(key, seen)| (*key, seen.to_vec())).collect();
    Execution { reads, writes: writes.to_vec(), ..Execution::new(Outcome::Committed) }
}

fn aborted(reads: &[(u32, &[u32])], writes: &[(u32, u32)]) -> Execution {
    Execution { outcome: Outcome::Aborted, ..execution(reads, writes) }
}

/// What it is, the history, and the anomalies in it.
type Known = (&'static str, Vec<Execution>, &'static [Kind]);

/// Histories of transactions one after the other.
fn no_anomalies() -> Vec<Known> {
    vec![
        ("nothing", vec![], &[]),
        (
            "one after the other",
            vec![
                execution(&[(X, &[])], &[(X, 1)]),
                execution(&[(X, &[1]), (Y, &[])], &[(X, 2), (Y, 3)]),
                execution(&[(X, &[1, 2]), (Y, &[3])], &[]),
                aborted(&[(X, &[1])], &[(X, 4)]),
                execution(&[(R, &[])], &[(R, 5)]),
                execution(&[(R, &[5])], &[(R, 6), (R, 7)]),
                execution(&[(R, &[7])], &[]),
            ],
            &[],
        ),
    ]
}

/// Cycles without anti-dependencies.
fn cycles_of_writes_and_reads() -> Vec<Known> {
    vec![
        (
            "dirty write: the writes of two are in both orders",
            vec![
                execution(&[], &[(X, 1), (Y, 2)]),
                execution(&[], &[(X, 3), (Y, 4)]),
                execution(&[(X, &[1, 3]), (Y, &[4, 2])], &[]),
            ],
            &[Kind::G0],
        ),
        (
            "circular information flow",
            vec![execution(&[(Y, &[2])], &[(X, 1)]), execution(&[(X, &[1])], &[(Y, 2)])],
            &[Kind::G1c],
        ),
        (
            "circular information flow over a version",
            vec![
                execution(&[(X, &[]), (S, &[6])], &[(X, 1)]),
                execution(&[(X, &[1])], &[(X, 2)]),
                execution(&[(X, &[1, 2]), (S, &[])], &[(S, 6)]),
            ],
            &[Kind::G1c],
        ),
    ]
}

/// Values that no order of committed transactions explains.
fn bad_values() -> Vec<Known> {
    vec![
        (
            "aborted read",
            vec![aborted(&[(X, &[])], &[(X, 1)]), execution(&[(X, &[1])], &[])],
            &[Kind::G1a],
        ),
        ("read of a write that nobody made", vec![execution(&[(R, &[9])], &[])], &[Kind::G1a]),
        (
            "intermediate read",
            vec![
                execution(&[(X, &[])], &[(X, 1), (X, 2)]),
                execution(&[(X, &[1])], &[]),
                execution(&[(X, &[1, 2])], &[]),
            ],
            &[Kind::G1b, Kind::GSingle],
        ),
        (
            "a transaction that does not see its own write, and is rolled back",
            vec![Execution { without_own: vec![(X, vec![])], ..aborted(&[(X, &[])], &[(X, 1)]) }],
            &[Kind::Internal],
        ),
        (
            "lost update of a list",
            vec![
                execution(&[(X, &[])], &[(X, 1)]),
                execution(&[(X, &[])], &[(X, 2)]),
                execution(&[(X, &[2])], &[]),
            ],
            &[Kind::LostWrite],
        ),
        (
            "lost update of a register",
            vec![
                execution(&[(R, &[])], &[(R, 1)]),
                execution(&[(R, &[])], &[(R, 2)]),
                execution(&[(R, &[2])], &[]),
            ],
            &[Kind::Order, Kind::LostWrite],
        ),
        (
            "a list in two orders",
            vec![
                execution(&[(X, &[])], &[(X, 1)]),
                execution(&[(X, &[1])], &[(X, 2)]),
                execution(&[(X, &[1, 2])], &[]),
                execution(&[(X, &[2, 1])], &[]),
            ],
            &[Kind::Order],
        ),
    ]
}

/// Cycles with anti-dependencies.
fn anti_dependencies() -> Vec<Known> {
    vec![
        (
            "read skew: the new value of one key and the old one of another",
            vec![
                execution(&[(X, &[]), (Y, &[])], &[(X, 1), (Y, 2)]),
                execution(&[(X, &[1]), (Y, &[])], &[]),
                execution(&[(X, &[1]), (Y, &[2])], &[]),
            ],
            &[Kind::GSingle],
        ),
        (
            "read skew of registers",
            vec![
                execution(&[(R, &[]), (S, &[])], &[(R, 1), (S, 2)]),
                execution(&[(R, &[]), (S, &[2])], &[]),
            ],
            &[Kind::GSingle],
        ),
        (
            "write skew",
            vec![
                execution(&[(X, &[]), (Y, &[])], &[(X, 1)]),
                execution(&[(X, &[]), (Y, &[])], &[(Y, 2)]),
                execution(&[(X, &[1]), (Y, &[2])], &[]),
            ],
            &[Kind::G2],
        ),
        (
            "phantoms: each has found the range without the key of the other",
            vec![
                execution(&[(R, &[]), (S, &[]), (X, &[])], &[(R, 1)]),
                execution(&[(R, &[]), (S, &[]), (X, &[])], &[(S, 2)]),
            ],
            &[Kind::G2],
        ),
        (
            "a reader that sees only the later of two writers",
            vec![
                execution(&[(X, &[])], &[(X, 1)]),
                execution(&[(X, &[]), (Y, &[])], &[(Y, 2)]),
                execution(&[(X, &[1]), (Y, &[])], &[]),
                execution(&[(X, &[1]), (Y, &[2])], &[]),
            ],
            &[Kind::G2],
        ),
        (
            "a read-only transaction that makes two writers non-serializable",
            vec![
                execution(&[(X, &[]), (Y, &[])], &[(X, 1)]),
                execution(&[(Y, &[])], &[(Y, 2)]),
                execution(&[(X, &[]), (Y, &[2])], &[]),
                execution(&[(X, &[1]), (Y, &[2])], &[]),
            ],
            &[Kind::G2],
        ),
    ]
}

#[test]
fn each_known_anomaly_is_found_by_its_name() {
    let histories =
        [no_anomalies(), cycles_of_writes_and_reads(), bad_values(), anti_dependencies()];
    for (name, history, expected) in histories.into_iter().flatten() {
        let found = check(&history);
        let kinds: Vec<Kind> = found.iter().map(|anomaly| anomaly.kind).collect();
        assert_eq!(kinds, expected, "{name}: {found:?}");
        found.iter().for_each(|anomaly| assert!(!anomaly.explain(&history).is_empty()));
    }
}
