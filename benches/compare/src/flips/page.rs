//! The page with the counts.

use std::fmt::Write as _;

use trommel_harness::table::Table;

use crate::Line;
use crate::stores::ALL;

const VERDICTS: [&str; 6] = ["OK", "ERR", "LOST", "WRONG", "CRASH", "HANG"];

pub(crate) fn page(lines: &[Line], budget: usize) -> String {
    let mut out = format!(
        "# One flipped bit\n\n\
         What stores make of one flipped bit in one of their files.\n\n\
         ```sh\n\
         cargo run --release --manifest-path benches/compare/Cargo.toml --bin flips -- \\\n    \
         --budget {budget} --out docs/measurements\n\
         ```\n\n\
         wrote this page and [one-bit-flip.jsonl](../../benches/records/one-bit-flip.jsonl). Pairs are written one at a \
         time, each synced or\ncommitted before the next. *killed*: 200 pairs, and the process is \
         killed; *closed*: 200 pairs, and\nthe store is closed in order; *flushed*: 2,000 pairs, \
         written out as tables where a store has them, and closed.\nThen one bit is flipped, in at \
         most {budget} bytes evenly spread over each file (every byte of smaller files;\nzeros \
         behind the last other byte are left alone), and the store is opened in a process of its \
         own, asked for\nevery key, and scanned. Each flip begins with the same files.\n\n\
         *OK*: all is right. *ERR*: a call failed, and all that was answered is right. *LOST*: a key \
         that was synced is\nsaid not to be there. *WRONG*: another value or key was answered. \
         *CRASH*: the process died. *HANG*: nothing\nwithin ten seconds. The worst of them counts.\n\n\
         Rivals have their defaults, but for syncs; rows with a `+` behind the name are the same \
         files read with\nwhat their documentation offers against damage:\n\n"
    );
    for contender in ALL {
        let _ = writeln!(out, "* `{}`: {}", contender.name, contender.about);
    }
    let mut all = Table::new(["store", "version"].into_iter().chain(VERDICTS), 2);
    for contender in ALL {
        let own: Vec<&Line> = lines.iter().filter(|line| line.store == contender.name).collect();
        let Some(first) = own.first() else { continue };
        all.row([first.store.clone(), first.version.clone()].into_iter().chain(counts(&own)));
    }
    let mut by_file =
        Table::new(["store", "scene", "file (N: a number)"].into_iter().chain(VERDICTS), 3);
    for line in lines.iter().filter(|line| line.flips > 0) {
        let file = format!("`{}`", line.file);
        by_file
            .row([line.store.clone(), line.scene.clone(), file].into_iter().chain(counts(&[line])));
    }
    let (all, by_file) = (all.markdown(), by_file.markdown());
    out + &format!("\n## All files\n\n{all}\n## By file\n\n{by_file}")
}

/// The sums over `lines`, with results that must not happen in bold.
fn counts(lines: &[&Line]) -> impl Iterator<Item = String> {
    VERDICTS.into_iter().enumerate().map(|(nth, verdict)| {
        let count: u64 = lines.iter().filter_map(|line| line.verdicts.get(verdict)).sum();
        if nth < 2 || count == 0 { count.to_string() } else { format!("**{count}**") }
    })
}
