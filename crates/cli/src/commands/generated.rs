//! `trommel completions` and `trommel man`: output generated from the definition of the command
//! line.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::failure::Failure;

pub(crate) const COMPLETIONS_HELP: &str = "\
Examples:
  trommel completions bash > ~/.local/share/bash-completion/completions/trommel
  trommel completions zsh > ~/.zfunc/_trommel
  trommel completions fish > ~/.config/fish/completions/trommel.fish";

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Prints the completions of `program`, the definition of the command line.
pub(crate) fn run_completions(
    args: &CompletionsArgs,
    mut program: Command,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    // Into memory first: the generator panics if the reader is gone.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut program, "trommel", &mut script);
    out.write_all(&script)?;
    Ok(out.flush()?)
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The command (and its subcommand) to print the page of [default: the program itself]
    #[arg(value_name = "COMMAND", conflicts_with = "dir")]
    command: Vec<String>,
    /// Write the pages of all commands to files in DIR
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Prints or writes the pages of `program`, the definition of the command line.
pub(crate) fn run_man(
    args: &ManArgs,
    program: Command,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let program = program.name("trommel");
    if let Some(dir) = &args.dir {
        let write = || {
            std::fs::create_dir_all(dir)?;
            clap_mangen::generate_to(program, dir)
        };
        return write().map_err(|error| {
            Failure::Other(format!("man pages cannot be written to {}: {error}", dir.display()))
        });
    }
    let mut program = program.disable_help_subcommand(true);
    program.build();
    let mut command: &Command = &program;
    for name in &args.command {
        command = command.find_subcommand(name).ok_or_else(|| {
            Failure::Usage(format!("there is no command '{name}': `trommel help` lists them"))
        })?;
    }
    Man::new(command.clone()).render(out)?;
    Ok(out.flush()?)
}
