//! `trommel verify`: reports everything that is wrong with a store, and the remedy.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use trommel::{Damage, Db, DroppedBytes, Options, VerifyReport};

use crate::commands::store_args::{Session, StoreArgs};
use crate::failure::Failure;
use crate::output::{Output, OutputArgs, Value};
use crate::text::{KeyForm, print_path};

pub(crate) const LONG_ABOUT: &str = "\
Reads every byte of every file of the store, checks every checksum and the order of entries, and \
queries every table's filter for every key of the table. Lists all corruption: the file, the \
offset, the finding, the keys that may be lost, and the remedy. Works on a store that cannot be \
opened, and writes nothing. Ends with exit code 4 if anything is corrupt.

Orphans are files of a store that this one does not need; the next open for writing removes them. \
Foreign files are not the store's, and are never touched. Neither is corruption, and neither is an \
incomplete end as a crash leaves it. Foreign filters are intact but were not queried, as this \
program does not know their kind: they are of a user's policy, or of a later version.";

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    key_form: KeyForm,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(
    args: &VerifyArgs,
    session: Session<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let report = match session.open {
        Some(db) => {
            args.store.reject_db()?;
            session.call("verifying", db, Db::verify_all)?
        }
        None => {
            let dir = args.store.dir()?;
            session.wait("verifying", move || Db::verify_dir(dir, &Options::default()))?
        }
    };
    let printed = print(args, &report, out);
    let found = match report.damage.len() {
        0 => Ok(()),
        places => {
            let files: BTreeSet<&PathBuf> = report.damage.iter().map(|d| &d.file).collect();
            let (files, s) = (files.len(), if files.len() == 1 { "" } else { "s" });
            let places = if places == 1 { "one place".into() } else { format!("{places} places") };
            Err(Failure::Damaged(format!("{files} file{s} damaged, in {places}")))
        }
    };
    // Return the finding even if the reader of the list is gone.
    found.and(printed)
}

fn print(args: &VerifyArgs, report: &VerifyReport, out: &mut dyn Write) -> Result<(), Failure> {
    let mut output = args.output.begin("verify", out);
    output.record("", &sums(report))?;
    let damage = report.damage.iter().map(|damage| fields_of(damage, args.key_form)).collect();
    output.items("damage", damage)?;
    write_dropped(&mut output, "incomplete", &report.incomplete)?;
    Ok(output.finish()?)
}

fn sums(report: &VerifyReport) -> Vec<(&'static str, Value)> {
    let names = |paths: &[PathBuf]| match paths {
        [] => Value::Null,
        _ => Value::List(paths.iter().map(|path| print_path(path).into()).collect()),
    };
    vec![
        ("tables", Value::Count(report.tables)),
        ("sidecars", Value::Count(report.sidecars)),
        ("logs", Value::Count(report.logs)),
        ("bytes", Value::Size(report.bytes)),
        ("entries", Value::Count(report.entries)),
        ("keys", Value::Count(report.keys)),
        ("foreign_filters", Value::Count(report.foreign_filters)),
        ("damaged_places", Value::Count(report.damage.len() as u64)),
        ("options", report.options_recorded.into()),
        ("orphans", names(&report.orphans)),
        ("foreign_files", names(&report.foreign)),
    ]
}

pub(super) fn fields_of(damage: &Damage, form: KeyForm) -> Vec<(&'static str, Value)> {
    let key = |key: &[u8]| Value::from(form.print(key));
    let keys = damage.keys.as_ref();
    vec![
        ("file", print_path(&damage.file).into()),
        ("offset", Value::Integer(damage.offset)),
        ("bytes", if damage.bytes == 0 { Value::Null } else { Value::Size(damage.bytes) }),
        ("what", damage.what.clone().into()),
        ("first_key", keys.map_or(Value::Null, |keys| key(&keys.first))),
        ("last_key", keys.map_or(Value::Null, |keys| key(&keys.last))),
        ("remedy", damage.remedy.name().into()),
        ("advice", damage.remedy.to_string().into()),
    ]
}

/// Writes a list of bytes that were dropped, or would be.
pub(super) fn write_dropped(
    output: &mut Output<'_>,
    name: &str,
    dropped: &[DroppedBytes],
) -> Result<(), Failure> {
    let fields = |dropped: &DroppedBytes| {
        vec![
            ("file", Value::from(print_path(&dropped.file))),
            ("offset", Value::Integer(dropped.offset)),
            ("bytes", Value::Size(dropped.bytes)),
            ("reason", dropped.reason.clone().into()),
        ]
    };
    Ok(output.items(name, dropped.iter().map(fields).collect())?)
}
