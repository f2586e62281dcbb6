//! Attributes in `/sys/dev/block` of the device that a file is on, or that it is.

use std::fs;
use std::path::PathBuf;

/// The `queue` folder of a block device.
#[derive(Debug)]
pub(super) struct Queue(PathBuf);

impl Queue {
    /// Returns the queue of device `dev` (an `st_dev` or `st_rdev`), or of the disk that it is a
    /// partition of.
    pub(super) fn of(dev: u64) -> Option<Queue> {
        let (major, minor) = (libc::major(dev), libc::minor(dev));
        let device = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        [device.join("queue"), device.join("../queue")]
            .into_iter()
            .find(|folder| folder.is_dir())
            .map(Queue)
    }

    /// Returns the name of the device, such as `vda`.
    pub(super) fn device(&self) -> Option<String> {
        let folder = self.0.canonicalize().ok()?;
        Some(folder.parent()?.file_name()?.to_str()?.to_owned())
    }

    /// Returns the scheduler in use: the name in brackets.
    pub(super) fn scheduler(&self) -> Option<String> {
        let all = self.text("scheduler")?;
        let (_, after) = all.split_once('[')?;
        Some(after.split_once(']')?.0.to_owned())
    }

    /// Returns a queue with the files of `folder` as its attributes.
    #[cfg(test)]
    pub(super) fn at(folder: &std::path::Path) -> Queue {
        Queue(folder.to_owned())
    }

    /// Returns a number of the queue, such as `max_sectors_kb`.
    pub(super) fn number(&self, attribute: &str) -> Option<u64> {
        self.text(attribute)?.parse().ok()
    }

    /// Returns a number of the queue if it is above 0, limited to 32 bits.
    pub(super) fn positive(&self, attribute: &str) -> Option<u32> {
        let number = self.number(attribute).filter(|number| *number > 0)?;
        Some(number.min(u64::from(u32::MAX)) as u32)
    }

    /// Returns a text of the queue, such as `write_cache`.
    pub(super) fn text(&self, attribute: &str) -> Option<String> {
        let text = fs::read_to_string(self.0.join(attribute)).ok()?;
        Some(text.trim().to_owned())
    }
}

/// Returns the names of a device `dev`, or of the disk that it is a partition of, and of the
/// kernel's scheduler that it has now. `None` if `/sys` does not show them.
pub(crate) fn scheduler_of(dev: u64) -> Option<(String, String)> {
    let queue = Queue::of(dev)?;
    Some((queue.device()?, queue.scheduler()?))
}

#[cfg(test)]
mod tests {
    use super::Queue;

    #[test]
    fn scheduler_in_use_is_the_one_in_brackets() {
        let folder = tempfile::tempdir().expect("a folder");
        let queue = Queue::at(folder.path());
        for (text, name) in [
            ("[none] mq-deadline kyber bfq\n", Some("none")),
            ("none [mq-deadline] kyber\n", Some("mq-deadline")),
            ("none\n", None),
        ] {
            std::fs::write(folder.path().join("scheduler"), text).expect("it can be written");
            assert_eq!(queue.scheduler().as_deref(), name);
        }
    }
}
