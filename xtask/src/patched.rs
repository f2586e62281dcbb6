//! A copy of some crates of this workspace with a planted bug: a separate workspace under `target`.
//! Files that have not changed since the last run are not written, so that cargo rebuilds only
//! changed crates.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Outcome;
use crate::command::{Line, root, target};

pub(crate) struct Patched(PathBuf);

impl Patched {
    /// Copies crates, given by their directories relative to the root.
    pub(crate) fn make(name: &str, crates: &[impl AsRef<str>]) -> Result<Patched, String> {
        let copy = PathBuf::from(target(name));
        let crates = || crates.iter().map(AsRef::as_ref);
        for dir in crates() {
            sync_tree(&root().join(dir), &copy.join(dir))?;
        }
        let all = r#"members = ["bench", "crates/*", "xtask"]"#;
        let members: Vec<String> = crates().map(|dir: &str| format!("\"{dir}\"")).collect();
        let manifest = read(&root().join("Cargo.toml"))?
            .replace(all, &format!("members = [{}]", members.join(", ")));
        // They are not in the copy.
        let lines = manifest.lines().filter(|line| !line.starts_with("default-members = "));
        let manifest: String = lines.flat_map(|line| [line, "\n"]).collect();
        sync_file(&copy.join("Cargo.toml"), manifest.as_bytes())?;
        sync_file(&copy.join("Cargo.lock"), read(&root().join("Cargo.lock"))?.as_bytes())?;
        Ok(Patched(copy))
    }

    /// Copies a file or directory that the sources of a crate include.
    pub(crate) fn add(&self, path: &str) -> Outcome {
        let (from, to) = (root().join(path), self.0.join(path));
        match from.is_dir() {
            true => sync_tree(&from, &to),
            false => sync_file(&to, read(&from)?.as_bytes()),
        }
    }

    /// Changes a file until the next copy.
    pub(crate) fn change(
        &self,
        file: &str,
        change: impl FnOnce(&str) -> Result<String, String>,
    ) -> Outcome {
        let file = self.0.join(file);
        let text = change(&read(&file)?).map_err(|why| format!("{}: {why}", file.display()))?;
        write(&file, &text)
    }

    /// Calls `act` while `to` replaces the only `from` in the file, and returns its result.
    pub(crate) fn with<T>(
        &self,
        file: &str,
        from: &str,
        to: &str,
        act: impl FnOnce() -> Result<T, String>,
    ) -> Result<T, String> {
        let file = self.0.join(file);
        let text = read(&file)?;
        if text.matches(from).count() != 1 {
            return Err(format!("{} has not one `{from}`", file.display()));
        }
        write(&file, &text.replacen(from, to, 1))?;
        let answer = act();
        write(&file, &text)?;
        answer
    }

    /// Returns a cargo command in the copy. It builds in a target directory that no other gate
    /// uses: cargo gives the artifacts of a copy the names of those of the tree, and gates run side
    /// by side. So one would run a program that another has just built.
    pub(crate) fn cargo(&self, arguments: &str, built_in: &str) -> Line {
        Line::cargo(arguments)
            .argument("--manifest-path".to_owned())
            .argument(self.0.join("Cargo.toml").display().to_string())
            .argument("--target-dir".to_owned())
            .argument(target(built_in))
            .variable("RUST_BACKTRACE", "0")
    }
}

/// Makes `to` identical to `from`. Writes only files that differ.
fn sync_tree(from: &Path, to: &Path) -> Outcome {
    let error = |error| format!("{} to {}: {error}", from.display(), to.display());
    fs::create_dir_all(to).map_err(error)?;
    for entry in fs::read_dir(to).map_err(error)? {
        let old = entry.map_err(error)?.path();
        let new = from.join(old.file_name().unwrap_or_default());
        if old.is_dir() && !new.is_dir() {
            fs::remove_dir_all(&old).map_err(error)?;
        } else if !old.is_dir() && !new.is_file() {
            fs::remove_file(&old).map_err(error)?;
        }
    }
    for entry in fs::read_dir(from).map_err(error)? {
        let entry = entry.map_err(error)?;
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            sync_tree(&entry.path(), &target)?;
        } else {
            sync_file(&target, &fs::read(entry.path()).map_err(error)?)?;
        }
    }
    Ok(())
}

fn sync_file(path: &Path, content: &[u8]) -> Outcome {
    if fs::read(path).is_ok_and(|old| old == content) {
        return Ok(());
    }
    fs::write(path, content).map_err(|error| format!("{}: {error}", path.display()))
}

pub(crate) fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn write(path: &Path, text: &str) -> Outcome {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::{read, sync_tree, write};
    use std::fs;

    #[test]
    fn a_copy_follows_its_source_and_keeps_unchanged_files() {
        let place = std::env::temp_dir().join(format!("xtask-sync-{}", std::process::id()));
        let (from, to) = (place.join("from"), place.join("to"));
        fs::create_dir_all(from.join("a")).unwrap();
        write(&from.join("a/same"), "1").unwrap();
        write(&from.join("a/other"), "2").unwrap();
        sync_tree(&from, &to).unwrap();
        let modified = |name| fs::metadata(to.join(name)).unwrap().modified().unwrap();
        let before = modified("a/same");
        write(&to.join("a/other"), "a planted bug").unwrap();
        write(&to.join("gone"), "").unwrap();
        sync_tree(&from, &to).unwrap();
        let found =
            (read(&to.join("a/other")).unwrap(), modified("a/same"), to.join("gone").exists());
        fs::remove_dir_all(&place).unwrap();
        assert_eq!(found, ("2".to_owned(), before, false));
    }
}
