//! A copy of the repository in which every bug of the catalogue is planted and none is active.
//!
//! 1. Each edit is applied to the text of its file; one that does not apply is an error.
//! 2. The module that chooses a bug at run time is added to `crates/base`.
//! 3. The copy is brought up to date: files whose bytes differ are written, files that are gone are
//!    removed. All others keep their times, so that only what depends on a change is built again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use trommel_tests::planted::Catalogue;

use crate::binaries::{Outcome, root};
use crate::job::scratch;

/// The module that chooses a bug, and where the copy has it.
const SWITCH: &str = "tests/planted/switch.rs";
const SWITCH_IN_COPY: &str = "crates/base/src/planted.rs";
const BASE: &str = "crates/base/src/lib.rs";

/// Brings the copy up to date; its root.
pub(crate) fn update(catalogue: &Catalogue) -> Outcome<PathBuf> {
    let copy = scratch("planted-copy")?;
    let mut contents = BTreeMap::new();
    for file in files(&root())? {
        let content = fs::read(root().join(&file)).map_err(|error| failed(&file, &error))?;
        contents.insert(file, content);
    }
    for (file, text) in catalogue.planted(&root())? {
        contents.insert(file.into(), text.into_bytes());
    }
    let switch = contents.get(Path::new(SWITCH)).cloned();
    contents.insert(SWITCH_IN_COPY.into(), switch.ok_or_else(|| format!("no {SWITCH}"))?);
    let base = contents.get_mut(Path::new(BASE)).ok_or_else(|| format!("no {BASE}"))?;
    base.extend_from_slice(b"\npub mod planted;\n");
    for file in files(&copy)?.iter().filter(|file| !contents.contains_key(*file)) {
        fs::remove_file(copy.join(file)).map_err(|error| failed(file, &error))?;
    }
    for (file, content) in &contents {
        write(&copy.join(file), content).map_err(|error| failed(file, &error))?;
    }
    Ok(copy)
}

/// Writes `content`, unless the file has it.
fn write(path: &Path, content: &[u8]) -> std::io::Result<()> {
    if fs::read(path).is_ok_and(|before| before == content) {
        return Ok(());
    }
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    fs::write(path, content)
}

/// All files below `root`, as seen from there, except what is built and what is hidden.
fn files(root: &Path) -> Outcome<BTreeSet<PathBuf>> {
    let (mut found, mut folders) = (BTreeSet::new(), vec![root.to_path_buf()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(|error| failed(&folder, &error))? {
            let path = entry.map_err(|error| failed(&folder, &error))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name == "target" || name.starts_with('.') {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(file) = path.strip_prefix(root) {
                found.insert(file.to_path_buf());
            }
        }
    }
    Ok(found)
}

fn failed(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::switch;

    #[test]
    fn no_bug_is_active_unless_the_environment_names_it() {
        assert!(!switch::is("TableNotSynced"));
        assert_eq!(switch::delayed(1), 1);
    }

    #[test]
    fn a_copy_has_the_sources_and_nothing_that_is_built() {
        let files = files(&root()).unwrap();
        assert!(files.contains(Path::new(BASE)) && files.contains(Path::new(SWITCH)));
        let is_built = |file: &PathBuf| file.starts_with("target") || file.starts_with(".git");
        assert!(!files.iter().any(is_built));
    }
}
