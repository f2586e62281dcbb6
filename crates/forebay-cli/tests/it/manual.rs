//! Manual pages and completions, checked by the programs that read them; the long version.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::common::{folder, forebay, skip_without};

/// Writes all manual pages into `man`.
fn write_pages(folder: &TempDir) -> Vec<String> {
    let output = forebay(folder).args(["man", "--dir", "man"]).output().expect("it can be run");
    assert!(output.status.success(), "{output:?}");
    let entries = fs::read_dir(folder.path().join("man")).expect("the pages");
    entries.map(|entry| entry.expect("a page").path().display().to_string()).collect()
}

fn is_missing(program: &str, version: &str) -> bool {
    Command::new(program).arg(version).output().is_err()
}

#[test]
fn man_reads_the_pages_without_a_warning() {
    if is_missing("man", "--version") {
        return skip_without("man", "man_reads_the_pages_without_a_warning");
    }
    for page in write_pages(&folder()) {
        let mut man = Command::new("man");
        man.args(["--warnings=all", "--local-file", &page]);
        let output = man.env("MANROFFSEQ", "").env("LC_ALL", "C.UTF-8").output().expect("man");
        assert!(output.status.success(), "{page}: {output:?}");
        assert!(output.stderr.is_empty(), "{page}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn mandoc_finds_no_error_in_the_pages_of_the_program_and_of_the_library() {
    if is_missing("mandoc", "-V") {
        let test = "mandoc_finds_no_error_in_the_pages_of_the_program_and_of_the_library";
        return skip_without("mandoc", test);
    }
    let folder = folder();
    let of_c = Path::new(env!("CARGO_MANIFEST_DIR")).join("../forebay-capi/man");
    let of_c = fs::read_dir(of_c).expect("the pages for C");
    let of_c = of_c.map(|entry| entry.expect("a page").path().display().to_string());
    let pages: Vec<String> = write_pages(&folder).into_iter().chain(of_c).collect();
    assert!(pages.len() > 25, "{pages:?}");
    let mut mandoc = Command::new("mandoc");
    let output = mandoc.args(["-Tlint", "-Wwarning"]).args(pages).output().expect("mandoc");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.is_empty(), "{text}");
}

/// Returns the path of the script for a shell.
fn script(folder: &TempDir, shell: &str) -> String {
    let output = forebay(folder).args(["completions", shell]).output().expect("it can be run");
    assert!(output.status.success(), "{output:?}");
    let path = folder.path().join(format!("forebay.{shell}"));
    fs::write(&path, output.stdout).expect("the script can be written");
    path.display().to_string()
}

#[test]
fn shells_parse_the_scripts() {
    let folder = folder();
    for shell in ["bash", "zsh", "fish"] {
        if is_missing(shell, "--version") {
            skip_without(shell, "shells_parse_the_scripts");
            continue;
        }
        let script = script(&folder, shell);
        let output = Command::new(shell).args(["-n", &script]).output().expect(shell);
        assert!(output.status.success() && output.stderr.is_empty(), "{shell}: {output:?}");
    }
}

/// Returns what bash offers for the last of these words, which are split as bash splits them.
fn completed(script: &str, words: &[&str]) -> Vec<String> {
    let list = words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
    let (last, before) = (words[words.len() - 1], words[words.len() - 2]);
    let line = format!(
        "source {script}; COMP_WORDS=({list}); COMP_CWORD={}; \
         _forebay forebay '{last}' '{before}'; \
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        words.len() - 1
    );
    let mut bash = Command::new("bash");
    let output = bash.args(["--norc", "-c", &line]).output().expect("bash");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_options_and_values() {
    if is_missing("bash", "--version") {
        return skip_without("bash", "bash_completes_commands_options_and_values");
    }
    let folder = folder();
    let script = script(&folder, "bash");
    let completed = |words: &[&str]| completed(&script, words);
    assert_eq!(completed(&["forebay", "be"]), ["bench"]);
    assert_eq!(completed(&["forebay", "bench", "--rwmix"]), ["--rwmixread", "--rwmixwrite"]);
    let random = ["randread", "randwrite", "randrw", "randtrim"].map(str::to_owned);
    assert!(random.iter().all(|it| completed(&["forebay", "bench", "--rw", "rand"]).contains(it)));
    let after_sign = ["forebay", "bench", "--rw", "=", "rand"];
    assert!(random.iter().all(|it| completed(&after_sign).contains(it)));
    let all = completed(&["forebay", "bench", "--wake", "="]);
    assert_eq!(all, ["fair", "batch", "stash", "single"]);
    assert_eq!(completed(&["forebay", "serve", "--tls", "req"]), ["require"]);
    assert_eq!(completed(&["forebay", "serve", "--log-format", "j"]), ["json", "journald"]);
    assert_eq!(completed(&["forebay", "serve", "--log-level", "=", "w"]), ["warning"]);
    assert_eq!(completed(&["forebay", "help", "spec"]), ["specs"]);
    assert_eq!(completed(&["forebay", "man", "po"]), ["policies", "policy"]);
    assert_eq!(completed(&["forebay", "con"]), [""], "older forms are hidden");
    let devices = completed(&["forebay", "sim", "--device", "s"]);
    assert!(["sata", "ssd-sas"].iter().all(|it| devices.iter().any(|found| found == it)));
    let files = completed(&["forebay", "sim", "--device", &script[..script.len() - 2]]);
    assert_eq!(files, [script], "a model file");
}

#[test]
fn fish_completes_commands_options_and_values() {
    if is_missing("fish", "--version") {
        return skip_without("fish", "fish_completes_commands_options_and_values");
    }
    let folder = folder();
    let script = script(&folder, "fish");
    fs::write(folder.path().join("my.model"), "").expect("a file");
    let completed = |line: &str| {
        let mut fish = Command::new("fish");
        fish.args(["--no-config", "-c", &format!("source {script}; complete -C 'forebay {line}'")]);
        let output = fish.current_dir(folder.path()).env("HOME", folder.path()).output();
        let text = String::from_utf8(output.expect("fish").stdout).expect("text");
        let words = text.lines().filter_map(|line| line.split('\t').next());
        let mut words: Vec<_> = words.map(str::to_owned).collect();
        words.sort();
        words
    };
    assert_eq!(completed("be"), ["bench"]);
    assert_eq!(completed("serve --log-format j"), ["journald", "json"]);
    assert_eq!(completed("ctl s log-level w"), ["warning"]);
    assert_eq!(completed("help spec"), ["specs"]);
    assert_eq!(completed("man po"), ["policies", "policy"]);
    assert_eq!(completed("sim --device n"), ["nvme"]);
    assert_eq!(completed("sim --device my"), ["my.model"]);
    assert_eq!(completed("contr"), [""; 0], "older forms are hidden");
}

#[test]
fn the_long_version_names_commit_drivers_features_and_target() {
    let folder = folder();
    let output = |flag: &str| {
        let output = forebay(&folder).arg(flag).output().expect("it can be run");
        String::from_utf8(output.stdout).expect("text")
    };
    let version = concat!("forebay ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(output("-V"), version);
    let long = output("--version");
    assert!(long.starts_with(version), "{long}");
    for (name, part) in [
        ("commit", ""),
        ("drivers", "null, ram, model, file, aio, psync, nbd, vhost-user, rbd, fault"),
        ("engines of files", "io_uring, aio, psync"),
        ("features", "rbd, run, tls, usdt, vhost-user"),
        ("target", std::env::consts::ARCH),
        ("rustc", "1."),
    ] {
        let line = long.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        assert!(line.is_some_and(|line| line.starts_with(part)), "{name}: {long}");
    }
}
