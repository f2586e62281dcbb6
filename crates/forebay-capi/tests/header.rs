//! The committed header and list of symbols are those of the source.

#[path = "support/library.rs"]
mod library;
#[path = "../../forebay/tests/support/skip.rs"]
mod skip;

use library::{here, installed, names, run};
use skip::skip;
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

/// With this variable the test writes the header, instead of comparing it.
const WRITE: &str = "FOREBAY_WRITE_HEADER";

#[test]
fn the_header_is_made_from_the_source() {
    let config = cbindgen::Config::from_file(here().join("cbindgen.toml")).expect("its settings");
    let bindings = cbindgen::Builder::new().with_crate(here()).with_config(config).generate();
    let mut made = Vec::new();
    bindings.expect("a header").write(&mut made);
    let path = here().join("include/forebay.h");
    if std::env::var_os(WRITE).is_some() {
        fs::write(&path, &made).expect("the header can be written");
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed.as_bytes() == made,
        "include/forebay.h is not that of the source: run `{WRITE}=1 cargo test -p forebay-capi \
         --test header`, and look at the difference"
    );
}

/// Returns the functions of the list of symbols.
fn symbols() -> BTreeSet<String> {
    let list = fs::read_to_string(here().join("symbols.txt")).expect("the list of symbols");
    list.lines().map(str::to_owned).collect()
}

#[test]
fn the_library_exports_the_listed_symbols_and_no_others() {
    let mut nm = Command::new("nm");
    nm.args(["--dynamic", "--defined-only", "--format=posix"]);
    let output = run(nm.arg(installed().join("libforebay.so")));
    let text = String::from_utf8(output.stdout).expect("names");
    let name = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    let exported: BTreeSet<String> = text.lines().map(name).collect();
    assert_eq!(exported, symbols(), "if this is intended, change symbols.txt");
}

#[test]
fn the_header_declares_every_symbol() {
    let header = fs::read_to_string(here().join("include/forebay.h")).expect("the header");
    for symbol in symbols() {
        assert!(header.contains(&format!("{symbol}(")), "{symbol} is not in the header");
    }
}

#[test]
fn the_library_has_the_soname_of_its_abi() {
    let mut readelf = Command::new("readelf");
    let output = run(readelf.arg("--dynamic").arg(installed().join("libforebay.so")));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("Library soname: [libforebay.so.0]"), "{text}");
}

/// Returns a text with one blank where it has any white space.
fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn every_prototype_is_in_a_manual_page() {
    let folder = here().join("man");
    let page = |name: String| fs::read_to_string(folder.join(name + ".3")).expect("a page");
    let pages: Vec<String> = names(&folder, ".3").into_iter().map(page).collect();
    let synopsis = |page: &String| {
        let lines = page.lines().filter_map(|line| line.strip_prefix(".B \"")?.strip_suffix('"'));
        in_one_line(&lines.collect::<Vec<_>>().join(" "))
    };
    let pages: Vec<String> = pages.iter().map(synopsis).collect();
    let header = fs::read_to_string(here().join("include/forebay.h")).expect("the header");
    let is_code = |line: &&str| !line.trim_start().starts_with(['/', '*', '#']);
    let code: Vec<&str> = header.lines().filter(is_code).collect();
    let code = in_one_line(&code.join(" "));
    for symbol in symbols() {
        let at = code.find(&format!("{symbol}(")).expect("it is in the header");
        let start = code[..at].rfind([';', '}', '{']).map_or(0, |at| at + 2);
        let end = at + code[at..].find(';').expect("the end of a prototype");
        let prototype = code[start..=end].trim_start_matches("extern \"C\" { ");
        assert!(pages.iter().any(|page| page.contains(prototype)), "{prototype}");
    }
}

#[test]
fn the_manual_pages_have_no_errors() {
    if Command::new("man").arg("--version").output().is_err() {
        let reason = "man is missing: apt-get install man-db";
        return skip("the_manual_pages_have_no_errors", reason);
    }
    for name in names(&here().join("man"), ".3") {
        let mut man = Command::new("man");
        man.args(["--warnings=all", "--local-file"]).arg(here().join(format!("man/{name}.3")));
        let output = run(man.env("MANROFFSEQ", "").env("LC_ALL", "C.UTF-8"));
        let warnings = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(warnings.is_empty(), "{name}(3): {warnings}");
    }
}
