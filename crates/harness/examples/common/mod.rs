//! The keys of the examples `lookups`, `memtables`, `scans` and `puts`.

/// A bijection on 64-bit numbers that scatters neighbours.
pub(crate) fn scatter(number: u64) -> u64 {
    let mixed = (number ^ number >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (mixed ^ mixed >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Key `number`: 16 hexadecimal digits, scattered.
pub(crate) fn key(number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    for (i, byte) in key.iter_mut().enumerate() {
        *byte = b"0123456789abcdef"[(scatter(number) >> (60 - 4 * i)) as usize & 15];
    }
    key
}
