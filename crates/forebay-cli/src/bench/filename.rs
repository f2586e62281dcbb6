//! Colons in `--filename`: between several files in fio, after the driver in a spec.
//!
//! Source: fio's HOWTO, option `filename`: `:` separates files, and a colon inside a name is
//! written `\:`. A spec begins with the name of a driver, and is one disk. After `file:` the whole
//! rest is one name. The name of an existing file is used as it is. Keys after the last file are
//! keys of all files.

use std::path::Path;

use forebay::Spec;
use forebay_fio::job::split_names;
use forebay_fio::options::nearest;

/// The names of the drivers, for suggestions.
pub(super) const DRIVERS: [&str; 10] =
    ["null", "ram", "model", "file", "aio", "psync", "nbd", "vhost-user", "rbd", "fault"];

/// Returns the specs of the disks that `filename` names, with colons as in specs. Plain names are
/// below `directory`, if there is one.
///
/// # Errors
/// A message, if a name is probably a mistyped driver, or a spec of a driver is to be below a
/// directory.
pub(super) fn spec_texts(filename: &str, directory: Option<&str>) -> Result<Vec<String>, String> {
    let (place, keys) = match filename.find('?') {
        Some(at) => filename.split_at(at),
        None => (filename, ""),
    };
    if let Some(directory) = directory {
        if let Some(driver) = named_driver(place) {
            return Err(format!(
                "--directory needs the name of a file, and `{driver}:` begins a device spec; \
                 write the directory into the name"
            ));
        }
        let directory = escaped(directory);
        let below = |name: String| format!("file:{directory}/{name}{keys}");
        return Ok(some_names(place)?.into_iter().map(below).collect());
    }
    let (wrapper, inner) = match place.strip_prefix("fault:") {
        Some(inner) => ("fault:", inner),
        None => ("", place),
    };
    if has_several(inner)? {
        let names = some_names(inner)?.into_iter();
        return Ok(names.map(|name| format!("{wrapper}file:{name}{keys}")).collect());
    }
    Ok(vec![one_place(place) + keys])
}

/// Returns the names in a list of files.
fn some_names(place: &str) -> Result<Vec<String>, String> {
    let names = split_names(place);
    match names.is_empty() {
        true => Err("expected the name of a file, found none between the colons".to_owned()),
        false => Ok(names),
    }
}

/// Returns the specs of the disks that a log of I/Os names: drivers, or paths. A path is taken as
/// it is, because a log has neither lists of files nor keys of files. It is below `directory`, if
/// there is one.
///
/// # Errors
/// A message, if a driver is to be below a directory.
pub(super) fn specs_in_log(
    names: &[String],
    directory: Option<&str>,
) -> Result<Vec<String>, String> {
    let spec = |name: &String| match (directory, is_spec(name)) {
        (None, true) => Ok(name.clone()),
        (None, false) => Ok(format!("file:{}", escaped(name))),
        (Some(directory), false) => Ok(format!("file:{}/{}", escaped(directory), escaped(name))),
        (Some(_), true) => Err(format!(
            "--directory needs the name of a file, and the log has the device spec '{name}'; use \
             --replay_redirect"
        )),
    };
    names.iter().map(spec).collect()
}

/// Returns the name of a file in a log, from which [`specs_in_log`] makes the same file.
pub(super) fn name_in_log(path: &Path) -> String {
    let text = path.display().to_string();
    if is_spec(&text) { format!("./{text}") } else { text }
}

/// Returns whether a name in a log is that of a driver, other than a file.
pub(super) fn is_driver(name: &str) -> bool {
    is_spec(name) && !name.starts_with("file:")
}

/// Returns whether a name in a log is a spec with a driver. Others are paths.
fn is_spec(name: &str) -> bool {
    let place = name.split('?').next().unwrap_or(name);
    match Spec::parse(place) {
        Ok(spec) => spec.driver() != "file" || name.starts_with("file:"),
        // Opening a driver of a later version reports it.
        Err(_) => !place.is_empty(),
    }
}

/// Returns the driver that a place names; plain paths name none.
fn named_driver(place: &str) -> Option<&'static str> {
    DRIVERS
        .into_iter()
        .find(|driver| place.strip_prefix(driver).is_some_and(|rest| rest.starts_with(':')))
}

/// Returns whether a place is a list of files.
fn has_several(place: &str) -> Result<bool, String> {
    let is_plain = Spec::parse(place).is_ok_and(|spec| spec.driver() == "file")
        && !place.starts_with("file:")
        && !Path::new(place).exists();
    let Some(at) = separator(place).filter(|_| is_plain) else { return Ok(false) };
    let first = &place[..at];
    let is_word = first.chars().all(|c| c.is_ascii_alphabetic() || c == '-');
    if is_word
        && !Path::new(first).exists()
        && let Some(driver) = nearest(first, DRIVERS.into_iter())
    {
        return Err(format!(
            "`{first}` is not a driver; did you mean the driver `{driver}`? For files of these \
             names, write ./{place}"
        ));
    }
    Ok(true)
}

fn one_place(place: &str) -> String {
    // Opening the disk reports syntax errors with better messages.
    let Ok(spec) = Spec::parse(place) else { return place.to_owned() };
    match spec.driver() {
        "fault" => format!("fault:{}", one_place(spec.target())),
        driver @ ("aio" | "psync" | "vhost-user") => {
            format!("{driver}:{}", unescaped(spec.target()))
        }
        "file" => match place.strip_prefix("file:") {
            Some(path) => format!("file:{}", unescaped(path)),
            None if !place.contains(':') => place.to_owned(),
            None if Path::new(spec.target()).exists() => format!("file:{place}"),
            None => format!("file:{}", unescaped(place)),
        },
        _ => place.to_owned(),
    }
}

/// Returns the position of the first colon without a backslash before it.
fn separator(path: &str) -> Option<usize> {
    path.match_indices(':').map(|(at, _)| at).find(|&at| !path[..at].ends_with('\\'))
}

/// Returns a path in the form of specs, in which `?` begins the keys.
pub(super) fn escaped(path: &str) -> String {
    path.replace('%', "%25").replace('?', "%3F")
}

fn unescaped(path: &str) -> String {
    path.replace("\\:", ":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(filename: &str, spec: &str) {
        assert_eq!(spec_texts(filename, None), Ok(vec![spec.to_owned()]), "{filename}");
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
        assert_eq!(spec_texts(&place, None).map(|all| all.len()), Ok(2), "{place}");
        std::fs::write(&path, "x").expect("a file");
        check(&place, &format!("file:{place}"));
    }

    #[test]
    fn several_files_are_separate_disks() {
        let specs = |filename: &str, directory| spec_texts(filename, directory).expect(filename);
        assert_eq!(specs("a.img:b.img", None), ["file:a.img", "file:b.img"]);
        assert_eq!(specs("./a:b?direct=on", None), ["file:./a?direct=on", "file:b?direct=on"]);
        assert_eq!(specs("file1:file2", None), ["file:file1", "file:file2"]);
        assert_eq!(specs("fault:a.img:b.img", None), ["fault:file:a.img", "fault:file:b.img"]);
        assert_eq!(specs("a:b", Some("/d")), ["file:/d/a", "file:/d/b"]);
        assert_eq!(specs(r"a\:b?direct=on", Some("d")), ["file:d/a:b?direct=on"]);
    }

    #[test]
    fn name_of_a_directory_is_no_spec() {
        for directory in ["/50%", "/a?b", "/a%3Fb", "/a%25b", "/a:b"] {
            let texts = spec_texts("x?direct=on", Some(directory)).expect(directory);
            let spec = Spec::parse(&texts[0]).expect(directory);
            assert_eq!(spec.target(), format!("{directory}/x"));
            assert_eq!(spec.get("direct"), Some("on"), "{directory}");
        }
    }

    #[test]
    fn path_in_a_log_is_the_same_file_after_a_replay() {
        let spec = |name: &str, directory| {
            let specs = specs_in_log(&[name.to_owned()], directory)?;
            Spec::parse(&specs[0]).map_err(|error| error.to_string())
        };
        for path in ["x", "c%3Fd", "q?x", "?", "?a=b", "a:b", r"a\:b", r"a\", "50%25", "/d/rma:1"] {
            assert_eq!(name_in_log(path.as_ref()), path);
            assert_eq!(spec(path, None).map(|spec| spec.file()), Ok(Some(path.into())), "{path}");
            let below = spec(path, Some("/50%3F?d")).map(|spec| spec.file());
            assert_eq!(below, Ok(Some(format!("/50%3F?d/{path}").into())), "{path}");
        }
        for path in ["ram:1M", "file:x", "aio:x?y", "nbd://host/x?y"] {
            let read = spec(&name_in_log(path.as_ref()), None).map(|spec| spec.file());
            assert_eq!(read, Ok(Some(format!("./{path}").into())), "{path}");
        }
        assert_eq!(spec("ram:1M", None).map(|spec| spec.driver()), Ok("ram"));
        assert!(spec("ram:1M", Some("d")).is_err_and(|error| error.contains("--directory")));
        assert!(is_driver("psync:x") && !is_driver("file:x") && !is_driver("a:b"));
    }

    #[test]
    fn mistyped_driver_is_no_file() {
        let error = |filename: &str| spec_texts(filename, None).expect_err(filename);
        let text = "`rma` is not a driver; did you mean the driver `ram`? For files of these \
                    names, write ./rma:1G";
        assert_eq!(error("rma:1G"), text);
        assert!(error("nul:1G").contains("; did you mean the driver `null`? "));
        let refused = spec_texts("ram:1M", Some("d")).expect_err("a driver");
        assert!(refused.starts_with("--directory needs the name of a file, "), "{refused}");
    }
}
