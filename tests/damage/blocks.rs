//! Blocks of a table that are swapped, or overwritten with each other: each is intact, and its
//! checksum is valid at its original offset. (With checksums that are not bound to the offset,
//! reads can find wrong keys: RocksDB before format 6 could return a misplaced block.)

use std::path::Path;

use trommel::Compression;
use trommel::inspect::{BlockInfo, Table};

use crate::exam::How;
use crate::flips::whole;
use crate::injury::{Injury, kind_of};
use crate::lane::Lane;
use crate::stores::{DIR, Ending, Store, build, vfs_of};

/// The blocks of a table of `store`.
fn blocks(store: &Store, file: &str) -> Vec<BlockInfo> {
    let table = Table::open(&vfs_of(&store.image), &Path::new(DIR).join(file));
    table.and_then(|table| table.layout()).expect("the table is whole")
}

fn range(block: &BlockInfo) -> std::ops::Range<usize> {
    block.offset as usize..(block.offset + block.bytes) as usize
}

#[test]
fn swapped_blocks_are_distinguished() {
    for (filters, compression) in [("none", Compression::None), ("paired:16", Compression::Lz4)] {
        let store = build(filters, compression, Ending::Closed);
        let mut lane = Lane::new("blocks", &store);
        let mut pairs = 0;
        for (file, bytes) in store.image.iter().filter(|(file, _)| kind_of(file) == "table") {
            let blocks = blocks(&store, file);
            let alike = |a: &BlockInfo, b: &BlockInfo| (a.kind, a.bytes) == (b.kind, b.bytes);
            for (i, a) in blocks.iter().enumerate() {
                for b in blocks[i + 1..].iter().filter(|b| alike(a, b)) {
                    pairs += 1;
                    let (mut swapped, mut doubled) = (bytes.clone(), bytes.clone());
                    swapped[range(a)].copy_from_slice(&bytes[range(b)]);
                    doubled[range(a)].copy_from_slice(&bytes[range(b)]);
                    swapped[range(b)].copy_from_slice(&bytes[range(a)]);
                    for injured in [swapped, doubled] {
                        lane.case(file, &Injury::Replace(injured), How::default(), |found| {
                            match whole(&store, found)? {
                                "unseen" => Err("nobody reports it".to_owned()),
                                verdict => Ok(verdict),
                            }
                        });
                    }
                }
            }
        }
        assert!(pairs >= 4 || compression != Compression::None, "{pairs} pairs: too few to tell");
        lane.finish();
    }
}
