//! Latencies by I/O priority, of jobs whose I/Os have several.

use super::Latency;

/// The latencies of one direction, by the number of `ioprio_set(2)`, ascending. 0 is no priority.
#[derive(Debug, Clone, Default)]
pub struct ByPriority(Vec<(u16, Latency)>);

impl ByPriority {
    /// Counts one latency.
    pub fn record(&mut self, ioprio: u16, ns: u64) {
        self.of(ioprio).record(ns);
    }

    /// Adds the latencies of another.
    pub(super) fn merge(&mut self, other: &Self) {
        other.0.iter().for_each(|(ioprio, latency)| self.of(*ioprio).merge(latency));
    }

    /// Returns class, level and latencies of each priority. As in fio, there are none if all I/Os
    /// have the same one.
    pub fn several(&self) -> impl Iterator<Item = (u16, u16, &Latency)> {
        let all = if self.0.len() > 1 { &self.0[..] } else { &[] };
        all.iter().map(|(ioprio, latency)| (ioprio >> 13, ioprio & 7, latency))
    }

    fn of(&mut self, ioprio: u16) -> &mut Latency {
        let at = match self.0.binary_search_by_key(&ioprio, |(known, _)| *known) {
            Ok(at) => at,
            Err(at) => {
                self.0.insert(at, (ioprio, Latency::default()));
                at
            }
        };
        &mut self.0[at].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_priorities_are_counted_apart_and_merged() {
        let mut one = ByPriority::default();
        one.record(0x2003, 10);
        assert_eq!(one.several().count(), 0, "all have the same priority");
        let mut other = ByPriority::default();
        other.record(0, 5);
        other.record(0x2003, 20);
        one.merge(&other);
        let counts: Vec<_> = one
            .several()
            .map(|(class, level, latency)| (class, level, latency.moments.sum()))
            .collect();
        assert_eq!(counts, [(0, 0, 5), (1, 3, 30)]);
    }
}
