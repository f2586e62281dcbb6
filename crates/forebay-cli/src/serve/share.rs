//! `--shared`: disks with images that other programs may write at the same time.

use crate::failure::Failure;
use forebay::Spec;

/// Effect of `--shared` on one disk.
enum Effect {
    /// Others may write to the image, with this spec.
    Shared(String),
    /// The disk has no image.
    NoFile,
    /// The spec chooses the lock itself.
    OwnLock,
}

/// Returns the specs with `lock=shared` added to those that have a file and no `lock`.
///
/// # Errors
/// Returns an error if the option changes no disk, or contradicts `exclusive=on`.
pub(super) fn shared(specs: &[String]) -> Result<Vec<String>, Failure> {
    let (mut shared, mut reasons) = (Vec::new(), Vec::new());
    let mut has_own_lock = false;
    for text in specs {
        match effect(text)? {
            Effect::Shared(spec) => shared.push(spec),
            unchanged => {
                reasons.push(match unchanged {
                    Effect::OwnLock => format!("{text} has a key lock"),
                    _ => format!("{text} is not a file or block device"),
                });
                has_own_lock |= matches!(unchanged, Effect::OwnLock);
                shared.push(text.clone());
            }
        }
    }
    if reasons.len() < specs.len() {
        return Ok(shared);
    }
    let remedy = match has_own_lock {
        true => "leave out the option or the key",
        false => "leave out the option",
    };
    Err(Failure::Usage(format!("--shared has no effect: {}: {remedy}", reasons.join("; "))))
}

fn effect(text: &str) -> Result<Effect, Failure> {
    let Ok(mut spec) = Spec::parse(text) else {
        // Opening the disk refuses the spec, with the reason.
        return Ok(Effect::Shared(text.to_owned()));
    };
    if spec.file().is_none() {
        return Ok(Effect::NoFile);
    }
    if spec.switch("exclusive") == Some(true) {
        return Err(Failure::Usage(format!(
            "--shared: {text}: exclusive=on lets no other program use the image: leave out one of \
             them"
        )));
    }
    if spec.get("lock").is_some() {
        return Ok(Effect::OwnLock);
    }
    spec.set("lock", "shared");
    Ok(Effect::Shared(spec.to_string()))
}

#[cfg(test)]
mod tests {
    fn shared(specs: &[&str]) -> Result<Vec<String>, String> {
        let specs: Vec<_> = specs.iter().map(|spec| (*spec).to_owned()).collect();
        super::shared(&specs).map_err(|failure| failure.to_string())
    }

    #[test]
    fn files_are_shared_and_other_disks_are_left_alone() {
        let specs = ["a.img", "b.img?direct=on", "ram:1M", "fault:c.img?rule=read:io", "d?lock=on"];
        let expected = [
            "a.img?lock=shared",
            "b.img?direct=on&lock=shared",
            "ram:1M",
            "fault:c.img?rule=read:io&lock=shared",
            "d?lock=on",
        ];
        assert_eq!(shared(&specs).expect("three are files"), expected);
        // An escaped `?` in the path, and a `lock=` that is not a key.
        let path = "lock=%3F/a.img";
        assert_eq!(shared(&[path]).expect("a file"), [format!("{path}?lock=shared")]);
    }

    #[test]
    fn the_option_is_refused_if_it_changes_no_disk() {
        let message = shared(&["a.img?lock=off"]).expect_err("the key decides");
        let expected = "--shared has no effect: a.img?lock=off has a key lock: leave out the \
                        option or the key";
        assert_eq!(message, expected);
        let message = shared(&["ram:1M", "fault:null:1M"]).expect_err("no file");
        let expected = "--shared has no effect: ram:1M is not a file or block device; \
                        fault:null:1M is not a file or block device: leave out the option";
        assert_eq!(message, expected);
    }

    #[test]
    fn the_option_is_refused_beside_exclusive() {
        for specs in [&["a.img?exclusive=on"][..], &["b.img", "a.img?exclusive=on"]] {
            let message = shared(specs).expect_err("it contradicts the key");
            let expected = "--shared: a.img?exclusive=on: exclusive=on lets no other program use \
                            the image: leave out one of them";
            assert_eq!(message, expected);
        }
        assert!(shared(&["a.img?exclusive=off"]).is_ok());
    }
}
