//! Rebuilding the filters of one table.
//!
//! 1. The task is decided again: much may have happened since the request.
//! 2. The sidecar is written and synced, then its directory.
//! 3. One manifest edit removes the table and adds it with its new sidecar; the view follows. The
//!    old sidecar is removed when its last reader is gone ([`Engine::install`]).
//!
//! Nothing refers to a sidecar before its edit. So if writing fails for lack of space, it is
//! removed and nothing has happened; any other write failure poisons the store. A failure to read
//! the table does neither: the old filters still answer.
//!
//! Filters rebuilt to fit a budget must take less than before. If they do not, because prefix or
//! user filters stay as large as they are, or if they cannot be built, the table gets a sidecar
//! without filters: that reads nothing, and its gain is certain.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use trommel_sstable::{FilterPlan, SidecarSummary, UserFilterReader};

use super::{RebuildTask, with_filters};
use crate::background_trace::Detail;
use crate::budget::LEAST_GAIN;
use crate::compaction::in_progress::JobStep;
use crate::engine::Engine;
use crate::env;
use crate::error::{Error, Result};
use crate::files::sidecar_path;
use crate::latencies::TimedOperation;
use crate::limiter::LimitedFile;
use crate::manifest::edit::VersionEdit;
use crate::memory::Construction;
use crate::output::UserFilterBuild;
use crate::rebuild_queue::{Aim, FilterRebuildReport, RebuildJob, may_pass};
use crate::sync::lock;
use crate::user_filters::FilterReason;
use crate::version::TableMeta;
use crate::version::logical_level;

/// The outcome of a table's turn.
enum RebuildOutcome {
    Kept,
    Dropped,
    Rebuilt(SidecarSummary),
    Skipped(String),
    /// The table gets no filters, for this reason.
    LeftOut(String),
}

/// Why a sidecar was not completed.
enum Stop {
    Failed(Error),
    /// The table keeps its filters.
    Skip(String),
}

impl Stop {
    /// Whether the cause is the filters themselves, not a temporary condition or a failed write.
    fn is_of_filters(&self) -> bool {
        match self {
            Self::Skip(_) => true,
            Self::Failed(Error::Closed | Error::Poisoned { .. }) => false,
            Self::Failed(error) => !error.is_shortage(),
        }
    }

    /// As [`may_pass`].
    fn may_pass(&self) -> bool {
        matches!(self, Self::Failed(error) if may_pass(error))
    }

    fn words(&self) -> String {
        match self {
            Self::Skip(why) => why.clone(),
            Self::Failed(error) => error.to_string(),
        }
    }
}

impl From<trommel_sstable::Error> for Stop {
    fn from(error: trommel_sstable::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// A sidecar that is removed unless it is installed.
struct Written<'a> {
    engine: &'a Engine,
    path: PathBuf,
    is_installed: bool,
}

impl Drop for Written<'_> {
    fn drop(&mut self) {
        if !self.is_installed && self.engine.access.may_remove() {
            let _ = self.engine.files.vfs.remove(&self.path);
        }
    }
}

impl Engine {
    /// Runs a table's turn, and reports the outcome to the request.
    pub(crate) fn run_rebuild(&self, job: &RebuildJob) {
        let (done, failure) = match self.rebuild_table(job) {
            Ok(done) => (Some(done), None),
            Err(error) => (None, Some(error)),
        };
        let number = job.table.number;
        let count = |report: &mut FilterRebuildReport| {
            done.into_iter().for_each(|done| count(report, number, done));
        };
        let mut state = lock(&self.background.state);
        // If it was installed, the registry has forgotten it already.
        state.busy.finish(job.id);
        if !job.is_of_budget() {
            let mut requested = state.requests.rebuilds.iter_mut();
            if let Some(rebuild) = requested.find(|rebuild| rebuild.is(job.ticket)) {
                rebuild.ended(number, count, failure);
            }
            return;
        }
        state.requests.fit_budget.tried(job, count, failure.as_ref());
        state.requests.last_rebuild = Some(state.requests.fit_budget.report().clone());
        let is_patient = failure.as_ref().is_some_and(may_pass)
            && !self.access.is_poisoned()
            && !job.is_last_try();
        if let Some(pause) = state.fit_ended(failure.as_ref(), is_patient)
            && let Some(error) = failure
        {
            crate::events::retrying_rebuild(number, &error, pause);
        }
    }

    fn rebuild_table(&self, job: &RebuildJob) -> Result<RebuildOutcome> {
        let start = env::now();
        let version = self.version();
        let RebuildJob { table, level, .. } = job;
        let logical = logical_level(&version, *level).0;
        let task = match job.aim {
            Aim::Policy => {
                let this = |_, number| number == table.number;
                let planned = self.planned_by_budget(&version, this);
                self.rebuild_of(&version, *level, table, planned.as_ref())?
            }
            Aim::Budget { spec, .. } => self.fit_of(&version, *level, table, spec),
        };
        match task {
            RebuildTask::Keep => Ok(RebuildOutcome::Kept),
            RebuildTask::Drop => {
                let bytes = self.files.tables.reader(table)?.footer().filter_bytes;
                self.swap_filters(job, with_filters(table.meta(), logical, None, bytes))?;
                Ok(RebuildOutcome::Dropped)
            }
            RebuildTask::Build(filters, user) => {
                match self.write_or_leave_out(job, logical, &filters, user) {
                    Ok((summary, left_out)) => {
                        self.note_rebuilt(job.table.number, &summary, start);
                        Ok(left_out
                            .map_or(RebuildOutcome::Rebuilt(summary), RebuildOutcome::LeftOut))
                    }
                    Err(Stop::Skip(why)) => Ok(RebuildOutcome::Skipped(why)),
                    Err(Stop::Failed(error)) => Err(error),
                }
            }
        }
    }

    fn note_rebuilt(&self, number: u64, summary: &SidecarSummary, start: Instant) {
        let time = start.elapsed();
        self.statistics.jobs.count_rebuild(summary.bytes_read, summary.file_bytes, time);
        crate::events::filters_rebuilt(number, summary.keys, summary.file_bytes, time);
        let details = [
            ("table", Detail::Number(number)),
            ("keys", Detail::Number(summary.keys)),
            ("bytes_read", Detail::Number(summary.bytes_read)),
            ("bytes_written", Detail::Number(summary.file_bytes)),
        ];
        self.statistics.end_work(TimedOperation::FilterRebuild, Some(start), &details);
    }

    /// Writes a sidecar and installs it: for a budget, one without filters if these gain nothing or
    /// the table repeatedly could not be read. Returns the reason in that case.
    fn write_or_leave_out(
        &self,
        job: &RebuildJob,
        level: usize,
        filters: &FilterPlan,
        user: Option<UserFilterBuild>,
    ) -> std::result::Result<(SidecarSummary, Option<String>), Stop> {
        let stop = match self.write_sidecar(job, level, filters, user) {
            Ok(summary) => return Ok((summary, None)),
            Err(stop) => stop,
        };
        let is_given_up = stop.is_of_filters() && (job.is_last_try() || !stop.may_pass());
        if !job.is_of_budget() || self.access.is_poisoned() || !is_given_up {
            return Err(stop);
        }
        let why = stop.words();
        crate::events::filters_left_out(job.table.number, &why);
        let summary = self.write_sidecar(job, level, &FilterPlan::default(), None)?;
        Ok((summary, Some(why)))
    }

    /// Writes a sidecar and installs it.
    fn write_sidecar(
        &self,
        job: &RebuildJob,
        level: usize,
        filters: &FilterPlan,
        user: Option<UserFilterBuild>,
    ) -> std::result::Result<SidecarSummary, Stop> {
        let number = self.files.new_file_number();
        let path = sidecar_path(&self.files.dir, number);
        // Reading the table takes long, and the current filters may have to be evicted meanwhile.
        let reader = self.files.tables.reader(&job.table)?.without_filters();
        let file = self.files.tables.with_handles(|| self.files.vfs.create(&path));
        let file =
            file.map_err(|error| self.judge_write(Error::io(&path, "creating", error), &path))?;
        let mut written = Written { engine: self, path, is_installed: false };
        let file =
            Box::new(LimitedFile::new(file, &self.background.limiter, FilterReason::Rebuild));
        let mut memory = Construction::new(&self.memory.shares);
        let user = user.map(|(policy, builder)| {
            let reader: Arc<dyn UserFilterReader> = Arc::new(policy);
            (reader, builder)
        });
        let watch = |bytes| self.allow(&mut memory, bytes);
        let built =
            reader.write_sidecar(file, &written.path, env::random_u64(), filters, user, watch);
        let summary = built.map_err(|stop| match stop {
            Stop::Failed(error) => Stop::Failed(self.judge_write(error, &written.path)),
            skip => skip,
        })?;
        drop(memory);
        self.statistics.jobs.count_fallbacks(summary.filter_fallbacks);
        let before = job.table.built_bytes();
        if job.is_of_budget() && summary.filter_bytes > before - before / LEAST_GAIN {
            let now = summary.filter_bytes;
            return Err(Stop::Skip(format!("{now} bytes would be hardly less than {before}")));
        }
        if let Some(why) = &summary.filter_failure {
            return Err(Stop::Skip(format!("the policy failed to build its filter: {why}")));
        }
        let synced = self.files.vfs.sync_dir(&self.files.dir);
        synced.map_err(|e| self.poison(Error::io(&self.files.dir, "making durable", e)))?;
        let meta = with_filters(job.table.meta(), level, Some(number), summary.filter_bytes);
        self.swap_filters(job, meta)?;
        written.is_installed = true;
        Ok(summary)
    }

    /// Checks that the filters being built may take this much memory, and that the build may
    /// continue.
    fn allow(&self, memory: &mut Construction, bytes: u64) -> std::result::Result<(), Stop> {
        if self.background.is_closing() {
            return Err(Stop::Failed(Error::Closed));
        }
        let most = self.memory.shares.construction_share(self.options.load().background_threads);
        if bytes > most {
            return Err(Stop::Skip(format!(
                "building its filters takes more than the {most} bytes that memory_limit leaves for it"
            )));
        }
        memory.grow_to(bytes);
        Ok(())
    }

    /// Classifies `error`, which occurred while writing `path`: a failed write poisons the store.
    fn judge_write(&self, error: Error, path: &Path) -> Error {
        match &error {
            Error::Io { file, .. } if file == path && !error.is_shortage() => self.poison(error),
            _ => error,
        }
    }

    /// Installs `meta` for the table.
    fn swap_filters(&self, job: &RebuildJob, meta: TableMeta) -> Result<()> {
        let level = job.level as u8;
        let number = meta.number;
        let edit = VersionEdit {
            removed: vec![(level, number)],
            added: vec![(level, meta)],
            ..VersionEdit::default()
        };
        self.install(edit, Some(JobStep::Ends(job.id)), None)?;
        self.files.tables.forget_unusable(number);
        Ok(())
    }
}

fn count(report: &mut FilterRebuildReport, number: u64, done: RebuildOutcome) {
    match done {
        RebuildOutcome::Kept => report.needless += 1,
        RebuildOutcome::Dropped => report.dropped += 1,
        RebuildOutcome::Rebuilt(summary) => {
            report.rebuilt += 1;
            report.keys += summary.keys;
            report.bytes_read += summary.bytes_read;
            report.bytes_written += summary.file_bytes;
        }
        RebuildOutcome::Skipped(why) => report.skipped.push((number, why)),
        RebuildOutcome::LeftOut(why) => report.given_up.push((number, why)),
    }
}
