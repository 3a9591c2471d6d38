//! Bugs that are compiled in on request, to show that the tests find them.
//!
//! Each is of a class that other stores have had, and stands where ours would have it, as one line:
//! `if planted(Bug::TableDirNotSynced) { return Ok(()) }`. In an ordinary build [`planted`] is a
//! constant `false`, and nothing of it is left. Built with `--cfg trommel_planted`, the environment
//! variable `TROMMEL_PLANTED` names the one bug that is there.
//!
//! `docs/planted-bugs.md` says which test caught which; the command that writes it is
//! `cargo run --release -p trommel-tests --bin lanes -- planted`.

/// Defines the bugs: what each does, where it was seen before, its name.
macro_rules! bugs {
    ($($(#[doc = $what:literal])+ $name:ident: $history:literal;)+) => {
        /// A bug that can be planted.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Bug {
            $($(#[doc = $what])+ #[doc = concat!("\n\nSeen before: ", $history)] $name,)+
        }

        impl Bug {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// Its name, by which `TROMMEL_PLANTED` chooses it.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }

            /// What it does.
            pub fn what(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($what),+).trim_ascii(),)+
                }
            }

            /// Where it was seen before.
            pub fn history(self) -> &'static str {
                match self {
                    $(Self::$name => $history,)+
                }
            }
        }
    };
}

bugs! {
    /// The directory above a new store is not synced, so that a power cut takes the whole store.
    CreationDirNotSynced: "pebble#125";
    /// The directory is not synced once tables are written: the manifest names what may be gone.
    TableDirNotSynced: "rocksdb#5287, rocksdb PR#14780";
    /// The directory is not synced once a log is created: writes are acknowledged in a file without
    /// a name.
    LogDirNotSynced: "mongo-rocks#35";
    /// The directory is not synced once CURRENT is renamed, and the old manifest goes.
    CurrentDirNotSynced: "rocksdb PR#10573";
    /// The directory is not synced before CURRENT names a new manifest.
    ManifestDirNotSynced: "pebble PR#5915, badger#155";
    /// CURRENT is renamed without having been synced.
    CurrentNotSynced: "leveldb#74";
    /// A new manifest is named by CURRENT without having been synced.
    NewManifestNotSynced: "leveldb#189";
    /// A change is in force as soon as the manifest has it, synced or not.
    ManifestEditNotSynced: "leveldb PR#604";
    /// A table is named by the manifest without having been synced.
    TableNotSynced: "leveldb#333, rocksdb 5.6.0";
    /// A log is removed before the manifest that no longer needs it is durable.
    LogRemovedBeforeManifest: "leveldb#195";
    /// Recovery removes the logs that it replayed before its own manifest is in force.
    ReplayedLogsRemovedEarly: "sled#893, redb PR#1290";
    /// A write that asks for durability is acknowledged without a sync.
    AckedBeforeSync: "mongo-rocks#35";
    /// Whether a group is synced is up to its leader: those who follow are acknowledged all the
    /// same.
    FollowerAckedBeforeSync: "fjall#308";
    /// Logs that were rotated out are not synced along with the one in use.
    RotatedLogNotSynced: "rocksdb PR#7701";
    /// A log is forgotten before the manifest says that it is not needed: a write that is synced
    /// meanwhile is acknowledged without it.
    LogForgottenEarly: "rocksdb PR#7701";
    /// A sync that failed is tried once more, and believed.
    FsyncRetried: "cockroach#37102";
    /// After an error of the log, writes go on.
    WritesGoOnAfterLogError: "rocksdb PR#12448, fjall#308";
    /// A batch that the log refused is shown to readers and acknowledged.
    LogErrorDiscarded: "fjall#304";
    /// After a manifest's error the job is only given up, and its tables are removed.
    ManifestErrorForgiven: "rocksdb#4990, rocksdb#6316";
    /// An error while a table's bytes are written is ignored.
    TableWriteErrorIgnored: "rocksdb 5.6.0";
    /// A table that could not be completed stays behind.
    PartialTableKept: "rocksdb#919";
    /// A record whose payload fails its checksum is believed.
    TornRecordBelieved: "redb PR#1290";
    /// Any damage in a log is called a tear: what stands behind it is dropped without an error.
    DamageCalledTear: "fjall#311, rocksdb#6288";
    /// A tear is believed although a record behind it says that it was synced.
    TearBelievedDespiteProof: "pebble#453";
    /// A log that is damaged, but not the last, is replayed as far as it goes, and the next ones
    /// after it.
    DamagedLogSkipped: "rocksdb#12467, rocksdb PR#7701";
    /// A log that an end marker names, and that is missing, is not missed.
    MissingLogIgnored: "pebble PR#871";
    /// A log that cannot be read counts as one that is not there.
    ReadErrorEndsLog: "rocksdb#6288";
    /// Logs that the manifest no longer needs are replayed again.
    OldLogsReplayed: "pebble PR#580, rocksdb PR#12918";
    /// Numbers of files that the manifest does not know are given out again.
    FileNumberReused: "rocksdb PR#7621, rocksdb PR#6426";
    /// Sequence numbers of replayed writes are given out again.
    SeqnoReused: "rocksdb PR#9634";
    /// The manifest of a recovery does not name the log that was begun with it.
    NewLogNotNamed: "fjall PR#317";
    /// Files that nothing names are removed although bytes had to be dropped.
    OrphansRemovedAfterDrop: "rocksdb#4990";
    /// A table that is missing, or of another length, is not noticed when the store is opened.
    MissingTableIgnored: "badger#1049";
    /// Of the last change in the manifest, what is removed is not.
    ManifestEditHalfApplied: "badger#155";
    /// A version is dropped that the snapshot of its own moment still sees.
    DropRuleOffByOne: "lsm-tree#321, pebble#1285";
    /// A tombstone is dropped though a deeper level still has what it hides.
    TombstoneDroppedEarly: "leveldb#184, rocksdb#2722, badger#2143";
    /// The versions of one key are cut apart, into two tables.
    VersionsStraddleTables: "leveldb#320";
    /// Level 0 is searched oldest first.
    LevelZeroReversed: "rocksdb 6.6.0";
    /// A run of level 0 is moved down without the older ones it overlaps.
    OverlapsLeftBehind: "lsm-tree#315";
    /// Two compactions may take the same tables.
    SameTablesTwice: "rocksdb 6.11";
    /// Of a compaction that is put in force piece by piece, all inputs leave with the first piece.
    InputsLeaveEarly: "scylladb#4479";
    /// A compaction takes a read error for the end of its input.
    ReadErrorEndsCompaction: "rocksdb 8.7.0";
    /// An iterator takes a read error for its end.
    ReadErrorEndsScan: "redb 4.3, rocksdb 8.7.0";
    /// The write that makes a memtable rotate goes to the one that was rotated out.
    RotationLosesWrite: "fjall#112, fjall#230";
    /// A flush lets go of the logs of memtables that are still in memory only.
    LogReleasedEarly: "sled#411";
    /// A snapshot looks at the moment first and registers later.
    SnapshotNotAtomic: "rocksdb PR#9648, pebble PR#751";
    /// A reader takes its moment before it pins what it reads.
    MomentBeforeView: "rocksdb PR#1813";
    /// Each operation of a batch is visible as soon as it is inserted.
    HalfBatchVisible: "fjall#198, lsm-tree#180";
    /// A batch is logged and inserted operation by operation.
    BatchSplit: "rocksdb#13429";
    /// Nobody is told that there is a memtable to be flushed.
    FlushNotAnnounced: "rocksdb PR#14830, fjall#257";
    /// A conditional write looks before it is alone.
    ConditionNotAtomic: "not seen before";
    /// Filters are held in memory whatever the limit over them.
    FilterLimitIgnored: "not seen before";
    /// Who waits until all is done does not wait for filters that are built anew to fit a budget.
    IdleBeforeFit: "not seen before";
    /// A piece of a cut filter may lack the first keys behind the cut.
    FilterMissesKeyAtCut: "lsm-tree 1bcca8b1, rocksdb 9.5.0";
    /// A filter lacks the first key of its table.
    FilterMissesFirstKey: "rocksdb 9.5.0";
    /// A filter of prefixes is asked of ranges that go on behind the prefix.
    PrefixFilterAskedBeyond: "rocksdb 5.15, rocksdb 6.20";
    /// A filter that cannot be read says no.
    DamagedFilterSaysNo: "cqlite#1398";
    /// The checksums of blocks are not looked at.
    BlockChecksumIgnored: "leveldb (verify_checksums off), lmdb";
    /// A block's checksum is not bound to its place, so that one block passes for another.
    ChecksumNotBound: "rocksdb (before format 6)";
    /// A range ends with its upper bound.
    RangeEndIncluded: "not seen before";
    /// Going backward, the version of the reader's own moment is not seen.
    ReverseSkipsVersion: "not seen before";
    /// A search in a group of a block never looks at its last entry.
    SeekOffByOne: "not seen before";
    /// The separator of two blocks is the first key of the second.
    SeparatorOffByOne: "not seen before";
    /// The last key of a table is looked for in the next one.
    FencesOffByOne: "not seen before";
    /// A table's file is removed while iterators may still have to open it.
    TableRemovedUnderReader: "reth#24411";
    /// The block cache gives one table's blocks to another.
    CacheKeyReused: "not seen before";
    /// The lock of the directory is not taken.
    LockNotTaken: "leveldb#126, rocksdb#1780";
    /// A read-only open puts a new manifest in force.
    ReadOnlyWrites: "not seen before";
    /// A store that is poisoned is marked as closed all the same.
    CleanAfterPoison: "redb PR#1177";
    /// A length in a block is believed as far as blocks may be long, whatever its bytes can hold.
    LengthBelieved: "redb PR#888, redb#642";
    /// Files of others are removed from the store's directory when it is opened.
    ForeignFileRemoved: "fjall#176";
    /// What failed for want of room is never tried again.
    RetryNeverDue: "rocksdb#919, rocksdb#9762";
    /// Verifying a table never looks at the last block of it.
    VerifySkipsLastBlock: "not seen before";
    /// A salvage says nothing of what it drops.
    SalvageSilent: "not seen before";
    /// A write is seen by readers before the sync that it asked for.
    PublishedBeforeSync: "fjall#304";
    /// A checkpoint leaves the last table out.
    CheckpointMissesTable: "not seen before";
    /// A filter sidecar is named by the manifest without having been synced.
    SidecarNotSynced: "leveldb#333, rocksdb 5.6.0";
    /// The sidecar that a table had goes before the manifest names the next one.
    SidecarRemovedEarly: "leveldb#195";
    /// A sidecar is asked for whatever table it stands beside.
    SidecarOfAnyTable: "not seen before";
    /// A rebuilt filter lacks the last key of its table.
    RebuildMissesLastKey: "rocksdb 9.5.0";
}

/// Whether this bug is there: never, in an ordinary build.
#[cfg(not(trommel_planted))]
#[inline(always)]
pub const fn planted(_bug: Bug) -> bool {
    false
}

/// Whether this bug is the one that `TROMMEL_PLANTED` names.
///
/// # Panics
/// If there is no bug of that name: a misspelt bug would be one that no test finds.
#[cfg(trommel_planted)]
pub fn planted(bug: Bug) -> bool {
    static CHOSEN: std::sync::OnceLock<Option<Bug>> = std::sync::OnceLock::new();
    let choose = || {
        let name = std::env::var("TROMMEL_PLANTED").ok()?;
        let chosen = Bug::ALL.iter().find(|bug| bug.name() == name);
        Some(*chosen.unwrap_or_else(|| panic!("TROMMEL_PLANTED={name}: there is no such bug")))
    };
    *CHOSEN.get_or_init(choose) == Some(bug)
}

/// What was looked at: there is no race to be planted.
#[cfg(not(trommel_planted))]
#[inline(always)]
pub fn dawdling<T>(seen: T) -> T {
    seen
}

/// What was looked at, a little later: in a race that is planted, so that others come between.
#[cfg(trommel_planted)]
pub fn dawdling<T>(seen: T) -> T {
    std::thread::sleep(std::time::Duration::from_micros(100));
    seen
}
