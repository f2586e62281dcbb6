//! Adaptive wait before a round, so that more requests are handled in it.
//!
//! A client that has received a dozen replies processes them for a while, and sends its next
//! requests one by one. A worker that waits for events wakes up at the first of them: the client
//! pays for the wake-up, and the batch has one request. So if clients are deep, that is, have many
//! more requests in flight than arrive in a round, the worker sleeps for a part of the time in
//! which they are busy anyway. Then it takes all requests that have arrived in one system call and
//! one plug.
//!
//! A trial finds out whether clients are deep: now and then a sleep is longer, and the requests
//! that arrive in it are those that clients send without receiving a reply. A usual sleep gathers
//! at most half as many, so that clients always have something left to do. Clients with few
//! requests in flight never wait, except for trials, which become rarer the less they find.
//!
//! Counterpart: adaptive interrupt moderation of network cards.

/// Requests that a trial must find for clients to count as deep.
const DEEP: u64 = 12;
/// A trial must also find this many times the requests of a usual round: otherwise there is little
/// to gain.
const WORTH: u64 = 4;
/// Length of a trial, ns.
const TRY_NS: u64 = 60_000;
/// Longest usual sleep, ns.
const PAUSE_MAX_NS: u64 = 50_000;
/// Shortest sleep, ns: a shorter one costs more than it saves.
const PAUSE_MIN_NS: u64 = 5_000;
/// Growth of the sleep from round to round, ns.
const STEP_NS: u64 = 1_000;
/// Rounds between trials: the first number, the largest, and that for deep clients.
const FIRST_ROUNDS: u32 = 64;
const MOST_ROUNDS: u32 = 16_384;
const DEEP_ROUNDS: u32 = 1024;

/// Estimate of the behaviour of a worker's clients.
#[derive(Debug)]
pub(crate) struct Coalesce {
    /// Requests that clients send without receiving a reply; 0 if they are not deep.
    backlog: u64,
    /// Length of the usual sleep, ns.
    pause_ns: u64,
    /// Requests and rounds since the last trial.
    nr: u64,
    nr_rounds: u32,
    /// Rounds until the next trial.
    every: u32,
    is_trying: bool,
}

impl Coalesce {
    pub(crate) fn new() -> Coalesce {
        let every = FIRST_ROUNDS;
        Coalesce { backlog: 0, pause_ns: 0, nr: 0, nr_rounds: 0, every, is_trying: false }
    }

    /// Returns how long to sleep before the next round, ns; 0 for no sleep. In this round `nr`
    /// requests arrived, and all received requests were answered.
    #[inline]
    pub(crate) fn pause_ns(&mut self, nr: u64) -> u64 {
        if self.is_trying {
            self.has_tried(nr);
        } else if 2 * nr > self.backlog {
            self.pause_ns = self.pause_ns * 7 / 8;
        } else {
            self.pause_ns = (self.pause_ns + STEP_NS).min(PAUSE_MAX_NS);
        }
        self.nr += nr;
        self.nr_rounds += 1;
        if self.nr_rounds >= self.every {
            self.is_trying = true;
            return TRY_NS;
        }
        if self.backlog == 0 || self.pause_ns < PAUSE_MIN_NS { 0 } else { self.pause_ns }
    }

    /// Handles a trial that has found this many requests.
    #[cold]
    fn has_tried(&mut self, found: u64) {
        let was_deep = self.backlog > 0;
        let usual = self.nr / u64::from(self.nr_rounds.max(1));
        let is_deep = found >= DEEP && (was_deep || found >= WORTH * usual);
        self.every = match (is_deep, was_deep) {
            (true, _) => DEEP_ROUNDS,
            (false, true) => FIRST_ROUNDS,
            (false, false) => (self.every * 2).min(MOST_ROUNDS),
        };
        self.backlog = if is_deep { found } else { 0 };
        if !is_deep || !was_deep {
            self.pause_ns = 0;
        }
        (self.nr, self.nr_rounds, self.is_trying) = (0, 0, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// Cost of a round for the server, without and per request, ns.
    const ROUND_NS: u64 = 4_000;
    const REQUEST_NS: u64 = 700;

    /// Simulates a client with `depth` requests in flight that takes `client_ns` per request, and a
    /// server with or without this mechanism. Returns the replies per second, and the requests per
    /// round.
    fn play(depth: u64, client_ns: u64, mut coalesce: Option<Coalesce>) -> (f64, f64) {
        let (mut now, mut free_at, mut nr_rounds, mut nr_replies) = (0_u64, 0_u64, 0, 0);
        let mut there: VecDeque<u64> = (0..depth).map(|_| 0).collect();
        while nr_rounds < 30_000 {
            now = now.max(there[0] + 2_000); // the wake-up
            let nr = there.iter().take_while(|at| **at <= now).count() as u64;
            now += ROUND_NS + REQUEST_NS * nr;
            for _ in 0..nr {
                there.pop_front();
                free_at = free_at.max(now) + client_ns;
                there.push_back(free_at);
            }
            now += coalesce.as_mut().map_or(0, |coalesce| coalesce.pause_ns(nr));
            nr_rounds += 1;
            nr_replies += nr;
        }
        (nr_replies as f64 * 1e9 / now as f64, nr_replies as f64 / f64::from(nr_rounds))
    }

    #[test]
    fn no_client_is_slowed_down_much() {
        for depth in [1, 2, 3, 4, 8, 12, 16, 32, 128] {
            for client_ns in [300, 1_500, 4_000, 10_000] {
                let (rate, _) = play(depth, client_ns, Some(Coalesce::new()));
                let (without, _) = play(depth, client_ns, None);
                let ratio = rate / without;
                assert!(
                    ratio > 0.95,
                    "depth {depth}, {client_ns} ns: {ratio} of the rate without sleeps"
                );
            }
        }
    }

    #[test]
    fn deep_clients_are_served_in_larger_rounds() {
        for (depth, client_ns) in [(32, 4_000), (128, 4_000), (32, 1_500), (128, 1_500)] {
            let (_, nr) = play(depth, client_ns, Some(Coalesce::new()));
            let (_, without) = play(depth, client_ns, None);
            let times = nr / without;
            assert!(
                times > 2.5,
                "depth {depth}, {client_ns} ns: {nr} in a round, {without} without"
            );
        }
    }

    #[test]
    fn a_client_that_is_not_deep_any_more_is_not_waited_for() {
        let mut coalesce = Coalesce::new();
        for _ in 0..10_000 {
            coalesce.pause_ns(if coalesce.is_trying { 100 } else { 5 });
        }
        assert!(coalesce.backlog > 0);
        let slept_ns: u64 = (0..100_000).map(|_| coalesce.pause_ns(1)).sum();
        assert!(slept_ns < 60_000_000, "{slept_ns} ns in 100000 rounds of one request");
    }
}
