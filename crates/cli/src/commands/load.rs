//! `trommel load`.
//!
//! 1. A file is read once to its end, so that a truncated or corrupt dump, an invalid line, or a
//!    keyspace that cannot be loaded, is found before anything is written.
//! 2. All its keyspaces are made, first those that exist with other options, which the store may
//!    refuse to replace.
//! 3. Then its entries are written, in batches. No compaction starts until they exceed the
//!    memtables that fill level 0: a few entries leave the tree as it is, and many do not stay in
//!    level 0. Entries from a pipe are written as they arrive, and after an early end the number of
//!    entries in the store is reported.

use std::ffi::OsString;
use std::io::Write;

use clap::Args;
use trommel::{Db, Keyspace, KeyspaceOptions, MAX_KEY_BYTES, WriteBatch};
use trommel_harness::Unit;

use crate::commands::base::number;
use crate::commands::keyspaces::{KeyspaceArgs, OpenKeyspace};
use crate::commands::store_args::{Session, WriteArgs};
use crate::entries::{EntryReader, Forms, Item, Source, StreamForm};
use crate::failure::Failure;
use crate::output::{OutputArgs, Value};
use crate::text::{KeyForm, ValueForm};

pub(crate) const LONG_ABOUT: &str = "\
Writes the entries of a file or of standard input into the store: the output of dump, or of scan \
as jsonl or csv. The keyspaces of a dump are created with its options if there are none of their \
names; one that exists must have the same options, unless --replace-options is given. A file is \
checked to its end before anything is written. Entries from standard input are written as they \
arrive, and an error reports how many are in the store.";

pub(crate) const AFTER_HELP: &str = "\
Examples:
  trommel load --db data --create all.dump
  printf 'apple\\tred\\npear\\tgreen\\n' | trommel load --db data --create -
  trommel load --db data --as csv --value-format base64 table.csv";

/// Maximum entries, or bytes, of a batch.
const BATCH_ENTRIES: usize = 1000;
const BATCH_BYTES: u64 = 1 << 20;

/// Longest name of a keyspace, and longest key of a keyspace with a name, in bytes.
const MAX_NAME_BYTES: usize = 255;
const MAX_NAMED_KEY_BYTES: usize = MAX_KEY_BYTES - 8;

#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    /// The file to read; - is standard input
    file: OsString,
    /// Its form: jsonl, text (key, tab, value), csv or binary [default: jsonl, binary or text,
    /// according to its first bytes]
    #[arg(long = "as", value_name = "FORM", value_enum, hide_possible_values = true)]
    form: Option<StreamForm>,
    /// Create the store if the directory is missing or empty
    #[arg(long)]
    create: bool,
    /// Replace the options of keyspaces that exist by those of the dump
    #[arg(long)]
    replace_options: bool,
    #[command(flatten)]
    write: WriteArgs,
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    #[command(flatten)]
    key_form: KeyForm,
    #[command(flatten)]
    value_form: ValueForm,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(
    args: &LoadArgs,
    session: Session<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let source = session.source(&args.file)?;
    let forms = Forms { key: args.key_form.key_format, value: args.value_form.value_format };
    let open = || EntryReader::open(&source, args.form, forms);
    let rules = Rules { one: args.keyspace.is_given(), replace: args.replace_options };
    let Contents { entries: total, keyspaces } = match &source {
        Source::StandardInput(_) => Contents::default(),
        Source::File(_) => {
            session.step("checking", (0, Unit::Entries), || check(&mut open()?, rules, session))?
        }
    };
    let mut reader = open()?;
    let loaded = args.write.make_and(session, args.create, |db| {
        let (before, place) = (db.options(), args.keyspace.of(db)?);
        rules.make_all(db, &keyspaces)?;
        let load = || load(&mut reader, db, place, rules, session);
        let loaded = session.step("loading", (total, Unit::Entries), load);
        db.set_options(|_| before)?;
        let loaded = loaded?;
        db.sync()?;
        Ok(loaded)
    })?;
    let mut output = args.output.begin("load", out);
    output.record("", &[("entries", Value::Count(loaded))])?;
    Ok(output.finish()?)
}

/// What may be loaded.
#[derive(Clone, Copy)]
struct Rules {
    /// The entries must be of one keyspace, which was named.
    one: bool,
    /// Options of existing keyspaces are replaced.
    replace: bool,
}

/// A file to load.
#[derive(Default)]
struct Contents {
    entries: u64,
    keyspaces: Vec<(String, KeyspaceOptions)>,
}

impl Rules {
    /// Checks the name of a keyspace of the input.
    fn check_name(self, name: &str) -> Result<(), Failure> {
        if self.one {
            return Err(Failure::Usage(format!(
                "the dump has the keyspace \"{name}\": load it without --keyspace, which creates \
                 its keyspaces"
            )));
        }
        if (1..=MAX_NAME_BYTES).contains(&name.len()) {
            return Ok(());
        }
        let bytes = name.len();
        Err(Failure::Other(format!(
            "the name of a keyspace has {bytes} bytes, it must have 1 to {MAX_NAME_BYTES}"
        )))
    }

    /// Makes these keyspaces, or none if that can be known in advance.
    fn make_all(self, db: &Db, all: &[(String, KeyspaceOptions)]) -> Result<(), Failure> {
        let mut differing = Vec::new();
        for (name, options) in all {
            differing.push(self.differs(db, name, options)?);
        }
        for wanted in [true, false] {
            let some = all.iter().zip(&differing).filter(|(_, differs)| **differs == wanted);
            for ((name, options), _) in some {
                self.make(db, name, options)?;
            }
        }
        Ok(())
    }

    /// The keyspace of this name, which has these options then.
    fn make(self, db: &Db, name: &str, options: &KeyspaceOptions) -> Result<Keyspace, Failure> {
        let has_them = !self.differs(db, name, options)?;
        match db.open_keyspace(name)?.filter(|_| has_them) {
            Some(keyspace) => Ok(keyspace),
            None => Ok(db.keyspace(name, options.clone())?),
        }
    }

    /// Whether there is such a keyspace, with other options, which may be replaced.
    fn differs(self, db: &Db, name: &str, wanted: &KeyspaceOptions) -> Result<bool, Failure> {
        let Some(keyspace) = db.open_keyspace(name)? else { return Ok(false) };
        let (there, wanted) = (keyspace.options().settings(), wanted.settings());
        if there == wanted || self.replace {
            return Ok(there != wanted);
        }
        let other = |these: &[(&'static str, String)], those: &[(&'static str, String)]| {
            let others = these.iter().filter(|one| !those.contains(one));
            let texts: Vec<_> = others.map(|(name, value)| format!("{name}={value}")).collect();
            if texts.is_empty() { "the store's defaults".to_owned() } else { texts.join(" ") }
        };
        let (here, there) = (other(&wanted, &there), other(&there, &wanted));
        Err(Failure::Usage(format!(
            "the keyspace \"{name}\" is there with other options: it has {there}, the dump {here} \
             (--replace-options replaces them)"
        )))
    }
}

/// Refuses a key that its keyspace cannot hold.
fn check_key(key: &[u8], is_named: bool) -> Result<(), Failure> {
    if !is_named || key.len() <= MAX_NAMED_KEY_BYTES {
        return Ok(());
    }
    let bytes = key.len();
    Err(Failure::Other(format!(
        "a key of {bytes} bytes is too long: at most {MAX_NAMED_KEY_BYTES} bytes in a keyspace with \
         a name"
    )))
}

/// Reads the whole file.
fn check(
    reader: &mut EntryReader,
    rules: Rules,
    session: Session<'_>,
) -> Result<Contents, Failure> {
    let mut contents = Contents::default();
    while let Some(item) = reader.next_item()? {
        match item {
            Item::Keyspace(name, options) => {
                rules.check_name(&name)?;
                contents.keyspaces.push((name, options));
                continue;
            }
            Item::Entry(key, _) => {
                check_key(&key, rules.one || !contents.keyspaces.is_empty())?;
                contents.entries += 1;
            }
        }
        if contents.entries % 1024 == 0 {
            session.go_on()?;
        }
    }
    Ok(contents)
}

/// Writes all entries; returns their number.
fn load<'a>(
    reader: &mut EntryReader,
    db: &'a Db,
    mut place: OpenKeyspace<'a>,
    rules: Rules,
    session: Session<'_>,
) -> Result<u64, Failure> {
    let (mut loaded, mut bytes) = (0, 0);
    let options = db.options();
    let few = number(&options, "write_buffer_bytes") * number(&options, "l0_trigger");
    loop {
        let (batch, batch_bytes, end) = next_batch(reader, &place);
        let entries = batch.len() as u64;
        let was_few = bytes <= few;
        bytes += batch_bytes;
        if was_few && bytes > few {
            db.set_options(|options| options.compaction(|c| c.auto_compaction(true)))?;
        }
        let written =
            if entries == 0 { Ok(()) } else { db.write(batch).map(drop).map_err(Failure::from) };
        let outcome = written.and_then(|()| {
            loaded += entries;
            session.control.progress.advance(entries);
            session.go_on()?;
            match end? {
                End::OfBatch => {}
                End::OfInput => return Ok(true),
                End::AtKeyspace(name, options) => {
                    rules.check_name(&name)?;
                    place = OpenKeyspace::Named(rules.make(db, &name, &options)?);
                }
            }
            Ok(false)
        });
        match outcome {
            Ok(false) => {}
            Ok(true) => return Ok(loaded),
            Err(failure) => {
                return Err(failure.with(format!("{loaded} entries before that were loaded")));
            }
        }
    }
}

/// Where a batch ends.
enum End {
    OfBatch,
    OfInput,
    /// At the beginning of a named keyspace.
    AtKeyspace(String, KeyspaceOptions),
}

/// The next batch, its size, and the item after it, or the error of the input there.
fn next_batch(
    reader: &mut EntryReader,
    place: &OpenKeyspace<'_>,
) -> (WriteBatch, u64, Result<End, Failure>) {
    let mut batch = WriteBatch::new();
    let mut bytes = 0;
    while batch.len() < BATCH_ENTRIES && bytes < BATCH_BYTES {
        match reader.next_item() {
            Ok(Some(Item::Entry(key, value))) => {
                bytes += (key.len() + value.len()) as u64;
                place.put(&mut batch, &key, &value);
            }
            Ok(Some(Item::Keyspace(name, options))) => {
                return (batch, bytes, Ok(End::AtKeyspace(name, options)));
            }
            Ok(None) => return (batch, bytes, Ok(End::OfInput)),
            Err(failure) => return (batch, bytes, Err(failure)),
        }
    }
    (batch, bytes, Ok(End::OfBatch))
}
