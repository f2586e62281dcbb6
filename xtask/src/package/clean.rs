//! A root directory that has only the files of a package, and the checks of the program in it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::tree;
use crate::Outcome;
use crate::command::Line;

/// Where the program writes its pages in the root, for the comparison with those of the package.
const PAGES: &str = "pages";

/// The root. It is left after a failed check, and replaced by the next run.
#[derive(Debug)]
pub(super) struct CleanRoot {
    path: PathBuf,
}

impl CleanRoot {
    /// Creates an empty root with this name, below cargo's target directory.
    pub(super) fn create(name: &str) -> Result<Self, String> {
        super::empty_directory(name).map(|path| CleanRoot { path: path.into() })
    }

    /// Takes a directory that another program has filled and removes.
    pub(super) fn at(path: &str) -> Self {
        CleanRoot { path: path.into() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path on this machine of a file in the root.
    pub(super) fn join(&self, file: &str) -> PathBuf {
        self.path.join(file.trim_start_matches('/'))
    }

    pub(super) fn remove(self) -> Outcome {
        let path = &self.path;
        fs::remove_dir_all(path).map_err(|error| format!("package: {}: {error}", path.display()))
    }

    /// Returns a command in the root, whose words are split at spaces.
    pub(super) fn line(&self, command: &str) -> Line {
        chroot(&self.path.display().to_string()).arguments(command)
    }

    /// Returns the same command, in a root with `/proc`. The mount ends with the command. Fails
    /// without the privilege for mounts.
    pub(super) fn line_with_proc(&self, command: &str) -> Result<Line, String> {
        let is_root = Line::new("chroot", "/ true").succeeds();
        let map = if is_root { "" } else { "--map-root-user" };
        let unshare = Line::new("unshare", map).arguments("--mount --pid --fork");
        if !unshare.clone().arguments("--mount-proc true").succeeds() {
            return Err(format!("`{unshare} --mount-proc true` failed: allow mounts of proc"));
        }
        let made = fs::create_dir_all(self.join("proc"));
        made.map_err(|error| format!("package: {}: {error}", self.join("proc").display()))?;
        let line = unshare.arguments("--mount-proc --root");
        Ok(line.argument(self.path.display().to_string()).arguments(command))
    }

    /// Runs a command in the root, and returns what it prints. It must succeed.
    pub(super) fn output(&self, command: &str) -> Result<String, String> {
        let line = self.line(command);
        println!("package: {line}");
        line.output()
    }

    /// Checks the long version of a program: it has these parts, and the commit of the checkout.
    pub(super) fn check_version(&self, program: &str, parts: &[&str]) -> Outcome {
        let long = self.output(&format!("{program} --version"))?;
        if let Some(part) = parts.iter().find(|part| !long.contains(**part)) {
            return Err(format!("package: {program} --version lacks `{part}`:\n{long}"));
        }
        check_commit(&long, &commit())
    }

    /// Checks that the first command of the README, a measurement, prints a report.
    pub(super) fn check_measurement(&self, program: &str) -> Outcome {
        let report = self.output(&format!("{program} bench"))?;
        match report.contains("Layer (ram:1G)") && report.contains("IOPS=") {
            true => Ok(()),
            false => Err(format!("package: {program} bench printed no report:\n{report}")),
        }
    }

    /// Checks that `files`, the paths of the package, are those of `others`, and of the program's
    /// manual pages and completions below `share`. No file may be empty, and each page must have
    /// the text that the program writes.
    pub(super) fn check_files(
        &self,
        files: &BTreeSet<String>,
        program: &str,
        share: &str,
        others: Vec<String>,
    ) -> Outcome {
        self.output(&format!("{program} man --dir=/{PAGES}"))?;
        let written = self.join(PAGES);
        let names = tree::names(&written)?;
        let pages = names.iter().map(|name| tree::page(share, name));
        let expected = others.into_iter().chain(tree::completions(share)).chain(pages).collect();
        compare(files, &expected)?;
        let has_text = |file: &&String| {
            fs::metadata(self.join(file)).is_ok_and(|it| it.is_file() && it.len() > 0)
        };
        if let Some(file) = files.iter().find(|file| !has_text(file)) {
            return Err(format!("package: {file} is empty or not a file"));
        }
        for name in names {
            let page = tree::page(share, &name);
            let packed = Line::new("gzip", "--decompress --stdout");
            let packed = packed.argument(self.join(&page).display().to_string()).output()?;
            if packed != super::read(&written.join(&name))? {
                return Err(format!("package: {page} is not the page that {program} writes"));
            }
        }
        Ok(())
    }

    /// Returns the paths of all files in the root.
    pub(super) fn files(&self) -> Result<BTreeSet<String>, String> {
        let line = Line::new("find", "").argument(self.path.display().to_string());
        let list = line.arguments("! -type d -printf %P\\n").output()?;
        Ok(list.lines().map(str::to_owned).collect())
    }
}

/// Compares the files of a package with the expected ones.
fn compare(files: &BTreeSet<String>, expected: &BTreeSet<String>) -> Outcome {
    let list = |kind: &str, a: &BTreeSet<String>, b| match a.difference(b).collect::<Vec<_>>() {
        names if names.is_empty() => String::new(),
        names => format!("\n  {kind}: {names:?}"),
    };
    let (missing, others) = (list("missing", expected, files), list("others", files, expected));
    match missing.is_empty() && others.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "package: its files are not those that xtask/src/package expects{missing}{others}"
        )),
    }
}

/// Returns the commit that the program must name, by the rules of its build script: the one that
/// `FOREBAY_COMMIT` gives, or that of the checkout. Without git, or if git refuses a checkout of
/// another user, it is `not recorded`.
fn commit() -> String {
    let given = std::env::var("FOREBAY_COMMIT").ok().filter(|commit| !commit.is_empty());
    let of_checkout = || Line::new("git", "rev-parse --short=12 HEAD").output().ok();
    let commit = given.or_else(of_checkout);
    commit.map_or_else(|| "not recorded".to_owned(), |commit| commit.trim().to_owned())
}

/// Checks that a long version names this commit. A checkout with changes adds `-dirty` to it.
fn check_commit(long: &str, commit: &str) -> Outcome {
    let line = format!("commit: {commit}");
    let names_it = |it: &str| it.strip_suffix("-dirty").unwrap_or(it) == line;
    match long.lines().any(names_it) {
        true => Ok(()),
        false => Err(format!("package: --version has no line `{line}`:\n{long}")),
    }
}

/// Returns the program that makes `directory` the root of a command. Without the privilege for
/// this it uses a user namespace.
fn chroot(directory: &str) -> Line {
    if Line::new("chroot", "/ true").succeeds() {
        return Line::new("chroot", "").argument(directory.to_owned());
    }
    Line::new("unshare", "--map-root-user --root").argument(directory.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{check_commit, compare};
    use std::collections::BTreeSet;

    #[test]
    fn missing_and_other_files_are_named() {
        let set = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect();
        let expected: BTreeSet<String> = set(&["a", "b"]);
        assert!(compare(&expected, &expected).is_ok());
        assert!(compare(&set(&["a"]), &expected).unwrap_err().contains("missing: [\"b\"]"));
        let error = compare(&set(&["a", "b", "c"]), &expected).unwrap_err();
        assert!(error.contains("others: [\"c\"]") && !error.contains("missing"), "{error}");
    }

    #[test]
    fn another_commit_is_refused() {
        let long = |commit: &str| format!("forebay 1.2.3\ncommit: {commit}\ndrivers: ram\n");
        assert!(check_commit(&long("0123456789ab"), "0123456789ab").is_ok());
        assert!(check_commit(&long("0123456789ab-dirty"), "0123456789ab").is_ok());
        for commit in ["0123456789ac", "not recorded", "0123456789abc"] {
            assert!(check_commit(&long(commit), "0123456789ab").is_err(), "{commit}");
        }
    }
}
