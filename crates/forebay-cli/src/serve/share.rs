//! `--shared`: disks whose image other programs may write to at the same time.

use crate::failure::Failure;
use forebay::Spec;

/// Drivers of files and block devices: those that lock the image.
const LOCKING: [&str; 3] = ["file", "aio", "psync"];

/// Returns the specs with `lock=shared`, where they have a file and no `lock` of their own.
///
/// # Errors
/// No disk of them has a file, so that the option would have no effect.
pub(super) fn shared(specs: &[String]) -> Result<Vec<String>, Failure> {
    if !specs.iter().any(|spec| locks(spec)) {
        let message =
            "--shared: none of the disks is a file or block device, which could be shared";
        return Err(Failure::Usage(message.to_owned()));
    }
    let share = |spec: &String| match locks(spec) && !has_lock(spec) {
        true if spec.contains('?') => format!("{spec}&lock=shared"),
        true => format!("{spec}?lock=shared"),
        false => spec.clone(),
    };
    Ok(specs.iter().map(share).collect())
}

/// Returns whether the driver locks an image. A spec that cannot be parsed is refused when it is
/// opened.
fn locks(spec: &str) -> bool {
    let Ok(spec) = Spec::parse(spec) else { return true };
    LOCKING.contains(&spec.driver()) || (spec.driver() == "fault" && locks(spec.target()))
}

fn has_lock(spec: &str) -> bool {
    let keys = spec.rsplit_once('?').map_or("", |(_, keys)| keys);
    keys.split('&').any(|key| key.starts_with("lock="))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_shared_and_other_disks_are_left_alone() {
        let specs = ["a.img", "b.img?direct=on", "ram:1M", "fault:c.img?rule=read:io"];
        let with = ["a.img?lock=shared", "b.img?direct=on&lock=shared", "ram:1M"];
        let shared = shared(&specs.map(String::from)).expect("three are files");
        assert_eq!(shared[..3], with);
        assert_eq!(shared[3], "fault:c.img?rule=read:io&lock=shared");
    }

    #[test]
    fn a_lock_of_the_spec_stays() {
        let specs = ["a.img?lock=off".to_owned()];
        assert_eq!(shared(&specs).expect("a file"), specs);
    }

    #[test]
    fn it_is_refused_where_it_has_no_effect() {
        assert!(shared(&["ram:1M".to_owned(), "null:1M".to_owned()]).is_err());
    }
}
