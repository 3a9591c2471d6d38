//! The sector rule: no sector inside a record looks like one that the disk lost.
//!
//! A lost sector reads as zeros, and the reader takes a zeroed sector as proof of a torn write. So
//! a payload that would fill an aligned sector (almost) only with zeros is XORed with a keystream:
//!
//! 1. Check each aligned 512-byte sector that begins after the record's first byte and ends within
//!    the record. (Any other sector that overlaps the record contains the record's first byte or
//!    its last one, or is cut off by the end of the file after the last one: both bytes have five
//!    bits set. A record shorter than 512 bytes has no such sector, so most records cost nothing.)
//! 2. If each has at least 8 non-zero payload bytes, the mask is 0: the payload is stored as it is.
//! 3. Otherwise take mask 1, 2, 3, ... until the masked payload passes. The keystream depends on
//!    the file's random salt, so the first mask passes unless the payload was crafted against a
//!    known salt. After 255 masks the last one is used; such a payload only makes corruption of
//!    *itself* look like a torn write.
//!
//! The keystream of (salt, record offset, mask) is the SplitMix64 sequence (Steele, Lea and Flood,
//! "Fast splittable pseudorandom number generators", 2014) from the seed
//! `mix(salt ^ mix(offset ^ mask << 48))`, each word little-endian.

use super::format::{RECORD_HEADER_BYTES, SECTOR_BYTES, SECTOR_MIN_NONZERO};

/// Masks tried before the last one is taken.
const MAX_MASK: u16 = 255;
/// The increment of SplitMix64.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Masks `payload`, of the record at `offset`, if the sector rule requires it. Returns the mask.
#[inline]
pub(crate) fn mask_if_needed(payload: &mut [u8], salt: u64, offset: u64) -> u16 {
    // In addition to its header, the trailer byte is not payload.
    let is_short = payload.len() + RECORD_HEADER_BYTES + 1 < SECTOR_BYTES as usize;
    if is_short || passes(payload, offset) { 0 } else { mask(payload, salt, offset) }
}

fn mask(payload: &mut [u8], salt: u64, offset: u64) -> u16 {
    let mut mask = 1;
    loop {
        apply(payload, salt, offset, mask);
        if mask == MAX_MASK || passes(payload, offset) {
            return mask;
        }
        apply(payload, salt, offset, mask);
        mask += 1;
    }
}

/// XORs `payload`, of the record at `offset`, with the keystream of `mask`; 0 changes nothing. Its
/// own inverse.
pub(crate) fn apply(payload: &mut [u8], salt: u64, offset: u64, mask: u16) {
    if mask == 0 {
        return;
    }
    let mut state = mix(salt ^ mix(offset ^ (u64::from(mask) << 48)));
    for chunk in payload.chunks_mut(8) {
        state = state.wrapping_add(STEP);
        for (byte, key) in chunk.iter_mut().zip(mix(state).to_le_bytes()) {
            *byte ^= key;
        }
    }
}

/// Whether every sector wholly inside the record has enough non-zero payload bytes.
fn passes(payload: &[u8], offset: u64) -> bool {
    let header = RECORD_HEADER_BYTES as u64;
    let payload_end = offset + header + payload.len() as u64;
    let record_end = payload_end + 1;
    let mut sector = (offset / SECTOR_BYTES + 1) * SECTOR_BYTES;
    while sector + SECTOR_BYTES <= record_end {
        let from = sector.max(offset + header) - offset - header;
        let to = (sector + SECTOR_BYTES).min(payload_end) - offset - header;
        if !has_enough_nonzero(&payload[from as usize..to as usize]) {
            return false;
        }
        sector += SECTOR_BYTES;
    }
    true
}

fn has_enough_nonzero(bytes: &[u8]) -> bool {
    let mut seen = 0;
    for chunk in bytes.chunks(16) {
        seen += chunk.iter().filter(|byte| **byte != 0).count();
        if seen >= SECTOR_MIN_NONZERO {
            return true;
        }
    }
    false
}

/// The output function of SplitMix64.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
