//! Submission of iocbs: those of the layer become requests, the others go to the kernel as they
//! are.
//!
//! - An iocb that is alone in its call takes the short path ([`Context::submit_one`]), unless it
//!   has an eventfd or its time is measured. It is copied once, to the stack, to decide whether it
//!   is held. If not, the kernel reads the program's own iocb.
//! - Others of a call without the layer and without an eventfd are passed by the program's address
//!   too, in one list.
//! - One with an eventfd, or whose time is measured, has a record, and is submitted from the place
//!   of that record, without the eventfd: its event must be in the ring before this library
//!   signals.
//! - Requests of the layer are submitted from the places of their first records.
// Passes iocbs to the kernel by address.
#![allow(unsafe_code)]

use super::counts::{self, Call};
use super::{Context, Locked, OF_LAYER, State};
use crate::abi::{FLAG_RESFD, Iocb};
use crate::eventfds::Signals;
use crate::file::{Ended, File, Outgoing};
use crate::plan::{Planned, is_sync, op_of, plan_one};
use crate::program;
use crate::raw::Errno;
use crate::records::Record;

use forebay_core::Tag;
use forebay_run::area::{self, Counter};

/// An iocb that bypasses the layer.
#[derive(Debug)]
struct Raw {
    nth: usize,
    /// Its record, if it has an eventfd or its time is measured.
    record: Option<u32>,
}

impl Context {
    /// Submits the only iocb of a call. Returns 1.
    ///
    /// # Errors
    /// The errno for the iocb.
    pub(crate) fn submit_one(&self, address: usize) -> Result<usize, Errno> {
        let it = plan_one(address).ok_or(libc::EFAULT)?;
        // The time of an iocb is kept by its record.
        if it.resfd.is_some() || area::is_detailed() {
            return self.submit(vec![it]);
        }
        let mut state = self.enter()?;
        if self.room(&state) == 0 {
            self.leave(state);
            area::add(Counter::Full, 1);
            return Err(libc::EAGAIN);
        }
        state.nr_out += 1;
        let is_held;
        (state, is_held) = self.hold(state, std::slice::from_ref(&it));
        if is_held {
            self.leave(state);
            return Ok(1);
        }
        self.wake_others(&mut state);
        drop(state);
        // SAFETY: the program's iocb is there, and it keeps the memory that the iocb names.
        let result = unsafe { self.kernel.submit(&mut [program::iocb_at(address)]) };
        if let Err(errno) = result {
            let mut state = self.lock();
            state.nr_out -= 1;
            self.leave(state);
            return Err(errno);
        }
        self.leave_unlocked();
        area::add(Counter::Requests, 1);
        area::add(Counter::Iocbs, 1);
        area::add(Counter::Syncs, is_sync(&it.copy).into());
        Ok(1)
    }

    /// Returns how many more iocbs can be submitted: each has a place in the ring.
    fn room(&self, state: &State) -> u32 {
        self.nr_max.saturating_sub(state.nr_out + self.ring.len())
    }

    /// Submits the iocbs of a call, in order. Returns how many were accepted.
    ///
    /// # Errors
    /// The errno for the first iocb.
    pub(crate) fn submit(&self, mut planned: Vec<Planned>) -> Result<usize, Errno> {
        if planned.is_empty() {
            return Err(libc::EFAULT);
        }
        let call = Call::new(&planned);
        let mut state = self.enter()?;
        let nr_planned = planned.len();
        planned.truncate(self.room(&state) as usize);
        call.count_full(planned.len(), nr_planned);
        if planned.is_empty() {
            self.leave(state);
            return Err(libc::EAGAIN);
        }
        // Each has a place in the ring from now on.
        let nr = planned.len() as u32;
        state.nr_out += nr;
        if !state.has_eventfd && planned.iter().any(|it| matches!(it.resfd, Some(Ok(_)))) {
            state.has_eventfd = true;
            self.wake_service.notify_one();
        }
        let is_held;
        (state, is_held) = self.hold(state, &planned);
        if is_held {
            self.leave(state);
            return Ok(1);
        }
        let (raws, list, wrong) = self.raws_of(&mut state, &planned, &call);
        let (mut accepted, mut error) =
            wrong.map_or((planned.len(), None), |(nth, errno)| (nth, Some(errno)));
        let refused;
        (state, refused) = self.submit_raws(state, &raws, list);
        if let Some((nth, errno)) = refused {
            (accepted, error) = (nth, Some(errno));
        }
        state.nr_out -= nr - accepted as u32;
        planned.truncate(accepted);
        call.count(&planned);
        if planned.iter().any(|it| it.layered.is_some()) {
            state = self.submit_layered(state, planned, call.time());
        }
        self.leave(state);
        match error {
            Some(errno) if accepted == 0 => Err(errno),
            _ => Ok(accepted),
        }
    }

    /// Returns the iocbs that do not go through the layer, and their list for the kernel. Ends at
    /// the first one with a wrong eventfd, and returns its number in the call and the errno.
    fn raws_of(
        &self,
        state: &mut State,
        planned: &[Planned],
        call: &Call,
    ) -> (Vec<Raw>, Vec<*mut Iocb>, Option<(usize, Errno)>) {
        let (mut raws, mut list) = (Vec::new(), Vec::new());
        for (nth, it) in planned.iter().enumerate().filter(|(_, it)| it.layered.is_none()) {
            let record = match it.resfd {
                None if call.time() == 0 => None,
                None | Some(Ok(_)) => Some(state.records.insert(record_of(it, false))),
                Some(Err(errno)) => return (raws, list, Some((nth, errno))),
            };
            if let Some(record) = record {
                state.starts.begin(record, &it.copy, call.number(nth), call.time());
            }
            raws.push(Raw { nth, record });
            list.push(match record {
                None => program::iocb_at(it.address),
                Some(record) => self.put_raw(record, &it.copy),
            });
        }
        (raws, list, None)
    }

    /// Puts an iocb that the layer does not take into the place of its record. It has no eventfd
    /// there: this library signals it.
    fn put_raw(&self, record: u32, copy: &Iocb) -> *mut Iocb {
        let flags = copy.flags & !FLAG_RESFD;
        self.own_iocbs.put(record, Iocb { data: record.into(), flags, resfd: 0, ..*copy })
    }

    /// Submits the iocbs that do not go through the layer, with one system call, without the lock.
    /// Returns the number in the call of the first one that the kernel refuses, and its errno.
    fn submit_raws<'a>(
        &'a self,
        state: Locked<'a>,
        raws: &[Raw],
        mut list: Vec<*mut Iocb>,
    ) -> (Locked<'a>, Option<(usize, Errno)>) {
        if raws.is_empty() {
            return (state, None);
        }
        drop(state);
        let (mut nr_done, mut refused) = (0, None);
        while nr_done < list.len() {
            // SAFETY: the iocbs are the program's, or at the places of their records. The program
            // keeps the memory that they name.
            match unsafe { self.kernel.submit(&mut list[nr_done..]) } {
                Ok(nr) => nr_done += nr,
                Err(errno) => {
                    refused = Some((raws[nr_done].nth, errno));
                    break;
                }
            }
        }
        area::add(Counter::Requests, nr_done as u64);
        let mut state = self.lock();
        for record in raws[nr_done..].iter().filter_map(|raw| raw.record) {
            state.records.remove(record);
        }
        (state, refused)
    }

    /// Submits the others through the layer.
    fn submit_layered<'a>(
        &'a self,
        mut state: Locked<'a>,
        planned: Vec<Planned>,
        now: u64,
    ) -> Locked<'a> {
        let mut plugged: Vec<u32> = Vec::new();
        let mut others: Vec<(u32, *mut Iocb)> = Vec::new();
        let depth = self.depth();
        for mut it in planned {
            let Some((id, segments)) = it.layered.take() else { continue };
            let record = state.records.insert(record_of(&it, true));
            let index = state.files.index_of(id, || File::new(id, depth, self.policy));
            let (_, file) = state.files.get(index).expect("it was found or created");
            let (op, offset) = (op_of(&it.copy), it.copy.offset as u64);
            area::count(file.number(), Counter::Full, u64::from(file.room() == 0));
            if file.room() == 0 || !file.plug(op, offset, &segments, record) {
                let number = file.number();
                area::add_of_file(number, Counter::Requests, 1);
                state.starts.begin(record, &it.copy, number, now);
                others.push((record, self.put_raw(record, &it.copy)));
            } else if !plugged.contains(&index) {
                plugged.push(index);
            }
        }
        // An event of the kernel may be the end of several iocbs from now on.
        if state.wait_min > 1 {
            self.kick(&mut state);
        }
        let mut ended = Vec::new();
        for index in plugged {
            if let Some((_, file)) = state.files.get(index) {
                file.unplug(&mut ended);
            }
            state = self.issue(state, index, true, &mut ended);
        }
        state = self.submit_others(state, others, &mut ended);
        state.files.forget_idle();
        let mut signals = Signals::default();
        self.post_all(&mut state, ended, &mut signals);
        self.send(state, signals)
    }

    /// Submits iocbs that the layer does not take. The call has counted them as accepted already,
    /// so an errno of the kernel is the result of the iocb.
    fn submit_others<'a>(
        &'a self,
        state: Locked<'a>,
        others: Vec<(u32, *mut Iocb)>,
        ended: &mut Vec<Ended>,
    ) -> Locked<'a> {
        if others.is_empty() {
            return state;
        }
        drop(state);
        area::add(Counter::Requests, others.len() as u64);
        for (record, place) in others {
            // SAFETY: the iocb is at its place. The program keeps its memory.
            if let Err(errno) = unsafe { self.kernel.submit(&mut [place]) } {
                ended.push((record, -i64::from(errno)));
            }
        }
        self.lock()
    }

    /// Passes the requests of a file to the kernel, until none is left. `is_known`: the descriptor
    /// was just seen to be that of the file. Otherwise this checks it, and requests fail if the
    /// program has closed it, or opened another file in another way under its number.
    pub(super) fn issue<'a>(
        &'a self,
        mut state: Locked<'a>,
        index: u32,
        is_known: bool,
        ended: &mut Vec<Ended>,
    ) -> Locked<'a> {
        while let Some((_, file)) = state.files.get(index) {
            let mut outgoing = file.take_outgoing();
            if outgoing.is_empty() {
                break;
            }
            let mut refused = Vec::new();
            if !is_known {
                (outgoing, refused) = state.same_files(index, outgoing);
            }
            state = self.submit_requests(state, index, outgoing, refused, ended);
        }
        state
    }

    /// Submits requests of a file, and processes those that are refused.
    ///
    /// The lock is released during the system call. Accepted requests may end before it is taken
    /// again. A refused one still counts in its file, so the file stays in the table.
    fn submit_requests<'a>(
        &'a self,
        state: Locked<'a>,
        index: u32,
        mut outgoing: Vec<Outgoing>,
        mut refused: Vec<(Tag, Errno)>,
        ended: &mut Vec<Ended>,
    ) -> Locked<'a> {
        drop(state);
        refused.extend(self.pass(index, &mut outgoing));
        let mut state = self.lock();
        // The kernel may keep places for other processors. The end of another request frees one.
        let is_without_place = |rq: &mut Outgoing| refused.contains(&(rq.tag, libc::EAGAIN));
        let deferred = outgoing.extract_if(.., is_without_place);
        state.deferred.extend(deferred.map(|rq| {
            area::count(rq.number, Counter::Full, 1);
            (index, rq)
        }));
        refused.retain(|(_, errno)| *errno != libc::EAGAIN);
        state.refuse(index, &refused, ended);
        state
    }

    /// Submits the requests again that the kernel had no place for.
    pub(super) fn submit_deferred<'a>(&'a self, mut state: Locked<'a>) -> Locked<'a> {
        if state.deferred.is_empty() {
            return state;
        }
        for (index, rq) in std::mem::take(&mut state.deferred) {
            let mut ended = Vec::new();
            let (outgoing, refused) = state.same_files(index, vec![rq]);
            state = self.submit_requests(state, index, outgoing, refused, &mut ended);
            let mut signals = Signals::default();
            self.post_all(&mut state, ended, &mut signals);
            state = self.send(state, signals);
        }
        state
    }

    /// Submits requests of a file. Returns those that the kernel refuses.
    pub(super) fn pass(&self, index: u32, outgoing: &mut [Outgoing]) -> Vec<(Tag, Errno)> {
        for rq in outgoing.iter_mut() {
            rq.iocb.data = OF_LAYER | u64::from(index) << 32 | rq.tag.index() as u64;
            if rq.vectors.len() > 1 {
                rq.iocb.buf = rq.vectors.as_ptr().expose_provenance() as u64;
            }
        }
        counts::count_requests(outgoing);
        // Each request in flight has a record of its own.
        let put = |rq: &Outgoing| self.own_iocbs.put(rq.record, rq.iocb);
        let mut list: Vec<_> = outgoing.iter().map(put).collect();
        let (mut nr_done, mut refused) = (0, Vec::new());
        while nr_done < list.len() {
            // SAFETY: the iocbs are at their places, and their vectors in `outgoing`. The program
            // keeps their memory.
            match unsafe { self.kernel.submit(&mut list[nr_done..]) } {
                Ok(nr) => nr_done += nr,
                Err(errno) => {
                    refused.push((outgoing[nr_done].tag, errno));
                    nr_done += 1;
                }
            }
        }
        refused
    }
}

impl State {
    /// Divides requests of a file into those whose descriptor still refers to it, and the others,
    /// which fail.
    fn same_files(
        &mut self,
        index: u32,
        outgoing: Vec<Outgoing>,
    ) -> (Vec<Outgoing>, Vec<(Tag, Errno)>) {
        let id = self.files.get(index).map(|(id, _)| *id);
        let is_same = |rq: &Outgoing| {
            id.is_some_and(|id| program::direct_file(id.fd, op_of(&rq.iocb)) == Some(id))
        };
        let (same, others): (Vec<_>, Vec<_>) = outgoing.into_iter().partition(is_same);
        (same, others.iter().map(|rq| (rq.tag, libc::EIO)).collect())
    }

    /// Processes requests that the kernel has refused.
    pub(super) fn refuse(&mut self, index: u32, refused: &[(Tag, Errno)], ended: &mut Vec<Ended>) {
        if !refused.is_empty()
            && let Some((_, file)) = self.files.get(index)
        {
            refused.iter().for_each(|(tag, errno)| file.complete(*tag, -i64::from(*errno)));
            file.turn(ended);
        }
    }
}

pub(super) fn record_of(it: &Planned, is_layered: bool) -> Record {
    let resfd = it.resfd.as_ref().and_then(|resfd| resfd.as_ref().ok().cloned());
    let (obj, data) = (it.address as u64, it.copy.data);
    Record { obj, data, resfd, is_layered }
}
