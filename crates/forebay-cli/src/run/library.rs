//! The place of the library that `forebay run` preloads.

use std::ffi::OsString;
use std::path::Path;

const NAME: &str = "libforebay_aio.so";

/// Returns the path of the library: beside the program, or in `lib` or `lib/forebay` beside its
/// folder. Packages use the last one.
///
/// # Errors
/// Returns a message if it is in none of them, or if the dynamic linker cannot take its path.
pub(super) fn find() -> Result<OsString, String> {
    let program = std::env::current_exe()
        .map_err(|error| format!("run: cannot find this program's own path: {error}"))?;
    find_beside(&program)
}

pub(super) fn find_beside(program: &Path) -> Result<OsString, String> {
    let folder = program.parent().unwrap_or(Path::new("/"));
    let places = [folder.to_owned(), folder.join("../lib"), folder.join("../lib/forebay")];
    let found = places.iter().map(|place| place.join(NAME)).find(|path| path.is_file());
    let Some(path) = found else {
        return Err(format!(
            "run: {NAME} is neither in {} nor in {} nor in {}: build it with `cargo build \
             --release`, or copy it to one of them",
            places[0].display(),
            places[1].display(),
            places[2].display()
        ));
    };
    let path = path.into_os_string();
    // LD_PRELOAD is split at these.
    if path.as_encoded_bytes().iter().any(|byte| matches!(byte, b' ' | b':')) {
        return Err(format!(
            "run: {}: the dynamic linker cannot preload a path with a space or a colon: move the \
             program and its library",
            path.display()
        ));
    }
    Ok(path)
}
