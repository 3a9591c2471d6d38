//! Scans and cursors.

use std::sync::Arc;

use trommel_base::SeqNo;
use trommel_sstable::ScanOptions;

use crate::bounds::{Bounds, SharedBounds};
use crate::error::Result;
use crate::handle::Handle;
use crate::iter::gate::{RangeGate, TableGate};
use crate::iter::level::{LevelCursor, ScanTables};
use crate::iter::range::{DbCursor, Range};
use crate::iter::source::Source;
use crate::iter::spare;
use crate::iter::visible::VisibleCursor;
use crate::keyspaces::Part;
use crate::ranges::RangeSet;
use crate::space::Space;
use crate::version::TableFile;
use crate::view::{ReadAt, View};

impl Handle {
    /// A cursor over the entries of this part within `bounds` as of `at`, or now.
    pub(crate) fn cursor(
        self: &Arc<Self>,
        part: Part<'_>,
        bounds: Bounds,
        at: Option<ReadAt<'_>>,
    ) -> Result<DbCursor> {
        let (pinned, space) = self.pin_in(part, at)?;
        let bounds = SharedBounds::new(space.bounds(bounds));
        Ok(DbCursor::new(pinned.into_cursor(&bounds)?, bounds, space))
    }

    /// The entries of this part within `bounds` as of `at`, or now.
    pub(crate) fn range(
        self: &Arc<Self>,
        part: Part<'_>,
        bounds: Bounds,
        at: Option<ReadAt<'_>>,
    ) -> Range {
        let opener = self.engine.access.opener();
        match self.pin_in(part, at) {
            Ok((pinned, space)) => {
                let bounds = SharedBounds::new(space.bounds(bounds));
                let within = bounds.clone();
                Range::new(
                    bounds,
                    space,
                    Box::new(move || pinned.clone().into_cursor(&within)),
                    opener,
                )
            }
            Err(error) => {
                let bounds = SharedBounds::new(bounds);
                Range::new(bounds, Space::Plain, Box::new(move || Err(error.clone())), opener)
            }
        }
    }

    /// A cursor within `bounds` over the sources of another cursor.
    pub(crate) fn cursor_over(
        self: &Arc<Self>,
        view: Arc<View>,
        seqno: SeqNo,
        ranges: Option<Arc<RangeSet>>,
        bounds: Bounds,
    ) -> Result<VisibleCursor> {
        let store = Arc::clone(self);
        Pinned { view, seqno, ranges, store }.into_cursor(&SharedBounds::new(bounds))
    }

    /// The sources of a scan of this part, and how its keys are stored at that moment.
    #[inline]
    fn pin_in(self: &Arc<Self>, part: Part<'_>, at: Option<ReadAt<'_>>) -> Result<(Pinned, Space)> {
        let keyspaces = &self.engine.options.keyspaces;
        let may_change = at.is_none() && matches!(part, Part::Default);
        loop {
            let before = if may_change { keyspaces.default_now() } else { Space::Plain };
            let pinned = self.pin(at)?;
            let space = part.space_at(keyspaces, pinned.seqno)?;
            // Otherwise the view may be older than the mapping of the default keyspace, which
            // happens once.
            if !may_change || keyspaces.default_now() == before {
                return Ok((pinned, space));
            }
        }
    }

    #[inline]
    fn pin(self: &Arc<Self>, at: Option<ReadAt<'_>>) -> Result<Pinned> {
        self.engine.access.check_open()?;
        let view =
            at.and_then(|at| at.view).map_or_else(|| self.engine.view.load_full(), Arc::clone);
        let seen = at.map(|at| at.seqno);
        let mut seqno = seen.unwrap_or_else(|| self.engine.snapshots.visible());
        let mut ranges = None;
        if view.needs_moment(at, &self.engine.snapshots) {
            let moment = view.moment(seen, &self.engine.snapshots);
            (seqno, ranges) = (moment.seqno, Some(Arc::new(moment.ranges())));
        }
        Ok(Pinned { view, seqno, ranges, store: Arc::clone(self) })
    }
}

/// The sources of a scan, which it keeps open.
#[derive(Clone)]
struct Pinned {
    view: Arc<View>,
    seqno: SeqNo,
    /// The range tombstones, if there are any.
    ranges: Option<Arc<RangeSet>>,
    /// Last field: the view must be dropped before the store may close.
    store: Arc<Handle>,
}

impl Pinned {
    /// Merges the memtables, each run of level 0, and each deeper level, newest first. Tables
    /// outside `bounds` are left out, so the cursor is not valid for keys outside them.
    fn into_cursor(self, bounds: &SharedBounds) -> Result<VisibleCursor> {
        let (view, engine) = (&self.view, &self.store.engine);
        engine.access.check_open()?;
        let trust_verified = engine.files.tables.read_mode().trusts_verified();
        let scan = ScanOptions { trust_verified, ..ScanOptions::default() };
        let gate = RangeGate::new(engine, bounds);
        let level_cursor = |level: usize, tables: ScanTables| {
            let gate = gate.as_ref().map(|gate| TableGate::new(gate, level, tables.len()));
            let cursor = LevelCursor::new(tables, Arc::clone(&engine.files.tables), scan);
            Source::Level(gate.into_iter().fold(cursor, LevelCursor::with_gate))
        };
        let (newest, runs) = (&view.version.levels[0], view.fences.sorted_runs());
        // A memtable that is empty now holds nothing that was written up to `seqno`.
        let memtables = view.memtables().map(|logged| &logged.memtable);
        let memtables = memtables.filter(|memtable| !memtable.is_empty());
        let most = memtables.clone().count() + newest.len() + runs.len();
        let mut lists = spare::lists(most);
        let sources = &mut lists.sources;
        sources.extend(memtables.map(|memtable| Source::memtable(memtable, self.seqno)));
        let are_all = bounds.are_all();
        for table in newest.iter().filter(|table| are_all || table.meets(bounds)) {
            let reader = engine.files.tables.reader(table)?;
            if gate.as_ref().is_some_and(|gate| gate.concerns(&reader)) {
                sources.push(level_cursor(0, ScanTables::List(vec![Arc::clone(table)])));
            } else {
                sources.push(Source::Table(reader.cursor(scan), table.max_seqno));
            }
        }
        for (at, run) in runs.iter().enumerate() {
            let start = if are_all { 0 } else { run.ending_before(&bounds.from) };
            let end = bounds.to.as_ref().map_or(run.len(), |to| run.beginning_before(to));
            if start < end {
                let fences = Arc::clone(&view.fences);
                let tables = ScanTables::Run { fences, run: at, range: start..end };
                sources.push(level_cursor(run.level(), tables));
            }
        }
        Ok(VisibleCursor::new(
            lists,
            self.seqno,
            self.ranges,
            gate,
            bounds.clone(),
            self.view,
            self.store,
        ))
    }
}

impl TableFile {
    /// Whether the table's key range overlaps `bounds`.
    pub(super) fn meets(&self, bounds: &Bounds) -> bool {
        *self.largest >= *bounds.from && !bounds.ends_before(&self.smallest)
    }
}
