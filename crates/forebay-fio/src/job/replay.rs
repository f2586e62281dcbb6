//! The options of replays, and the job that follows from a log.
//!
//! Source: fio's HOWTO, the options `read_iolog`, `write_iolog` and `replay_*`. A log determines
//! the files, the pattern and the sizes of the job; its depth, engine and settings are those of the
//! options.

use std::sync::Arc;

use super::Job;
use crate::generator::sizes::SizeRule;
use crate::generator::{Direction, Mix, Pattern};
use crate::iolog::{Changes, Recording};
use crate::job::Extent;
use crate::units::Size;

/// The options.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplayOptions {
    /// `read_iolog`: the log to replay.
    pub read: Option<String>,
    /// `write_iolog`: the log to write.
    pub write: Option<String>,
    /// `replay_redirect`: the disk for all I/O.
    pub redirect: Option<String>,
    /// `replay_no_stall`, `replay_time_scale`, `replay_align`, `replay_scale`, `replay_skip`.
    pub changes: Changes,
}

impl ReplayOptions {
    /// Returns the reason why the options contradict each other, if they do.
    pub(super) fn conflict(&self, job: &Job) -> Option<String> {
        if self.read.is_none() {
            let is_changed = self.changes != Changes::default() || self.redirect.is_some();
            return is_changed.then(|| "--replay_* options need --read_iolog".to_owned());
        }
        let pace = &job.pace;
        let has_pace = pace.rate != [0; 3] || pace.rate_iops != [0; 3] || !pace.thinktime.is_zero();
        let wrong = [
            ("rate, --rate_iops and --thinktime", has_pace),
            ("verify", job.verify),
            ("time_based", job.time_based),
            (
                "number_ios",
                job.variety.as_ref().is_some_and(|variety| variety.number_ios.is_some()),
            ),
            ("io_size", job.io_size.is_some()),
            ("offset_increment", job.files.offset_increment.is_some()),
            ("filesize", job.files.filesize.is_some()),
        ];
        let (name, _) = wrong.into_iter().find(|&(_, is_given)| is_given)?;
        Some(format!(
            "--{name}: the log of --read_iolog determines every I/O and its time; leave the option \
             out (--replay_time_scale changes the speed, --loops repeats the log)"
        ))
    }
}

impl Job {
    /// Makes the job a replay of this log, after its options have changed the log.
    ///
    /// # Errors
    ///
    /// A message, if no I/O is left, or the job names other files.
    pub fn replay_log(&mut self, recording: Recording) -> Result<(), String> {
        if self.filename.is_some() || self.files.opendir.is_some() {
            return Err("the log names its files itself; for another disk, use --replay_redirect \
                        instead of --filename or --opendir"
                .to_owned());
        }
        let redirect = self.replay.redirect.clone();
        let changes = Changes { one_file: redirect.is_some(), ..self.replay.changes };
        let recording = recording.changed(&changes);
        let lengths = Direction::ALL.map(|direction| recording.lengths(direction));
        let mix = match lengths {
            [None, None, None] => return Err("the log has no I/O to replay".to_owned()),
            [Some(_), None, None] => Mix::Only(Direction::Read),
            [None, Some(_), None] => Mix::Only(Direction::Write),
            [None, None, Some(_)] => Mix::Only(Direction::Trim),
            [_, _, None] => Mix::ReadWrite,
            _ => Mix::Recorded(lengths.map(|lengths| lengths.is_some())),
        };
        self.rw = Pattern { random: false, mix };
        self.bs = recording.alignment();
        // Trims may be much larger than the I/Os that need a buffer, so each direction has a rule.
        self.sizes = lengths.map(|lengths| match lengths {
            Some((_, max)) if max > self.bs => SizeRule::Range { min: self.bs, max },
            _ => SizeRule::Fixed(self.bs),
        });
        self.variety = None;
        (self.size, self.offset) = (None, Size::Bytes(0));
        self.io_size = Some(Size::Bytes(recording.total_bytes()));
        // A list is only shown: the plan takes the names from the log.
        self.filename = Some(redirect.unwrap_or_else(|| recording.files().join(":")));
        self.recording = Some(Arc::new(recording));
        Ok(())
    }

    /// Returns the names of the files of a replay, as its log has them. `None` for another job, and
    /// if all I/O goes to another disk.
    pub fn files_of_replay(&self) -> Option<&[String]> {
        let recording = self.recording.as_ref().filter(|_| self.replay.redirect.is_none())?;
        Some(recording.files())
    }

    /// Returns the part of file number `file` that a replay uses.
    pub(super) fn extent_of_replay(&self, file: u32) -> Option<Extent> {
        let end = self.recording.as_ref()?.end_of(file as u16);
        // A file that is only synced needs a block.
        let size = Some(Size::Bytes(end.max(self.bs.into())));
        Some(Extent { offset: Size::Bytes(0), increment: (Size::Bytes(0), 0), size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmdline::{Parsed, parse};

    /// Returns the job that replays a log with these lines.
    #[track_caller]
    fn replay_of(lines: &[&str]) -> Job {
        let args = ["--name=a", "--read_iolog=log"].map(Into::into);
        let Ok(Parsed::Run(command)) = parse(args) else { panic!("the arguments") };
        let log = format!("fio version 2 iolog\n{}\n", lines.join("\n"));
        let mut job = command.jobs[0].clone();
        job.replay_log(Recording::parse(&log).expect("a log")).expect("a replay");
        job
    }

    #[test]
    fn pattern_has_the_directions_of_the_log() {
        let (read, write, trim) = ("d read 0 512", "d write 0 512", "d trim 0 512");
        for (lines, word, letter) in [
            (&[read][..], "read", 'R'),
            (&[trim], "trim", 'D'),
            (&[read, write], "rw", 'M'),
            (&[trim, read], "read,trim", 'M'),
            (&[trim, write], "write,trim", 'M'),
            (&[trim, write, read], "read,write,trim", 'M'),
        ] {
            let job = replay_of(lines);
            assert_eq!(job.rw.word(), word);
            assert_eq!(crate::report::eta::state_letter(job.rw), letter, "{word}");
            for direction in Direction::ALL {
                let has = lines.iter().any(|line| line.contains(direction.word()));
                assert_eq!(job.rw.has(direction), has, "{word}: {direction:?}");
            }
        }
    }

    #[test]
    fn buffers_are_for_the_largest_read_or_write() {
        let job = replay_of(&["d read 0 1024", "d write 0 4096", "d trim 0 65536"]);
        assert_eq!((job.bs, job.buffer_bytes(), job.bs_max()), (1024, 4096, 65_536));
        let sizes = job.sizes.each_ref().map(|rule| (rule.min(), rule.max()));
        assert_eq!(sizes, [(1024, 1024), (1024, 4096), (1024, 65_536)]);
        assert_eq!(replay_of(&["d trim 0 512"]).buffer_bytes(), 0);
    }
}
