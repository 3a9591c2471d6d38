//! Parses the locations of repositories.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::directory::Directory;
use crate::error::{Error, Result};
use crate::target::Target;

/// The target at `location`: a directory, as a path or as `file:///path`; or, with the feature
/// `object-store`, `s3://bucket/prefix`, with credentials, region and endpoint from the environment
/// (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, `AWS_ENDPOINT`).
///
/// # Errors
/// [`Error::Location`] lists the valid forms.
pub fn target_at(location: &str) -> Result<Arc<dyn Target>> {
    let Some((scheme, rest)) = location.split_once("://") else {
        return directory(location, location);
    };
    match scheme {
        "file" if !rest.starts_with('/') => Err(Error::Location {
            what: format!("{location}: write a file URL with three slashes: file:///path"),
        }),
        "file" => directory(location, rest),
        "s3" | "s3a" => s3(location),
        _ => Err(Error::Location {
            what: format!(
                "{location}: a repository is a directory (a path, or file:///path) or an S3 \
                 bucket (s3://bucket/prefix)"
            ),
        }),
    }
}

/// Refuses a repository inside the store in `store`, or around it: deleting one would affect the
/// other, and a copy of either would include both.
///
/// # Errors
/// [`Error::Nested`] says which of the two it is.
pub fn refuse_nested(target: &dyn Target, store: &Path) -> Result<()> {
    let Some(place) = target.directory() else { return Ok(()) };
    let (inner, outer) = (real(place), real(store));
    let how = if inner.starts_with(&outer) {
        "is inside the directory of the store"
    } else if outer.starts_with(&inner) {
        "contains the store"
    } else {
        return Ok(());
    };
    let what = format!(
        "the repository {} {how} ({}): put it elsewhere, preferably on another disk",
        place.display(),
        store.display()
    );
    Err(Error::Nested { what })
}

/// Resolves the links and dots of a path, as far as it exists.
fn real(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    for above in absolute.ancestors() {
        if let (Ok(found), Ok(rest)) = (above.canonicalize(), absolute.strip_prefix(above)) {
            return found.join(rest);
        }
    }
    absolute
}

fn directory(location: &str, path: &str) -> Result<Arc<dyn Target>> {
    if path.is_empty() {
        let what = format!("{location:?} does not name a directory");
        return Err(Error::Location { what });
    }
    Ok(Arc::new(Directory::new(Path::new(path))))
}

#[cfg(feature = "object-store")]
fn s3(location: &str) -> Result<Arc<dyn Target>> {
    Ok(Arc::new(crate::objects::Objects::s3(location)?))
}

#[cfg(not(feature = "object-store"))]
fn s3(location: &str) -> Result<Arc<dyn Target>> {
    Err(Error::Location {
        what: format!(
            "{location}: this build supports only directories; build it with the feature \
             object-store for S3 (from the sources: cargo install --path crates/cli --features \
             object-store)"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_parsed_or_refused() {
        for (location, place) in
            [("backups", "backups"), ("/a/b", "/a/b"), ("file:///a/b", "/a/b"), ("a:b", "a:b")]
        {
            assert_eq!(target_at(location).unwrap().place(), place);
        }
        for (location, what) in [
            ("", "not name a directory"),
            ("file://", "three slashes"),
            ("file://a/b", "three slashes"),
            ("gs://bucket", "s3://bucket/prefix"),
        ] {
            let error = target_at(location).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }

    #[test]
    fn a_nested_repository_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |name: &str| scratch.path().join(name);
        std::fs::create_dir_all(at("a/store")).unwrap();
        std::os::unix::fs::symlink(at("a/store"), at("link")).unwrap();
        for (place, expected) in [
            ("a/store", Some("is inside")),
            ("a/store/x/new", Some("is inside")),
            ("link/backups", Some("is inside")),
            ("a", Some("contains the store")),
            ("a/store2", None),
            ("a/backups", None),
        ] {
            let target = target_at(at(place).to_str().unwrap()).unwrap();
            let refused = refuse_nested(&*target, &at("a/store")).err();
            let text = refused.map(|error| error.to_string()).unwrap_or_default();
            assert_eq!(text.is_empty(), expected.is_none(), "{place}: {text}");
            assert!(text.contains(expected.unwrap_or_default()), "{place}: {text}");
        }
    }

    #[cfg(not(feature = "object-store"))]
    #[test]
    fn without_the_feature_s3_says_what_to_build() {
        let error = target_at("s3://bucket/x").unwrap_err().to_string();
        assert!(error.contains("--path crates/cli --features object-store"), "{error}");
    }
}
