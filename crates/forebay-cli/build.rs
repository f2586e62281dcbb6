//! Records the commit, the target and the compiler for `forebay --version`.
//!
//! The commit is, in this order: `FOREBAY_COMMIT`, for packages that are built outside of git; the
//! one that `cargo publish` has recorded; the one of the checkout, with `-dirty` if the sources
//! differ from it. Builds for tests have none, so that a commit does not build them again. Equal
//! sources give equal builds: nothing depends on the time or on a path.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=FOREBAY_COMMIT");
    let directory = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let commit = given().or_else(|| published(&directory)).or_else(|| of_checkout(&directory));
    record("FOREBAY_COMMIT", &commit.unwrap_or_else(|| "not recorded".to_owned()));
    record("FOREBAY_TARGET", &env::var("TARGET").expect("cargo sets it"));
    record("FOREBAY_RUSTC", &compiler().unwrap_or_else(|| "unknown".to_owned()));
}

fn record(name: &str, value: &str) {
    println!("cargo::rustc-env={name}={value}");
}

fn given() -> Option<String> {
    env::var("FOREBAY_COMMIT").ok().filter(|commit| !commit.is_empty())
}

/// Returns the commit that `cargo publish` has recorded in the package.
fn published(directory: &Path) -> Option<String> {
    let text = fs::read_to_string(directory.join(".cargo_vcs_info.json")).ok()?;
    let commit = text.split("\"sha1\"").nth(1)?.split('"').nth(1)?;
    commit.get(..12).map(str::to_owned)
}

fn of_checkout(directory: &Path) -> Option<String> {
    let is_for_tests = env::var("PROFILE").is_ok_and(|profile| profile == "debug");
    // Only a checkout of this workspace counts, not one that contains a copy of it.
    let root = directory.join("../..");
    if is_for_tests || !root.join(".git").exists() {
        return None;
    }
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(&root).args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    // A commit changes the log of HEAD. The directories of the crates themselves are not listed:
    // tests create files there, and each run of this script builds the program again.
    let log = root.join(git(&["rev-parse", "--git-path", "logs/HEAD"])?);
    let crates = fs::read_dir("..").into_iter().flatten().flatten();
    let inputs = ["src", "help", "build.rs", "Cargo.toml"];
    let sources = crates.flat_map(|it| inputs.map(|name| it.path().join(name)));
    let of_workspace = [log, "../../Cargo.toml".into(), "../../Cargo.lock".into()];
    for path in sources.chain(of_workspace).filter(|path| path.exists()) {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let sources = ["diff", "--quiet", "HEAD", "--", "crates", "Cargo.toml", "Cargo.lock"];
    Some(if git(&sources).is_some() { commit } else { commit + "-dirty" })
}

fn compiler() -> Option<String> {
    let output = Command::new(env::var_os("RUSTC")?).arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.trim().strip_prefix("rustc ").map(str::to_owned)
}
