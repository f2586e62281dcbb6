//! A copy of some of our crates, in which a bug is planted: a workspace of its own under `target`,
//! which is made anew each time.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Outcome;
use crate::command::{Line, root, target};

pub(crate) struct Patched(PathBuf);

impl Patched {
    /// Copies crates, by their directories below the root.
    pub(crate) fn make(name: &str, crates: &[&str]) -> Result<Patched, String> {
        let copy = PathBuf::from(target(name));
        for dir in crates {
            let package = copy.join(dir);
            if package.exists() {
                let error = |error| format!("{}: {error}", package.display());
                fs::remove_dir_all(&package).map_err(error)?;
            }
            copy_tree(&root().join(dir), &package)?;
        }
        let all = r#"members = ["bench", "crates/*", "xtask"]"#;
        let members: Vec<String> = crates.iter().map(|dir| format!("\"{dir}\"")).collect();
        let manifest = read(&root().join("Cargo.toml"))?
            .replace(all, &format!("members = [{}]", members.join(", ")))
            .replace("default-members = [\"crates/forebay-cli\"]\n", "");
        write(&copy.join("Cargo.toml"), &manifest)?;
        write(&copy.join("Cargo.lock"), &read(&root().join("Cargo.lock"))?)?;
        Ok(Patched(copy))
    }

    /// What `act` says while `from`, which stands in the file once, is `to`.
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

    /// A line of cargo, in the copy; what it builds goes where another gate's does, so that what
    /// both depend on is compiled once.
    pub(crate) fn cargo(&self, arguments: &str, built_in: &str) -> Line {
        Line::cargo(arguments)
            .argument("--manifest-path".to_owned())
            .argument(self.0.join("Cargo.toml").display().to_string())
            .argument("--target-dir".to_owned())
            .argument(target(built_in))
            .variable("RUST_BACKTRACE", "0")
    }
}

fn copy_tree(from: &Path, to: &Path) -> Outcome {
    let error = |error| format!("{} to {}: {error}", from.display(), to.display());
    fs::create_dir_all(to).map_err(error)?;
    for entry in fs::read_dir(from).map_err(error)? {
        let entry = entry.map_err(error)?;
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target).map_err(error)?;
        }
    }
    Ok(())
}

pub(crate) fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn write(path: &Path, text: &str) -> Outcome {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}
