//! A context of the program: it submits iocbs, and hands out their events.
//!
//! One thread at a time reaps: it waits in the kernel without the lock, and then posts events with
//! it. A thread in `io_getevents` reaps if no other does. Otherwise the service thread of the
//! context does ([`service`](crate::service)), for programs that wait for an eventfd or read the
//! ring.
// Passes iocbs to the kernel by address.
#![allow(unsafe_code)]

use crate::abi::{FLAG_RESFD, IoEvent, Iocb};
use crate::area::{self, Counter};
use crate::file::{Ended, File};
use crate::files::Files;
use crate::kernel::{Errno, Kernel};
use crate::plan::{Plan, op_of};
use crate::program;
use crate::records::{Record, Records};
use crate::ring::Ring;
use forebay_core::{Policy, Tag};
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

/// Marks the data of a kernel's event as that of a request of the layer.
const OF_LAYER: u64 = 1 << 63;

/// The most requests of a file at the kernel.
const DEPTH_MAX: u32 = 1024;

/// The longest wait in the kernel.
const WAIT_MAX: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Context {
    ring: Ring,
    kernel: Kernel,
    nr: u32,
    policy: Policy,
    state: Mutex<State>,
    /// An event was posted, no thread reaps any more, or the context is gone.
    changed: Condvar,
    /// The service thread may have work.
    pub(crate) wake_service: Condvar,
    pub(crate) service: Once,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    records: Records,
    files: Files,
    /// The number of iocbs that were submitted and have not ended.
    pub(crate) nr_out: u32,
    /// The number of events posted so far.
    pub(crate) nr_posted: u64,
    /// A thread waits in the kernel for events, or will.
    pub(crate) is_reaping: bool,
    /// The number of threads in `io_getevents` that wait.
    pub(crate) nr_waiting: u32,
    pub(crate) is_gone: bool,
    /// An iocb has had an eventfd.
    pub(crate) has_eventfd: bool,
    /// The service thread sleeps until it is woken.
    pub(crate) service_sleeps: bool,
}

impl Context {
    pub(crate) fn new(nr: u32, id: u32, policy: Policy) -> Result<Context, Errno> {
        let kernel = Kernel::new(nr)?;
        Ok(Context {
            ring: Ring::new(nr, id)?,
            kernel,
            nr,
            policy,
            state: Mutex::default(),
            changed: Condvar::new(),
            wake_service: Condvar::new(),
            service: Once::new(),
        })
    }

    /// Returns the program's handle.
    pub(crate) fn address(&self) -> usize {
        self.ring.address()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the most iocbs that can be submitted at once.
    pub(crate) fn nr(&self) -> usize {
        self.nr as usize
    }

    /// Submits iocbs, in order. Returns how many were accepted.
    ///
    /// # Errors
    /// The errno for the first iocb.
    pub(crate) fn submit(&self, iocbs: &[usize]) -> Result<usize, Errno> {
        let mut state = self.lock();
        if state.is_gone {
            return Err(libc::EINVAL);
        }
        let room = self.nr.saturating_sub(state.nr_out + self.ring.len()) as usize;
        let wanted = iocbs.len().min(room);
        if wanted == 0 {
            return if iocbs.is_empty() { Ok(0) } else { Err(libc::EAGAIN) };
        }
        let (copies, fault) = program::copy_iocbs(&iocbs[..wanted]);
        if copies.is_empty() {
            return Err(fault.unwrap_or(libc::EFAULT));
        }
        let plan = Plan::of(&copies);
        let (accepted, error) = self.submit_raw(&mut state, iocbs, &copies, &plan);
        if let (0, Some(errno)) = (accepted, error) {
            return Err(errno);
        }
        self.submit_layered(&mut state, iocbs, &copies[..accepted], &plan);
        area::add(Counter::Iocbs, accepted as u64);
        if state.has_eventfd || state.service_sleeps {
            self.wake_service.notify_one();
        }
        Ok(accepted)
    }

    /// Submits the iocbs that do not merge, with one system call. Returns how many of all iocbs are
    /// accepted if those of the layer before the first refused one are, and the errno of that one.
    fn submit_raw(
        &self,
        state: &mut State,
        iocbs: &[usize],
        copies: &[Iocb],
        plan: &Plan,
    ) -> (usize, Option<Errno>) {
        let (mut accepted, mut error) = (copies.len(), None);
        let mut raws = Vec::with_capacity(copies.len());
        let is_raw = |(_, copy): &(usize, &Iocb)| plan.file_of(copy).is_none();
        for (nth, copy) in copies.iter().enumerate().filter(is_raw) {
            let record = record_of(iocbs[nth], copy);
            if let Some(errno) = record.resfd.and_then(|fd| program::check_eventfd(fd).err()) {
                (accepted, error) = (nth, Some(errno));
                break;
            }
            state.has_eventfd |= record.resfd.is_some();
            raws.push((nth, without_eventfd(copy, state.records.insert(record))));
        }
        let mut list: Vec<_> = raws.iter_mut().map(|(_, own)| std::ptr::from_mut(own)).collect();
        let mut nr_done = 0;
        while nr_done < list.len() {
            // SAFETY: the copies are in `raws`. The program keeps their memory.
            match unsafe { self.kernel.submit(&mut list[nr_done..]) } {
                Ok(nr) => nr_done += nr,
                Err(errno) => {
                    (accepted, error) = (raws[nr_done].0, Some(errno));
                    break;
                }
            }
        }
        for (_, own) in &raws[nr_done..] {
            state.records.remove(own.data as u32);
        }
        state.nr_out += nr_done as u32;
        area::add(Counter::Requests, nr_done as u64);
        (accepted, error)
    }

    /// Submits the others through the layer.
    fn submit_layered(&self, state: &mut State, iocbs: &[usize], copies: &[Iocb], plan: &Plan) {
        let mut plugged: Vec<u32> = Vec::new();
        let depth = self.nr.min(DEPTH_MAX);
        for (nth, copy) in copies.iter().enumerate() {
            let Some(id) = plan.file_of(copy) else { continue };
            let record = record_of(iocbs[nth], copy);
            state.has_eventfd |= record.resfd.is_some();
            let number = state.records.insert(record);
            state.nr_out += 1;
            let index = state.files.index_of(id, || File::new(id.fd, depth, self.policy));
            let (_, file) = state.files.get(index).expect("it was found or created");
            let segments = program::segments_of(copy);
            let op = op_of(copy);
            let is_plugged = file.room() > 0
                && segments
                    .as_ref()
                    .is_some_and(|segments| file.plug(op, copy.offset as u64, segments, number));
            if is_plugged {
                if !plugged.contains(&index) {
                    plugged.push(index);
                }
            } else {
                self.submit_refused(state, number, copy);
            }
        }
        for index in plugged {
            let mut ended = Vec::new();
            if let Some((_, file)) = state.files.get(index) {
                area::add(Counter::Merges, file.unplug(&mut ended).into());
            }
            self.issue(state, index, true, &mut ended);
            self.post_all(state, ended);
        }
        state.files.forget_idle();
    }

    /// Submits an iocb that the layer does not take, after it was accepted: its end has the errno.
    fn submit_refused(&self, state: &mut State, number: u32, copy: &Iocb) {
        let mut own = without_eventfd(copy, number);
        area::add(Counter::Requests, 1);
        // SAFETY: the copy is there. The program keeps its memory.
        if let Err(errno) = unsafe { self.kernel.submit(&mut [&raw mut own]) } {
            self.post(state, number, -i64::from(errno), 0);
        }
    }

    /// Passes the requests of a file to the kernel, until none is left. `is_known`: the descriptor
    /// was just seen to be that of the file. Otherwise this checks it, and requests fail if the
    /// program has closed it.
    fn issue(&self, state: &mut State, index: u32, is_known: bool, ended: &mut Vec<Ended>) {
        while let Some((id, file)) = state.files.get(index) {
            let mut outgoing = file.take_outgoing();
            if outgoing.is_empty() {
                return;
            }
            if !is_known && program::file_of(id.fd) != Some(*id) {
                outgoing.iter().for_each(|rq| file.complete(rq.tag, -i64::from(libc::EIO)));
                file.turn(ended);
                continue;
            }
            for rq in &mut outgoing {
                rq.iocb.data = OF_LAYER | u64::from(index) << 32 | rq.tag.index() as u64;
                if rq.vectors.len() > 1 {
                    rq.iocb.buf = rq.vectors.as_ptr().expose_provenance() as u64;
                }
            }
            area::add(Counter::Requests, outgoing.len() as u64);
            let mut list: Vec<_> = outgoing.iter_mut().map(|rq| &raw mut rq.iocb).collect();
            let (mut nr_done, mut is_any_refused) = (0, false);
            while nr_done < list.len() {
                // SAFETY: the iocbs and their vectors are in `outgoing`. The program keeps their
                // memory.
                match unsafe { self.kernel.submit(&mut list[nr_done..]) } {
                    Ok(nr) => nr_done += nr,
                    Err(errno) => {
                        file.complete(outgoing[nr_done].tag, -i64::from(errno));
                        (nr_done, is_any_refused) = (nr_done + 1, true);
                    }
                }
            }
            if is_any_refused {
                file.turn(ended);
            }
        }
    }

    /// Processes events of the kernel.
    pub(crate) fn process(&self, state: &mut State, events: &[IoEvent]) {
        let mut touched: Vec<u32> = Vec::new();
        for event in events {
            if event.data & OF_LAYER == 0 {
                self.post(state, event.data as u32, event.res, event.res2);
                continue;
            }
            let index = (event.data & !OF_LAYER) >> 32;
            let (index, tag) = (index as u32, event.data as u32 as usize);
            if let Some((_, file)) = state.files.get(index) {
                file.complete(Tag::from_index(tag), event.res);
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
            self.issue(state, index, false, &mut ended);
            self.post_all(state, ended);
        }
    }

    fn post_all(&self, state: &mut State, ended: Vec<Ended>) {
        for (number, res) in ended {
            self.post(state, number, res, 0);
        }
    }

    /// Posts the event of an iocb, and then signals its eventfd.
    fn post(&self, state: &mut State, number: u32, res: i64, res2: i64) {
        let Some(record) = state.records.remove(number) else { return };
        self.ring.push(IoEvent { data: record.data, obj: record.obj, res, res2 });
        state.nr_out -= 1;
        state.nr_posted += 1;
        if let Some(resfd) = record.resfd {
            program::signal(resfd);
        }
    }

    /// Waits in the kernel for at most `timeout`, and posts the events. The caller has seen that no
    /// thread reaps.
    pub(crate) fn reap<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        min: usize,
        timeout: Option<Duration>,
    ) -> (MutexGuard<'a, State>, Result<(), Errno>) {
        state.is_reaping = true;
        drop(state);
        let mut events = Vec::new();
        let room = self.nr as usize;
        // The context cannot end while a thread is in the kernel.
        let limit = timeout.map_or(WAIT_MAX, |timeout| timeout.min(WAIT_MAX));
        let waited = self.kernel.events(min, room, Some(limit), &mut events);
        let mut state = self.lock();
        state.is_reaping = false;
        self.process(&mut state, &events);
        if state.nr_waiting > 0 || state.is_gone {
            self.changed.notify_all();
        }
        (state, waited)
    }

    /// Takes up to `max` events, and waits until there are `min` or `timeout` has passed.
    ///
    /// # Errors
    /// `EINTR` if a signal ends the wait and there is no event; `EINVAL` if the context is gone.
    pub(crate) fn events(
        &self,
        mut min: usize,
        max: usize,
        timeout: Option<Duration>,
        mut take: impl FnMut(IoEvent),
    ) -> Result<usize, Errno> {
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut nr = 0;
        let mut state = self.lock();
        let mut has_looked = false;
        loop {
            if state.is_gone {
                return Err(libc::EINVAL);
            }
            while nr < max
                && let Some(event) = self.ring.pop()
            {
                take(event);
                nr += 1;
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let is_over = left.is_some_and(|left| left.is_zero());
            if nr >= min.max(usize::from(!has_looked && max > 0)) || has_looked && is_over {
                return Ok(nr);
            }
            let is_last = is_over || nr >= min;
            if state.is_reaping {
                if is_last {
                    return Ok(nr);
                }
                state.nr_waiting += 1;
                let pause = left.unwrap_or(Duration::from_secs(3600));
                let waited = self.changed.wait_timeout(state, pause);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
                state.nr_waiting -= 1;
                continue;
            }
            let (wanted, limit) =
                if is_last { (0, Some(Duration::ZERO)) } else { (min - nr, left) };
            // Several iocbs may be one request.
            let waited;
            (state, waited) = self.reap(state, wanted.min(1), limit);
            has_looked = true;
            match waited {
                Err(_) if state.is_gone => {}
                Err(errno) if nr == 0 && self.ring.len() == 0 => return Err(errno),
                // A signal ends a wait that has events.
                Err(_) => min = 0,
                Ok(()) => {}
            }
        }
    }

    /// Ends the context. Waits until the kernel uses no memory of its iocbs.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.is_gone = true;
        self.changed.notify_all();
        self.wake_service.notify_all();
        while state.is_reaping {
            let woken = self.changed.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
        self.kernel.destroy();
    }
}

fn record_of(obj: usize, copy: &Iocb) -> Record {
    let resfd = (copy.flags & FLAG_RESFD != 0).then_some(copy.resfd);
    Record { obj: obj as u64, data: copy.data, resfd }
}

/// Returns the iocb for the kernel: its event has the number of the record, and signals nothing.
fn without_eventfd(copy: &Iocb, number: u32) -> Iocb {
    let flags = copy.flags & !FLAG_RESFD;
    Iocb { data: number.into(), flags, resfd: 0, ..*copy }
}
