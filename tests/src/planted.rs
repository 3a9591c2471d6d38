//! The catalogue of planted bugs, `tests/planted/*.toml`: known bugs of other stores, each as edits
//! of our sources.
//!
//! An edit replaces a text that occurs exactly once in its file by the same code with the bug in
//! it, behind `trommel_base::planted::is("Name")`. All bugs are planted in one copy of the sources,
//! and one of them is chosen at run time (`tests/planted/switch.rs`). Edits of one file are applied
//! in the order of the catalogue; no edit may depend on another one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;

/// The files of the catalogue, in its order.
const FILES: [&str; 17] = [
    "durability.toml",
    "recovery.toml",
    "engine.toml",
    "ranges.toml",
    "expiry.toml",
    "transactions.toml",
    "tables.toml",
    "range_filters.toml",
    "memtable.toml",
    "keyspaces.toml",
    "merges.toml",
    "following.toml",
    "seeds.toml",
    "changes.toml",
    "ingest.toml",
    "watching.toml",
    "raft.toml",
];

/// What a replacement calls to learn whether a bug is the active one.
const SWITCH: &str = "trommel_base::planted::is(\"";

/// A bug that can be planted.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bug {
    /// Its name, by which `TROMMEL_PLANTED` chooses it.
    pub name: String,
    /// What it does.
    pub what: String,
    /// Where it was seen before.
    pub seen: String,
    /// The test that was written for it, if there is one: it fails sooner than a lane that finds
    /// the bug.
    pub test: Option<String>,
    #[serde(rename = "edit")]
    edits: Vec<Edit>,
}

/// A change of one file that plants a bug, or a part of it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Edit {
    /// The file, below the root.
    file: String,
    find: String,
    replace: String,
}

impl Edit {
    fn names(&self, bug: &str) -> bool {
        self.replace.contains(&format!("{SWITCH}{bug}\")"))
    }
}

/// All bugs that can be planted.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Catalogue {
    #[serde(rename = "bug")]
    bugs: Vec<Bug>,
}

impl Catalogue {
    /// Reads the catalogue of the repository at `root`.
    ///
    /// # Errors
    /// If a file cannot be read or parsed, or if the bugs are not consistent: a name that is used
    /// twice, an edit that names a bug that is not there, a bug that no edit names.
    pub fn load(root: &Path) -> Result<Self, String> {
        let mut bugs = Vec::new();
        for name in FILES {
            let path = root.join("tests/planted").join(name);
            let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
            let text = std::fs::read_to_string(&path).map_err(|error| failed(&error))?;
            let part: Self = toml::from_str(&text).map_err(|error| failed(&error))?;
            bugs.extend(part.bugs);
        }
        Self { bugs }.checked()
    }

    fn checked(self) -> Result<Self, String> {
        let mut names = BTreeSet::new();
        if let Some(bug) = self.bugs.iter().find(|bug| !names.insert(&*bug.name)) {
            return Err(format!("there are two bugs of the name {}", bug.name));
        }
        for bug in &self.bugs {
            if !bug.edits.iter().any(|edit| edit.names(&bug.name)) {
                return Err(format!("{}: no edit of it contains {SWITCH}{0}\")", bug.name));
            }
            let switches = bug.edits.iter().flat_map(|edit| edit.replace.split(SWITCH).skip(1));
            let unknown = switches.filter_map(|rest| rest.split('"').next());
            if let Some(name) = unknown.into_iter().find(|name| !names.contains(name)) {
                return Err(format!(
                    "{}: an edit names {name}, and there is no such bug",
                    bug.name
                ));
            }
        }
        Ok(self)
    }

    /// All bugs.
    pub fn bugs(&self) -> &[Bug] {
        &self.bugs
    }

    /// The bug of this name.
    pub fn bug(&self, name: &str) -> Option<&Bug> {
        self.bugs.iter().find(|bug| bug.name == name)
    }

    /// The files in which `bug` is planted, below the root: those of its edits, and of edits of
    /// other bugs that also name it.
    pub fn sites(&self, bug: &Bug) -> BTreeSet<&str> {
        let is_its = |owner: &Bug, edit: &Edit| owner.name == bug.name || edit.names(&bug.name);
        let edits = self.bugs.iter().flat_map(|owner| owner.edits.iter().map(move |e| (owner, e)));
        edits.filter(|(owner, edit)| is_its(owner, edit)).map(|(_, edit)| &*edit.file).collect()
    }

    /// The files that are edited, below `root`, each with every bug planted in it.
    ///
    /// # Errors
    /// Every edit that does not apply: its text does not occur exactly once in its file, with the
    /// edits before it and without.
    pub fn planted(&self, root: &Path) -> Result<BTreeMap<&str, String>, String> {
        let mut originals = BTreeMap::new();
        let mut errors = Vec::new();
        let edits = self.bugs.iter().flat_map(|bug| &bug.edits);
        for file in edits.map(|edit| &*edit.file).collect::<BTreeSet<_>>() {
            let path = root.join(file);
            match std::fs::read_to_string(&path) {
                Ok(text) => _ = originals.insert(file, text),
                Err(error) => errors.push(format!("{}: {error}", path.display())),
            }
        }
        let mut planted = originals.clone();
        for bug in &self.bugs {
            for edit in &bug.edits {
                let texts = (originals.get(&*edit.file), planted.get_mut(&*edit.file));
                let (Some(original), Some(text)) = texts else { continue };
                match replaced(text, edit).and_then(|new| replaced(original, edit).map(|_| new)) {
                    Ok(new) => *text = new,
                    Err(what) => errors.push(format!("{}: {what}", bug.name)),
                }
            }
        }
        if errors.is_empty() { Ok(planted) } else { Err(errors.join("\n")) }
    }
}

/// `text` with an edit applied.
fn replaced(text: &str, edit: &Edit) -> Result<String, String> {
    match text.matches(&edit.find).count() {
        1 => Ok(text.replacen(&edit.find, &edit.replace, 1)),
        count => {
            let (file, find) = (&edit.file, edit.find.trim_end());
            Err(format!("this text occurs {count} times in {file}, not exactly once:\n{find}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bug(name: &str, edits: &[(&str, &str)]) -> Bug {
        let edit = |(find, replace): &(&str, &str)| Edit {
            file: "src/lib.rs".to_owned(),
            find: (*find).to_owned(),
            replace: (*replace).to_owned(),
        };
        let edits = edits.iter().map(edit).collect();
        let (what, seen) = (String::new(), String::new());
        Bug { name: name.to_owned(), what, seen, test: None, edits }
    }

    const A: &str = "if trommel_base::planted::is(\"A\") {}";

    #[test]
    fn an_edit_applies_where_its_text_occurs_once() {
        let edit = |find| bug("A", &[(find, A)]).edits.remove(0);
        assert_eq!(replaced("x\ny\n", &edit("x\n")), Ok(format!("{A}y\n")));
        let twice = replaced("x\nx\n", &edit("x\n")).unwrap_err();
        assert_eq!(twice, "this text occurs 2 times in src/lib.rs, not exactly once:\nx");
        assert!(replaced("y\n", &edit("x\n")).is_err());
    }

    #[test]
    fn a_catalogue_is_consistent() {
        let of = |bugs: &[Bug]| Catalogue { bugs: bugs.to_vec() }.checked();
        assert!(of(&[bug("A", &[("x", A), ("y", "z")])]).is_ok());
        for bugs in [
            vec![bug("A", &[("x", A)]), bug("A", &[("y", A)])],
            vec![bug("A", &[("x", "y")])],
            vec![bug("A", &[("x", A), ("y", "trommel_base::planted::is(\"B\")")])],
        ] {
            assert!(of(&bugs).is_err(), "{bugs:?}");
        }
    }
}
