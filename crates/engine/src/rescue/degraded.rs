//! Degraded opens: a read-only open that fails because of corruption only if there is no readable
//! manifest, and never answers from data that corruption may have made stale. (Obstacles before any
//! file of the store is read, such as a held lock or an interrupted repair, fail it like any open.)
//!
//! 1. The manifest is chosen as a repair chooses it ([`manifest`](super::manifest)). Without any,
//!    the store cannot be opened and must be repaired.
//! 2. Tables that are missing, or of the wrong length, stay in the version: a read that reaches one
//!    fails, and a read that ends above it is correct. So a key whose newest version is newer than
//!    the corrupt part is answered, and one that may be in that part is an error. The same holds
//!    for corrupt blocks, as in every open.
//! 3. Logs are replayed up to the first corruption. The records after it are newer than everything
//!    else, and of unknown keys, as are tables that a corrupt manifest may have lost. Then nothing
//!    is certain, and every read is [`Error::InDoubt`], unless the user requests the last intact
//!    state ([`Degraded::LastIntact`]), which is a state that the store once had.
//!
//! [`Healthy`](crate::Healthy) iterates over the readable entries.

use std::path::Path;

use trommel_vfs::{DirEntry, Vfs};

use super::manifest::{Chosen, choose};
use super::{logs, table};
use crate::damage::{Damage, KeySpan, Remedy};
use crate::error::{Error, Result};
use crate::files::{sidecar_path, table_path};
use crate::log::recover::ReplayPlan;
use crate::manifest::reader::Recovered;
use crate::names;

/// The corruption that a degraded open ignored.
#[derive(Debug, Default)]
pub(crate) struct Tolerated {
    pub(crate) damage: Vec<Damage>,
    /// Why writes of unknown keys may be lost, if they may.
    pub(crate) doubt: Option<String>,
    /// The problem with the options file.
    pub(crate) options: Option<Damage>,
    chosen: Chosen,
}

/// The state of the store in `dir`, as far as a manifest records it.
pub(crate) fn recover(
    vfs: &dyn Vfs,
    dir: &Path,
    listing: &[DirEntry],
) -> Result<(Recovered, Tolerated)> {
    let mut chosen = choose(vfs, dir, listing);
    let Some(number) = chosen.number else {
        return Err(match chosen.damage.first() {
            Some(damage) => damage.as_error(),
            None => {
                let what = "there is no manifest in it; trommel repair finds the tables".to_owned();
                Error::NotAStore { dir: dir.to_path_buf(), what }
            }
        });
    };
    let mut damage = std::mem::take(&mut chosen.damage);
    for (_, file) in chosen.state.version.tables() {
        let name = names::table(file.number);
        let entry = listing.iter().find(|entry| entry.name == *name);
        let path = table_path(dir, file.number);
        if let Err(found) = table::open(vfs, &path, file.meta(), entry) {
            let keys = KeySpan::new(&file.smallest, &file.largest);
            damage.push(found.costing(keys).of_bytes(file.file_bytes));
        }
        if let Some(number) = file.filters.sidecar
            && listing.iter().all(|entry| entry.name != *names::filter_sidecar(number))
        {
            let path = sidecar_path(dir, number);
            damage.push(Damage::at(&path, 0, "the filter sidecar is missing", Remedy::Compact));
        }
    }
    let recovered = Recovered {
        state: chosen.state.clone(),
        store_id: chosen.store_id.unwrap_or_default(),
        number,
        tail_dropped: chosen.torn.clone(),
        closed: chosen.closed,
    };
    Ok((recovered, Tolerated { damage, doubt: chosen.doubt.clone(), options: None, chosen }))
}

/// The plan for replaying the logs.
pub(crate) fn plan_logs(
    vfs: &dyn Vfs,
    dir: &Path,
    listing: &[DirEntry],
    tolerated: &mut Tolerated,
) -> Result<ReplayPlan> {
    let oldest = tolerated.chosen.state.log_number;
    let left = logs::left(vfs, dir, listing, &tolerated.chosen, oldest)?;
    tolerated.doubt = tolerated.doubt.take().or_else(|| left.doubt());
    tolerated.damage.extend(left.damage);
    Ok(left.plan)
}
