//! Filter sidecars are queried instead of the table's own filters, and nothing wrong with one hides
//! a key.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use trommel_filter::{FilterKind, FilterSpec, hash};
use trommel_sim::MemoryVfs;
use trommel_sstable::sidecar::format::{
    FOOTER_BYTES, FOOTER_MAGIC, HEAD_BYTES, HEAD_MAGIC, SidecarFooter, VERSION,
};
use trommel_sstable::{
    Answers, BlockCache, Compression, Error, Expected, FilterPlan, FilterShape, FilterState,
    PrefixExtractor, Sidecar, SidecarSummary, Table, TableConfig,
};
use trommel_vfs::{Access, DiskVfs, Vfs};

use crate::common::*;

const SHAPES: [FilterShape; 2] = [FilterShape::Whole, FilterShape::Partitioned];

/// The first four bytes of a key.
#[derive(Debug)]
struct First4;

impl PrefixExtractor for First4 {
    fn name(&self) -> &str {
        "custom:first 4"
    }

    fn prefix_len(&self, key: &[u8]) -> Option<usize> {
        (key.len() >= 4).then_some(4)
    }

    fn distrust(&self, breach: &'static str) {
        panic!("{breach}");
    }
}

fn plan(spec: &str, shape: FilterShape) -> FilterPlan {
    let spec: FilterSpec = spec.parse().unwrap();
    FilterPlan { shape, partition_bytes: 256, ..FilterPlan::from(spec) }
}

fn entries() -> Vec<Entry> {
    let mut random = Random(7);
    random_entries(&mut random, 1500, 60)
}

/// A table, and a sidecar of it that can be changed.
struct Pair {
    table: InMemory,
    path: PathBuf,
    summary: SidecarSummary,
}

impl Pair {
    fn new(own: &str, beside: &FilterPlan, entries: &[Entry]) -> Self {
        let table = InMemory::new(options(256, Compression::None, own), entries);
        let path = PathBuf::from("/2.flt");
        let file = table.vfs.create(&path).unwrap();
        let opened = table.open().unwrap();
        let go_on = |_| Ok::<(), Error>(());
        let summary = opened.write_sidecar(file, &path, 77, beside, None, go_on).unwrap();
        Self { table, path, summary }
    }

    fn bytes(&self) -> Vec<u8> {
        self.table.vfs.read(&self.path, u64::MAX).unwrap()
    }

    /// Replaces the bytes of the sidecar.
    fn put(&self, bytes: &[u8]) {
        self.table.vfs.remove(&self.path).unwrap();
        self.table.vfs.create(&self.path).unwrap().append(bytes).unwrap();
    }

    fn sidecar(&self) -> Result<Sidecar, Error> {
        let file = self.table.vfs.open(&self.path, Access::Buffered).unwrap();
        Sidecar::open(file, &self.path)
    }

    /// Opens the table as a store does, which records what is wrong with the sidecar.
    fn open(&self) -> Arc<Table> {
        let vfs = &self.table.vfs;
        let file = vfs.open(&self.table.path, Access::Buffered).unwrap();
        let expected = Expected { file_bytes: file.bytes(), table_id: TABLE_ID };
        let cache = BlockCache::new(1 << 20);
        let config = TableConfig { cache, access: Access::Buffered, filter_host: None };
        let mut table = Table::open(file, &self.table.path, expected, &config).unwrap();
        if let Err(error) = self.sidecar().and_then(|sidecar| table.take_sidecar(sidecar)) {
            table.miss_sidecar(&error.to_string());
        }
        Arc::new(table)
    }

    fn verify(&self) -> Result<bool, Error> {
        self.table.open()?.verify_sidecar(&self.sidecar()?, Some(Arc::new(First4)))
    }
}

/// Whether no key of `entries` is denied, in single and batched queries.
fn denies_none(table: &Table, entries: &[Entry]) -> bool {
    let keys: Vec<&[u8]> = entries.iter().map(|entry| &*entry.key).collect();
    let hashes: Vec<u64> = keys.iter().map(|key| hash(key)).collect();
    let mut answers = Answers::default();
    table.filters().query_many(&keys, &hashes, &mut answers);
    let together = answers.runs().all(|(_, _, maybe)| maybe.iter().all(|maybe| *maybe));
    let alone = keys.iter().zip(hashes).all(|(key, hash)| table.filters().query(key, hash).maybe);
    let prefixes = keys
        .iter()
        .filter_map(|key| key.get(..4))
        .all(|prefix| table.filters().query_prefix(prefix, hash(prefix), First4.name()).maybe);
    together && alone && prefixes
}

/// How many of 2000 absent keys are false positives.
fn passes(table: &Table) -> usize {
    let absent = |i: &u32| {
        let key = format!("absent {i}");
        table.filters().query(key.as_bytes(), hash(key.as_bytes())).maybe
    };
    (0..2000).filter(absent).count()
}

#[test]
fn a_table_queries_its_sidecar() {
    let entries = entries();
    for shape in SHAPES {
        for (own, beside) in [("none", "standard:16"), ("standard:4", "standard:16")] {
            let mut plan = plan(beside, shape);
            plan.prefixes = Some((plan.keys, Arc::new(First4)));
            let pair = Pair::new(own, &plan, &entries);
            let keys = pair.table.open().unwrap().properties().contents.keys;
            assert_eq!(
                (pair.summary.keys, pair.summary.file_bytes),
                (keys, pair.bytes().len() as u64)
            );
            let table = pair.open();
            assert!(table.filters().are_beside());
            assert!(denies_none(&table, &entries), "{own} {shape}");
            assert!(passes(&table) < 20, "{own} {shape}: {}", passes(&table));
            assert_eq!(*table.filters().check().unwrap(), FilterState::Loaded);
            assert!(plan.would_build(table.filters().stored_parts()), "{own} {shape}");
            assert!(!plan.would_build(table.filters().own().stored_parts()));
            assert!(!pair.verify().unwrap());
            let blocks = pair.sidecar().unwrap().layout();
            assert!(blocks.iter().all(|block| block.content.is_ok()));
            let ends = blocks.iter().scan(0, |end, block| {
                let begins = std::mem::replace(end, block.offset + block.bytes);
                Some(begins == block.offset)
            });
            assert!(ends.into_iter().all(|is_next| is_next), "no gaps");
            table.evict();
        }
    }
}

#[test]
fn a_sidecar_without_filters_removes_them_and_reads_nothing() {
    let entries = entries();
    let pair = Pair::new("standard:16", &FilterPlan::default(), &entries);
    assert_eq!((pair.summary.keys, pair.summary.bytes_read, pair.summary.filter_bytes), (0, 0, 0));
    let table = pair.open();
    assert_eq!(passes(&table), 2000, "it queries nothing");
    assert_eq!(*table.filters().state(), FilterState::Absent);
    assert_eq!(table.filters().facts().kind, FilterKind::None);
    assert!(FilterPlan::default().would_build(table.filters().stored_parts()));
    pair.verify().unwrap();
}

/// Every flipped bit: the table's own filter is queried instead, and no key is denied.
#[test]
fn a_flipped_bit_costs_no_key_and_is_found() {
    let mut random = Random(3);
    let entries = random_entries(&mut random, 40, 30);
    for shape in SHAPES {
        let mut plan = plan("standard:10", shape);
        plan.prefixes = Some((plan.keys, Arc::new(First4)));
        let pair = Pair::new("standard:16", &plan, &entries);
        let whole = pair.bytes();
        let (mut silent, mut noted) = (0, 0);
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 1 << (at % 8);
            pair.put(&flipped);
            let error = pair.verify().unwrap_err();
            assert!(error.to_string().contains("2.flt"), "{shape} byte {at}: {error}");
            let table = pair.open();
            assert!(denies_none(&table, &entries), "{shape} byte {at}");
            let filters = table.filters();
            match filters.check().unwrap() {
                FilterState::Damaged(_) | FilterState::Unknown(_) => noted += 1,
                state => {
                    assert_eq!(*state, FilterState::Loaded);
                    silent += 1;
                }
            }
            let own = filters.own().query(b"absent", hash(b"absent")).maybe;
            let through = filters.query(b"absent", hash(b"absent")).maybe;
            assert!(!through || own || filters.are_beside(), "{shape} byte {at}");
        }
        // The head is not read.
        assert_eq!(silent, HEAD_BYTES, "{shape}");
        assert_eq!(noted, whole.len() - HEAD_BYTES, "{shape}");
    }
}

#[test]
fn a_truncated_sidecar_is_not_used() {
    let mut random = Random(4);
    let entries = random_entries(&mut random, 40, 30);
    let pair = Pair::new("standard:16", &plan("standard:10", FilterShape::Whole), &entries);
    let whole = pair.bytes();
    for length in 0..whole.len() {
        pair.put(&whole[..length]);
        assert!(matches!(pair.sidecar(), Err(Error::Corruption(_))), "{length} bytes");
        let table = pair.open();
        assert!(!table.filters().are_beside() && denies_none(&table, &entries));
        assert!(passes(&table) < 20, "its own filter serves");
    }
}

#[test]
fn a_sidecar_of_another_table_is_not_used() {
    let entries = entries();
    let plan = plan("standard:16", FilterShape::Whole);
    let other: Vec<Entry> = (0..900).map(|i| put(format!("other {i:05}"), i, b"")).collect();
    let foreign = {
        let mut options = options(256, Compression::None, "none");
        options.table_id = TABLE_ID ^ 1;
        let table = InMemory::new(options, &other);
        let expected = Expected { file_bytes: table.summary.file_bytes, table_id: TABLE_ID ^ 1 };
        let cache = BlockCache::new(0);
        let config = TableConfig { cache, access: Access::Buffered, filter_host: None };
        let file = table.vfs.open(&table.path, Access::Buffered).unwrap();
        let opened = Table::open(file, &table.path, expected, &config).unwrap();
        let path = Path::new("/2.flt");
        let file = table.vfs.create(path).unwrap();
        let go_on = |_| Ok::<(), Error>(());
        opened.write_sidecar(file, path, 77, &plan, None, go_on).unwrap();
        table.vfs.read(path, u64::MAX).unwrap()
    };
    let pair = Pair::new("standard:16", &plan, &entries);
    pair.put(&foreign);
    let table = pair.open();
    assert!(!table.filters().are_beside());
    assert!(
        matches!(table.filters().state(), FilterState::Damaged(why) if why.contains("another"))
    );
    assert!(denies_none(&table, &entries) && passes(&table) < 20);
    assert!(pair.verify().unwrap_err().to_string().contains("another table"));
    // The same id, by whatever mistake, with other contents.
    let same_id = Pair::new("none", &plan, &other);
    pair.put(&same_id.bytes());
    assert!(!pair.open().filters().are_beside());
}

/// A filter with the right checksum and wrong answers: `verify` queries it for every key.
#[test]
fn a_sidecar_that_denies_a_key_is_found() {
    let all: Vec<Entry> = (0..300).map(|i| put(format!("key {i:05}"), i, b"v")).collect();
    let fewer: Vec<Entry> = (0..300).map(|i| put(format!("kex {i:05}"), i, b"v")).collect();
    let plan = plan("standard:16", FilterShape::Whole);
    let (pair, liar) = (Pair::new("none", &plan, &all), Pair::new("none", &plan, &fewer));
    pair.put(&liar.bytes());
    let error = pair.verify().unwrap_err().to_string();
    assert!(error.contains("2.flt") && error.contains("denies"), "{error}");
}

#[test]
fn a_corrupt_table_gets_no_sidecar() {
    let entries = entries();
    let whole = InMemory::new(options(256, Compression::None, "none"), &entries);
    let mut bytes = whole.bytes();
    bytes[5000] ^= 4;
    let damaged = InMemory::of_bytes(&bytes);
    let path = Path::new("/2.flt");
    let file = damaged.vfs.create(path).unwrap();
    let plan = plan("standard:16", FilterShape::Whole);
    let go_on = |_| Ok::<(), Error>(());
    let built = damaged.open().unwrap().write_sidecar(file, path, 1, &plan, None, go_on);
    assert!(matches!(built, Err(Error::Corruption(damage)) if damage.offset <= 5000));
}

#[test]
fn the_watch_callback_can_end_the_build() {
    #[derive(Debug, PartialEq)]
    enum Stop {
        Enough,
        Failed(String),
    }
    impl From<Error> for Stop {
        fn from(error: Error) -> Self {
            Self::Failed(error.to_string())
        }
    }
    let table = InMemory::new(options(256, Compression::None, "none"), &entries());
    let path = Path::new("/2.flt");
    let file = table.vfs.create(path).unwrap();
    let plan = plan("standard:16", FilterShape::Whole);
    let watch = |bytes| if bytes > 1000 { Err(Stop::Enough) } else { Ok(()) };
    let built = table.open().unwrap().write_sidecar(file, path, 1, &plan, None, watch);
    assert_eq!(built.unwrap_err(), Stop::Enough);
}

/// Footers with a right checksum that claim arbitrary lengths.
#[test]
fn hostile_lengths_end_in_an_error_before_memory_is_taken() {
    let words = [0, 1, 5, 72, 104, 1 << 20, u64::from(u32::MAX), 1 << 40, u64::MAX / 2, u64::MAX];
    let (vfs, path) = (MemoryVfs::new(), Path::new("/2.flt"));
    for region_bytes in words {
        for directory_bytes in words {
            for features in [0, 1] {
                let footer = SidecarFooter {
                    table_id: TABLE_ID,
                    sidecar_id: 3,
                    keys: u64::MAX,
                    data_bytes: u64::MAX,
                    region_bytes,
                    directory_bytes,
                    features,
                };
                let mut bytes = vec![0; 500];
                footer.encode(500, &mut bytes);
                let _ = vfs.remove(path);
                vfs.create(path).unwrap().append(&bytes).unwrap();
                let file = vfs.open(path, Access::Buffered).unwrap();
                let opened = Sidecar::open(file, path);
                assert!(opened.is_err(), "{region_bytes} {directory_bytes}");
            }
        }
    }
}

fn golden_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// A sidecar whose filter has a shape that is no longer read.
const PER_BLOCK: &str = "v1-per-block.flt";

/// Sidecars written by earlier versions stay readable. Run the test with `TROMMEL_WRITE_GOLDEN=1`
/// to create a missing one.
#[test]
fn sidecars_of_earlier_versions_are_queried() {
    let golden_table = golden_path("v1-plain-one-level.sst");
    for (name, spec, shape) in [
        ("v1-whole.flt", "standard:10", FilterShape::Whole),
        ("v1-partitioned.flt", "blocked:64", FilterShape::Partitioned),
        (PER_BLOCK, "standard:12", FilterShape::Partitioned),
        ("v1-none.flt", "none", FilterShape::Whole),
    ] {
        let path = golden_path(name);
        let cache = BlockCache::new(0);
        let open = || open(&DiskVfs, &golden_table, Access::Buffered, &cache).unwrap();
        let plan = plan(spec, shape);
        if std::env::var_os("TROMMEL_WRITE_GOLDEN").is_some() && !path.exists() {
            let file = DiskVfs.create(&path).unwrap();
            let go_on = |_| Ok::<(), Error>(());
            open().write_sidecar(file, &path, 0x5eed, &plan, None, go_on).unwrap();
        }
        let sidecar =
            || Sidecar::open(DiskVfs.open(&path, Access::Buffered).unwrap(), &path).unwrap();
        let table = open();
        let is_unused = table.verify_sidecar(&sidecar(), None).unwrap();
        assert_eq!(is_unused, name == PER_BLOCK, "{name}");
        let keys = table.properties().contents.keys;
        let said: Vec<_> = sidecar().parts().cloned().collect();
        assert_eq!(plan.would_build(said.iter()), name != PER_BLOCK, "{name}: {said:?}");
        assert!(said.iter().all(|part| part.keys == keys), "{name}");
        // Detects an unintended change of the format.
        let golden = DiskVfs.read(&path, 1 << 20).unwrap();
        assert_eq!(golden[..8], HEAD_MAGIC);
        assert_eq!(golden[golden.len() - 8..], FOOTER_MAGIC);
        if spec == "none" {
            let again = Path::new("/again.flt");
            let vfs = MemoryVfs::new();
            let go_on = |_| Ok::<(), Error>(());
            let file = vfs.create(again).unwrap();
            table.write_sidecar(file, again, 0x5eed, &plan, None, go_on).unwrap();
            assert!(vfs.read(again, 1 << 20).unwrap() == golden, "the format has changed");
        }
    }
}

/// The page states the constants of the code.
#[test]
fn the_page_states_the_constants() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/format/sidecar.md");
    let page = std::fs::read_to_string(page).unwrap();
    let hex = |magic: [u8; 8]| magic.map(|byte| format!("{byte:02x}")).join(" ");
    for says in [
        format!("format version **{VERSION}**"),
        format!("head, {HEAD_BYTES} bytes"),
        format!("footer, {FOOTER_BYTES} bytes"),
        format!("`{}`", hex(HEAD_MAGIC)),
        format!("`{}`", hex(FOOTER_MAGIC)),
    ] {
        assert!(page.contains(&says), "the page does not say {says:?}");
    }
}
