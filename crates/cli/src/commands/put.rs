//! `trommel put` and `trommel delete`.

use std::ffi::OsString;
use std::io::Read as _;

use clap::Args;
use trommel::{WriteBatch, WriteOptions};

use crate::commands::store_args::{Session, WriteArgs};
use crate::failure::Failure;
use crate::text::{KeyForm, ValueForm};

#[derive(Debug, Args)]
pub(crate) struct PutArgs {
    /// The key, in the form that --key-format says
    key: OsString,
    /// The value, in the form that --value-format says; - takes standard input, byte for byte
    #[arg(allow_hyphen_values = true)]
    value: OsString,
    /// Return once the write is on the device
    #[arg(long)]
    sync: bool,
    /// Make the store if the directory is missing or empty
    #[arg(long)]
    create: bool,
    #[command(flatten)]
    write: WriteArgs,
    #[command(flatten)]
    key_form: KeyForm,
    #[command(flatten)]
    value_form: ValueForm,
}

pub(crate) fn run_put(args: &PutArgs, session: Session<'_>) -> Result<(), Failure> {
    let key = args.key_form.of_argument(&args.key)?;
    let value = if args.value == "-" {
        let mut value = Vec::new();
        let read = session.input()?.lock().read_to_end(&mut value);
        read.map_err(|error| Failure::Other(format!("reading standard input: {error}")))?;
        value
    } else {
        args.value_form.of_argument(&args.value)?
    };
    args.write.make_and(session, args.create, |db| {
        db.put_with(&key, &value, durability(args.sync))?;
        Ok(())
    })
}

#[derive(Debug, Args)]
pub(crate) struct DeleteArgs {
    /// The keys, in the form that --key-format says; all of them go, or none
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<OsString>,
    /// Return once the write is on the device
    #[arg(long)]
    sync: bool,
    #[command(flatten)]
    write: WriteArgs,
    #[command(flatten)]
    key_form: KeyForm,
}

pub(crate) fn run_delete(args: &DeleteArgs, session: Session<'_>) -> Result<(), Failure> {
    let mut batch = WriteBatch::new();
    for key in &args.keys {
        batch.delete(args.key_form.of_argument(key)?);
    }
    args.write.write(session, |db| {
        db.write_with(batch, durability(args.sync))?;
        Ok(())
    })
}

fn durability(sync: bool) -> WriteOptions {
    if sync { WriteOptions::sync() } else { WriteOptions::new() }
}
