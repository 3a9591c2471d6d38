//! Integers, and the text forms of filter policies.

use std::fmt::Display;
use std::str::FromStr;

use trommel::{FilterPolicy, FilterSpec, Prefix};
use trommel_base::Decoder;
use trommel_base::codec::{put_bytes, put_u64, put_varint, varint_len};

/// Decodes a type selected by each byte. The result encodes to the same bytes.
pub(crate) fn codec(input: &[u8]) {
    let mut decoder = Decoder::new(input);
    while let Some(what) = decoder.u8() {
        let before = decoder.rest();
        let mut again = Vec::new();
        let known = match what % 6 {
            0 => decoder.varint().map(|value| {
                put_varint(&mut again, value);
                assert_eq!(again.len(), varint_len(value));
            }),
            1 => decoder.varint_u32().map(|value| put_varint(&mut again, u64::from(value))),
            2 => decoder.bytes(usize::from(what)).map(|bytes| put_bytes(&mut again, bytes)),
            3 => decoder.u64().map(|value| put_u64(&mut again, value)),
            4 => decoder.take(usize::from(what)).map(|bytes| again.extend_from_slice(bytes)),
            _ => decoder.length(input.len()).map(|value| put_varint(&mut again, value as u64)),
        };
        if known.is_none() {
            return;
        }
        assert_eq!(&before[..before.len() - decoder.rest().len()], &*again);
    }
}

pub(crate) fn codec_seeds() -> Vec<Vec<u8>> {
    let mut longest = vec![0];
    put_varint(&mut longest, u64::MAX);
    vec![longest, vec![2, 3, b'a', b'b', b'c', 1, 0x80, 1], vec![3, 1, 2, 3, 4, 5, 6, 7, 8, 5, 1]]
}

/// A parsed value prints to a text that parses to the same value.
fn again<T: FromStr + Display>(text: &str) {
    let Ok(understood) = text.parse::<T>() else { return };
    let written = understood.to_string();
    let Ok(back) = written.parse::<T>() else { panic!("{text:?} is written {written:?}") };
    assert_eq!(back.to_string(), written, "of {text:?}");
}

pub(crate) fn specs(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    again::<FilterSpec>(text);
    again::<FilterPolicy>(text);
    again::<Prefix>(text);
    if let Ok(spec) = text.parse::<FilterSpec>() {
        let rate = spec.expected_fpr(1000);
        assert!((0.0..=1.0).contains(&rate), "{text:?} expects {rate}");
    }
}

pub(crate) fn spec_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "paired:16",
        "none",
        "blocked:12.5",
        "ribbon:fpr=1e-4",
        "standard:1/1000",
        "L0=paired:20,L1-=blocked:12.5,last=none",
        "L0-2=paired:16,L3-=ribbon:9,last=standard:10",
        "budget=10/key,kinds=paired|blocked,misses=0.9,L0=8..24,last=..8",
        "budget=64MiB",
        "fixed:8",
        "until:/,2",
        "until:\\x2c",
    ];
    texts.map(|text| text.as_bytes().to_vec()).to_vec()
}
