//! Groups the commands into families for `trommel help`.

use clap::Command;

/// The families, in display order. Commands in no family come last.
const FAMILIES: [(&str, &[&str]); 5] = [
    (
        "Show and measure",
        &["demo", "bench", "compare", "report", "filter-bench", "tune", "stress", "rates"],
    ),
    (
        "Read and write",
        &[
            "get",
            "mget",
            "put",
            "merge",
            "delete",
            "delete-range",
            "scan",
            "changes",
            "load",
            "dump",
            "write-table",
            "ingest",
            "keyspaces",
            "shell",
        ],
    ),
    (
        "Look inside",
        &[
            "top",
            "stats",
            "levels",
            "filters",
            "explain",
            "memory",
            "options",
            "properties",
            "find",
            "sst",
            "log",
            "manifest",
            "files",
        ],
    ),
    (
        "Look after",
        &[
            "flush",
            "compact",
            "rebuild-filters",
            "verify",
            "repair",
            "checkpoint",
            "backup",
            "restore",
            "destroy",
        ],
    ),
    ("The program", &["completions", "man", "help"]),
];

/// The definition of the program, with a help that lists its commands by family.
pub(crate) fn in_families(program: Command) -> Command {
    let commands: Vec<(String, String)> = program
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .map(|command| {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            (command.get_name().to_owned(), about)
        })
        .chain([("help".into(), "Print this, or the help of a command".into())])
        .collect();
    let width = commands.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    let known = |name: &str| FAMILIES.iter().any(|(_, names)| names.contains(&name));
    let others: Vec<&str> =
        commands.iter().map(|(name, _)| &**name).filter(|name| !known(name)).collect();
    for (family, names) in FAMILIES.into_iter().chain([("Others", &*others)]) {
        let found = |name: &&str| commands.iter().find(|(other, _)| other == name);
        let lines: Vec<String> = names
            .iter()
            .filter_map(found)
            .map(|(name, about)| format!("  {name:width$}  {about}\n"))
            .collect();
        if !lines.is_empty() {
            text += &format!("{family}:\n{}\n", lines.concat());
        }
    }
    program.help_template(format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{text}\
         Options:\n{{options}}{{after-help}}"
    ))
}
