//! Colons in `--filename`: between several files in fio, after the driver in a spec.
//!
//! Source: fio's HOWTO, option `filename`: `:` separates files, and a colon inside a name is
//! written `\:`. A job has one disk here, so a colon that would separate files is an error, not a
//! part of a name. After `file:` the whole rest is one name. The name of an existing file is used
//! as it is.

use std::path::Path;

use forebay::Spec;
use forebay_fio::options::nearest;

/// The names of the drivers, for suggestions.
pub(super) const DRIVERS: [&str; 10] =
    ["null", "ram", "model", "file", "aio", "psync", "nbd", "vhost-user", "rbd", "fault"];

/// Returns the spec of the disk that `filename` names, with colons as in specs.
///
/// # Errors
/// A message, if it names several files.
pub(super) fn spec_text(filename: &str) -> Result<String, String> {
    let (place, keys) = match filename.find('?') {
        Some(at) => filename.split_at(at),
        None => (filename, ""),
    };
    Ok(one_place(place)? + keys)
}

fn one_place(place: &str) -> Result<String, String> {
    // Opening the disk reports syntax errors with better messages.
    let Ok(spec) = Spec::parse(place) else { return Ok(place.to_owned()) };
    match spec.driver() {
        "fault" => Ok(format!("fault:{}", one_place(spec.target())?)),
        driver @ ("aio" | "psync" | "vhost-user") => {
            Ok(format!("{driver}:{}", unescaped(spec.target())))
        }
        "file" => match place.strip_prefix("file:") {
            Some(path) => Ok(format!("file:{}", unescaped(path))),
            None if !place.contains(':') => Ok(place.to_owned()),
            None if Path::new(spec.target()).exists() => Ok(format!("file:{place}")),
            None => match separator(place) {
                Some(at) => Err(several(place, at)),
                None => Ok(format!("file:{}", unescaped(place))),
            },
        },
        _ => Ok(place.to_owned()),
    }
}

/// Returns the position of the first colon without a backslash before it.
fn separator(path: &str) -> Option<usize> {
    path.match_indices(':').map(|(at, _)| at).find(|&at| !path[..at].ends_with('\\'))
}

fn unescaped(path: &str) -> String {
    path.replace("\\:", ":")
}

fn several(place: &str, at: usize) -> String {
    let first = &place[..at];
    let hint = match nearest(first, DRIVERS.into_iter()) {
        Some(driver) => format!("; did you mean the driver `{driver}`?"),
        None => String::new(),
    };
    format!(
        "`{first}` is not a driver, and a job has one file, so `:` cannot separate several; a \
         colon in a name is written `\\:`{hint}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(filename: &str, spec: &str) {
        assert_eq!(spec_text(filename).as_deref(), Ok(spec), "{filename}");
    }

    #[test]
    fn a_colon_belongs_to_the_driver_or_to_the_name() {
        check("disk.img", "disk.img");
        check("disk.img?direct=on", "disk.img?direct=on");
        check("ram:1M?plug=none", "ram:1M?plug=none");
        check("file:a:b", "file:a:b");
        check(r"aio:a\:b?direct=on", "aio:a:b?direct=on");
        check(r"a\:b", "file:a:b");
        check(r"ram\:1M?direct=on", "file:ram:1M?direct=on");
        check(r"fault:a\:b?rule=read:io", "fault:file:a:b?rule=read:io");
        check("fault:ram:1M?rule=read:io", "fault:ram:1M?rule=read:io");
        check("nbd:x", "nbd:x");
        check("rbd:pool/image?id=a", "rbd:pool/image?id=a");
        check(r"vhost-user:a\:b?queue_size=8", "vhost-user:a:b?queue_size=8");
    }

    #[test]
    fn a_file_of_that_name_is_one_file() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("a:b");
        let place = path.display().to_string();
        assert!(spec_text(&place).is_err(), "{place}");
        std::fs::write(&path, "x").expect("a file");
        check(&place, &format!("file:{place}"));
    }

    #[test]
    fn several_files_are_refused() {
        let error = |filename: &str| spec_text(filename).expect_err(filename);
        let text = "`a.img` is not a driver, and a job has one file, so `:` cannot separate \
                    several; a colon in a name is written `\\:`";
        assert_eq!(error("a.img:b.img"), text);
        assert_eq!(error("fault:a.img:b.img?rule=read:io"), text);
        assert!(error("rma:1G").ends_with("; did you mean the driver `ram`?"));
        assert!(error("nul:1G").ends_with("; did you mean the driver `null`?"));
    }
}
