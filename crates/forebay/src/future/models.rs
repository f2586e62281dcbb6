//! Models of futures and of the service thread: it starts, leads, follows and steps down.
//!
//! A future that is never woken shows as a deadlock. So does a thread that does not end when the
//! disk is closed.

use super::{IoFuture, State};
use crate::io::Io;
use crate::runtime::hctx::SHARED;
use crate::runtime::shared::Shared;
use crate::runtime::thread::Ctx;
use crate::runtime::toy::{AT_ONCE, By, Caller, How, Page, Toy};
#[cfg(not(blk_loom))]
use crate::sys::primitive::{Mutex, check, lock};
use crate::sys::primitive::{Sleeper, check_within, thread};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};

struct Task(Sleeper);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0.wake();
    }
}

/// Returns a future with a submitted bio. (Not submitted by its first poll: a model's threads may
/// share the OS thread's thread-locals, where a poll would keep the thread's state of the disk.)
fn submitted(shared: &Arc<Shared>, page: &Page) -> IoFuture {
    let mut future = IoFuture { shared: Arc::clone(shared), state: State::Over };
    let io = Io::of_parts(page.bio(), None);
    future.submit_in(&Ctx::new(shared, SHARED), io).expect("a good bio");
    future
}

fn is_ready(future: Pin<&mut IoFuture>, waker: &Waker) -> bool {
    match future.poll(&mut Context::from_waker(waker)) {
        Poll::Ready(completion) => {
            assert_eq!(completion.expect("a good bio").result, Ok(512));
            true
        }
        Poll::Pending => false,
    }
}

/// Awaits `nr` reads, one after another.
fn await_reads(shared: &Arc<Shared>, nr: u64) {
    let sleeper = Sleeper::of_this_thread();
    let waker = Waker::from(Arc::new(Task(sleeper.clone())));
    let page = Page::default();
    for _ in 0..nr {
        let mut future = pin!(submitted(shared, &page));
        while !is_ready(future.as_mut(), &waker) {
            sleeper.sleep();
        }
    }
    assert_eq!(page.nr_written(), nr);
}

/// Runs a task beside `nr_readers` threads of one blocking read each, and the device's own thread
/// if it has one.
fn await_beside(how: How, nr_awaits: u64, nr_readers: usize) {
    let toy = Toy::new(how);
    let shared = Toy::open(&toy);
    let readers = (0..nr_readers).map(|_| {
        let shared = Arc::clone(&shared);
        thread::spawn(move || Caller::new(&shared).read(&shared))
    });
    let mut others: Vec<_> = readers.collect();
    if how.by == By::Thread {
        others.push(thread::spawn(move || toy.work(nr_awaits as usize + nr_readers)));
    }
    await_reads(&shared, nr_awaits);
    others.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(shared.has_service());
    // The drop joins the service thread.
    drop(shared);
}

#[test]
fn a_future_is_woken_by_the_thread_that_it_starts() {
    check_within(2, || await_beside(AT_ONCE, 2, 0));
}

#[test]
fn a_future_at_a_busy_device_is_woken_by_the_thread_that_it_starts() {
    check_within(2, || await_beside(How { nr_busy: 2, ..AT_ONCE }, 1, 0));
}

#[test]
fn a_future_and_a_device_and_the_thread_that_it_starts() {
    check_within(1, || await_beside(How { by: By::Thread, ..AT_ONCE }, 1, 0));
}

/// V1.
#[test]
fn a_future_is_woken_beside_a_reader_that_may_lead() {
    check_within(1, || await_beside(AT_ONCE, 1, 1));
}

/// A waker that takes a lock before it wakes its task, unless its own thread holds the lock.
#[cfg(not(blk_loom))]
struct Locks {
    lock: Arc<Mutex<()>>,
    holder: thread::ThreadId,
    task: Sleeper,
}

#[cfg(not(blk_loom))]
impl Wake for Locks {
    fn wake(self: Arc<Self>) {
        if thread::current().id() != self.holder {
            drop(lock(&self.lock));
        }
        self.task.wake();
    }
}

/// Runs a task beside a thread that holds the lock of the task's waker during a blocking read. Four
/// threads are too many for loom: without a preemption it finds no bug.
#[cfg(not(blk_loom))]
fn await_beside_a_lock(how: How) {
    let toy = Toy::new(How { by: By::Thread, ..how });
    let shared = Toy::open(&toy);
    let device = thread::spawn(move || toy.work(2));
    let locked = Arc::new(Mutex::new(()));
    let reader = {
        let (shared, locked) = (Arc::clone(&shared), Arc::clone(&locked));
        thread::spawn(move || {
            let _held = lock(&locked);
            Caller::new(&shared).read(&shared);
        })
    };
    let (holder, task) = (reader.thread().id(), Sleeper::of_this_thread());
    let waker = Waker::from(Arc::new(Locks { lock: locked, holder, task: task.clone() }));
    let page = Page::default();
    let mut future = pin!(submitted(&shared, &page));
    while !is_ready(future.as_mut(), &waker) {
        task.sleep();
    }
    assert_eq!(page.nr_written(), 1);
    [reader, device].into_iter().for_each(|thread| thread.join().unwrap());
    drop(shared);
}

/// V4.
#[cfg(not(blk_loom))]
#[test]
fn a_waker_waits_for_a_thread_that_reads() {
    check(|| await_beside_a_lock(AT_ONCE));
}

#[cfg(not(blk_loom))]
#[test]
fn a_waker_waits_for_a_thread_whose_wait_begins_its_read() {
    check(|| await_beside_a_lock(How { begins: true, ..AT_ONCE }));
}

/// A waker that records the wake-up.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

/// A task that reads one page. An event loop completes the read.
struct Awaited {
    future: Pin<Box<IoFuture>>,
    page: Arc<Page>,
    woken: Arc<Woken>,
    is_ended: bool,
}

impl Awaited {
    /// Submits the read, and polls it once.
    fn begin(shared: &Arc<Shared>) -> Awaited {
        let (page, woken) = (Arc::<Page>::default(), Arc::default());
        let future = Box::pin(submitted(shared, &page));
        let mut awaited = Awaited { future, page, woken, is_ended: false };
        awaited.poll();
        awaited
    }

    fn poll(&mut self) {
        self.is_ended = is_ready(self.future.as_mut(), &Waker::from(Arc::clone(&self.woken)));
    }

    /// Reaps like an event loop until the read has ended.
    fn end(mut self, toy: &Toy, shared: &Shared) {
        while !self.is_ended {
            let is_readable = shared.hctx(SHARED).alarm.is_set() || toy.has_done();
            assert!(is_readable || self.woken.0.load(Relaxed), "the loop sleeps forever");
            shared.poll_shared();
            self.poll();
        }
        assert_eq!(self.page.nr_written(), 1);
    }
}

/// V2: while a future waits, an event loop asks for the descriptor, and then submits `nr_late` more
/// reads. Once the service thread has stepped down, each task was woken, or the descriptor is
/// readable.
fn take_over(how: How, nr_readers: usize, nr_late: usize) {
    let toy = Toy::new(How { has_fd: true, ..how });
    let shared = Toy::open(&toy);
    let readers = (0..nr_readers).map(|_| {
        let shared = Arc::clone(&shared);
        thread::spawn(move || Caller::new(&shared).read(&shared))
    });
    let readers: Vec<_> = readers.collect();
    let first = Awaited::begin(&shared);
    shared.poll_fd().expect("a descriptor");
    let late: Vec<_> = (0..nr_late).map(|_| Awaited::begin(&shared)).collect();
    readers.into_iter().for_each(|thread| thread.join().unwrap());
    shared.take_service().expect("the future has started it").join();
    let run = &shared.hctx(SHARED).run;
    assert!(!run.has_leader() && !run.is_running() && !run.is_kicked(), "all is given back");
    first.end(&toy, &shared);
    late.into_iter().for_each(|late| late.end(&toy, &shared));
}

#[test]
#[cfg_attr(miri, ignore = "Miri has neither timerfds nor level-triggered epoll")]
fn an_event_loop_takes_over_from_the_thread_of_the_disk() {
    check_within(2, || take_over(AT_ONCE, 0, 0));
}

#[test]
#[cfg_attr(miri, ignore = "Miri has neither timerfds nor level-triggered epoll")]
fn an_event_loop_takes_over_at_a_busy_device() {
    check_within(2, || take_over(How { nr_busy: 1, ..AT_ONCE }, 0, 0));
}

#[test]
#[cfg_attr(miri, ignore = "Miri has neither timerfds nor level-triggered epoll")]
fn an_event_loop_submits_while_the_thread_of_the_disk_steps_down() {
    check_within(1, || take_over(How { by: By::Silence, ..AT_ONCE }, 0, 1));
    check_within(1, || take_over(AT_ONCE, 0, 1));
}

/// Models that are too large for loom.
#[cfg(not(blk_loom))]
#[test]
fn futures_and_many_readers() {
    const READERS: usize = if cfg!(miri) { 2 } else { 6 };
    check(|| await_beside(AT_ONCE, 3, READERS));
    check(|| await_beside(How { by: By::Thread, ..AT_ONCE }, 3, READERS));
    // Miri has neither timerfds nor level-triggered epoll.
    if !cfg!(miri) {
        check(|| take_over(AT_ONCE, READERS, 1));
        check(|| take_over(How { begins: true, ..AT_ONCE }, READERS, 1));
    }
}

/// V5: an event loop begins and ends while a task waits. Then a new service thread wakes the task.
fn give_back(how: How, nr_loops: usize) {
    let toy = Toy::new(How { has_fd: true, ..how });
    let shared = Toy::open(&toy);
    let sleeper = Sleeper::of_this_thread();
    let waker = Waker::from(Arc::new(Task(sleeper.clone())));
    let page = Page::default();
    let mut future = pin!(submitted(&shared, &page));
    let mut is_ended = is_ready(future.as_mut(), &waker);
    for _ in 0..nr_loops {
        shared.begin_loop().expect("a descriptor");
        shared.end_loop();
    }
    while !is_ended {
        sleeper.sleep();
        is_ended = is_ready(future.as_mut(), &waker);
    }
    assert_eq!(page.nr_written(), 1);
    drop(shared);
}

#[test]
#[cfg_attr(miri, ignore = "Miri has neither timerfds nor level-triggered epoll")]
fn the_thread_of_the_disk_takes_over_from_an_event_loop() {
    check_within(2, || give_back(AT_ONCE, 1));
}

#[test]
#[cfg_attr(miri, ignore = "Miri has neither timerfds nor level-triggered epoll")]
fn the_thread_of_the_disk_takes_over_at_a_busy_device() {
    check_within(1, || give_back(How { nr_busy: 1, ..AT_ONCE }, 1));
}

#[test]
#[cfg_attr(miri, ignore = "Miri has neither timerfds nor level-triggered epoll")]
fn a_device_without_events_is_given_back_by_an_event_loop() {
    check_within(1, || give_back(How { by: By::Silence, ..AT_ONCE }, 1));
}
