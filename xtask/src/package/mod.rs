//! `cargo xtask package deb|static|container`: builds a package, and tries it in a separate root.
//!
//! - [`tree`]: the files of a package, and the manual pages and completions of the program;
//! - [`deb`]: the Debian package: program, libraries, header, pages, completions, units;
//!   [`installed`] installs it beside the packages that it depends on ([`depends`]);
//! - [`archive`]: the static program for any distribution, as a tar archive;
//! - [`container`]: an image with nothing but the static program;
//! - [`clean`]: the separate roots, and what is checked in each.
//!
//! Packages are built with the profile `dist`, which takes minutes, or with `--fast` in the profile
//! `release`. They do not depend on the time of the build: files have the time of the commit.

mod archive;
mod clean;
mod container;
mod deb;
mod depends;
mod installed;
mod tree;

use std::fs;
use std::path::Path;

use crate::command::{Line, root, target};
use crate::{Outcome, tools};

/// How a package is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Profile(&'static str);

/// A kind of package.
struct Package {
    name: &'static str,
    /// Fails with the name of a missing program and how to install it.
    check_tools: fn() -> Outcome,
    /// Builds it and tries it.
    run: fn(Profile) -> Outcome,
}

const PACKAGES: [Package; 3] = [
    Package { name: "deb", check_tools: deb::check_tools, run: deb::run },
    Package { name: "static", check_tools: archive::check_tools, run: archive::run },
    Package { name: "container", check_tools: container::check_tools, run: container::run },
];

impl Package {
    fn build(&self, profile: Profile) -> Outcome {
        let checked = (self.check_tools)();
        checked.map_err(|why| format!("package: {}: {why}", self.name))?;
        (self.run)(profile)
    }
}

/// Builds the package with this name and tries it.
pub(crate) fn run(name: &str, options: &[&str]) -> Outcome {
    let profile = match options {
        [] => Profile("dist"),
        ["--fast"] => Profile("release"),
        _ => return Err(format!("package: unexpected options `{}`", options.join(" "))),
    };
    match PACKAGES.iter().find(|package| package.name == name) {
        Some(package) => package.build(profile),
        None => {
            let names = PACKAGES.map(|package| package.name).join(", ");
            Err(format!("package: unknown package `{name}`; expected one of {names}"))
        }
    }
}

/// The gate: all packages, in the profile that `.ci/run` has built the program with. A package
/// whose tools are missing is skipped by name.
pub(crate) fn gate() -> Outcome {
    for package in PACKAGES {
        match (package.check_tools)() {
            Err(why) if !tools::are_required() => {
                println!("package: SKIPPED {}: {why}", package.name);
            }
            _ => package.build(Profile("release"))?,
        }
    }
    Ok(())
}

/// All packages in the profile `dist`, for `cargo xtask long package`.
pub(crate) fn all() -> Outcome {
    PACKAGES.iter().try_for_each(|package| package.build(Profile("dist")))
}

/// Checks that programs run, each with an argument, or names the package that has them.
fn check_programs(programs: &[(&'static str, &str, &str)]) -> Outcome {
    let missing = programs.iter().find(|(name, argument, _)| !Line::new(name, argument).succeeds());
    missing.map_or(Ok(()), |(name, _, package)| {
        Err(format!("{name} is not installed (package {package})"))
    })
}

/// Returns the version of the workspace.
fn version() -> Result<String, String> {
    let manifest = read(&root().join("Cargo.toml"))?;
    let version = manifest.lines().find_map(|line| line.strip_prefix("version = \""));
    let version = version.and_then(|rest| rest.strip_suffix('"'));
    version.map(str::to_owned).ok_or_else(|| "package: Cargo.toml has no version".to_owned())
}

/// Returns the time of the commit in seconds, for the times of files.
fn time() -> String {
    let given = std::env::var("SOURCE_DATE_EPOCH").ok();
    let of_commit = || Line::new("git", "log -1 --format=%ct").output().ok();
    given.or_else(of_commit).map_or_else(|| "0".to_owned(), |time| time.trim().to_owned())
}

/// Returns an empty directory for a package, below cargo's target directory.
fn empty_directory(name: &str) -> Result<String, String> {
    let path = target(&format!("package/{name}"));
    let failed = |error| format!("package: {path}: {error}");
    if Path::new(&path).exists() {
        fs::remove_dir_all(&path).map_err(failed)?;
    }
    fs::create_dir_all(&path).map_err(failed)?;
    Ok(path)
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("package: {}: {error}", path.display()))
}

fn write(path: &Path, text: &str) -> Outcome {
    let folder = path.parent().unwrap_or(Path::new("."));
    let written = fs::create_dir_all(folder).and_then(|()| fs::write(path, text));
    written.map_err(|error| format!("package: {}: {error}", path.display()))
}

fn copy(from: &Path, to: &Path) -> Outcome {
    let folder = to.parent().unwrap_or(Path::new("."));
    let copied = fs::create_dir_all(folder).and_then(|()| fs::copy(from, to));
    let failed = |error| format!("package: {} to {}: {error}", from.display(), to.display());
    copied.map(drop).map_err(failed)
}
