//! `trommel rebuild-filters`: replaces the filters of existing tables, and estimates the cost.

use std::io::{self, Write};

use clap::Args;
use trommel::{Db, FilterRebuildPlan, FilterRebuildReport, RebuildOptions, TableRebuild};

use crate::commands::store_args::{Session, WriteArgs};
use crate::failure::Failure;
use crate::output::{Column, Output, OutputArgs, Value};
use crate::shared_args::whole;

pub(crate) const LONG_ABOUT: &str = "\
Builds for the tables of an existing store the filters that new tables would get with the given \
options, and reports the cost first. Data is read and never written: the new filters are in files \
of their own, which are used instead of those in the tables and removed with them. A corrupt \
filter is replaced, too.

With --dry-run it ends after reporting the cost, and opens the store read-only.";

#[derive(Debug, Args)]
pub(crate) struct RebuildFiltersArgs {
    /// Only report what would be done, and the cost
    #[arg(long)]
    dry_run: bool,
    /// Only tables of this level
    #[arg(long, value_name = "NUMBER", value_parser = whole::<usize>)]
    level: Vec<usize>,
    /// Only the table with this file number
    #[arg(long, value_name = "NUMBER", value_parser = whole::<u64>)]
    table: Vec<u64>,
    #[command(flatten)]
    write: WriteArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl RebuildFiltersArgs {
    fn options(&self) -> RebuildOptions {
        let mut options = RebuildOptions::default();
        if !self.level.is_empty() {
            options = options.levels(self.level.iter().copied());
        }
        if !self.table.is_empty() {
            options = options.tables(self.table.iter().copied());
        }
        options
    }

    /// Plans the rebuild; prints a note if there is nothing to do.
    ///
    /// # Errors
    /// If the store has no table with a given number.
    fn plan(&self, db: &Db) -> Result<FilterRebuildPlan, Failure> {
        let tables = db.table_ids();
        let is_there = |number| tables.iter().any(|(name, _)| *name == format!("{number:06}.sst"));
        if let Some(number) = self.table.iter().find(|number| !is_there(**number)) {
            return Err(Failure::NothingThere(format!(
                "the store has no table {number}: trommel files lists those that it has"
            )));
        }
        let plan = db.filter_rebuild_plan(&self.options())?;
        if plan.tables.is_empty() {
            let _ = writeln!(
                io::stderr(),
                "nothing to rebuild: the tables that were selected have these filters already, \
                 or there are none"
            );
        }
        Ok(plan)
    }
}

pub(crate) fn run(
    args: &RebuildFiltersArgs,
    session: Session<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    if args.dry_run {
        return args.write.look(session, |db| {
            let mut output = args.output.begin("rebuild_filters", out);
            write_plan(&mut output, &args.plan(db)?)?;
            Ok(output.finish()?)
        });
    }
    args.write.write(session, |db| {
        let plan = args.plan(db)?;
        let mut output = args.output.begin("rebuild_filters", out);
        write_plan(&mut output, &plan)?;
        output.show()?;
        let options = args.options();
        let report =
            session.call("rebuilding filters", db, move |db| db.rebuild_filters(&options))?;
        write_report(&mut output, &report)?;
        Ok(output.finish()?)
    })
}

fn write_plan(output: &mut Output<'_>, plan: &FilterRebuildPlan) -> Result<(), Failure> {
    let columns: [Column<TableRebuild>; 7] = [
        ("table", |table| Value::Integer(table.table)),
        ("level", |table| Value::level(table.level)),
        ("from", |table| table.from.clone().into()),
        ("to", |table| table.to.clone().into()),
        ("keys", |table| Value::Count(table.keys)),
        ("bytes_read", |table| Value::Size(table.bytes_read)),
        ("bytes_written", |table| Value::Size(table.bytes_written)),
    ];
    output.rows("tables", &columns, &plan.tables)?;
    output.record(
        "cost",
        &[
            ("tables", Value::Count(plan.tables.len() as u64)),
            ("keys", Value::Count(plan.keys)),
            ("bytes_read", Value::Size(plan.bytes_read)),
            ("bytes_written", Value::Size(plan.bytes_written)),
        ],
    )?;
    Ok(())
}

fn write_report(output: &mut Output<'_>, report: &FilterRebuildReport) -> Result<(), Failure> {
    output.record(
        "done",
        &[
            ("rebuilt", Value::Count(report.rebuilt)),
            ("dropped", Value::Count(report.dropped)),
            ("needless", Value::Count(report.needless)),
            ("keys", Value::Count(report.keys)),
            ("bytes_read", Value::Size(report.bytes_read)),
            ("bytes_written", Value::Size(report.bytes_written)),
        ],
    )?;
    let skipped = report
        .skipped
        .iter()
        .map(|(table, why)| vec![("table", Value::Integer(*table)), ("why", why.clone().into())]);
    Ok(output.items("skipped", skipped.collect())?)
}
