//! `trommel dump`.

use std::ffi::OsString;
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use trommel::vfs::{DiskVfs, Vfs as _, WriteFile};
use trommel::{Db, KeySpan, Keyspace};
use trommel_harness::Unit;

use crate::commands::keyspaces::{KeyspaceArgs, OpenKeyspace};
use crate::commands::scan::{RangeArgs, report_skipped};
use crate::commands::store_args::{DegradedArgs, Session, StoreArgs};
use crate::entries::{EntryWriter, Forms, StreamForm};
use crate::failure::Failure;
use crate::text::{KeyForm, ValueForm};

pub(crate) const LONG_ABOUT: &str = "\
Writes all entries of the store, or those of a keyspace or of a range, to a file or to standard \
output. As jsonl and binary, the dump of a store with named keyspaces holds them all, with their \
options; load creates them again.";

pub(crate) const AFTER_HELP: &str = "\
Examples:
  trommel dump --db data all.jsonl                 a file that people and programs read
  trommel dump --db data --as binary all.dump      a smaller one, every byte of it checked
  trommel dump --db data --as text --prefix user:  to standard output
  trommel dump --db data --keyspace users users.jsonl
  trommel dump --db data --as binary - | trommel load --db copy --create -";

#[derive(Debug, Args)]
pub(crate) struct DumpArgs {
    /// The file to write, which must not exist; - is standard output
    #[arg(default_value = "-")]
    file: OsString,
    /// The form of the dump: jsonl, text (key, tab, value), csv or binary (checked)
    #[arg(long = "as", value_name = "FORM", value_enum, default_value = "jsonl")]
    #[arg(hide_possible_values = true)]
    form: StreamForm,
    #[command(flatten)]
    range: RangeArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    #[command(flatten)]
    degraded: DegradedArgs,
    #[command(flatten)]
    key_form: KeyForm,
    #[command(flatten)]
    value_form: ValueForm,
}

pub(crate) fn run(
    args: &DumpArgs,
    session: Session<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let mut missing = Missing::default();
    let over = &mut missing;
    if args.file == "-" {
        if args.form == StreamForm::Binary && io::stdout().is_terminal() {
            return Err(Failure::Usage(
                "a binary dump is not for a terminal: name a file, or redirect it".into(),
            ));
        }
        let write = |db: &Db| write_entries(args, db, session, over, out);
        args.store.read_degraded(session, args.degraded, write)?;
    } else {
        let path = PathBuf::from(&args.file);
        let write = |db: &Db| write_file(args, db, session, over, &path);
        let entries = args.store.read_degraded(session, args.degraded, write)?;
        // Only information: the result is in the file.
        let _ = writeln!(io::stderr(), "{entries} entries in {}", path.display());
    }
    let reported = report_skipped(&missing.spans, args.key_form);
    if !missing.keyspaces {
        return reported;
    }
    let what = "the named keyspaces were not dumped";
    Err(match reported {
        Err(failure) => failure.with(what),
        Ok(()) => Failure::Damaged(what.into()),
    })
}

/// The parts that a dump of a corrupt store leaves out.
#[derive(Default)]
struct Missing {
    /// Keys in doubt.
    spans: Vec<KeySpan>,
    /// Whether it has none of the named keyspaces, because their catalog is corrupt.
    keyspaces: bool,
}

/// Writes the complete file, durably, or none.
fn write_file(
    args: &DumpArgs,
    db: &Db,
    session: Session<'_>,
    missing: &mut Missing,
    path: &Path,
) -> Result<u64, Failure> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            let path = path.display();
            Failure::Other(format!("{path} already exists: remove it, or name another file"))
        }
        _ => Failure::Other(error.to_string()),
    };
    let mut file = FileOutput(DiskVfs.create(path).map_err(failed)?);
    let written =
        write_entries(args, db, session, missing, &mut file).map_err(|failure| match failure {
            Failure::Output(error) => failed(error),
            other => other,
        });
    let result = written.and_then(|entries| file.0.sync().map_err(failed).map(|()| entries));
    if result.is_err() {
        // Report the first failure.
        let _ = DiskVfs.remove(path);
    }
    result
}

struct FileOutput(Box<dyn WriteFile>);

impl Write for FileOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.append(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_entries(
    args: &DumpArgs,
    db: &Db,
    session: Session<'_>,
    missing: &mut Missing,
    out: &mut dyn Write,
) -> Result<u64, Failure> {
    let forms = Forms { key: args.key_form.key_format, value: args.value_form.value_format };
    let out = BufWriter::with_capacity(256 << 10, out);
    let named = named(args, db, missing)?;
    let mut writer = EntryWriter::new(args.form, forms, !named.is_empty(), out)?;
    session.step("dumping", (0, Unit::Entries), || {
        let mut nth = 0u64;
        let mut write_all = |place: &OpenKeyspace<'_>, writer: &mut EntryWriter<_>| {
            let spans = &mut missing.spans;
            let mut entries = args.range.entries(place, args.key_form, args.degraded, spans)?;
            while let Some(entry) = entries.step(false)? {
                let (key, value) = entry?;
                nth += 1;
                writer.write(&key, &value)?;
                if nth.is_multiple_of(1024) {
                    session.go_on()?;
                }
            }
            Ok::<(), Failure>(())
        };
        write_all(&args.keyspace.of(db)?, &mut writer)?;
        for keyspace in named {
            writer.begin_keyspace(keyspace.name(), &keyspace.options())?;
            write_all(&OpenKeyspace::Named(keyspace), &mut writer)?;
        }
        Ok(writer.finish()?)
    })
}

/// The named keyspaces that are dumped after the default one: all, in a dump of the whole store.
fn named(args: &DumpArgs, db: &Db, missing: &mut Missing) -> Result<Vec<Keyspace>, Failure> {
    if args.keyspace.is_given() {
        return Ok(Vec::new());
    }
    let names = match db.list_keyspaces() {
        // The intact part of the default keyspace is dumped in any case.
        Err(error) if args.degraded.is_wanted() => {
            let _ = writeln!(io::stderr(), "the named keyspaces are not dumped: {error}");
            missing.keyspaces = true;
            return Ok(Vec::new());
        }
        names => names?,
    };
    if names.is_empty() || (args.range.is_whole() && args.form.takes_keyspaces()) {
        let open = |name: &String| db.open_keyspace(name).transpose();
        return Ok(names.iter().filter_map(open).collect::<Result<_, _>>()?);
    }
    let names = names.join(", ");
    let _ = writeln!(
        io::stderr(),
        "only the default keyspace is dumped, dump the others with --keyspace: {names}"
    );
    Ok(Vec::new())
}
