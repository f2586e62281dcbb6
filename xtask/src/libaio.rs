//! `cargo xtask libaio`: builds `libaio.so.1`, a replacement for the distribution's file, checks
//! the versions of its symbols, and runs the tests of `forebay-aio` on it.
//!
//! The file is linked by `cc` from a static library: rustc passes a version script of its own to
//! the linker, which takes no second one.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::Outcome;
use crate::command::{Line, root, target};

/// The symbols, with their versions. `@@` marks the one that new programs get.
const SYMBOLS: [&str; 13] = [
    "io_cancel@@LIBAIO_0.4",
    "io_cancel@LIBAIO_0.1",
    "io_destroy@@LIBAIO_0.4",
    "io_getevents@@LIBAIO_0.4",
    "io_getevents@LIBAIO_0.1",
    "io_pgetevents@@LIBAIO_0.5",
    "io_queue_init@@LIBAIO_0.1",
    "io_queue_release@@LIBAIO_0.1",
    "io_queue_run@@LIBAIO_0.1",
    "io_queue_wait@@LIBAIO_0.4",
    "io_queue_wait@LIBAIO_0.1",
    "io_setup@@LIBAIO_0.4",
    "io_submit@@LIBAIO_0.1",
];

/// The distribution's file, whose symbols are compared if it is installed.
const SYSTEM: [&str; 3] = [
    "/usr/lib/x86_64-linux-gnu/libaio.so.1",
    "/usr/lib/aarch64-linux-gnu/libaio.so.1",
    "/usr/lib64/libaio.so.1",
];

/// Builds and checks the file. Returns its path.
pub(crate) fn build() -> Result<String, String> {
    build_in("libaio")
}

/// Does the same in this folder of the target directory. Gates that run beside each other need
/// folders of their own.
pub(crate) fn build_in(folder: &str) -> Result<String, String> {
    let folder = target(folder);
    fs::create_dir_all(&folder).map_err(|error| format!("{folder}: {error}"))?;
    // Not a feature: with all features the plain build must link too.
    Line::cargo("rustc --release --package forebay-aio --crate-type=staticlib -- --cfg")
        .argument("forebay_libaio".to_owned())
        .run()?;
    let path = format!("{folder}/libaio.so.1");
    let map = root().join("crates/forebay-aio/libaio.map");
    // A service thread may still run after `dlclose`, so the file stays loaded. It needs no debug
    // information of the standard library.
    Line::new(
        "cc",
        "-shared -Wl,-soname,libaio.so.1 -Wl,--gc-sections -Wl,-z,now,-z,nodelete -Wl,-S",
    )
    .argument(format!("-Wl,--version-script={}", map.display()))
    .argument("-Wl,--whole-archive".to_owned())
    .argument(format!("{}/libforebay_aio.a", target("release")))
    .argument("-Wl,--no-whole-archive".to_owned())
    .argument("-lgcc_s".to_owned())
    .argument("-lc".to_owned())
    .argument(format!("-o{path}"))
    .run()?;
    let wanted: BTreeSet<String> = SYMBOLS.map(str::to_owned).into();
    compare(&path, &symbols(&path)?, "the table", &wanted)?;
    match SYSTEM.iter().find(|path| Path::new(path).exists()) {
        Some(system) => compare(&path, &symbols(&path)?, system, &symbols(system)?)?,
        None => println!("libaio: not compared with the distribution's file (package libaio1)"),
    }
    println!("libaio: {path} has the {} symbols of libaio", SYMBOLS.len());
    Ok(path)
}

/// Builds the file, and runs the C programs of the tests on it.
pub(crate) fn run() -> Outcome {
    let path = build()?;
    Line::cargo("test --package forebay-aio --test calls").variable("FOREBAY_LIBAIO", path).run()
}

fn compare(path: &str, found: &BTreeSet<String>, by: &str, wanted: &BTreeSet<String>) -> Outcome {
    let list =
        |set: Vec<&String>| set.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
    let missing = list(wanted.difference(found).collect());
    let more = list(found.difference(wanted).collect());
    if missing.is_empty() && more.is_empty() {
        return Ok(());
    }
    Err(format!("libaio: {path} differs from {by}: missing [{missing}]; unexpected [{more}]"))
}

/// Returns the functions and data that a file defines for others, with their versions.
fn symbols(path: &str) -> Result<BTreeSet<String>, String> {
    Ok(defined(&Line::new("readelf", "--dyn-syms --wide").argument(path.to_owned()).output()?))
}

/// Returns the symbols in the output of `readelf --dyn-syms`. Names of versions are none.
fn defined(output: &str) -> BTreeSet<String> {
    let symbol = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, _, _, _, "GLOBAL" | "WEAK", _, section, name] = words[..] else { return None };
        (section != "UND" && section != "ABS").then(|| name.to_owned())
    };
    output.lines().filter_map(symbol).collect()
}

#[cfg(test)]
mod tests {
    use super::{compare, defined};

    #[test]
    fn symbols_that_are_missing_or_too_many_are_named() {
        let output = "\
   Num:    Value          Size Type    Bind   Vis      Ndx Name
     1: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND free@GLIBC_2.2.5 (2)
     8: 0000000000001540    76 FUNC    GLOBAL DEFAULT   13 io_queue_wait@LIBAIO_0.1
     9: 0000000000000000     0 OBJECT  GLOBAL DEFAULT  ABS LIBAIO_0.5
    10: 00000000000013d0    53 FUNC    GLOBAL DEFAULT   13 io_destroy@@LIBAIO_0.4
";
        let found = defined(output);
        assert_eq!(found.len(), 2);
        compare("file", &found, "itself", &found).expect("equal");
        let wanted = ["io_destroy@@LIBAIO_0.4", "io_setup@@LIBAIO_0.4"].map(str::to_owned).into();
        let error = compare("file", &found, "a table", &wanted).expect_err("two differences");
        assert!(error.contains("missing [io_setup@@LIBAIO_0.4]"), "{error}");
        assert!(error.ends_with("unexpected [io_queue_wait@LIBAIO_0.1]"), "{error}");
    }
}
