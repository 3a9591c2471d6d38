//! `trommel get` and `trommel mget`.

use std::ffi::OsString;
use std::io::{BufRead, Write};

use crate::commands::keyspaces::{KeyspaceArgs, OpenKeyspace};
use crate::commands::store_args::{DegradedArgs, Session, StoreArgs};
use crate::failure::Failure;
use crate::output::{Output, OutputArgs, Value};
use crate::text::{KeyForm, ValueForm};
use clap::Args;

/// Keys per lookup.
const BATCH: usize = 1024;

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// The key, in the form that --key-format says
    key: OsString,
    /// Print the bytes of the value as they are, and nothing else
    #[arg(long, conflicts_with_all = ["format", "value_format"])]
    raw: bool,
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
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run_get(
    args: &GetArgs,
    session: Session<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let key = args.key_form.of_argument(&args.key)?;
    args.store.read_degraded(session, args.degraded, |db| {
        let value = args.keyspace.of(db)?.get(&key)?.ok_or(Failure::NotFound)?;
        if args.raw {
            out.write_all(&value)?;
            return Ok(out.flush()?);
        }
        let mut output = args.output.begin("get", out);
        output.lone("value", args.value_form.print(&value))?;
        Ok(output.finish()?)
    })
}

#[derive(Debug, Args)]
pub(crate) struct MgetArgs {
    /// The keys, in the form that --key-format says; a lone - reads them from standard input, one
    /// per line
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<OsString>,
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
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run_mget(
    args: &MgetArgs,
    session: Session<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    args.store.read_degraded(session, args.degraded, |db| {
        let place = args.keyspace.of(db)?;
        let mut output = args.output.begin("mget", out);
        output.list("entries", &["key", "found", "value"])?;
        let mut all_found = true;
        if args.keys == ["-"] {
            let mut input = session.input()?.lock();
            loop {
                session.go_on()?;
                let keys = read_keys(&mut input, args.key_form)?;
                if keys.is_empty() {
                    break;
                }
                all_found &= look_up(&place, &keys, args, &mut output)?;
            }
        } else {
            let keys = args.keys.iter().map(|key| args.key_form.of_argument(key));
            let keys = keys.collect::<Result<Vec<_>, _>>()?;
            all_found = look_up(&place, &keys, args, &mut output)?;
        }
        output.finish()?;
        if all_found { Ok(()) } else { Err(Failure::NotFound) }
    })
}

/// The next keys of the input, at most a batch of them.
fn read_keys(input: &mut dyn BufRead, form: KeyForm) -> Result<Vec<Vec<u8>>, Failure> {
    let mut keys = Vec::new();
    let mut line = Vec::new();
    while keys.len() < BATCH {
        line.clear();
        let read = input.read_until(b'\n', &mut line);
        if read.map_err(|error| Failure::Other(format!("reading standard input: {error}")))? == 0 {
            break;
        }
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        let key = form.read(text).map_err(|error| {
            let text = String::from_utf8_lossy(text);
            Failure::Other(format!("standard input: the key '{text}' cannot be read: {error}"))
        })?;
        keys.push(key);
    }
    Ok(keys)
}

/// Prints a row for each key; returns whether all are present.
fn look_up(
    place: &OpenKeyspace<'_>,
    keys: &[Vec<u8>],
    args: &MgetArgs,
    output: &mut Output<'_>,
) -> Result<bool, Failure> {
    let values = place.multi_get(keys)?;
    for (key, value) in keys.iter().zip(&values) {
        let text = value.as_ref().map(|value| args.value_form.print(value));
        output.row(vec![
            args.key_form.print(key).into(),
            Value::Bool(value.is_some()),
            text.into(),
        ])?;
    }
    Ok(values.iter().all(Option::is_some))
}
