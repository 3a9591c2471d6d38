//! Reading around damage: a read-only open that fails for no damage but the lack of any manifest,
//! and never answers from what the damage may hide. (What stands in the way before a file of the
//! store is read, such as a lock that cannot be had or a repair that was cut short, stops it as any
//! open.)
//!
//! 1. The manifest is chosen as a repair chooses it ([`manifest`](super::manifest)); without any
//!    the store cannot be opened, and a repair is the way.
//! 2. Tables that are missing, or of the wrong length, stay in the version: whatever read comes to
//!    one fails there, and whatever read ends above it is as good as ever. So a key whose newest
//!    version is newer than the damaged piece is answered, and one that may be in the piece is an
//!    error. The same holds for damaged blocks, as in every open.
//! 3. Logs are replayed up to the first damage. What stood behind it is newer than all else, and of
//!    unknown keys: so is what a damaged manifest may not name. Then nothing is certain, and every
//!    read is [`Error::InDoubt`], unless the user asks for the last intact state
//!    ([`Degraded::LastIntact`]), which is a state that the store once was in.
//!
//! What can be had of the entries is iterated by [`Healthy`](crate::Healthy).

use std::path::Path;

use trommel_vfs::{DirEntry, Vfs};

use super::manifest::{Chosen, choose};
use super::{logs, table};
use crate::damage::{Damage, KeySpan, Remedy};
use crate::error::{Error, Result};
use crate::files::{sidecar_path, table_path};
use crate::log::recover::Plan;
use crate::manifest::reader::Recovered;
use crate::names;

/// What a degraded open went around.
#[derive(Debug, Default)]
pub(crate) struct Around {
    pub(crate) damage: Vec<Damage>,
    /// Why writes of unknown keys may be lost, if they may.
    pub(crate) doubt: Option<String>,
    /// What is wrong with the record of the options.
    pub(crate) options: Option<Damage>,
    chosen: Chosen,
}

/// The state of the store in `dir` as far as a manifest tells it.
pub(crate) fn recover(
    vfs: &dyn Vfs,
    dir: &Path,
    listing: &[DirEntry],
) -> Result<(Recovered, Around)> {
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
        if let Some(number) = file.filter_sidecar
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
    Ok((recovered, Around { damage, doubt: chosen.doubt.clone(), options: None, chosen }))
}

/// What of the logs is replayed.
pub(crate) fn plan_logs(
    vfs: &dyn Vfs,
    dir: &Path,
    listing: &[DirEntry],
    around: &mut Around,
) -> Result<Plan> {
    let oldest = around.chosen.state.log_number;
    let left = logs::left(vfs, dir, listing, &around.chosen, oldest)?;
    around.doubt = around.doubt.take().or_else(|| left.doubt());
    around.damage.extend(left.damage);
    Ok(left.plan)
}
