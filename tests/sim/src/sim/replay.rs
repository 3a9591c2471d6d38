//! Replays the operation log from its start.
//!
//! 1. [`Replay::step`] applies one operation to the state that a power cut at the next boundary
//!    would find: the bytes and durability of each file (module `file`), and the entries and
//!    durability of each directory (module `folders`).
//! 2. [`Replay::image`] makes one image there: entries first, then the files that are still named.
//!    [`Replay::images_exhaustive`] makes all, if they are few.
//!
//! The assumptions about the disk, which define the legal images: a sector is written whole or not
//! at all; a sector never written reads as zeros; synced data stays; nothing else changes. A file
//! is safe only once its bytes *and* its entry are synced, and the entries of all directories above
//! it. That is stricter than common file systems, and never laxer, except for file systems that
//! expose stale bytes of other files after a file's durable end; [`Data::Stale`] models these.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use super::SECTOR_BYTES;
use super::file::{FileState, Sector};
use super::folders::{EntryChange, Folders};
use super::image::Image;
use super::loss::{Losing, Loss, Lost};
use super::op::{Change, Op, Synced};
use super::policy::{Choices, Data, Entries, Exhaustive, Policy, Seeded};
use crate::content::{Content, mix};
use crate::tree::{Dir, Entry, Inode, ROOT, Tree};

/// A position in an operation log, and the possible results of a crash there.
///
/// ```
/// use std::path::Path;
/// use trommel_sim::{Policy, SimDisk};
/// use trommel_vfs::Vfs;
///
/// let disk = SimDisk::new();
/// disk.create(Path::new("a")).unwrap().append(b"bytes").unwrap();
/// let mut replay = disk.replay();
/// loop {
///     for policy in Policy::ALL {
///         let image = replay.image(policy, 7);
///         let _reopened = image.disk();
///     }
///     if replay.step().is_none() {
///         break;
///     }
/// }
/// ```
#[derive(Debug, Clone)]
pub struct Replay {
    log: Arc<[Op]>,
    position: usize,
    files: BTreeMap<Inode, FileState>,
    folders: Folders,
    marks: Vec<u64>,
    last_append: Option<(Inode, Range<u64>)>,
}

impl Replay {
    /// Before the first operation of `log`, on a disk on which `base` is durable.
    pub(super) fn new(base: &Tree, log: Vec<Op>) -> Self {
        let durable = |content: &Arc<Content>| FileState::durable(Arc::clone(content));
        Self {
            log: log.into(),
            position: 0,
            files: base.files().iter().map(|(&inode, file)| (inode, durable(file))).collect(),
            folders: Folders::durable(base.dirs().clone()),
            marks: Vec::new(),
            last_append: None,
        }
    }

    /// Applies the next operation and returns it; `None` at the end of the log.
    pub fn step(&mut self) -> Option<Op> {
        let op = self.log.get(self.position)?.clone();
        self.position += 1;
        self.apply(&op.change);
        Some(op)
    }

    /// Steps until `position` operations have been applied, or the log ends.
    pub fn seek(&mut self, position: usize) {
        while self.position < position && self.step().is_some() {}
    }

    /// The number of applied operations.
    pub fn position(&self) -> usize {
        self.position
    }

    /// The whole log.
    pub fn ops(&self) -> &[Op] {
        &self.log
    }

    /// The marks passed so far, oldest first.
    pub fn marks(&self) -> &[u64] {
        &self.marks
    }

    fn apply(&mut self, change: &Change) {
        match change {
            Change::NewFile { place, inode } => {
                self.files.insert(*inode, FileState::default());
                let (place, entry) = (place.clone(), Entry::File(*inode));
                self.folders.change(EntryChange::Add { place, entry });
            }
            Change::NewDir { place, inode } => {
                self.folders.add_dir(*inode);
                let (place, entry) = (place.clone(), Entry::Dir(*inode));
                self.folders.change(EntryChange::Add { place, entry });
            }
            Change::Link { place, inode } => {
                let (place, entry) = (place.clone(), Entry::File(*inode));
                self.folders.change(EntryChange::Add { place, entry });
            }
            Change::Remove { place } => {
                self.folders.change(EntryChange::Remove { place: place.clone() });
            }
            Change::Rename { from, to, inode } => {
                let (from, to, inode) = (from.clone(), to.clone(), *inode);
                self.folders.change(EntryChange::Rename { from, to, inode });
            }
            Change::Over { from, to, inode } => {
                self.with_file(*inode, FileState::start_over);
                let (from, to, inode) = (from.clone(), to.clone(), *inode);
                self.folders.change(EntryChange::Rename { from, to, inode });
            }
            Change::Append { inode, start, bytes } => {
                self.last_append = Some((*inode, *start..*start + bytes.len() as u64));
                self.with_file(*inode, |file| file.append(bytes));
            }
            Change::Zeros { inode, to } => {
                let to = *to;
                self.with_file(*inode, |file| file.put_zeros(to));
            }
            Change::Sync { inode, synced: Synced::Durable } => {
                self.with_file(*inode, FileState::sync);
            }
            Change::Sync { inode, synced: Synced::Failed } => {
                self.with_file(*inode, FileState::fail_sync);
            }
            Change::SyncDir { inode, synced: Synced::Durable } => self.folders.sync(*inode),
            Change::SyncDir { inode, synced: Synced::Failed } => self.folders.fail_sync(*inode),
            Change::Sync { synced: Synced::Not, .. }
            | Change::SyncDir { synced: Synced::Not, .. } => {}
            Change::Mark(number) => self.marks.push(*number),
        }
    }

    fn with_file(&mut self, inode: Inode, change: impl FnOnce(&mut FileState)) {
        change(self.files.entry(inode).or_default());
    }

    /// The content of the disk if the power fails here. The same position, policy and seed always
    /// give the same image.
    pub fn image(&self, policy: Policy, seed: u64) -> Image {
        self.build(policy, &mut self.seeded(policy, seed), &mut Vec::new())
    }

    /// The losses of [`image`](Self::image) relative to what readers saw, one by one. `None` under
    /// a policy that tears or mixes bytes, which has no such losses.
    pub fn losses(&self, policy: Policy, seed: u64) -> Option<Vec<Loss>> {
        if matches!(policy.data, Data::Torn | Data::Stale) {
            return None;
        }
        let mut losses = Vec::new();
        self.build(policy, &mut self.seeded(policy, seed), &mut losses);
        Some(losses)
    }

    /// The image with these losses and no others, except that a loss also drops later changes of
    /// the same name.
    pub fn image_losing(&self, losses: &[Loss]) -> Image {
        self.build(Policy::RANDOM, &mut Losing::new(losses), &mut Vec::new())
    }

    fn seeded(&self, policy: Policy, seed: u64) -> Seeded {
        Seeded::new(policy, mix(mix(seed, self.position as u64), 1))
    }

    /// An upper bound on the independent decisions of a power cut here: `n` of them make up to
    /// `2^n` images.
    pub fn undecided(&self) -> usize {
        let files = self.files.values().map(|file| {
            let sectors = file.volatile_sectors(u64::MAX).map(|sector| sector.versions() - 1);
            let zeros = usize::from(file.has_volatile_zeros());
            sectors.sum::<usize>() + file.volatile_lengths().len() + zeros
        });
        files.sum::<usize>() + self.folders.pending()
    }

    /// Every image that a power cut here may leave (with files truncated only where an append
    /// ended), each once. `None` if [`undecided`](Self::undecided) is more than `limit`, which
    /// should be small.
    pub fn images_exhaustive(&self, limit: usize) -> Option<Vec<Image>> {
        if self.undecided() > limit {
            return None;
        }
        let mut choices = Exhaustive::default();
        let mut seen = BTreeSet::new();
        let mut images = Vec::new();
        loop {
            let image = self.build(Policy::RANDOM, &mut choices, &mut Vec::new());
            if seen.insert(image.hash()) {
                images.push(image);
            }
            if !choices.advance() {
                return Some(images);
            }
        }
    }

    /// Makes an image, and collects its losses.
    fn build(&self, policy: Policy, choices: &mut dyn Choices, lost: &mut Vec<Loss>) -> Image {
        let all = self.folders.image(|number| {
            let keep = match policy.entries {
                Entries::Synced => false,
                Entries::All => true,
                Entries::Random => choices.keep_entry(number),
            };
            if !keep {
                lost.push(Loss(Lost::Entry(number)));
            }
            keep
        });
        let (mut dirs, mut files) = (BTreeMap::new(), BTreeMap::new());
        let mut found = vec![ROOT];
        while let Some(inode) = found.pop() {
            let Some(dir) = all.get(&inode) else { continue };
            for entry in dir.values() {
                match *entry {
                    Entry::Dir(below) => found.push(below),
                    Entry::File(inode) => {
                        files
                            .entry(inode)
                            .or_insert_with(|| self.file_image(inode, policy.data, choices, lost));
                    }
                }
            }
            dirs.insert(inode, Arc::<Dir>::clone(dir));
        }
        Image::new(Tree::from_parts(dirs, files))
    }

    fn file_image(
        &self,
        inode: Inode,
        data: Data,
        choices: &mut dyn Choices,
        lost: &mut Vec<Loss>,
    ) -> Arc<Content> {
        let Some(file) = self.files.get(&inode) else { return Arc::default() };
        let appended = self.appended(inode, file, data, choices, lost);
        let as_now = match data {
            _ if !file.has_volatile_zeros() => true,
            Data::Synced => false,
            Data::All | Data::Zeroed => true,
            Data::Torn | Data::Random | Data::Pages | Data::Stale => choices.keep_zeros(inode),
        };
        if !as_now {
            lost.push(Loss(Lost::Zeros(inode)));
        }
        file.with_zeros(appended, as_now)
    }

    /// The remaining bytes of those appended to a file.
    fn appended(
        &self,
        inode: Inode,
        file: &FileState,
        data: Data,
        choices: &mut dyn Choices,
        lost: &mut Vec<Loss>,
    ) -> Arc<Content> {
        let live = file.content().bytes();
        let bytes = match data {
            _ if file.is_durable() => return Arc::clone(file.content()),
            Data::All => return Arc::clone(file.content()),
            Data::Torn => return self.torn(inode, file, choices),
            Data::Stale => return self.stale(inode, file, choices),
            Data::Synced => file.durable_bytes(),
            Data::Zeroed => live,
            Data::Random | Data::Pages => choices.length(inode, file),
        };
        if bytes < live {
            lost.push(Loss(Lost::Length(inode, bytes)));
        }
        file.image(bytes, |sector| {
            let version = match data {
                Data::Random | Data::Pages => choices.version(inode, sector),
                _ => 0,
            };
            if version + 1 < sector.versions() {
                lost.push(Loss(Lost::Sector(inode, sector.number, version)));
            }
            version
        })
    }

    /// The file at its full length, with stale content of the disk in some of the sectors that it
    /// was given since it was last synced.
    fn stale(&self, inode: Inode, file: &FileState, choices: &mut dyn Choices) -> Arc<Content> {
        let mut image = Arc::clone(file.content());
        let others: Vec<&Arc<Content>> = self
            .files
            .iter()
            .filter(|(other, state)| **other != inode && state.content().bytes() > 0)
            .map(|(_, state)| state.content())
            .collect();
        for sector in file.volatile_sectors(u64::MAX).filter(Sector::is_fresh) {
            let start = sector.number * SECTOR_BYTES;
            match choices.pick(4) {
                0 => {}
                1 => Arc::make_mut(&mut image).zero(start, start + SECTOR_BYTES),
                kind => {
                    let other = choices.pick(others.len().max(1) as u64) as usize;
                    let Some(other) = others.get(other) else { continue };
                    let sectors = other.bytes().div_ceil(SECTOR_BYTES);
                    let same = kind == 2 && start < other.bytes();
                    let from = if same { sector.number } else { choices.pick(sectors) };
                    let from = from * SECTOR_BYTES;
                    let mut bytes = vec![0; SECTOR_BYTES.min(other.bytes() - from) as usize];
                    other.read_at(from, &mut bytes);
                    bytes.resize(SECTOR_BYTES as usize, 0);
                    Arc::make_mut(&mut image).overwrite(start, &bytes);
                }
            }
        }
        image
    }

    /// The file with its last append torn, if that was the last of all and is not durable.
    fn torn(&self, inode: Inode, file: &FileState, choices: &mut dyn Choices) -> Arc<Content> {
        let mut image = Arc::clone(file.content());
        let append = match &self.last_append {
            Some((last, append)) if *last == inode && append.start >= file.durable_bytes() => {
                append
            }
            _ => return image,
        };
        let content = Arc::make_mut(&mut image);
        // Sector boundaries inside the append, and before them its start.
        let first = append.start / SECTOR_BYTES;
        let boundaries = (append.end - 1) / SECTOR_BYTES - first;
        let boundary = ((first + choices.pick(boundaries + 1)) * SECTOR_BYTES).max(append.start);
        // A file that was already longer, by zeros, cannot lose a part of a sector.
        let ways = if file.has_zeros_after(append.start) { 2 } else { 3 };
        match choices.pick(ways) {
            0 => content.zero(boundary, append.end),
            1 => content.truncate(boundary),
            _ => content.truncate(append.start + choices.pick(append.end - append.start)),
        }
        image
    }
}
