//! `trommel backup` and `trommel restore`.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Subcommand};
use trommel::VerifyReport;
use trommel::vfs::DiskVfs;
use trommel_backup::{Damage, Deleted, Error, Repository, refuse_nested, target_at};
use trommel_harness::{Control, Unit};

use crate::commands::store_args::{Session, StoreArgs};
use crate::failure::Failure;
use crate::output::{Output, OutputArgs, Value};
use crate::shared_args::whole_in;

pub(crate) const LONG_ABOUT: &str = "\
Keeps any number of backups of stores in a repository: a directory, or a bucket of an object \
store. Each backup is complete; a table that several need is stored once, so a new backup takes \
only the space of its new data. Any backup may be deleted without affecting the others.

The store must not be open elsewhere. A program that has it open makes backups of it with the crate \
trommel-backup.";

pub(crate) const AFTER_HELP: &str = "\
Examples:
  trommel backup create --db shop --to /mnt/backups
  trommel backup list --from /mnt/backups
  trommel backup verify --from /mnt/backups
  trommel backup restore latest shop-restored --from /mnt/backups
  trommel backup purge --keep 7 --from /mnt/backups

TARGET is a directory (a path, or file:///path) or, in a build with the feature object-store,
s3://bucket/prefix, with credentials, region and endpoint from the environment
(AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT).";

#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    #[command(subcommand)]
    command: BackupCommand,
}

#[derive(Debug, Subcommand)]
enum BackupCommand {
    /// Back up a store, storing only files that the repository does not have
    Create(CreateArgs),
    /// List the backups, oldest first
    List(ListArgs),
    /// Read every byte back and compare it with its hash
    Verify(VerifyBackupArgs),
    /// Restore a backup as a new store, and verify it
    Restore(RestoreArgs),
    /// Delete backups, and the files that only they need
    Delete(DeleteBackupArgs),
    /// Delete all but the newest backups of each store, and the files that no backup needs
    ///
    /// Unlike delete it needs no --yes, as it is meant to run unattended: at least one backup of
    /// each store stays. A restored store is a different store, with its own ID: backups of the
    /// previous one do not age out, and are deleted by number once they are not needed.
    Purge(PurgeArgs),
}

/// Where the backups are.
#[derive(Debug, Args)]
#[command(next_help_heading = "Repository")]
struct RepositoryArgs {
    /// The repository: a directory, or s3://bucket/prefix
    #[arg(long, value_name = "TARGET", visible_alias = "from")]
    to: String,
}

impl RepositoryArgs {
    fn open(&self) -> Result<Repository, Failure> {
        Ok(Repository::open(target_at(&self.to)?)?)
    }
}

#[derive(Debug, Args)]
struct CreateArgs {
    /// Also read the files of the backup that the repository already has, and replace corrupt ones
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    repository: RepositoryArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Args)]
struct ListArgs {
    #[command(flatten)]
    repository: RepositoryArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Args)]
struct VerifyBackupArgs {
    /// Only this backup: its number, or latest [default: all]
    id: Option<Id>,
    #[command(flatten)]
    store: OfStore,
    #[command(flatten)]
    repository: RepositoryArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// The backup: its number, or latest
    id: Id,
    /// A new or empty directory, or one in which a restore was interrupted
    dir: PathBuf,
    /// If the backup is corrupt, keep the rest of it (the exit code is still 4)
    #[arg(long)]
    keep_damaged: bool,
    #[command(flatten)]
    store: OfStore,
    #[command(flatten)]
    repository: RepositoryArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Args)]
struct DeleteBackupArgs {
    /// The backups: their numbers, or latest
    #[arg(required = true, value_name = "ID")]
    ids: Vec<Id>,
    /// Confirm the deletion of these backups
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    store: OfStore,
    #[command(flatten)]
    repository: RepositoryArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Args)]
struct PurgeArgs {
    /// How many backups of each store to keep
    #[arg(long, value_name = "COUNT", value_parser = whole_in(1_u64..))]
    keep: u64,
    #[command(flatten)]
    repository: RepositoryArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Says which store's latest backup is meant.
#[derive(Debug, Args)]
#[command(next_help_heading = "Repository")]
struct OfStore {
    /// The store whose latest backup is meant, if there are several: its ID, as shown by list
    #[arg(long, value_name = "STORE")]
    store: Option<String>,
}

/// Names a backup.
#[derive(Debug, Clone, Copy)]
enum Id {
    Latest,
    Number(u64),
}

impl std::str::FromStr for Id {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse() {
            _ if text == "latest" => Ok(Self::Latest),
            Ok(number) if number > 0 => Ok(Self::Number(number)),
            _ => Err("it must be a number from 1, or latest"),
        }
    }
}

impl Id {
    /// The backup's number.
    ///
    /// # Errors
    /// If there is no backup, or the latest is requested without naming a store where there are
    /// several.
    fn find(self, repository: &Repository, store: &OfStore) -> Result<u64, Failure> {
        match self {
            Self::Number(number) => Ok(number),
            Self::Latest => repository.latest(store.store.as_deref())?.ok_or_else(|| {
                Failure::NothingThere(match &store.store {
                    None => format!("{repository} has no backups yet"),
                    Some(store) => format!("{repository} has no backup of the store {store}"),
                })
            }),
        }
    }
}

/// Passes the progress of a backup to the program's, and the user's interrupt to the backup.
struct BackupProgress<'a>(Control<'a>);

impl trommel_backup::Progress for BackupProgress<'_> {
    fn begin(&self, what: &str, bytes: u64) {
        self.0.progress.begin(what, bytes, Unit::Bytes);
    }

    fn advance(&self, bytes: u64) {
        self.0.progress.advance(bytes);
    }

    fn end(&self) {
        self.0.progress.end();
    }

    fn is_cancelled(&self) -> bool {
        self.0.stop.is_set()
    }
}

pub(crate) fn run(
    args: &BackupArgs,
    session: Session<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    match &args.command {
        BackupCommand::Create(args) => create(args, session, out),
        BackupCommand::List(args) => list(args, out),
        BackupCommand::Verify(args) => verify(args, session, out),
        BackupCommand::Restore(args) => restore(args, session, out),
        BackupCommand::Delete(args) => delete(args, session, out),
        BackupCommand::Purge(args) => purge(args, session, out),
    }
}

fn create(args: &CreateArgs, session: Session<'_>, out: &mut dyn Write) -> Result<(), Failure> {
    let target = target_at(&args.repository.to)?;
    let created = args.store.write(session, |db| {
        refuse_nested(&*target, db.dir())?;
        // A repository is created only for a store that exists.
        let repository = Repository::open_or_create(target)?;
        let progress = BackupProgress(session.control);
        Ok(match args.check {
            false => repository.create(db, &progress)?,
            true => repository.create_checked(db, &progress)?,
        })
    })?;
    let mut output = args.output.begin("backup-create", out);
    output.record(
        "",
        &[
            ("id", Value::Integer(created.backup.id)),
            ("created", created.backup.created.as_str().into()),
            ("store", created.backup.store.as_str().into()),
            ("parent", created.backup.parent.map_or(Value::Null, Value::Integer)),
            ("files", Value::Count(created.backup.files.len() as u64)),
            ("bytes", Value::Size(created.backup.bytes())),
            ("new_files", Value::Count(created.new_files)),
            ("new_bytes", Value::Size(created.new_bytes)),
            ("checked", Value::Count(created.checked_files)),
            ("mended", Value::Count(created.mended_files)),
        ],
    )?;
    Ok(output.finish()?)
}

fn list(args: &ListArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let listed = args.repository.open()?.list()?;
    let mut output = args.output.begin("backup-list", out);
    output.list("backups", &["id", "created", "store", "parent", "files", "bytes", "damage"])?;
    let mut damages = Vec::new();
    for listed in listed {
        let id = Value::Integer(listed.id);
        output.row(match listed.backup {
            Ok(backup) => vec![
                id,
                backup.created.as_str().into(),
                backup.store.as_str().into(),
                backup.parent.map_or(Value::Null, Value::Integer),
                Value::Count(backup.files.len() as u64),
                Value::Size(backup.bytes()),
                Value::Null,
            ],
            Err(damage) => {
                let what = damage.what.as_str().into();
                damages.push(damage);
                let [a, b, c, d, e] = [const { Value::Null }; 5];
                vec![id, a, b, c, d, e, what]
            }
        })?;
    }
    output.finish()?;
    report_damages(damages)
}

fn verify(
    args: &VerifyBackupArgs,
    session: Session<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let repository = args.repository.open()?;
    let id = args.id.map(|id| id.find(&repository, &args.store)).transpose()?;
    let verified = repository.verify(id, &BackupProgress(session.control))?;
    let mut output = args.output.begin("backup-verify", out);
    output.record(
        "",
        &[
            ("backups", Value::Count(verified.backups)),
            ("whole", numbers(&verified.whole)),
            ("files", Value::Count(verified.files)),
            ("bytes", Value::Size(verified.bytes)),
        ],
    )?;
    write_damages("damages", &verified.damages, &mut output)?;
    output.finish()?;
    report_damages(verified.damages)
}

pub(crate) fn restore(
    args: &RestoreArgs,
    session: Session<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let repository = args.repository.open()?;
    let id = args.id.find(&repository, &args.store)?;
    let progress = BackupProgress(session.control);
    let restored = if args.keep_damaged {
        repository.restore_damaged(Arc::new(DiskVfs), id, &args.dir, &progress)?
    } else {
        repository.restore(id, &args.dir, &progress).map_err(|error| {
            let failure = Failure::Backup(error);
            if !failure.is_damage() {
                return failure;
            }
            let what = "nothing was restored; another backup may be intact (see `trommel backup \
                        verify`), and --keep-damaged restores what is left of this one";
            failure.with(what)
        })?
    };
    let verified = |count: fn(&VerifyReport) -> u64| -> Value {
        restored.verified.as_ref().map(count).map(Value::Count).into()
    };
    let mut output = args.output.begin("backup-restore", out);
    output.record(
        "",
        &[
            ("id", Value::Integer(id)),
            ("dir", args.dir.display().to_string().into()),
            ("files", Value::Count(restored.backup.files.len() as u64)),
            ("bytes", Value::Size(restored.backup.bytes())),
            ("entries", verified(|report| report.entries)),
            ("foreign_filters", verified(|report| report.foreign_filters)),
        ],
    )?;
    write_damages("damages", &restored.damages, &mut output)?;
    output.finish()?;
    report_damages(restored.damages).map_err(|failure| failure.with("what is left of it was kept"))
}

fn delete(
    args: &DeleteBackupArgs,
    session: Session<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let repository = args.repository.open()?;
    // All names are resolved first: after a deletion, `latest` would be another backup.
    let mut ids = BTreeSet::new();
    for id in &args.ids {
        ids.insert(id.find(&repository, &args.store)?);
    }
    let there: BTreeSet<u64> = repository.list()?.iter().map(|listed| listed.id).collect();
    if let Some(&id) = ids.difference(&there).next() {
        return Err(Error::NoSuchBackup { repository: repository.to_string(), id }.into());
    }
    if !args.yes {
        let ids: Vec<String> = ids.iter().map(u64::to_string).collect();
        return Err(Failure::Usage(format!(
            "this permanently deletes backup {} of {repository}: give --yes to confirm",
            ids.join(", ")
        )));
    }
    let mut done = Deleted::default();
    for id in ids {
        match repository.delete(id, &BackupProgress(session.control)) {
            Ok(deleted) => {
                done.backups.extend(deleted.backups);
                done.files += deleted.files;
                done.bytes += deleted.bytes;
                done.kept_for = deleted.kept_for;
            }
            // Report the deleted backups before the error.
            Err(error) => {
                write_deleted("backup-delete", done, &args.output, out)?;
                return Err(error.into());
            }
        }
    }
    write_deleted("backup-delete", done, &args.output, out)
}

fn purge(args: &PurgeArgs, session: Session<'_>, out: &mut dyn Write) -> Result<(), Failure> {
    let done = args.repository.open()?.purge(args.keep, &BackupProgress(session.control))?;
    write_deleted("backup-purge", done, &args.output, out)
}

fn write_deleted(
    command: &str,
    done: Deleted,
    args: &OutputArgs,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let mut output = args.begin(command, out);
    output.record(
        "",
        &[
            ("backups", numbers(&done.backups)),
            ("files", Value::Count(done.files)),
            ("bytes", Value::Size(done.bytes)),
        ],
    )?;
    write_damages("kept_for", &done.kept_for, &mut output)?;
    output.finish()?;
    report_damages(done.kept_for)
}

fn numbers(ids: &[u64]) -> Value {
    Value::List(ids.iter().copied().map(Value::Integer).collect())
}

fn write_damages(name: &str, damages: &[Damage], output: &mut Output<'_>) -> Result<(), Failure> {
    if damages.is_empty() {
        return Ok(());
    }
    output.list(name, &["file", "damage"])?;
    for damage in damages {
        output.row(vec![damage.file.as_str().into(), damage.what.as_str().into()])?;
    }
    Ok(())
}

/// The command did what it could. The first damage found is printed to standard error, and
/// determines the exit code for scripts.
fn report_damages(damages: Vec<Damage>) -> Result<(), Failure> {
    match damages.into_iter().next() {
        None => Ok(()),
        Some(damage) => Err(Failure::Backup(Error::Damaged(damage))),
    }
}
