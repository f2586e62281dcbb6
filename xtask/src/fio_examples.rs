//! `cargo xtask fio-examples`: which of fio's example job files `forebay bench` accepts.
//!
//! The files are those of Debian's package fio-examples. Each file that is refused must be in
//! [`REFUSED`] with its reason, and no other file may be refused; so the list and the count in
//! `bench/FIO.md` stay true. Without the files the gate is
//! skipped, or fails if tools are required.

use std::path::Path;
use std::process::Command;

use crate::command::{Line, root, target};
use crate::{Outcome, examples, tools};

const DIRECTORY: &str = "/usr/share/doc/fio/examples";

/// Values for the environment variables in the files.
const VARIABLES: [(&str, &str); 5] = [
    ("FIO_RW", "randread"),
    ("FIO_IODEPTH", "1"),
    ("FIO_BS", "4k"),
    ("unixsocket", "/tmp/socket"),
    ("POOL", "pool"),
];

const ENGINE: &str = "an engine that does not exist here";

/// The files that are refused, with the reason.
const REFUSED: &[(&str, &str)] = &[
    ("cpp_null.fio", ENGINE),
    ("cpuio.fio", ENGINE),
    ("dev-dax.fio", ENGINE),
    ("dfs.fio", ENGINE),
    ("e4defrag.fio", ENGINE),
    ("e4defrag2.fio", ENGINE),
    ("exec.fio", ENGINE),
    ("falloc.fio", ENGINE),
    ("filecreate-ioengine.fio", ENGINE),
    ("filedelete-ioengine.fio", ENGINE),
    ("filestat-ioengine.fio", ENGINE),
    ("ftruncate.fio", ENGINE),
    ("gfapi.fio", ENGINE),
    ("gpudirect-rdmaio-client.fio", ENGINE),
    ("gpudirect-rdmaio-server.fio", ENGINE),
    ("http-s3-crypto.fio", ENGINE),
    ("http-s3-storage-class.fio", ENGINE),
    ("http-s3.fio", ENGINE),
    ("http-swift.fio", ENGINE),
    ("http-webdav.fio", ENGINE),
    ("ime.fio", ENGINE),
    ("libcufile-cufile.fio", ENGINE),
    ("libcufile-posix.fio", ENGINE),
    ("libhdfs.fio", ENGINE),
    ("libiscsi.fio", ENGINE),
    ("libpmem.fio", ENGINE),
    ("librpma_apm-client.fio", ENGINE),
    ("librpma_apm-server.fio", ENGINE),
    ("librpma_gpspm-client.fio", ENGINE),
    ("librpma_gpspm-server.fio", ENGINE),
    ("libzbc-rand-write.fio", ENGINE),
    ("libzbc-seq-read.fio", ENGINE),
    ("mtd.fio", ENGINE),
    ("netio.fio", ENGINE),
    ("netio_multicast.fio", ENGINE),
    ("nfs.fio", ENGINE),
    ("pmemblk.fio", ENGINE),
    ("rados.fio", ENGINE),
    ("rdmaio-client.fio", ENGINE),
    ("rdmaio-server.fio", ENGINE),
    ("sg_verify-fail.fio", ENGINE),
    ("sg_verify.fio", ENGINE),
    ("sg_write_same_ndob.fio", ENGINE),
    ("uring-cmd-ng.fio", ENGINE),
    ("uring-cmd-zoned.fio", ENGINE),
];

pub(crate) fn run() -> Outcome {
    if !Path::new(DIRECTORY).is_dir() {
        let missing = format!("{DIRECTORY} does not exist (package fio-examples)");
        if tools::are_required() {
            return Err(missing);
        }
        println!("fio-examples: skipped, {missing}");
        return Ok(());
    }
    Line::cargo(examples::BUILD).run()?;
    let names = names()?;
    let (mut wrong, mut nr_accepted) = (Vec::new(), 0);
    for name in &names {
        let known = REFUSED.iter().find(|(file, _)| file == name);
        match (refusal(name)?, known) {
            (None, None) => nr_accepted += 1,
            (Some(_), Some((_, reason))) => println!("fio-examples: {name}: refused: {reason}"),
            (None, Some(_)) => wrong.push(format!("{name} is accepted: remove it from the list")),
            (Some(message), None) => wrong.push(format!("{name} is refused: {message}")),
        }
    }
    println!("fio-examples: {nr_accepted} of {} are accepted", names.len());
    let count = format!("{nr_accepted} of {}", names.len());
    let page = std::fs::read_to_string(root().join("bench/FIO.md"));
    if !page.is_ok_and(|text| text.contains(&count)) {
        wrong.push(format!("bench/FIO.md does not have the count: {count}"));
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(wrong.join("\n")),
    }
}

/// Returns the names of the job files, sorted.
fn names() -> Result<Vec<String>, String> {
    let failed = |error| format!("{DIRECTORY} cannot be listed: {error}");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(DIRECTORY).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".fio") {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Returns the first line of the errors, if a file is refused.
fn refusal(name: &str) -> Result<Option<String>, String> {
    let output = Command::new(target("debug/forebay"))
        .args(["bench", "--parse-only"])
        .arg(Path::new(DIRECTORY).join(name))
        .envs(VARIABLES)
        .output()
        .map_err(|error| format!("forebay cannot be run: {error}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    let first = errors.lines().find(|line| line.starts_with("forebay: ")).unwrap_or_default();
    Ok((!output.status.success()).then(|| first.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::REFUSED;

    #[test]
    fn each_file_is_listed_once_in_order() {
        assert!(REFUSED.is_sorted_by_key(|(name, _)| name));
        assert!(REFUSED.windows(2).all(|pair| pair[0].0 != pair[1].0));
    }
}
