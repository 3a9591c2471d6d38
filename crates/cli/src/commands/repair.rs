//! `trommel repair`: makes a new store from the remains of a corrupt one.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use trommel::{Damage, Db, KeySpan, Options, RecordBeyond, RepairOptions, RepairReport};

use crate::commands::base::Base;
use crate::commands::store_args::Session;
use crate::commands::verify::{fields_of, write_dropped};
use crate::failure::Failure;
use crate::output::{OutputArgs, Value};
use crate::text::{KeyForm, print_path};

pub(crate) const LONG_ABOUT: &str = "\
Builds a new store, in a new directory, from the readable data of a corrupt one. The old store is \
never changed. Every intact block that the index of its table still lists is read, and every log \
up to its first corruption; the newest remaining version of each key is written. A table whose \
footer or top index is corrupt is lost as a whole. The new store has the recorded options of the \
old one, including filters, or the defaults if the record is lost.

Lists everything that could not be saved: files, bytes and keys. In a range in doubt keys may be \
missing, may have an older value, or may be visible although they were deleted, because newer data \
is lost. Unreadable entries are those that the manifest states for unreadable parts of tables: at \
least that many are lost. Ends with exit code 4 if anything was lost; the new store is valid \
nevertheless. If a newer version wrote a file, the repair is refused: use that version.";

pub(crate) const AFTER_HELP: &str = "\
Examples:
  trommel repair shop mended --dry-run        report what could be saved, and what is lost
  trommel repair shop mended                  build the new store
  trommel repair shop mended --only-certain   leave out entries that may be outdated
  trommel repair shop mended --beyond-damage  also keep the writes of a log after its corruption";

#[derive(Debug, Args)]
pub(crate) struct RepairArgs {
    /// The corrupt store
    from: PathBuf,
    /// The directory to create
    to: PathBuf,
    /// Write nothing; report what would be saved, and what is lost
    #[arg(long)]
    dry_run: bool,
    /// Also keep the records of a log after its corruption: writes before them may be missing
    #[arg(long)]
    beyond_damage: bool,
    /// Leave out keys whose newer version, or deletion, may be lost
    #[arg(long)]
    only_certain: bool,
    #[command(flatten)]
    key_form: KeyForm,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(
    args: &RepairArgs,
    session: Session<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let how = RepairOptions::default()
        .dry_run(args.dry_run)
        .beyond_damage(args.beyond_damage)
        .only_certain(args.only_certain);
    let (from, to) = (args.from.clone(), args.to.clone());
    let options = Base::of(&from, &Options::default()).options;
    let report = session.wait("repairing", move || Db::repair(from, to, options, how))?;
    let mut output = args.output.begin("repair", out);
    output.record("", &sums(&report))?;
    let fields = |damage: &Damage| fields_of(damage, args.key_form);
    output.items("damage", report.damage.iter().map(fields).collect())?;
    let key = |key: &[u8]| Value::from(args.key_form.print(key));
    if !report.in_doubt.is_empty() {
        output.list("in_doubt", &["first_key_in_doubt", "last_key_in_doubt"])?;
        for KeySpan { first, last } in &report.in_doubt {
            output.row(vec![key(first), key(last)])?;
        }
    }
    if !report.beyond_damage.is_empty() {
        output.list("beyond_damage", &["log", "offset", "writes", "first_key", "last_key"])?;
        for RecordBeyond { file, offset, operations, keys, .. } in &report.beyond_damage {
            output.row(vec![
                print_path(file).into(),
                Value::Integer(*offset),
                Value::Count(*operations),
                key(&keys.first),
                key(&keys.last),
            ])?;
        }
    }
    write_dropped(&mut output, "incomplete", &report.incomplete)?;
    output.finish()?;
    if report.is_complete() {
        return Ok(());
    }
    let left = report.saved.entries + if args.only_certain { report.saved.doubtful } else { 0 };
    let doubtful = report.saved.doubtful;
    let what = if args.only_certain { "left out" } else { "kept" };
    let made = match args.dry_run {
        true => "nothing was written".to_owned(),
        false => format!("the new store is {}", args.to.display()),
    };
    let lost = match report.unreadable {
        0 => String::new(),
        lost => format!("at least {lost} entries are in unreadable parts; "),
    };
    Err(Failure::Damaged(format!(
        "not everything could be saved: {lost}{left} entries are left, {doubtful} of them doubtful \
         and {what}; {made}"
    )))
}

fn sums(report: &RepairReport) -> Vec<(&'static str, Value)> {
    let manifest = report.manifest.as_ref().map(|path| print_path(path));
    vec![
        ("manifest", manifest.into()),
        ("tables", Value::Count(report.saved.tables)),
        ("log_records", Value::Count(report.saved.log_records)),
        ("unreadable_entries", Value::Count(report.unreadable)),
        ("entries", Value::Count(report.saved.entries)),
        ("bytes", Value::Size(report.saved.bytes)),
        ("deleted", Value::Count(report.saved.deleted)),
        ("doubtful", Value::Count(report.saved.doubtful)),
        ("damaged_places", Value::Count(report.damage.len() as u64)),
        ("all_in_doubt", report.all_in_doubt.clone().into()),
        ("complete", report.is_complete().into()),
    ]
}
