//! Writing new tables, for flushes and compactions.

use std::path::PathBuf;
use std::sync::Arc;

use trommel_base::{EntryRef, SeqNo};
use trommel_filter::{FilterSpec, RangeSpec};
use trommel_sstable::{FilterPlan, TableBuilder, TableOptions, UserFilterBuilder};

use crate::budget::BudgetChoice;
use crate::compaction::merge::DropRule;
use crate::engine::Engine;
use crate::env;
use crate::error::{Error, Result};
use crate::files::table_path;
use crate::filter_policy::FilterPolicy;
use crate::limiter::LimitedFile;
use crate::live_keys::{Filtered, sized_for_live};
use crate::memory::Construction;
use crate::options::Options;
use crate::purpose::Purpose;
use crate::space::{id_of, is_marked};
use crate::sync::panicking;
use crate::user_filters::{FilterChoice, FilterContext, UserPolicy};
use crate::version::logical_level;
use crate::version::{FilterMeta, TableMeta, Version};

/// A table being written.
struct Open {
    number: u64,
    table_id: u64,
    builder: TableBuilder,
    /// The options of the keyspaces whose entries it holds.
    options: Arc<Options>,
    /// The filter of whole keys, as configured; none if a user's policy decides.
    spec: FilterSpec,
    /// The range filter.
    ranges: RangeSpec,
    /// Memory of its filters and index.
    memory: Construction,
    /// Entries added since that memory was last checked; large keys count as several.
    unaccounted: usize,
    /// Whether filters and index take all the memory that they may.
    is_full: bool,
}

/// Entries between checks of the open table's memory.
const ENTRIES_BETWEEN_CHECKS: usize = 64;
/// This many bytes of a key count as another entry, because its separator in the index may be as
/// long.
const LARGE_KEY_BYTES: usize = 1 << 10;

impl Open {
    /// Updates the memory of filters and index, and whether it may grow.
    fn account(&mut self, engine: &Engine) {
        self.unaccounted = 0;
        let bytes = self.builder.filter_memory_bytes() + self.builder.index_memory_bytes();
        self.memory.grow_to(bytes);
        let jobs = engine.options.load().background_threads;
        self.is_full = bytes >= engine.memory.shares.construction_share(jobs);
    }
}

/// Tables that a job writes. They are removed unless the job is installed.
pub(crate) struct Outputs<'a> {
    engine: &'a Engine,
    /// Their physical level.
    level: usize,
    version: Arc<Version>,
    purpose: Purpose,
    /// The policy and choice for all tables, under a budget.
    chosen: Option<(FilterPolicy, BudgetChoice)>,
    open: Option<Open>,
    /// Range tombstones up to this sequence number were applied to all entries.
    ranges_applied: SeqNo,
    done: Vec<TableMeta>,
    created: Vec<PathBuf>,
    installed: bool,
}

impl<'a> Outputs<'a> {
    /// Tables for `level` that will join `version`.
    pub(crate) fn new(
        engine: &'a Engine,
        level: usize,
        version: Arc<Version>,
        purpose: Purpose,
    ) -> Self {
        Self {
            engine,
            level,
            version,
            purpose,
            chosen: None,
            open: None,
            ranges_applied: 0,
            done: Vec::new(),
            created: Vec::new(),
            installed: false,
        }
    }

    /// Sets the level of the tables that are begun from now on.
    pub(crate) fn set_level(&mut self, level: usize) {
        if level != self.level {
            self.level = level;
            self.chosen = None;
        }
    }

    /// Records that `rule` judges all entries.
    pub(crate) fn judged_by(&mut self, rule: &DropRule) {
        self.ranges_applied = rule.ranges_applied();
    }

    /// The last key of the open table.
    pub(crate) fn last_key(&self) -> Option<&[u8]> {
        self.open.as_ref().and_then(|open| open.builder.last_key())
    }

    /// Whether the next entry goes to the open table, unless it is of another keyspace.
    pub(crate) fn has_open_table(&self) -> bool {
        self.open.is_some()
    }

    /// Bytes of the open table so far; `u64::MAX` if its filters and index take all the memory that
    /// they may, so that the table ends.
    pub(crate) fn open_bytes(&self) -> u64 {
        let bytes = |open: &Open| match open.is_full {
            true => u64::MAX,
            false => open.builder.estimated_bytes(),
        };
        self.open.as_ref().map_or(0, bytes)
    }

    /// Adds an entry to the open table, opening one if there is none. A table that cannot hold the
    /// keyspace of the entry is closed.
    pub(crate) fn add(&mut self, entry: EntryRef<'_>) -> Result<()> {
        if is_marked(entry.key) && self.has_other_options(entry.key) {
            self.close_table()?;
        }
        if self.open.is_none() {
            let options = self.engine.options.for_key(entry.key);
            let by_budget = self.choose_by_budget(&options);
            let (path, open) = begin_table(self, options, by_budget)?;
            self.created.push(path);
            self.open = Some(open);
        }
        let Some(open) = &mut self.open else { return Ok(()) };
        open.builder.add(entry.key, entry.seqno, entry.kind, entry.value)?;
        open.unaccounted += 1 + entry.key.len() / LARGE_KEY_BYTES;
        if open.unaccounted >= ENTRIES_BETWEEN_CHECKS {
            open.account(self.engine);
        }
        Ok(())
    }

    /// Whether `key` is of a keyspace whose tables have other options than the open one.
    fn has_other_options(&self, key: &[u8]) -> bool {
        let Some(open) = &self.open else { return false };
        let is_border = open.builder.last_key().and_then(id_of) != id_of(key);
        is_border && !Arc::ptr_eq(&open.options, &self.engine.options.for_key(key))
    }

    /// The whole-key filters of the next tables, if these options have a budget.
    fn choose_by_budget(&mut self, options: &Options) -> Option<BudgetChoice> {
        let Some(budget) = options.filters.budget() else {
            self.chosen = None;
            return None;
        };
        if let Some((policy, choice)) = &self.chosen
            && *policy == options.filters
        {
            return Some(*choice);
        }
        let choice = self.engine.choose_by_budget(budget, &self.version, self.level, &self.purpose);
        self.chosen = Some((options.filters.clone(), choice));
        Some(choice)
    }

    /// Makes the filter smaller if most keys are deleted, so that its bits are not worth their
    /// memory. Under a budget, the price does that.
    fn resize_filter(&self, open: &mut Open) {
        let contents = open.builder.contents();
        let table = Filtered {
            smallest: &contents.smallest,
            largest: open.builder.last_key().unwrap_or_default(),
            keys: contents.keys,
            deletions: contents.deletions,
            is_flushed: self.purpose.inputs.is_empty(),
        };
        let spec = sized_for_live(open.spec, &self.version, table);
        open.builder.resize_filter(spec);
    }

    /// Finishes the open table and syncs it, except its directory entry.
    pub(crate) fn close_table(&mut self) -> Result<()> {
        let Some(mut open) = self.open.take() else { return Ok(()) };
        if self.chosen.is_none() {
            self.resize_filter(&mut open);
        }
        open.account(self.engine);
        let Open { number, table_id, mut builder, memory, ranges, .. } = open;
        let start = env::now();
        builder.finish_filters()?;
        self.engine.statistics.jobs.count_filters(start.elapsed());
        let built = builder.finish(&[])?;
        drop(memory);
        self.engine.statistics.jobs.count_fallbacks(built.filter_fallbacks);
        if let Some(why) = &built.filter_failure {
            self.engine.files.tables.note_unbuilt(number, why);
        }
        if let Some((_, choice)) = &self.chosen {
            let (history, keys) = (&self.engine.statistics.budget_history, built.contents.keys);
            let of_keys = built.filter_bytes - built.range_bytes;
            history.note_built(choice.of(number), keys, of_keys);
            history.note_ranges(ranges.expected_bytes(keys), built.range_bytes);
        }
        let (logical, _) = logical_level(&self.version, self.level);
        let contents = built.contents;
        self.done.push(TableMeta {
            number,
            table_id,
            file_bytes: built.file_bytes,
            smallest: contents.smallest.into(),
            largest: contents.largest.into(),
            min_seqno: contents.min_seqno,
            max_seqno: contents.max_seqno,
            entries: contents.entries,
            deletions: contents.deletions,
            keys: contents.keys,
            filters: FilterMeta {
                bytes: built.filter_bytes,
                built_for: logical as u8,
                sidecar: None,
            },
            ranges_applied: self.ranges_applied,
        });
        Ok(())
    }

    /// Finishes the open table and syncs all directory entries.
    pub(crate) fn finish(&mut self) -> Result<Vec<TableMeta>> {
        self.close_table()?;
        if !self.created.is_empty() {
            let dir = &self.engine.files.dir;
            let synced =
                self.engine.files.tables.with_handles(|| self.engine.files.vfs.sync_dir(dir));
            synced.map_err(|error| match Error::io(dir, "making durable", error) {
                // No sync was attempted.
                error if error.is_out_of_handles() => error,
                // Poisons the store in any case: files created by other jobs may not be durable
                // either.
                error => self.engine.poison(error),
            })?;
        }
        Ok(self.done.clone())
    }

    /// Keeps the tables: a durable manifest names them.
    pub(crate) fn keep(mut self) {
        self.installed = true;
    }

    /// The files of the tables; removing them becomes the caller's responsibility.
    pub(crate) fn hand_over(mut self) -> Vec<PathBuf> {
        std::mem::take(&mut self.created)
    }

    /// Takes over files from [`hand_over`](Self::hand_over), to be removed with its own.
    pub(crate) fn adopt(&mut self, created: Vec<PathBuf>) {
        self.created.extend(created);
    }
}

impl Drop for Outputs<'_> {
    fn drop(&mut self) {
        // A panic may have come out of a manifest write.
        let stays = self.installed || !self.engine.access.may_remove() || panicking();
        if stays {
            return;
        }
        self.open = None;
        for path in &self.created {
            let _ = self.engine.files.vfs.remove(path);
        }
    }
}

/// A user's policy, and the builder of its filter for a table.
pub(crate) type UserFilterBuild = (UserPolicy, Box<dyn UserFilterBuilder>);

/// The filters of a table for `level`: as in the options, which a user's policy may change. The
/// second result is the whole-key filter if the policy builds it. The only place that decides what
/// is built, for new tables and for rebuilds.
pub(crate) fn choose_filters(
    options: &Options,
    level: usize,
    is_last: bool,
    purpose: &Purpose,
    by_budget: Option<FilterSpec>,
) -> (FilterPlan, Option<UserFilterBuild>) {
    if is_last && !options.filtering.filters_on_last_level {
        return (FilterPlan::default(), None);
    }
    let mut plan = options.filter_plan(level, is_last, by_budget);
    let Some(policy) = &options.filtering.user_filters else { return (plan, None) };
    let context = FilterContext {
        level,
        is_last,
        expected_keys: Some(purpose.expected_keys),
        reason: purpose.reason,
        configured: plan.keys,
    };
    let mut user = None;
    plan.keys = match policy.choose(&context) {
        FilterChoice::Spec(spec) => spec,
        FilterChoice::User(filter) => {
            user = Some((policy.clone(), filter));
            FilterSpec::NONE
        }
    };
    (plan, user)
}

fn begin_table(
    outputs: &Outputs<'_>,
    options: Arc<Options>,
    by_budget: Option<BudgetChoice>,
) -> Result<(PathBuf, Open)> {
    let Outputs { engine, level, version, purpose, .. } = outputs;
    let number = engine.files.new_file_number();
    let path = table_path(&engine.files.dir, number);
    let file =
        engine.files.tables.with_handles(|| match engine.files.deletion_queue.take_spare() {
            // If overwriting it fails, the old file may still exist.
            Some(old) => {
                let created = engine.files.vfs.create_over(&old, &path);
                created.inspect_err(|_| engine.files.deletion_queue.add(old))
            }
            None => engine.files.vfs.create(&path),
        });
    let file = file.map_err(|error| Error::io(&path, "creating", error))?;
    let (logical, is_last) = logical_level(version, *level);
    let table_id = env::random_u64();
    let by_budget = by_budget.map(|choice| choice.of(number));
    let (filters, user) = choose_filters(&options, logical, is_last, purpose, by_budget);
    let ranges = filters.ranges;
    if ranges != RangeSpec::NONE {
        engine.files.tables.note_ranges();
    }
    let has_policy = options.filtering.user_filters.is_some();
    let spec = if has_policy { FilterSpec::NONE } else { filters.keys };
    let table = TableOptions {
        block_bytes: options.reads.block_bytes,
        block_align: options.reads.block_align,
        compression: options.compression,
        filters,
        hash_seed: engine.files.hash_seed,
        ..TableOptions::new(table_id)
    };
    let file = Box::new(LimitedFile::new(file, &engine.background.limiter, purpose.reason));
    let mut builder = TableBuilder::new(file, &path, table);
    if let Some((policy, filter)) = user {
        builder = builder.with_user_filter(Arc::new(policy), filter);
    }
    let memory = Construction::new(&engine.memory.shares);
    let (unaccounted, is_full) = (0, false);
    let open =
        Open { number, table_id, builder, options, spec, ranges, memory, unaccounted, is_full };
    Ok((path, open))
}
