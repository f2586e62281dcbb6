//! Records the commit, the target and the compiler for `forebay --version`, and the date for manual
//! pages.
//!
//! The commit is, in this order: `FOREBAY_COMMIT`, for packages that are built outside of git; the
//! one that `cargo publish` has recorded; the one of the checkout, with `-dirty` if the sources
//! differ from it. Builds for tests have none, so that a commit does not build them again. Equal
//! sources give equal builds: nothing depends on the time or on a path. The date is that of
//! `SOURCE_DATE_EPOCH`, of the commit, or of the release.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The date of a build outside of git, without `SOURCE_DATE_EPOCH`, and of builds for tests.
const DATE_OF_RELEASE: &str = "2026-11-29";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=FOREBAY_COMMIT");
    println!("cargo::rerun-if-env-changed=SOURCE_DATE_EPOCH");
    let directory = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let commit = given().or_else(|| published(&directory)).or_else(|| of_checkout(&directory));
    let unknown = if is_debug() { "not recorded (debug build)" } else { "not recorded" };
    record("FOREBAY_COMMIT", &commit.unwrap_or_else(|| unknown.to_owned()));
    record("FOREBAY_DATE", &date(&directory));
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

/// Returns whether this is a build for tests. It records no commit, so that a new commit does not
/// build the program again.
fn is_debug() -> bool {
    env::var("PROFILE").is_ok_and(|profile| profile == "debug")
}

/// Returns the root of the checkout, or `None` if this build does not record its commit.
fn checkout(directory: &Path) -> Option<PathBuf> {
    // Only a checkout of this workspace counts, not one that contains a copy of it.
    let root = directory.join("../..");
    (!is_debug() && root.join(".git").exists()).then_some(root)
}

/// Returns the output of git, if it succeeds.
fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// Returns the date of manual pages.
fn date(directory: &Path) -> String {
    let given = || env::var("SOURCE_DATE_EPOCH").ok();
    let of_commit = || git(&checkout(directory)?, &["log", "-1", "--format=%ct"]);
    let seconds = given().or_else(of_commit).and_then(|text| text.parse().ok());
    seconds.map_or_else(|| DATE_OF_RELEASE.to_owned(), date_of)
}

/// Returns the date, in UTC, of a number of seconds since 1970.
fn date_of(seconds: u64) -> String {
    let is_leap =
        |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let (mut year, mut days) = (1970, seconds / 86_400);
    let days_of_year = |year| if is_leap(year) { 366 } else { 365 };
    while days >= days_of_year(year) {
        days -= days_of_year(year);
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let mut month = 1;
    for days_of_month in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < days_of_month {
            break;
        }
        days -= days_of_month;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", days + 1)
}

fn of_checkout(directory: &Path) -> Option<String> {
    let root = checkout(directory)?;
    let git = |arguments: &[&str]| git(&root, arguments);
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
