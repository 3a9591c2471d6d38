//! Compares the store's answers with the expected state.
//!
//! 1. A [`Frame`] is taken before a view of the store: the writes settled by then are the lower
//!    bound for the view. Under the locks of the blocks they are also the upper bound; otherwise
//!    the upper bound is the write pending after a key was read.
//! 2. [`scan`] reads a run of keys in one iteration, in either direction, and checks every present
//!    and every missing key.
//! 3. A value of a batch names the batch's other writes: none of them may be older in the same
//!    view. So a partial batch is detected wherever one of its values is seen.
//! 4. [`recovered`] runs before any writer. It checks, also batch by batch, the writes that were
//!    pending when the process died, and then settles them: from then on they are as certain as the
//!    rest.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range as Span;

use trommel::{Db, Range, Slice, Snapshot};

use super::expected::Expected;
use super::records::{Found, Member, RecordSpec, Window};
use crate::error::Error;

/// Why the worker must stop.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The store returned a wrong answer.
    WrongAnswer(String),
    /// The store returned an error that it must not return.
    Store(trommel::Error),
    /// An error of the harness itself.
    Own(Error),
}

impl From<trommel::Error> for Trouble {
    fn from(error: trommel::Error) -> Self {
        Self::Store(error)
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Own(error)
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongAnswer(what) => f.write_str(what),
            Self::Store(error) => error.fmt(f),
            Self::Own(error) => error.fmt(f),
        }
    }
}

pub(super) type Checked<T = ()> = Result<T, Trouble>;

/// A store, or a snapshot of it.
pub(super) trait View {
    fn get(&self, key: &[u8]) -> trommel::Result<Option<Slice>>;
    fn multi_get(&self, keys: &[Vec<u8>]) -> trommel::Result<Vec<Option<Slice>>>;
    fn range(&self, from: Vec<u8>, to: Option<Vec<u8>>) -> Range;
    fn prefix(&self, prefix: Vec<u8>) -> Range;
}

macro_rules! views {
    ($($view:ty),*) => {
        $(impl View for $view {
            fn get(&self, key: &[u8]) -> trommel::Result<Option<Slice>> {
                self.get(key)
            }

            fn multi_get(&self, keys: &[Vec<u8>]) -> trommel::Result<Vec<Option<Slice>>> {
                self.multi_get(keys)
            }

            fn range(&self, from: Vec<u8>, to: Option<Vec<u8>>) -> Range {
                match to {
                    Some(to) => self.range(from..to),
                    None => self.range(from..),
                }
            }

            fn prefix(&self, prefix: Vec<u8>) -> Range {
                self.prefix(prefix)
            }
        })*
    };
}

views!(Db, Snapshot);

/// The bounds for a view's contents in a run of keys.
#[derive(Debug, Clone)]
pub(super) struct Frame {
    keys: Span<u32>,
    lows: Vec<u32>,
    /// The upper bounds, if known.
    highs: Option<Vec<u32>>,
}

impl Frame {
    /// The frame of a view that is taken later, while others write.
    pub(super) fn open(expected: &Expected, keys: Span<u32>) -> Self {
        let lows = keys.clone().map(|key| expected.state(key).settled).collect();
        Self { keys, lows, highs: None }
    }

    /// The frame of a view that is taken while the caller holds the locks of the keys' blocks.
    pub(super) fn closed(expected: &Expected, keys: Span<u32>) -> Self {
        let highs = keys.clone().map(|key| expected.state(key).window().high).collect();
        Self { highs: Some(highs), ..Self::open(expected, keys) }
    }

    /// The run of keys.
    pub(super) fn keys(&self) -> Span<u32> {
        self.keys.clone()
    }

    /// The states of a key that the view may show, given that it has just been read.
    pub(super) fn window(&self, expected: &Expected, key: u32) -> Window {
        let at = (key - self.keys.start) as usize;
        let high = match &self.highs {
            Some(highs) => highs[at],
            None => expected.state(key).window().high,
        };
        Window { low: self.lows[at], high }
    }
}

fn text(records: &RecordSpec, key: u32) -> String {
    format!("key {key} ({})", records.key(key).escape_ascii())
}

/// Describes a write.
fn shown(found: Option<u32>) -> String {
    found.map_or_else(|| "nothing".to_owned(), |generation| format!("write {generation}"))
}

/// Checks the value read for a key.
pub(super) fn judge(
    expected: &Expected,
    key: u32,
    value: Option<&[u8]>,
    window: Window,
    how: &str,
) -> Checked<Option<Found>> {
    let records = &expected.records;
    let found = value.map(|value| parse(records, key, value, how)).transpose()?;
    let generation = found.as_ref().map(|found| found.generation);
    if window.admits(records, key, generation) {
        return Ok(found);
    }
    let state = expected.state(key);
    let deletes: Vec<u32> =
        (window.low..=window.high).filter(|nth| records.is_delete(key, *nth)).collect();
    Err(Trouble::WrongAnswer(format!(
        "{how}: {} holds {}; expected is write {} to {}{}; its expected state is {state:?}",
        text(records, key),
        shown(generation),
        window.low,
        window.high,
        if deletes.is_empty() {
            ", none of which deletes it".to_owned()
        } else {
            format!(", of which {deletes:?} delete it")
        }
    )))
}

fn parse(records: &RecordSpec, key: u32, value: &[u8], how: &str) -> Checked<Found> {
    let found = records.parse(value).filter(|found| found.key == key);
    found.ok_or_else(|| {
        let start = &value[..value.len().min(48)];
        Trouble::WrongAnswer(format!(
            "{how}: the value of {} was never written: {} bytes that begin with {}",
            text(records, key),
            value.len(),
            start.escape_ascii()
        ))
    })
}

/// Checks the writes of a batch that a value names against the state of their keys in the same
/// view.
pub(super) fn judge_member(
    records: &RecordSpec,
    of: u32,
    member: Member,
    found: Option<u32>,
    high: u32,
    how: &str,
) -> Checked {
    let (key, generation) = member;
    let is_there = match found {
        Some(found) => found >= generation,
        None => (generation..=high.max(generation)).any(|nth| records.is_delete(key, nth)),
    };
    if is_there {
        return Ok(());
    }
    Err(Trouble::WrongAnswer(format!(
        "{how}: partial batch: {} is present from a batch with write {generation} of {}, which \
         holds {}",
        text(records, of),
        text(records, key),
        shown(found)
    )))
}

/// Scans the frame's keys and checks them all; returns the generation found for each, 0 if missing.
pub(super) fn scan(
    view: &dyn View,
    expected: &Expected,
    frame: &Frame,
    backward: bool,
    how: &str,
) -> Checked<Vec<u32>> {
    let (records, keys) = (&expected.records, frame.keys());
    let from = if keys.start == 0 { Vec::new() } else { records.key(keys.start) };
    let to = (keys.end < records.keys).then(|| records.key(keys.end));
    let range = view.range(from, to);
    scan_range(range, expected, frame, backward, how)
}

/// As [`scan`], over a range that contains exactly the frame's keys.
pub(super) fn scan_range(
    mut range: Range,
    expected: &Expected,
    frame: &Frame,
    backward: bool,
    how: &str,
) -> Checked<Vec<u32>> {
    let (records, keys) = (&expected.records, frame.keys());
    let mut found = vec![0; keys.len()];
    let mut claims: Vec<(u32, Member)> = Vec::new();
    // All keys between the last one found and this one are missing.
    let mut rest = keys.clone();
    while let Some(entry) = if backward { range.next_back() } else { range.next() } {
        let (key, value) = entry?;
        let number = records.number(&key).filter(|number| rest.contains(number));
        let Some(number) = number else {
            return Err(Trouble::WrongAnswer(format!(
                "{how}: unexpected key {}, never written or out of order: expected is one of the \
                 keys {rest:?}",
                key.escape_ascii()
            )));
        };
        let missing = if backward { number + 1..rest.end } else { rest.start..number };
        for key in missing {
            judge(expected, key, None, frame.window(expected, key), how)?;
        }
        let window = frame.window(expected, number);
        if let Some(read) = judge(expected, number, Some(&value), window, how)? {
            found[(number - keys.start) as usize] = read.generation;
            // Settled writes are checked on their own.
            let is_open = |(key, nth): &Member| {
                keys.contains(key) && *nth > frame.lows[(key - keys.start) as usize]
            };
            claims.extend(read.members.into_iter().filter(is_open).map(|member| (number, member)));
        }
        rest = if backward { rest.start..number } else { number + 1..rest.end };
    }
    for key in rest {
        judge(expected, key, None, frame.window(expected, key), how)?;
    }
    for (of, member) in claims {
        let generation = Some(found[(member.0 - keys.start) as usize]).filter(|nth| *nth > 0);
        let high = frame.window(expected, member.0).high;
        judge_member(records, of, member, generation, high, how)?;
    }
    Ok(found)
}

/// Checks the state that a dead process left, and settles the pending writes. `blocks` are read
/// whole; none means all keys. No other thread may write. Returns the number of keys read.
pub(super) fn recovered(
    db: &Db,
    expected: &Expected,
    blocks: Option<&[u32]>,
    backward: bool,
    how: &str,
) -> Checked<u64> {
    let records = &expected.records;
    let mut read = 0;
    match blocks {
        None => {
            let frame = Frame::closed(expected, 0..records.keys);
            read += scan(db, expected, &frame, backward, how)?.len() as u64;
        }
        Some(blocks) => {
            for block in blocks {
                let frame = Frame::closed(expected, records.block(*block));
                let range = View::prefix(db, records.prefix(*block));
                read += scan_range(range, expected, &frame, backward, how)?.len() as u64;
            }
        }
    }
    let pending = expected.pending();
    let keys: Vec<Vec<u8>> = pending.iter().map(|key| records.key(*key)).collect();
    let values = View::multi_get(db, &keys)?;
    let mut batches: BTreeMap<u32, BatchFate> = BTreeMap::new();
    let mut verdicts = Vec::new();
    for (key, value) in pending.into_iter().zip(&values) {
        let state = expected.state(key);
        let found = judge(expected, key, value.as_deref(), state.window(), how)?;
        let outcome = WriteFate::of(records, key, state, found.map(|found| found.generation));
        if state.batch != 0 {
            batches.entry(state.batch).or_default().add(key, outcome, records, how)?;
        }
        verdicts.push((key, state, outcome));
    }
    // Everything is checked before anything is settled, so that a kill in between hides nothing.
    for (key, state, outcome) in verdicts {
        let is_there = outcome != WriteFate::Lost;
        expected.settle(key, if is_there { state.pending } else { state.settled })?;
        read += 1;
    }
    Ok(read)
}

/// The fate of a pending write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriteFate {
    There,
    Lost,
    /// Indistinguishable: the key is absent both before and after the write.
    Either,
}

impl WriteFate {
    fn of(
        records: &RecordSpec,
        key: u32,
        state: super::expected::KeyState,
        found: Option<u32>,
    ) -> Self {
        match found {
            Some(found) if found == state.pending => Self::There,
            Some(_) => Self::Lost,
            None if !records.is_delete(key, state.pending) => Self::Lost,
            None if !records.is_delete(key, state.settled) => Self::There,
            None => Self::Either,
        }
    }
}

/// The fate of a batch: all of its writes are present, or none.
#[derive(Debug, Default)]
struct BatchFate {
    first: Option<(u32, WriteFate)>,
}

impl BatchFate {
    fn add(&mut self, key: u32, outcome: WriteFate, records: &RecordSpec, how: &str) -> Checked {
        match self.first {
            _ if outcome == WriteFate::Either => Ok(()),
            None => {
                self.first = Some((key, outcome));
                Ok(())
            }
            Some((_, first)) if first == outcome => Ok(()),
            Some((other, first)) => Err(Trouble::WrongAnswer(format!(
                "{how}: partial batch: its write of {} is {first:?}, that of {} is {outcome:?}",
                text(records, other),
                text(records, key)
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use trommel::Options;
    use trommel_sim::MemoryVfs;

    use super::*;
    use crate::ScratchDir;

    const RECORDS: RecordSpec = RecordSpec { keys: 300, min_value: 16, max_value: 64, seed: 3 };

    fn reported<T: fmt::Debug>(checked: Checked<T>) -> String {
        checked.unwrap_err().to_string()
    }

    struct Case {
        db: Db,
        expected: Expected,
        _scratch: ScratchDir,
    }

    /// A store in memory that holds the first write of each key.
    fn case() -> Case {
        let scratch = ScratchDir::new(&std::env::temp_dir()).unwrap();
        let expected = Expected::open(scratch.path(), RECORDS).unwrap();
        let db = Db::open("db", Options::default().vfs(Arc::new(MemoryVfs::default()))).unwrap();
        let case = Case { db, expected, _scratch: scratch };
        (0..RECORDS.keys).for_each(|key| case.write(key, 1, 0));
        (0..RECORDS.keys).for_each(|key| case.expected.settle(key, 1).unwrap());
        case
    }

    impl Case {
        /// Issues a write and leaves it pending.
        fn write(&self, key: u32, generation: u32, batch: u32) {
            self.expected.begin(key, generation, batch).unwrap();
            self.put(key, generation, &[]);
        }

        fn put(&self, key: u32, generation: u32, members: &[Member]) {
            match RECORDS.is_delete(key, generation) {
                true => self.db.delete(RECORDS.key(key)).unwrap(),
                false => {
                    let value = RECORDS.value(key, generation, members);
                    self.db.put(RECORDS.key(key), value).unwrap()
                }
            };
        }

        fn recovered(&self, blocks: Option<&[u32]>) -> Checked<u64> {
            recovered(&self.db, &self.expected, blocks, false, "test")
        }

        /// Keys whose first two writes both leave a value.
        fn keys(&self) -> impl Iterator<Item = u32> {
            (0..RECORDS.keys).filter(|key| (1..3).all(|nth| !RECORDS.is_delete(*key, nth)))
        }
    }

    #[test]
    fn pending_writes_are_settled_by_recovery() {
        let case = case();
        let [there, lost] = [0, 1].map(|nth| case.keys().nth(nth).unwrap());
        case.write(there, 2, 0);
        case.expected.begin(lost, 2, 0).unwrap();
        assert_eq!(case.recovered(None).unwrap(), u64::from(RECORDS.keys) + 2);
        let settled = |key| case.expected.state(key).settled;
        assert_eq!((settled(there), settled(lost)), (2, 1));
        assert_eq!(case.expected.state(lost).begun, 2, "its number is used up");
        // A lost write must not reappear.
        case.put(lost, 2, &[]);
        assert!(
            reported(case.recovered(Some(&[lost / 64]))).contains("holds write 2; expected is")
        );
    }

    #[test]
    fn half_a_batch_is_detected_by_pending_writes() {
        let case = case();
        let [one, other] = [0, 1].map(|nth| case.keys().nth(nth).unwrap());
        case.write(one, 2, 9);
        case.expected.begin(other, 2, 9).unwrap();
        assert!(reported(case.recovered(Some(&[]))).contains("partial batch"));
        case.put(other, 2, &[]);
        case.recovered(Some(&[])).unwrap();
    }

    #[test]
    fn half_a_batch_is_detected_by_the_members_of_a_value() {
        let case = case();
        let [one, other] = [0, 1].map(|nth| case.keys().nth(nth).unwrap());
        for key in [one, other] {
            case.expected.begin(key, 2, 0).unwrap();
        }
        case.put(one, 2, &[(one, 2), (other, 2)]);
        for backward in [false, true] {
            let frame = Frame::open(&case.expected, 0..RECORDS.keys);
            let scanned = scan(&case.db, &case.expected, &frame, backward, "test");
            assert!(reported(scanned).contains("partial batch"));
        }
        case.put(other, 2, &[(one, 2), (other, 2)]);
        case.recovered(None).unwrap();
    }

    #[test]
    fn every_kind_of_wrong_answer_is_detected() {
        let break_it: [fn(&Case, u32); 5] = [
            |case, key| {
                case.db.delete(RECORDS.key(key)).unwrap();
            },
            |case, key| {
                case.db.put(RECORDS.key(key), "strange").unwrap();
            },
            |case, key| {
                case.db.put(RECORDS.key(key), RECORDS.value(key + 1, 1, &[])).unwrap();
            },
            |case, key| {
                case.db.put([RECORDS.key(key), b"!".into()].concat(), "x").unwrap();
            },
            |case, key| case.put(key, 2, &[]),
        ];
        for (nth, break_it) in break_it.into_iter().enumerate() {
            let case = case();
            case.recovered(None).unwrap();
            let key = case.keys().nth(7).unwrap();
            break_it(&case, key);
            for backward in [false, true] {
                let frame = Frame::closed(&case.expected, RECORDS.block(key / 64));
                let scanned = scan(&case.db, &case.expected, &frame, backward, "test");
                assert!(matches!(scanned, Err(Trouble::WrongAnswer(_))), "lie {nth}: {scanned:?}");
            }
            assert!(case.recovered(None).is_err(), "lie {nth}");
        }
    }
}
