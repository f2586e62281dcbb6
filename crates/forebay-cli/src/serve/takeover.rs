//! `--takeover-wait`: how long the disks wait for I/O of a killed predecessor.

use crate::failure::Failure;
use forebay::{DiskInfo, Spec};

/// Wait of disks that virtual machines use, seconds. A guest goes on when the server is back, so a
/// long wait serves it better than a server that gives up.
pub(super) const OF_DEVICES_S: u64 = 30;

const KEY: &str = "takeover_wait_ms";

/// Returns the specs with this wait for each disk on a file that has no wait of its own.
///
/// # Errors
/// Fails if `seconds` was given by the user and no disk waits by it.
pub(super) fn with_wait(
    specs: Vec<String>,
    seconds: u64,
    is_given: bool,
) -> Result<Vec<String>, Failure> {
    let mut has_effect = false;
    let mut with_one = |text: String| {
        // Opening the disk refuses a bad spec, with the reason.
        let Ok(mut spec) = Spec::parse(&text) else {
            has_effect = true;
            return text;
        };
        // Other programs may write to a shared image, so there is no wait.
        let waits = matches!(spec.get("lock"), None | Some("on"));
        if spec.file().is_none() || !waits || spec.get(KEY).is_some() {
            return text;
        }
        has_effect = true;
        spec.set(KEY, &(1000 * seconds).to_string());
        spec.to_string()
    };
    let specs = specs.into_iter().map(&mut with_one).collect();
    if is_given && !has_effect {
        return Err(Failure::Usage(format!(
            "--takeover-wait has no effect: no disk is a file or device that is locked (lock=on) \
             and has no {KEY} of its own: leave out the option"
        )));
    }
    Ok(specs)
}

/// Returns a warning if the disk of a virtual machine does not wait although it writes to a file.
pub(super) fn warning(info: &DiskInfo) -> Option<String> {
    let lock = info.lock.filter(|_| !info.limits.read_only && info.takeover_wait_ms.is_none())?;
    let (name, lock) = (info.spec.split('?').next().unwrap_or_default(), lock.name());
    Some(format!(
        "warning: {name}: with lock={lock} the server does not wait for I/O of a killed server: a \
         write of that server may replace newer data of the virtual machine: use lock=on, or wait \
         before you restart a killed server"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay::Disk;

    fn waiting(specs: &[&str], is_given: bool) -> Result<Vec<String>, String> {
        let specs = specs.iter().map(|spec| (*spec).to_owned()).collect();
        with_wait(specs, 7, is_given).map_err(|failure| failure.to_string())
    }

    #[test]
    fn files_that_are_locked_wait() {
        let specs = ["a.img", "ram:1M", "b.img?takeover_wait_ms=5", "c.img?lock=shared"];
        let expected = ["a.img?takeover_wait_ms=7000", specs[1], specs[2], specs[3]];
        for is_given in [false, true] {
            assert_eq!(waiting(&specs, is_given).expect("one waits"), expected);
        }
    }

    #[test]
    fn option_without_effect_is_refused() {
        let specs = ["null:1M", "b.img?takeover_wait_ms=5"];
        assert_eq!(waiting(&specs, false).expect("it is a default"), specs);
        let refused = waiting(&specs, true).expect_err("no disk waits by it");
        assert!(refused.contains("--takeover-wait has no effect"), "{refused}");
    }

    #[test]
    fn disk_of_a_machine_that_does_not_wait_is_named() {
        let image = tempfile::NamedTempFile::new().expect("a file");
        image.as_file().set_len(1 << 20).expect("room");
        let path = image.path().display();
        let warning = |keys: &str| {
            let disk = Disk::open(&format!("{path}{keys}")).expect("it opens");
            super::warning(disk.info())
        };
        for keys in ["", "?takeover_wait_ms=0", "?exclusive=on", "?lock=off&read_only=on"] {
            assert_eq!(warning(keys), None, "{keys}");
        }
        for lock in ["off", "shared"] {
            let text = warning(&format!("?lock={lock}")).expect(lock);
            assert!(text.starts_with(&format!("warning: {path}: with lock={lock} ")), "{text}");
        }
        assert_eq!(super::warning(Disk::open("ram:1M").expect("memory").info()), None);
    }
}
