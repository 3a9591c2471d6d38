//! Reading around damage: a read-only open that fails for no damage but the lack of any manifest, and
//! never answers from what the damage may hide. (What stands in the way before a file of the store is
//! read, such as a lock that cannot be had or a repair that was cut short, stops it as any open.)
//!
//! 1. The manifest is chosen as a repair chooses it ([`manifest`](super::manifest)); without any the
//!    store cannot be opened, and a repair is the way.
//! 2. Tables that are missing, or of the wrong length, stay in the version: whatever read comes to one
//!    fails there, and whatever read ends above it is as good as ever. So a key whose newest version is
//!    newer than the damaged piece is answered, and one that may be in the piece is an error. The same
//!    holds for damaged blocks, as in every open.
//! 3. Logs are replayed up to the first damage. What stood behind it is newer than all else, and of
//!    unknown keys: so is what a damaged manifest may not name. Then nothing is certain, and every read
//!    is [`Error::InDoubt`], unless the user asks for the last intact state
//!    ([`Degraded::LastIntact`]), which is a state that the store once was in.
//!
//! [`Healthy`] walks over all entries that can be had, around every piece that cannot.

use std::path::Path;

use trommel_base::Slice;
use trommel_vfs::{DirEntry, Vfs};

use super::damage::{Damage, KeySpan};
use super::doubt::spans;
use super::manifest::{Chosen, choose};
use super::{logs, table};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::files::table_path;
use crate::iter::range::{Bounds, Range};
use crate::log::recover::Plan;
use crate::manifest::names;
use crate::manifest::reader::Recovered;

/// What a degraded open answers where nobody can know the keys of the writes that are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Degraded {
    /// Nothing: every read is [`Error::InDoubt`].
    Certain,
    /// What was true once: the state before the first write that is lost.
    LastIntact,
}

/// What a degraded open went around.
#[derive(Debug, Default)]
pub(crate) struct Around {
    pub(crate) damage: Vec<Damage>,
    /// Why writes of unknown keys may be lost, if they may.
    pub(crate) doubt: Option<String>,
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
    }
    let recovered = Recovered {
        state: chosen.state.clone(),
        store_id: chosen.store_id.unwrap_or_default(),
        number,
        tail_dropped: chosen.torn.clone(),
        closed: chosen.closed,
    };
    Ok((recovered, Around { damage, doubt: chosen.doubt.clone(), chosen }))
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

/// All entries of a range that can be had, in key order, around what is damaged.
///
/// It passes over every key that lies between the first and the last of a damaged piece, on whatever
/// level that lies: a lost table of the lowest level hides newer entries above it too, which
/// [`Db::get`](crate::Db::get) still gives.
///
/// Made by [`Db::healthy`](crate::Db::healthy), which reads all tables of the range once to find what
/// is damaged.
#[derive(Debug)]
pub struct Healthy {
    engine: std::sync::Arc<Engine>,
    /// The pieces still to come, the next one last.
    pieces: Vec<Piece>,
    damage: Vec<Damage>,
    walk: Option<Range>,
}

#[derive(Debug)]
enum Piece {
    /// Keys that no damage touches.
    Sound(Bounds),
    /// A key at the edge of damage: it may be had all the same.
    Edge(Vec<u8>),
}

impl Healthy {
    /// What is damaged, with the keys that it may cost: what the walk passes over.
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// The keys passed over: disjoint, in order. Some at their ends may be had all the same.
    pub fn in_doubt(&self) -> Vec<KeySpan> {
        spans(self.damage.iter().filter_map(|damage| damage.keys.as_ref()))
    }
}

impl Engine {
    pub(crate) fn healthy(self: &std::sync::Arc<Self>, bounds: &Bounds) -> Result<Healthy> {
        self.check_open()?;
        let listing =
            self.vfs.list(&self.dir).map_err(|source| Error::io(&self.dir, "listing", source))?;
        let options = self.options.load();
        let mut damage = Vec::new();
        for (_, file) in self.version().tables() {
            if *file.largest < *bounds.from || bounds.ends_before(&file.smallest) {
                continue;
            }
            let name = names::table(file.number);
            let entry = listing.iter().find(|entry| entry.name == *name);
            let extractor = options.prefix_extractor.as_ref();
            damage.extend(table::survey(&*self.vfs, &self.dir, file.meta(), entry, extractor).0);
        }
        let pieces = pieces(bounds, &damage);
        Ok(Healthy { engine: std::sync::Arc::clone(self), pieces, damage, walk: None })
    }
}

/// The range, cut where damage is; the first piece last.
fn pieces(bounds: &Bounds, damage: &[Damage]) -> Vec<Piece> {
    let keys = || damage.iter().filter_map(|damage| damage.keys.as_ref());
    let mut edges: Vec<&[u8]> = keys()
        .flat_map(|keys| [&*keys.first, &*keys.last])
        .filter(|key| bounds.holds(key))
        .collect();
    edges.sort_unstable();
    edges.dedup();
    let mut edges = edges.into_iter().peekable();
    let mut pieces = Vec::new();
    let mut from = bounds.from.clone();
    for span in spans(keys()) {
        pieces.push(Piece::Sound(Bounds { from, to: Some(bounds.capped(&span.first)) }));
        while let Some(edge) = edges.next_if(|edge| **edge <= *span.last) {
            pieces.push(Piece::Edge(edge.to_vec()));
        }
        from = Bounds::behind(&span.last).max(bounds.from.clone());
    }
    pieces.push(Piece::Sound(Bounds { from, to: bounds.to.clone() }));
    pieces.reverse();
    pieces
}

impl Iterator for Healthy {
    type Item = Result<(Slice, Slice)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.walk.as_mut().and_then(Iterator::next) {
                return Some(entry);
            }
            self.walk = None;
            match self.pieces.pop()? {
                Piece::Sound(bounds) => self.walk = Some(self.engine.range(bounds, None)),
                Piece::Edge(key) => match self.engine.get(&key, None) {
                    Ok(Some(value)) => return Some(Ok((Slice::from(&*key), value))),
                    // In doubt, and told of: whatever is wrong with a file of the store.
                    Ok(None)
                    | Err(Error::Corruption(_) | Error::Io { .. } | Error::Unsupported { .. }) => {}
                    Err(error) => return Some(Err(error)),
                },
            }
        }
    }
}
