//! A program to run: its path, and whether the dynamic linker preloads a library into it.
//!
//! Source: elf(5), ld.so(8).

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The mode bits of a program that runs with the rights of its owner or group.
const SET_ID: u32 = 0o6000;

/// The type of a program header with the path of the dynamic linker.
const PT_INTERP: u32 = 3;

/// Returns the path of a program, as a shell finds it.
///
/// # Errors
/// Returns why there is none.
pub(super) fn find(name: &OsStr) -> Result<PathBuf, String> {
    if name.as_bytes().contains(&b'/') {
        return Ok(PathBuf::from(name));
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let is_program = |path: &PathBuf| {
        path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    let found = std::env::split_paths(&folders).map(|folder| folder.join(name)).find(is_program);
    found.ok_or_else(|| String::from("no such program in PATH"))
}

/// The most nested interpreters of a script, as in the kernel.
const SCRIPTS_MAX: u32 = 4;

/// Checks that a library can be preloaded into a program, or into the interpreter of a script.
///
/// # Errors
/// Returns why not.
pub(super) fn check(path: &Path) -> Result<(), String> {
    check_nested(path, SCRIPTS_MAX)
}

fn check_nested(path: &Path, scripts_max: u32) -> Result<(), String> {
    let file = File::open(path).map_err(|error| format!("cannot be read: {error}"))?;
    let metadata = file.metadata().map_err(|error| format!("cannot be read: {error}"))?;
    if metadata.mode() & SET_ID != 0 {
        return Err(String::from(
            "the dynamic linker preloads nothing into a set-user-id or set-group-id program",
        ));
    }
    let mut start = Vec::new();
    (&file)
        .take(256)
        .read_to_end(&mut start)
        .map_err(|error| format!("cannot be read: {error}"))?;
    if let Some(line) = start.strip_prefix(b"#!") {
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or(line);
        let words = line.split(|byte| byte.is_ascii_whitespace());
        let Some(interpreter) = words.into_iter().find(|word| !word.is_empty()) else {
            return Ok(());
        };
        if scripts_max == 0 {
            return Err(String::from("the interpreters are nested more than 4 deep"));
        }
        let interpreter = std::ffi::OsString::from_vec(interpreter.to_vec());
        return check_nested(Path::new(&interpreter), scripts_max - 1)
            .map_err(|why| format!("its interpreter {}: {why}", interpreter.display()));
    }
    // The system reports anything else when it starts the program.
    if !start.starts_with(b"\x7fELF") {
        return Ok(());
    }
    match has_linker(&file, &start) {
        Ok(Some(true)) => Ok(()),
        Ok(Some(false)) => Err(String::from(
            "it is a static program, into which no library can be preloaded: use one that is \
             linked dynamically",
        )),
        Ok(None) => {
            Err(format!("not a program for {}, which the library is for", std::env::consts::ARCH))
        }
        Err(error) => Err(format!("cannot be read: {error}")),
    }
}

/// Returns whether a 64-bit ELF file names a dynamic linker. `None` if it is for another machine.
fn has_linker(file: &File, start: &[u8]) -> io::Result<Option<bool>> {
    let own = if cfg!(target_endian = "little") { [2, 1] } else { [2, 2] };
    let machine: Option<u16> = match std::env::consts::ARCH {
        "x86_64" => Some(62),
        "aarch64" => Some(183),
        _ => None,
    };
    let is_own = |start: &[u8]| {
        let found = u16::from_ne_bytes([start[18], start[19]]);
        start[4..6] == own && machine.is_none_or(|machine| machine == found)
    };
    if start.len() < 64 || !is_own(start) {
        return Ok(None);
    }
    let word = |at: usize| u64::from_ne_bytes(start[at..at + 8].try_into().expect("eight bytes"));
    let half = |at: usize| u16::from_ne_bytes(start[at..at + 2].try_into().expect("two bytes"));
    let (first, size, nr) = (word(32), u64::from(half(54)), u64::from(half(56)));
    for nth in 0..nr {
        let mut kind = [0; 4];
        file.read_exact_at(&mut kind, first.saturating_add(nth * size))?;
        if u32::from_ne_bytes(kind) == PT_INTERP {
            return Ok(Some(true));
        }
    }
    Ok(Some(false))
}
