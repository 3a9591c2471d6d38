//! The format page and the constants in the code agree.

use trommel_sstable::format::*;

#[test]
fn the_page_states_the_constants() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/format/sstable.md");
    let page = std::fs::read_to_string(path).unwrap();
    let magic: Vec<String> = MAGIC.iter().map(|byte| format!("{byte:02x}")).collect();
    let stated = [
        format!("magic `{}`", magic.join(" ")),
        format!("format version **{VERSION}**"),
        format!("footer, {FOOTER_BYTES} bytes"),
        format!("frame, {FRAME_BYTES} bytes"),
        format!("groups of {GROUP_ENTRIES}"),
        format!("fixed part, {BLOCK_TAIL_BYTES} bytes"),
        format!("at most {MAX_BLOCK_ENTRIES} entries"),
        format!("bit {} of the flags", FLAG_WIDE_OFFSETS.trailing_zeros()),
        format!("bit {} of the flags", FLAG_PADDED.trailing_zeros()),
        format!("header, {INDEX_HEADER_BYTES} bytes"),
        format!("{INDEX_SLOT_BYTES} bytes a separator"),
        format!("at most {MAX_COMPRESSED_RAW_BYTES} bytes before compression"),
        format!("| {} | two-level index |", FEATURE_TWO_LEVEL_INDEX.trailing_zeros()),
        format!("| {} | LZ4 |", FEATURE_LZ4.trailing_zeros()),
        format!("| {} | zstd |", FEATURE_ZSTD.trailing_zeros()),
        format!("| {} | range deletes (reserved) |", FEATURE_RANGE_DELETES.trailing_zeros()),
        format!(
            "| {} | merge operands: set if, and only if, an entry is one |",
            FEATURE_MERGES.trailing_zeros()
        ),
        format!(
            "| {} | partitioned filter (reserved) |",
            FEATURE_PARTITIONED_FILTER.trailing_zeros()
        ),
        format!("| {} | hash seed:", FEATURE_HASH_SEED.trailing_zeros()),
        format!("| {} | padded data blocks |", FEATURE_PADDED.trailing_zeros()),
        format!("| {} | data |", BlockKind::Data as u8),
        format!("| {} | filter |", BlockKind::Filter as u8),
        format!("| {} | index leaf |", BlockKind::IndexLeaf as u8),
        format!("| {} | top index |", BlockKind::IndexTop as u8),
        format!("| {} | properties |", BlockKind::Properties as u8),
        format!("| {} | footer |", BlockKind::Footer as u8),
        format!("| {} | top of a partitioned filter |", BlockKind::FilterTop as u8),
    ];
    for text in stated {
        assert!(page.contains(&text), "docs/format/sstable.md does not say: {text}");
    }
}

/// The page's formulas, computed independently here.
#[test]
fn checksums_are_as_the_page_says() {
    let word = (7u64 ^ 4096u64.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_add((1 << 56) | 14);
    assert_eq!(place(7, 4096, BlockKind::Data, 14), word);
    let content = b"0123456789";
    let bytes = [&word.to_le_bytes()[..], content].concat();
    let sum = trommel_base::Checksum::bound_to(&[]).with(&bytes).value();
    assert_eq!(block_checksum(7, 4096, BlockKind::Data, content), sum);
}
