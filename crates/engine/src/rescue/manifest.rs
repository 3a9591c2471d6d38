//! Choice of a manifest when `CURRENT`, or the manifest that it names, is corrupt.
//!
//! 1. The manifest that `CURRENT` names, if it is intact and all its files exist. But if a newer
//!    one is intact and was installed (it has more than its first record, or was closed), `CURRENT`
//!    is stale and the newer one is chosen.
//! 2. Otherwise the newest intact one whose files all exist. One that was written by a recovery
//!    that did not get to install it has the same contents as its predecessor.
//! 3. Otherwise the newest one that is partly readable, up to its corruption.
//! 4. Otherwise none.
//!
//! [`Chosen::doubt`] reports whether its state may be older than the last state of the store: some
//! writes may be in tables that it does not name, and their keys are unknown.

use std::path::Path;

use trommel_vfs::{DirEntry, Vfs};

use crate::damage::{Damage, Remedy};
use crate::error::Error;
use crate::log::reader::{LogImage, Verdict};
use crate::log::{DropReason, Dropped, FileKind, read_whole};
use crate::manifest::current::{self, Current};
use crate::manifest::reader::{apply, decode_edit, first_missing};
use crate::manifest::state::ManifestState;
use crate::names::{self, CURRENT, Numbered};

/// The chosen manifest, and the state it records.
#[derive(Debug, Default)]
pub(crate) struct Chosen {
    /// The state, empty if no manifest is readable.
    pub(crate) state: ManifestState,
    /// The manifest's number; `None` if none is readable.
    pub(crate) number: Option<u64>,
    /// The store's id, if a manifest has it.
    pub(crate) store_id: Option<u64>,
    /// Whether it records that the store was closed.
    pub(crate) closed: bool,
    /// A torn tail, as after a crash.
    pub(crate) torn: Option<Dropped>,
    /// Why the state may be older than the store's last one, if it may.
    pub(crate) doubt: Option<String>,
    /// Corruption of `CURRENT` and of the relevant manifests.
    pub(crate) damage: Vec<Damage>,
    /// Bytes of the manifest.
    pub(crate) bytes: u64,
}

/// A manifest, as far as it is readable.
struct Reading {
    number: u64,
    state: Option<ManifestState>,
    store_id: Option<u64>,
    records: u64,
    closed: bool,
    torn: Option<Dropped>,
    damage: Option<Damage>,
    is_complete: bool,
    /// Whether there are tables that it does not name.
    has_orphans: bool,
    bytes: u64,
}

impl Reading {
    fn is_intact(&self) -> bool {
        self.state.is_some() && self.damage.is_none()
    }

    /// Whether a recovery that was interrupted while it wrote the manifest explains it.
    fn was_never_finished(&self) -> bool {
        self.state.is_none() && self.torn.is_some()
    }
}

/// Chooses the most reliable manifest of `dir`, whose entries are `listing`.
pub(crate) fn choose(vfs: &dyn Vfs, dir: &Path, listing: &[DirEntry]) -> Chosen {
    let mut damage = Vec::new();
    let path = dir.join(CURRENT);
    let named = match current::find(vfs, dir, listing) {
        Ok(Current::Manifest(number)) => Some(number),
        Ok(Current::Never) => None,
        Err(error) => {
            damage.push(Damage::of(&error, &path, Remedy::RestoreOrRepair));
            None
        }
    };
    let number = |entry: &DirEntry| match Numbered::parse(&entry.name)? {
        Numbered::Manifest(number) if entry.is_file => Some(number),
        _ => None,
    };
    let mut numbers: Vec<u64> = listing.iter().filter_map(number).collect();
    numbers.sort_unstable_by(|a, b| b.cmp(a));
    if let Some(named) = named.filter(|named| !numbers.contains(named)) {
        let path = dir.join(names::manifest(named));
        let what = "the manifest that CURRENT names is missing";
        damage.push(Damage::at(&path, 0, what, Remedy::RestoreOrRepair));
    }
    let readings: Vec<Reading> =
        numbers.into_iter().map(|number| read(vfs, dir, number, listing)).collect();
    let in_force = readings.iter().find(|reading| Some(reading.number) == named);
    if let Some(reading) = in_force.filter(|reading| reading.was_never_finished()) {
        let path = dir.join(names::manifest(reading.number));
        let what = "the first record, which was synced before CURRENT named this file, is gone";
        damage.push(Damage::at(&path, 0, what, Remedy::RestoreOrRepair));
    }
    let newer = readings.iter().find(|reading| {
        Some(reading.number) > named
            && reading.is_intact()
            && reading.is_complete
            && (reading.records > 1 || reading.closed)
    });
    let chosen = match (in_force, newer) {
        (Some(_), Some(newer)) => {
            let what = format!("it names an older manifest than {}", names::manifest(newer.number));
            damage.push(Damage::at(&path, 0, what, Remedy::RestoreOrRepair));
            Some(newer)
        }
        (Some(reading), None) if reading.is_intact() && reading.is_complete => Some(reading),
        _ => {
            let whole = readings.iter().find(|other| other.is_intact() && other.is_complete);
            whole.or_else(|| readings.iter().find(|other| other.state.is_some()))
        }
    };
    let chosen_number = chosen.map(|reading| reading.number);
    for reading in &readings {
        let matters = Some(reading.number) >= chosen_number || Some(reading.number) == named;
        damage.extend(reading.damage.clone().filter(|_| matters));
    }
    let doubt = doubt(&readings, chosen, named);
    let Some(number) = chosen_number else { return Chosen { doubt, damage, ..Chosen::default() } };
    let chosen = readings.into_iter().find(|reading| reading.number == number);
    chosen.map_or_else(Chosen::default, |reading| Chosen {
        state: reading.state.unwrap_or_default(),
        number: Some(number),
        store_id: reading.store_id,
        closed: reading.closed,
        torn: reading.torn,
        doubt,
        damage,
        bytes: reading.bytes,
    })
}

/// Why the chosen manifest may be incomplete, if it may.
fn doubt(readings: &[Reading], chosen: Option<&Reading>, named: Option<u64>) -> Option<String> {
    let Some(chosen) = chosen else { return Some("no manifest can be read".to_owned()) };
    let name = names::manifest(chosen.number);
    if chosen.damage.is_some() {
        return Some(format!("{name} is damaged, and its content after the damage is unknown"));
    }
    if let Some(named) = named.filter(|named| *named > chosen.number) {
        let named = names::manifest(named);
        return Some(format!("{named}, which was current, cannot be used, and {name} is older"));
    }
    if !chosen.is_complete && !chosen.closed && chosen.has_orphans {
        return Some(format!(
            "{name} names files that are missing, and does not name others that exist: its end \
             may be lost"
        ));
    }
    let lost = readings.iter().find(|other| {
        other.number > chosen.number && !other.is_intact() && !other.was_never_finished()
    });
    lost.map(|other| {
        let lost = names::manifest(other.number);
        format!("{lost} cannot be read, and {name} is older")
    })
}

fn read(vfs: &dyn Vfs, dir: &Path, number: u64, listing: &[DirEntry]) -> Reading {
    let path = dir.join(names::manifest(number));
    let mut reading = Reading {
        number,
        state: None,
        store_id: None,
        records: 0,
        closed: false,
        torn: None,
        damage: None,
        is_complete: false,
        has_orphans: false,
        bytes: 0,
    };
    if let Err(error) = take(vfs, &path, &mut reading) {
        reading.damage = Some(Damage::of(&error, &path, Remedy::RestoreOrRepair));
    }
    let state = reading.state.as_ref();
    reading.has_orphans = listing.iter().any(|entry| match Numbered::parse(&entry.name) {
        Some(Numbered::Table(number)) => {
            !state.is_some_and(|s| s.version.tables().any(|(_, table)| table.number == number))
        }
        _ => false,
    });
    let missing = state.and_then(|state| first_missing(state, dir, listing));
    reading.is_complete = state.is_some() && missing.is_none();
    if let (Some((file, problem)), Some(torn)) = (missing, &reading.torn) {
        let what = format!(
            "it ends in a damaged record that had taken effect, because a file that earlier \
             records need does not match them: {}: {problem}",
            file.display()
        );
        reading.damage = Some(Damage::at(&path, torn.offset, what, Remedy::RestoreOrRepair));
        reading.torn = None;
    }
    reading
}

/// Reads the manifest as far as possible. Returns the corruption after that part as an error.
fn take(vfs: &dyn Vfs, path: &Path, reading: &mut Reading) -> Result<(), Error> {
    let image = LogImage::decode(read_whole(vfs, path)?, path, FileKind::Manifest, reading.number)?;
    let summary = image.summary();
    reading.bytes = summary.file_bytes;
    reading.store_id = summary.header.map(|header| header.store_id);
    let mut state = ManifestState::default();
    for (index, record) in image.records().enumerate() {
        let edit = decode_edit(record, path)?;
        state = apply(&state, index as u64 + 1, record, &edit, path)?;
        reading.records = index as u64 + 1;
        reading.state = Some(state.clone());
    }
    match &summary.verdict {
        Verdict::Ended { .. } => reading.closed = true,
        Verdict::Clean => {}
        Verdict::Torn(reason) => {
            reading.torn = Some(Dropped {
                file: path.to_path_buf(),
                offset: summary.end,
                bytes: summary.file_bytes - summary.end,
                records: summary.later_records,
                reason: DropReason::Torn(*reason),
            });
        }
        Verdict::Damaged(damage) => return Err(damage.clone().into()),
    }
    if reading.state.is_none() && reading.torn.is_none() {
        // Created, and nothing written: the extreme case of a torn manifest.
        reading.torn = Some(Dropped {
            file: path.to_path_buf(),
            offset: summary.end,
            bytes: 0,
            records: 0,
            reason: DropReason::NoEndMarker,
        });
    }
    Ok(())
}
