//! Partitions hashes into intervals, so that the work on each interval stays in a cache.
//!
//! # Algorithm
//! Hashes arrive in chunks, in any order; the part number is monotone in the hash.
//! 1. With one part, the chunks are that part.
//! 2. Otherwise the hashes of every chunk are distributed to at most 256 lists, each for one part
//!    or a few adjacent ones. A chunk is freed as soon as it is empty.
//! 3. Lists of several parts are distributed once more, one list at a time.
//!
//! # Memory
//! Every hash is held once: 8 bytes a key, and a list's last chunk is half empty on average. A
//! chunk holds at most a quarter of the expected length of a list ([`chunk_of`]), so this slack is
//! about one byte a key, however few hashes a list has. An out-of-place sort would take 16 bytes a
//! key, a growing vector up to 24.

use alloc::vec;
use alloc::vec::Vec;

/// Lists that are written at the same time, as a power of two: more would exceed the first-level
/// cache and the TLB.
const FAN_OUT_LOG2: u32 = 8;
/// Parts whose hashes are distributed to separate lists at a time.
pub(crate) const TOGETHER: usize = 1 << FAN_OUT_LOG2;
/// Hashes in a list's chunk: at most 4 KiB, for long lists, and at least half a KiB.
const CHUNK: (usize, usize) = (64, 512);
/// Chunks that a list should fill, within the limits of [`CHUNK`].
const CHUNKS_A_LIST: usize = 4;

/// Hashes in one chunk of each list, when `keys` hashes are distributed to `lists` lists.
fn chunk_of(keys: usize, lists: usize) -> usize {
    (keys / lists / CHUNKS_A_LIST).clamp(CHUNK.0, CHUNK.1)
}

/// Parts of each list, as a power of two: the smallest power of the fan-out that leaves at most
/// `1 << FAN_OUT_LOG2` lists.
fn span_log2(parts: u64) -> u32 {
    let mut shift = 0;
    while parts.div_ceil(1 << shift) > 1 << FAN_OUT_LOG2 {
        shift += FAN_OUT_LOG2;
    }
    shift
}

/// The most bytes that `keys` hashes, distributed to `parts` parts, take on top of their own: the
/// last chunk of each list counts as empty.
pub(crate) fn most_slack(keys: u64, parts: u64) -> u64 {
    if parts <= 1 {
        return 0;
    }
    let span = 1 << span_log2(parts);
    let lists = parts.div_ceil(span);
    let here = slack(keys, lists);
    if span == 1 {
        return here;
    }
    // Both levels hold lists at the same time: the rest of the first level, and those of one of its
    // lists.
    here + most_slack(keys.min((keys / parts + 1) * span), span)
}

/// Like [`most_slack`], if all parts are kept until the last has been visited.
pub(crate) fn most_kept_slack(keys: u64, parts: u64) -> u64 {
    let kept = if parts > TOGETHER as u64 { slack(keys, parts) } else { 0 };
    most_slack(keys, parts) + kept
}

/// Like [`most_slack`], for one level.
fn slack(keys: u64, lists: u64) -> u64 {
    let chunk = chunk_of(keys as usize, lists as usize) as u64;
    // A list of chunks starts with a capacity of 4, doubles, and exists twice while it is copied.
    let headers = size_of::<Vec<u64>>() as u64 * (6 * lists + 2 * keys.div_ceil(chunk));
    headers + lists.min(keys) * chunk * size_of::<u64>() as u64
}

/// Calls `visit` with the number and the hashes of each of `parts` parts, in order of number.
/// `part` returns the part of a hash, and must be monotone. `seen` is called once for every hash,
/// before its part is visited. At any time, the hashes seen and not yet visited belong to at most
/// [`TOGETHER`] adjacent parts, starting at a multiple of that.
pub(crate) fn visit_parts(
    chunks: Vec<Vec<u64>>,
    parts: u64,
    part: &impl Fn(u64) -> u64,
    seen: &impl Fn(u64),
    visit: &mut impl FnMut(u64, Vec<Vec<u64>>),
) {
    visit_range(chunks, 0, parts, part, seen, visit);
}

fn visit_range(
    chunks: Vec<Vec<u64>>,
    from: u64,
    parts: u64,
    part: &impl Fn(u64) -> u64,
    seen: &impl Fn(u64),
    visit: &mut impl FnMut(u64, Vec<Vec<u64>>),
) {
    if parts == 1 {
        chunks.iter().flatten().for_each(|&hash| seen(hash));
        return visit(from, chunks);
    }
    let shift = span_log2(parts);
    let span = 1 << shift;
    let mut lists = vec![Vec::<Vec<u64>>::new(); parts.div_ceil(span) as usize];
    let room = chunk_of(chunks.iter().map(Vec::len).sum(), lists.len());
    for chunk in chunks {
        for hash in chunk {
            if span == 1 {
                seen(hash);
            }
            let list = &mut lists[((part(hash) - from) >> shift) as usize];
            match list.last_mut() {
                Some(chunk) if chunk.len() < chunk.capacity() => chunk.push(hash),
                _ => {
                    let mut chunk = Vec::with_capacity(room);
                    chunk.push(hash);
                    list.push(chunk);
                }
            }
        }
    }
    for (nth, list) in lists.into_iter().enumerate() {
        let first = from + nth as u64 * span;
        if span == 1 {
            visit(first, list);
            continue;
        }
        visit_range(list, first, span.min(from + parts - first), part, seen, visit);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::mix::{remix, scale};

    #[test]
    fn every_hash_is_seen_once_in_its_part_in_order() {
        for (keys, parts) in [(0, 1), (10, 1), (1000, 2), (3000, 256), (3000, 257), (900, 70_000)] {
            let hashes: Vec<u64> = (0..keys).map(remix).collect();
            let chunks = hashes.chunks(700).map(<[u64]>::to_vec).collect();
            let (mut hashes_visited, mut visited) = (Vec::new(), Vec::new());
            let seen = RefCell::new(Vec::new());
            let part = |hash| scale(hash, parts);
            let see = |hash| seen.borrow_mut().push(hash);
            visit_parts(chunks, parts, &part, &see, &mut |nth, chunks| {
                visited.push(nth);
                for &hash in chunks.iter().flatten() {
                    assert_eq!(part(hash), nth);
                    hashes_visited.push(hash);
                }
                // All hashes of this part have been seen, and none beyond the parts distributed
                // with it.
                let seen = seen.borrow();
                let so_far = hashes.iter().filter(|&&hash| part(hash) <= nth).count();
                let together = (nth / TOGETHER as u64 + 1) * TOGETHER as u64;
                assert!(seen.len() >= so_far && seen.iter().all(|&hash| part(hash) < together));
            });
            assert!(visited.into_iter().eq(0..parts), "{parts} parts, each visited once");
            let mut sorted = hashes.clone();
            sorted.sort_unstable();
            for mut found in [seen.into_inner(), hashes_visited] {
                found.sort_unstable();
                assert_eq!(found, sorted);
            }
        }
    }
}
