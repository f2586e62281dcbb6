//! The progress line of running jobs, without the carriage return before it.

use std::fmt::Write;

use super::number;
use crate::generator::{Direction, Mix, Pattern};
use crate::measures::Units;

/// The values of the progress line.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Progress {
    /// The number of running jobs.
    pub jobs: u32,
    /// The state of each job: see [`state_letter`].
    pub states: Vec<char>,
    /// The completed part, percent, if it is known.
    pub percent: Option<f64>,
    /// Bytes and I/Os per second, by [`Direction`].
    pub rates: [(u64, u64); 3],
    /// The units of rates.
    pub units: Units,
    /// Seconds left, if they are known.
    pub seconds_left: Option<u64>,
}

impl Progress {
    /// Returns the line.
    pub fn render(&self) -> String {
        let mut line = format!("Jobs: {} (f={}): [{}]", self.jobs, self.jobs, runs(&self.states));
        // Writing into a String does not fail.
        let _ = match self.percent {
            Some(percent) => write!(line, "[{percent:.1}%]"),
            None => write!(line, "[-.-%]"),
        };
        let bandwidth = |(bytes, _)| self.units.rate(bytes);
        let iops = |(_, ios)| number::count(ios);
        let (bandwidth, iops) = (self.each(bandwidth), self.each(iops));
        if !iops.is_empty() {
            let _ = write!(line, "[{bandwidth}][{iops} IOPS]");
        }
        let _ = write!(line, "[eta {}]", self.seconds_left.map_or("--".to_owned(), clock));
        line
    }

    fn each(&self, text: impl Fn((u64, u64)) -> String) -> String {
        let busy = Direction::ALL.iter().zip(self.rates).filter(|(_, rate)| rate.1 > 0);
        let parts: Vec<_> = busy
            .map(|(direction, rate)| format!("{}={}", &direction.word()[..1], text(rate)))
            .collect();
        parts.join(",")
    }
}

/// Returns fio's letter for a job with this pattern: a capital if it is sequential.
pub fn state_letter(pattern: Pattern) -> char {
    let letter = match pattern.mix {
        Mix::Only(Direction::Read) => 'r',
        Mix::Only(Direction::Write) => 'w',
        Mix::Only(Direction::Trim) => 'd',
        Mix::ReadWrite | Mix::Recorded(_) => 'm',
    };
    if pattern.random { letter } else { letter.to_ascii_uppercase() }
}

/// Counts equal neighbours: `rrw` becomes `r(2),w(1)`.
fn runs(states: &[char]) -> String {
    let runs = states.chunk_by(|a, b| a == b);
    runs.map(|run| format!("{}({})", run[0], run.len())).collect::<Vec<_>>().join(",")
}

fn clock(seconds: u64) -> String {
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes:02}m:{seconds:02}s"),
        _ => format!("{hours:02}h:{minutes:02}m:{seconds:02}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_reads_like_that_of_fio() {
        let progress = Progress {
            jobs: 3,
            states: vec!['m', 'm', 'R'],
            percent: Some(33.333),
            rates: [(198_180_864, 48_300), (199_229_440, 48_500), (0, 0)],
            seconds_left: Some(61),
            ..Progress::default()
        };
        assert_eq!(
            progress.render(),
            "Jobs: 3 (f=3): [m(2),R(1)][33.3%][r=189MiB/s,w=190MiB/s][r=48.3k,w=48.5k IOPS]\
             [eta 01m:01s]"
        );
    }

    #[test]
    fn unknown_remaining_time_is_not_printed() {
        let progress = Progress { jobs: 1, states: vec!['R'], ..Progress::default() };
        assert_eq!(progress.render(), "Jobs: 1 (f=1): [R(1)][-.-%][eta --]");
    }

    #[test]
    fn letters_are_those_of_fio() {
        for (word, letter) in [("read", 'R'), ("randwrite", 'w'), ("rw", 'M'), ("randtrim", 'd')] {
            assert_eq!(state_letter(Pattern::from_word(word).expect(word)), letter);
        }
    }
}
