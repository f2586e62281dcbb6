//! Waits for events, and ends of iocbs.

use super::{Context, Locked, OF_LAYER, State};
use crate::abi::IoEvent;
use crate::eventfds::Signals;
use crate::file::Ended;
use crate::kernel::{KICK, Wait};
use crate::program::{EventArray, SignalsBlocked};
use crate::raw::Errno;
use forebay_core::Tag;
use std::time::{Duration, Instant};

/// The most events that a thread takes from the kernel at once.
pub(super) const NR_AT_ONCE: usize = 32;

/// The most events of the kernel that a thread waits for at once. A kick submits as many polls.
pub(super) const WAIT_MIN_MAX: usize = 8;

/// The longest wait for several events of the kernel. Another thread may take some of the events of
/// a kick, so that it does not end the wait.
const WIDE_WAIT_MAX: Duration = Duration::from_millis(10);

/// The arguments of `io_getevents`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Events {
    pub(crate) min: usize,
    /// `None` waits without a limit.
    pub(crate) timeout: Option<Duration>,
    /// The signal mask during the wait.
    pub(crate) mask: Option<*const libc::sigset_t>,
}

impl Context {
    /// Fills an array with events, and waits until there are `min`, the timeout has passed, or a
    /// signal handler has run. Returns how many there are.
    ///
    /// # Errors
    /// `EINTR` and `EINVAL` if there is no event, and a signal handler has run or the context has
    /// ended.
    pub(crate) fn events(&self, wanted: Events, mut array: EventArray) -> Result<usize, Errno> {
        let Events { mut min, timeout, mask } = wanted;
        let max = array.room();
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut blocked: Option<SignalsBlocked> = None;
        let mut has_looked = false;
        let mut state = self.enter()?;
        state.nr_calls += 1;
        let result = loop {
            while array.room() > 0
                && let Some(event) = self.ring.pop()
            {
                array.push(event);
            }
            let nr = array.nr();
            if state.is_gone {
                break if nr > 0 { Ok(nr) } else { Err(libc::EINVAL) };
            }
            let missing = min.saturating_sub(nr);
            state = self.release_due(state, missing);
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let is_over = left.is_some_and(|left| left.is_zero());
            let is_enough = nr >= min && (nr > 0 || has_looked);
            if is_enough || nr == max && max > 0 || is_over && has_looked {
                break Ok(nr);
            }
            let held = self.time_to_release(&state);
            let kernel_min = state.kernel_min(missing, is_over);
            let wide = (kernel_min > 1).then_some(WIDE_WAIT_MAX);
            let timeout = left.into_iter().chain(held).chain(wide).min();
            // Such a call may wait several times. A signal handler that runs between two waits
            // would end none of them, so it runs only during a wait.
            if kernel_min > 0 && (min > 1 || held.is_some() || has_looked) {
                blocked.get_or_insert_with(SignalsBlocked::new);
            }
            let mask = mask.or(blocked.as_ref().map(SignalsBlocked::before));
            let wait = Wait { min: kernel_min, timeout, mask };
            let waited;
            (state, waited) = self.wait_in_kernel(state, wait, &mut array);
            has_looked = true;
            if let Err(errno) = waited {
                if nr == 0 && self.ring.len() == 0 && !state.is_gone {
                    break Err(errno);
                }
                // A signal ends a wait that has events.
                min = 0;
            }
        };
        self.leave(state);
        result
    }

    /// Waits in the kernel without the lock, and then processes the events.
    ///
    /// The kernel writes them into the array. They stay there if each is the one that the program
    /// expects, and no other thread has posted events before.
    fn wait_in_kernel<'a>(
        &'a self,
        mut state: Locked<'a>,
        wait: Wait,
        array: &mut EventArray,
    ) -> (Locked<'a>, Result<(), Errno>) {
        let is_wait = wait.min > 0;
        if is_wait {
            state.wait_min = if state.nr_waiting == 0 { wait.min } else { state.wait_min };
            state.nr_waiting += 1;
        }
        drop(state);
        let mut events = Vec::new();
        let waited = match array.room() {
            // The caller takes no event, so one goes to the ring.
            0 => self.take_from_kernel(wait, 1, &mut events).map(|()| 0),
            _ => self.kernel.events_behind(wait, array),
        };
        let nr = waited.unwrap_or(0);
        let mut state = self.lock();
        state.nr_waiting -= u32::from(is_wait);
        let are_own = (0..nr).any(|nth| self.own_iocbs.contain(array.behind(nth).obj));
        if nr > 0 && !are_own && self.ring.len() == 0 {
            array.add(nr);
            state.nr_out -= nr as u32;
            state.nr_posted += nr as u64;
            state = self.release_due(self.submit_deferred(state), 0);
        } else {
            events.extend((0..nr).map(|nth| array.behind(nth)));
            state = self.process(state, &events);
        }
        (state, waited.map(drop))
    }

    /// Waits in the kernel, and replaces `events` by those that it returns.
    pub(super) fn take_from_kernel(
        &self,
        wait: Wait,
        room: usize,
        events: &mut Vec<IoEvent>,
    ) -> Result<(), Errno> {
        events.clear();
        self.kernel.events(wait, room, events)
    }

    /// Processes events of the kernel.
    pub(super) fn process<'a>(&'a self, mut state: Locked<'a>, events: &[IoEvent]) -> Locked<'a> {
        let (mut touched, mut signals): (Vec<u32>, _) = (Vec::new(), Signals::default());
        for event in events {
            if !self.own_iocbs.contain(event.obj) {
                self.ring.push(*event);
                state.nr_out -= 1;
                state.nr_posted += 1;
                continue;
            }
            if event.data == KICK {
                state.nr_kicks = state.nr_kicks.saturating_sub(1);
                continue;
            }
            if event.data & OF_LAYER == 0 {
                state.starts.end(event.data as u32);
                self.post(&mut state, event.data as u32, event.res, event.res2, &mut signals);
                continue;
            }
            let index = (event.data & !OF_LAYER) >> 32;
            let (index, tag) = (index as u32, Tag::from_index(event.data as u32 as usize));
            if Context::is_doubtful(&state, index, tag) {
                let mut ended = Vec::new();
                state = self.repeat_doubtful(state, tag, &mut ended);
                self.post_all(&mut state, ended, &mut signals);
            } else if let Some((_, file)) = state.files.get(index) {
                file.record_time(tag);
                file.complete(tag, event.res);
                if !touched.contains(&index) {
                    touched.push(index);
                }
            }
        }
        for index in touched {
            let mut ended = Vec::new();
            if let Some((_, file)) = state.files.get(index) {
                file.turn(&mut ended);
            }
            state = self.issue(state, index, false, &mut ended);
            self.post_all(&mut state, ended, &mut signals);
        }
        state = self.send(state, signals);
        if !events.is_empty() {
            state = self.submit_deferred(state);
        }
        self.release_due(state, 0)
    }

    pub(super) fn post_all(&self, state: &mut State, ended: Vec<Ended>, signals: &mut Signals) {
        for (number, res) in ended {
            self.post(state, number, res, 0, signals);
        }
    }

    /// Posts the event of an iocb with a record. The signal of its eventfd is due then.
    fn post(&self, state: &mut State, number: u32, res: i64, res2: i64, signals: &mut Signals) {
        let Some(record) = state.records.remove(number) else { return };
        self.ring.push(IoEvent { data: record.data, obj: record.obj, res, res2 });
        state.nr_out -= 1;
        state.nr_posted += 1;
        if let Some(resfd) = record.resfd {
            signals.push(resfd);
        }
    }

    /// Sends signals without the lock.
    pub(super) fn send<'a>(&'a self, state: Locked<'a>, signals: Signals) -> Locked<'a> {
        if signals.is_empty() {
            return state;
        }
        drop(state);
        signals.send();
        self.lock()
    }
}

impl State {
    /// Returns the minimum for the kernel when the caller still needs `missing` events. A lone
    /// waiter with no request of the layer in flight asks for up to [`WAIT_MIN_MAX`], so that it
    /// wakes up less often. Otherwise 1, or 0 to poll.
    fn kernel_min(&self, missing: usize, is_over: bool) -> usize {
        match missing {
            _ if is_over => 0,
            2.. if self.nr_waiting == 0 && !self.is_serving && self.records.nr_layered() == 0 => {
                missing.min(WAIT_MIN_MAX)
            }
            _ => missing.min(1),
        }
    }
}
