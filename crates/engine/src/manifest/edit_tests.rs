//! The encoding of edits, and their effect on a version.

use std::sync::Arc;

use trommel_base::codec::{put_bytes, put_varint};
use trommel_base::{MAX_KEY_BYTES, MAX_SEQNO};
use trommel_filter::HashSeed;

use super::edit::{
    EditError, FIRST_OPTIONAL_TAG, OperatorsEdit, TAG_ADDED, TAG_HASH_SEED, TAG_KEYSPACE,
    TAG_KEYSPACE_HORIZONS, TAG_KEYSPACE_OPERATORS, TAG_LOG_END, TAG_MERGE_OPERATOR, TAG_TIME_MARKS,
    VersionEdit,
};
use super::state::{InvalidEdit, ManifestState};
use crate::expiry::{KeyspaceHorizon, TimeMarks};
use crate::log::LogEnd;
use crate::names::MAX_FILE_NUMBER;
use crate::ranges::RangeTombstone;
use crate::version::{FilterMeta, TableMeta, Version};

/// Table `number` with these keys and sequence numbers.
pub(super) fn table(number: u64, keys: (&str, &str), seqnos: (u64, u64)) -> TableMeta {
    TableMeta {
        number,
        table_id: number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        file_bytes: 10 + number,
        smallest: keys.0.as_bytes().into(),
        largest: keys.1.as_bytes().into(),
        min_seqno: seqnos.0,
        max_seqno: seqnos.1,
        entries: 9,
        deletions: 2,
        keys: 5,
        filters: FilterMeta { bytes: 64, built_for: 1, sidecar: None },
        ranges_applied: 0,
    }
}

fn time_marks() -> TimeMarks {
    let mut marks = TimeMarks::default();
    for mark in [(0, 1_000), (40, 2_000_000_000_000), (41, u64::MAX)] {
        marks.add(mark.0, mark.1);
    }
    marks.advance(2_000, 500, 40);
    marks
}

fn keyspace_marks() -> TimeMarks {
    let mut marks = time_marks();
    let horizon = |seqno, since| KeyspaceHorizon { seqno, since };
    let all =
        [(0, horizon(0, 9)), (7, horizon(MAX_SEQNO, 0)), (u32::MAX - 1, horizon(5, u64::MAX))];
    marks.set_keyspaces(all.into());
    marks
}

fn sample() -> VersionEdit {
    let mut with_sidecar = table(30, ("", "zzz"), (1, MAX_SEQNO));
    with_sidecar.filters.sidecar = Some(31);
    VersionEdit {
        added: vec![(0, with_sidecar), (6, table(MAX_FILE_NUMBER, ("a", "a"), (0, 0)))],
        removed: vec![(0, 1), (3, 1 << 40)],
        next_file_number: Some(MAX_FILE_NUMBER),
        last_seqno: Some(MAX_SEQNO),
        log_number: Some(0),
        log_ends: vec![
            LogEnd { number: 1, end: 0, next: 2 },
            LogEnd { number: 7, end: u64::MAX, next: MAX_FILE_NUMBER },
        ],
        ranges: vec![
            RangeTombstone::new(b"", None, 1),
            RangeTombstone::new(b"a", Some(b"b"), MAX_SEQNO),
        ],
        replaces_ranges: true,
        time_marks: Some(Arc::new(time_marks())),
        catalog_salt: Some(u64::MAX - 1),
        operators: OperatorsEdit { of_store: Some("counter of Ω".into()), of_keyspaces: true },
        hash_seed: Some(HashSeed::new(u64::MAX - 2)),
    }
}

#[test]
fn an_edit_comes_back() {
    let separate = VersionEdit { time_marks: Some(Arc::new(keyspace_marks())), ..sample() };
    for edit in [VersionEdit::default(), sample(), separate] {
        assert_eq!(VersionEdit::decode(&edit.encode()), Ok(edit));
    }
}

#[test]
fn any_bytes_are_an_edit_or_an_error() {
    let good = sample().encode();
    for length in 0..good.len() {
        if let Ok(edit) = VersionEdit::decode(&good[..length]) {
            assert_ne!(edit, sample());
        }
    }
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        if let Ok(edit) = VersionEdit::decode(&bad) {
            assert!(edit != sample() && edit.added.len() + edit.removed.len() <= 5);
        }
    }
    for byte in 0..=255 {
        let _ = VersionEdit::decode(&[byte; 40]);
    }
}

/// A log followed by itself, or by an older one, would be read in an endless loop.
#[test]
fn the_end_of_a_log_names_a_later_one() {
    let decoded = |body: &[u8]| VersionEdit::decode(&field(TAG_LOG_END, body));
    let ended = LogEnd { number: 7, end: 99, next: 8 };
    assert_eq!(decoded(&[7, 99, 8]).map(|edit| edit.log_ends), Ok(vec![ended]));
    for body in [&[7, 99, 7][..], &[7, 99, 6], &[0, 99, 8], &[7, 99], &[7], &[7, 99, 8, 1]] {
        assert!(matches!(decoded(body), Err(EditError::Damaged(_))), "{body:?}");
    }
}

/// A program that does not know merge operands must refuse a store with some, so the tag is one
/// that may not be skipped.
#[test]
fn the_name_of_a_merge_operator_is_text() {
    const { assert!(TAG_MERGE_OPERATOR < FIRST_OPTIONAL_TAG) };
    let decoded = |body: &[u8]| VersionEdit::decode(&field(TAG_MERGE_OPERATOR, body));
    let name = decoded(b"mine").map(|edit| edit.operators.of_store);
    assert_eq!(name, Ok(Some("mine".into())));
    for body in [&b""[..], b"a\nb", b"\xff", &[b'n'; 201]] {
        assert!(matches!(decoded(body), Err(EditError::Damaged(_))), "{body:?}");
    }
    let twice = [field(TAG_MERGE_OPERATOR, b"a"), field(TAG_MERGE_OPERATOR, b"a")].concat();
    assert!(matches!(VersionEdit::decode(&twice), Err(EditError::Damaged(_))));
    let edit = |name: &str| {
        let operators = OperatorsEdit { of_store: Some(name.into()), of_keyspaces: false };
        VersionEdit { operators, ..VersionEdit::default() }
    };
    let state = ManifestState::default().apply(&edit("a")).unwrap();
    assert_eq!(state.snapshot().operators.of_store, Some("a".into()));
    assert!(state.apply(&edit("a")).is_ok() && state.apply(&VersionEdit::default()).is_ok());
    assert!(state.apply(&edit("b")).is_err());
}

/// Programs that know one horizon for all keys must refuse those of keyspaces.
#[test]
fn horizons_of_keyspaces_never_go_down() {
    const { assert!(TAG_KEYSPACE_HORIZONS < FIRST_OPTIONAL_TAG) };
    let marks = field(TAG_TIME_MARKS, &[7]);
    let decoded =
        |body: &[u8]| VersionEdit::decode(&[&*field(TAG_KEYSPACE_HORIZONS, body), &marks].concat());
    assert!(decoded(&[0, 1, 0, 2, 1, 0]).is_ok() && decoded(&[]).is_ok());
    for body in [&[0, 1][..], &[2, 1, 0, 2, 1, 0], &[2, 1, 0, 0, 1, 0]] {
        assert!(matches!(decoded(body), Err(EditError::Damaged(_))), "{body:?}");
    }
    let alone = VersionEdit::decode(&field(TAG_KEYSPACE_HORIZONS, &[0, 1, 0]));
    assert!(matches!(alone, Err(EditError::Damaged(_))), "{alone:?}");
    let state = ManifestState::default().apply(&decoded(&[0, 5, 1, 2, 6, 1]).unwrap()).unwrap();
    assert_eq!(state.version.ranges.horizons().before_id(2), 6);
    let again =
        VersionEdit::decode(&VersionEdit { next_file_number: None, ..state.snapshot() }.encode())
            .unwrap();
    assert_eq!(
        ManifestState::default().apply(&again).unwrap().version.times(),
        state.version.times()
    );
    for (body, is_fine) in [
        (&[0, 5, 1, 2, 6, 0][..], true),
        (&[0, 5, 1], true),
        (&[0, 4, 1, 2, 6, 1], false),
        (&[0, 5, 1, 2, 5, 1], false),
    ] {
        assert_eq!(state.apply(&decoded(body).unwrap()).is_ok(), is_fine, "{body:?}");
    }
}

/// A program that hashes keys without the seed would not find them in tables with one.
#[test]
fn a_hash_seed_stays_and_is_no_secret_of_the_manifest_only() {
    const { assert!(TAG_HASH_SEED < FIRST_OPTIONAL_TAG) };
    let seeded = VersionEdit { hash_seed: Some(HashSeed::new(7)), ..VersionEdit::default() };
    assert_eq!(seeded.encode(), field(TAG_HASH_SEED, &7_u64.to_le_bytes()));
    assert!(!format!("{seeded:?}").contains('7'));
    for body in [&b""[..], &[1; 7], &[1; 9], &[0; 8]] {
        let decoded = VersionEdit::decode(&field(TAG_HASH_SEED, body));
        assert!(matches!(decoded, Err(EditError::Damaged(_))), "{decoded:?}");
    }
    let state = ManifestState::default().apply(&seeded).unwrap();
    assert_eq!(state.apply(&VersionEdit::default()).unwrap().snapshot(), state.snapshot());
    assert_eq!(state.snapshot().hash_seed, seeded.hash_seed);
    assert!(state.apply(&seeded).is_ok());
    let other = VersionEdit { hash_seed: Some(HashSeed::new(8)), ..VersionEdit::default() };
    assert!(state.apply(&other).is_err());
}

fn field(tag: u64, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, tag);
    put_bytes(&mut out, body);
    out
}

#[test]
fn unknown_fields_are_rejected_or_skipped_by_their_tag() {
    let unsupported = |bytes: &[u8]| matches!(VersionEdit::decode(bytes), Err(EditError::Unsupported(what)) if !what.is_empty());
    let salted = VersionEdit { catalog_salt: Some(7), ..VersionEdit::default() };
    assert_eq!(salted.encode(), field(TAG_KEYSPACE, &7_u64.to_le_bytes()));
    // Versions without keyspaces refuse it.
    const { assert!(TAG_KEYSPACE < FIRST_OPTIONAL_TAG) };
    let cut = VersionEdit::decode(&field(TAG_KEYSPACE, &[1]));
    assert!(matches!(cut, Err(EditError::Damaged(_))), "{cut:?}");
    let operators = OperatorsEdit::of_keyspaces(true);
    let with = VersionEdit { operators, ..VersionEdit::default() };
    assert_eq!(with.encode(), field(TAG_KEYSPACE_OPERATORS, b""));
    const { assert!(TAG_KEYSPACE_OPERATORS < FIRST_OPTIONAL_TAG) };
    let state = ManifestState::default().apply(&with).unwrap();
    let state = state.apply(&VersionEdit::default()).unwrap();
    assert!(state.snapshot().operators.of_keyspaces);
    assert!(unsupported(&field(FIRST_OPTIONAL_TAG - 1, b"")));
    let known = sample().encode();
    let skipped = [field(FIRST_OPTIONAL_TAG, b"whatever"), known].concat();
    assert_eq!(VersionEdit::decode(&skipped), Ok(sample()));

    let described =
        VersionEdit { added: vec![(1, table(3, ("a", "b"), (1, 2)))], ..VersionEdit::default() };
    let encoded = described.encode();
    let body = &encoded[2..];
    assert_eq!(usize::from(encoded[1]), body.len(), "a one-byte length");
    let with = |tag| field(TAG_ADDED, &[body, &field(tag, b"xyz")].concat());
    assert!(unsupported(&with(2)));
    assert_eq!(VersionEdit::decode(&with(FIRST_OPTIONAL_TAG + 1)), Ok(described));
}

#[test]
fn invalid_edits_are_corruption() {
    let damaged = |edit: &VersionEdit| {
        matches!(VersionEdit::decode(&edit.encode()), Err(EditError::Damaged(_)))
    };
    let good = table(3, ("a", "b"), (1, 2));
    let long = "k".repeat(MAX_KEY_BYTES + 1);
    for bad in [
        TableMeta { number: 0, ..good.clone() },
        TableMeta { number: MAX_FILE_NUMBER + 1, ..good.clone() },
        TableMeta { filters: FilterMeta { built_for: 7, ..good.filters }, ..good.clone() },
        TableMeta { entries: 1, ..good.clone() },
        TableMeta { keys: 0, ..good.clone() },
        TableMeta { max_seqno: MAX_SEQNO + 1, ..good.clone() },
        TableMeta { filters: FilterMeta { sidecar: Some(0), ..good.filters }, ..good.clone() },
        table(3, ("b", "a"), (1, 2)),
        table(3, ("a", "b"), (2, 1)),
        table(3, ("a", &long), (1, 2)),
    ] {
        assert!(damaged(&VersionEdit { added: vec![(1, bad)], ..VersionEdit::default() }));
    }
    assert!(damaged(&VersionEdit { added: vec![(7, good)], ..VersionEdit::default() }));
    assert!(damaged(&VersionEdit { removed: vec![(7, 1)], ..VersionEdit::default() }));
    assert!(damaged(&VersionEdit { next_file_number: Some(0), ..VersionEdit::default() }));
    let last = VersionEdit { last_seqno: Some(1), ..VersionEdit::default() }.encode();
    let twice = [last.clone(), last].concat();
    assert!(matches!(VersionEdit::decode(&twice), Err(EditError::Damaged(_))));
    let long = field(4, &[1, 1]);
    assert!(matches!(VersionEdit::decode(&long), Err(EditError::Damaged(_))));
}

pub(super) fn adding(tables: &[(u8, TableMeta)]) -> VersionEdit {
    VersionEdit { added: tables.to_vec(), ..VersionEdit::default() }
}

fn numbers(version: &Version, level: usize) -> Vec<u64> {
    version.levels[level].iter().map(|table| table.number).collect()
}

fn refusal<T>(result: Result<T, InvalidEdit>) -> String {
    match result {
        Ok(_) => panic!("an edit that should be refused was applied"),
        Err(InvalidEdit(what)) => what,
    }
}

#[test]
fn tables_are_ordered_in_their_levels() {
    let edit = adding(&[
        (0, table(5, ("a", "z"), (10, 19))),
        (0, table(4, ("a", "z"), (30, 39))),
        (0, table(6, ("a", "z"), (20, 29))),
        (2, table(8, ("m", "p"), (1, 2))),
        (2, table(9, ("a", "c"), (1, 2))),
    ]);
    let version = Version::default().apply(&edit).unwrap();
    assert_eq!(numbers(&version, 0), [4, 6, 5], "newest first, whatever their numbers");
    assert_eq!(numbers(&version, 2), [9, 8]);

    let moved = VersionEdit {
        removed: vec![(2, 9), (0, 6)],
        added: vec![(3, table(9, ("a", "c"), (1, 2)))],
        ..VersionEdit::default()
    };
    let next = version.apply(&moved).unwrap();
    assert_eq!(
        (numbers(&next, 0), numbers(&next, 2), numbers(&next, 3)),
        (vec![4, 5], vec![8], vec![9])
    );
    assert!(Arc::ptr_eq(&version.levels[2][0], &next.levels[3][0]), "what was opened stays open");
    assert_eq!(numbers(&version, 2), [9, 8], "the version before is untouched");
}

#[test]
fn an_edit_that_breaks_a_version_is_rejected() {
    let version = Version::default()
        .apply(&adding(&[(0, table(5, ("a", "m"), (10, 19))), (2, table(8, ("m", "p"), (1, 2)))]))
        .unwrap();
    let refused = |edit: &VersionEdit| refusal(version.apply(edit));
    let one = |level, meta| adding(&[(level, meta)]);
    assert!(refused(&one(2, table(9, ("p", "q"), (3, 4)))).contains("overlap"));
    assert!(refused(&one(2, table(9, ("a", "m"), (3, 4)))).contains("overlap"));
    assert!(refused(&one(2, table(9, ("n", "n"), (3, 4)))).contains("overlap"));
    assert!(refused(&one(0, table(8, ("x", "y"), (30, 40)))).contains("already there"));
    assert!(refused(&one(0, table(9, ("m", "n"), (19, 40)))).contains("interleave"));
    assert!(refused(&one(0, table(9, ("a", "a"), (1, 100)))).contains("interleave"));
    assert!(version.apply(&one(0, table(9, ("n", "z"), (15, 40)))).is_ok(), "no shared key");
    assert!(refused(&one(7, table(9, ("n", "z"), (15, 40)))).contains("no level 7"));
    let twice = adding(&[(3, table(9, ("a", "a"), (1, 1))), (4, table(9, ("b", "b"), (1, 1)))]);
    assert!(refused(&twice).contains("twice"));
    for missing in [(2, 5), (0, 8), (9, 8), (1, 1)] {
        let edit = VersionEdit { removed: vec![missing], ..VersionEdit::default() };
        assert!(!refused(&edit).is_empty());
    }
    let again = VersionEdit { removed: vec![(2, 8), (2, 8)], ..VersionEdit::default() };
    assert!(refused(&again).contains("to remove"));
}

#[test]
fn numbers_only_grow() {
    let state = ManifestState::default()
        .apply(&VersionEdit {
            next_file_number: Some(20),
            last_seqno: Some(100),
            log_number: Some(10),
            ..VersionEdit::default()
        })
        .unwrap();
    let with = |change: fn(&mut VersionEdit)| {
        let mut edit = VersionEdit::default();
        change(&mut edit);
        state.apply(&edit)
    };
    assert!(refusal(with(|edit| edit.next_file_number = Some(19))).contains("goes down"));
    assert!(refusal(with(|edit| edit.last_seqno = Some(99))).contains("goes down"));
    assert!(refusal(with(|edit| edit.log_number = Some(9))).contains("goes back"));
    assert!(refusal(with(|edit| edit.log_number = Some(20))).contains("above"));
    let number_20 = |edit: &mut VersionEdit| edit.added = vec![(0, table(20, ("a", "b"), (1, 2)))];
    assert!(refusal(with(number_20)).contains("above"));
    assert_eq!(with(|edit| edit.log_number = Some(12)).unwrap().log_number, 12);
    assert_eq!(with(|edit| edit.log_number = Some(0)).unwrap().log_number, 0);
}

#[test]
fn a_snapshot_makes_the_same_state() {
    let state = ManifestState::default()
        .apply(&VersionEdit {
            added: vec![
                (0, table(5, ("a", "z"), (10, 19))),
                (0, table(6, ("a", "z"), (20, 29))),
                (3, table(9, ("a", "c"), (1, 2))),
            ],
            next_file_number: Some(50),
            last_seqno: Some(29),
            log_number: Some(40),
            ..VersionEdit::default()
        })
        .unwrap();
    let again = ManifestState::default().apply(&state.snapshot()).unwrap();
    assert_eq!(again.snapshot(), state.snapshot());
    assert_eq!(numbers(&again.version, 0), [6, 5]);
}

#[test]
fn the_recorded_end_of_a_log_is_removed_with_the_log() {
    let ended = |number, next| LogEnd { number, end: 100, next };
    let edit = VersionEdit {
        next_file_number: Some(20),
        log_number: Some(5),
        log_ends: vec![ended(5, 7), ended(7, 9), ended(4, 5)],
        ..VersionEdit::default()
    };
    let state = ManifestState::default().apply(&edit).unwrap();
    assert_eq!(state.snapshot().log_ends, [ended(5, 7), ended(7, 9)]);
    assert_eq!(
        [4, 5, 6, 7, 8, 9].map(|number| state.needs_log(number)),
        [false, true, false, true, false, true]
    );
    for (oldest, left) in [(6, vec![ended(7, 9)]), (9, vec![]), (0, vec![])] {
        let next = VersionEdit { log_number: Some(oldest), ..VersionEdit::default() };
        assert_eq!(state.apply(&next).unwrap().snapshot().log_ends, left);
    }
    let refused = |end| {
        let edit = VersionEdit { log_ends: vec![end], ..VersionEdit::default() };
        let Err(InvalidEdit(what)) = state.apply(&edit) else { panic!("{end:?} was applied") };
        what
    };
    assert!(refused(ended(7, 8)).contains("stated twice"));
    assert!(refused(ended(9, 20)).contains("above the next file number"));
}
