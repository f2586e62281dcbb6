//! The library's side of the differential test: the outcomes of scripts that threads run, as lines.
//! `cargo xtask differential` runs it under shuttle, and compares the lines with the simulator's.
// It vouches for the memory of its bios, like any caller of `submit_raw`.
#![allow(unsafe_code)]

#[cfg(blk_shuttle)]
mod schedule;
#[allow(unreachable_pub, reason = "the simulator has the same file as a public module")]
#[path = "../../../forebay-sim/src/differential/script.rs"]
mod script;
#[allow(unreachable_pub, reason = "the simulator has the same file as a public module")]
#[path = "../../../forebay-sim/src/differential/search.rs"]
mod search;

use crate::queue::BioQueue;
use crate::runtime::gates::Hold;
use crate::runtime::hctx::SHARED;
use crate::runtime::plug::plug;
use crate::runtime::shared::Shared;
use crate::runtime::thread::Ctx;
use crate::runtime::toy::{AT_ONCE, Contents, How, Page, Toy};
use crate::sys::primitive::thread;
use forebay_core::{Bio, Gate, Op, Segment, Segments};
use forebay_model::Random;
use script::{Ended, Failures, Outcome, SECTOR, Script, ScriptBio, Step};
use search::{Search, search_all};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Runs a script once.
fn run(script: &Arc<Script>, seed: u64) -> Outcome {
    let limits = script.disk.limits();
    let mut failures = Failures::new(&script.disk);
    let decide = Box::new(move |op, start, len| failures.result(op, start, len));
    let contents = Contents::new(&limits, Random::new(seed, 0), decide);
    let how = How { queue_depth: script.disk.queue_depth, wake: script.disk.wake, ..AT_ONCE };
    let toy = Toy::with_contents(limits, how, contents);
    let disk = Toy::open(&toy);
    let device = {
        let toy = Arc::clone(&toy);
        thread::spawn(move || toy.serve())
    };
    let spawn = |nth| {
        let (disk, script) = (Arc::clone(&disk), Arc::clone(script));
        thread::spawn(move || perform(&disk, &script, nth))
    };
    let threads: Vec<_> = (0..script.threads.len()).map(spawn).collect();
    let threads = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    let is_lost = disk.device_state().durability().lost().is_some();
    drop(disk);
    let sectors = toy.close();
    device.join().unwrap();
    Outcome { threads, sectors, is_lost }
}

/// A thread of a script.
struct Scripted<'a> {
    disk: &'a Arc<Shared>,
    /// `None` once it is closed.
    queue: Option<BioQueue>,
    nth: usize,
    /// The memory of each bio.
    pages: Vec<Box<[Page]>>,
    ended: Vec<Ended>,
    nr_ended: usize,
}

/// Performs the steps of a thread. Returns its bios.
fn perform(disk: &Arc<Shared>, script: &Script, nth: usize) -> Vec<Ended> {
    let queue = Some(BioQueue::on(Arc::clone(disk), Ctx::new(disk, SHARED)));
    let (pages, ended) = (Vec::new(), Vec::new());
    let mut scripted = Scripted { disk, queue, nth, pages, ended, nr_ended: 0 };
    for step in &script.threads[nth] {
        scripted.step(step);
    }
    scripted.reap(usize::MAX);
    drop(scripted.queue);
    scripted.ended
}

impl Scripted<'_> {
    fn step(&mut self, step: &Step) {
        match step {
            Step::Submit(bio) => self.submit(*bio),
            Step::Plugged(bios) => {
                let plugged = plug();
                bios.iter().for_each(|bio| self.submit(*bio));
                drop(plugged);
            }
            Step::Reap(nr) => self.reap(*nr),
            Step::Hold(gate) => {
                let hold = Hold::new(self.disk, *gate);
                match gate {
                    // It ends early if another hold keeps a request from the device.
                    Gate::Frozen => _ = hold.await_drained(None),
                    Gate::Quiesced | Gate::Stopped => hold.await_turns(),
                }
                thread::yield_now();
            }
            Step::Acknowledge => _ = self.disk.acknowledge_loss(),
            Step::Close => drop(self.queue.take()),
        }
    }

    fn submit(&mut self, bio: ScriptBio) {
        let Some(queue) = &mut self.queue else { panic!("a closed queue takes no bio") };
        let number = self.pages.len();
        let page = |unit| Page::of(script::value(self.nth, number, unit));
        let pages: Box<[Page]> = (0..bio.nr).map(page).collect();
        let len = SECTOR as u32;
        let segments: Vec<_> =
            pages.iter().map(|page| Segment { addr: page.addr(), len }).collect();
        let mut submitted = match bio.op {
            Op::Flush => Bio::flush(),
            op => Bio::range(op, bio.sector * SECTOR, bio.nr * SECTOR),
        };
        submitted.flags = bio.flags;
        submitted.user_data = number as u64;
        submitted.segments = match &segments[..] {
            [] => Segments::None,
            [segment] => Segments::One(*segment),
            _ => Segments::Many(segments),
        };
        self.pages.push(pages);
        self.ended.push(Ended { result: None, values: Vec::new() });
        // SAFETY: the pages are read after the bio was reaped, and freed after the queue.
        unsafe { queue.submit_raw(submitted) }.expect("a script has valid bios");
    }

    /// Waits until `nr` bios have ended, or all.
    fn reap(&mut self, nr: usize) {
        let Some(queue) = &mut self.queue else { return };
        let nr = nr.min(self.ended.len() - self.nr_ended);
        let mut done = Vec::new();
        queue.reap(nr, nr, &mut done);
        self.nr_ended += done.len();
        for completion in done {
            let number = completion.user_data as usize;
            let values = self.pages[number].iter().map(Page::nr_written).collect();
            let ended = &mut self.ended[number];
            assert!(ended.result.is_none(), "a bio ends once");
            *ended = Ended { result: Some(completion.result), values };
        }
    }
}

/// Runs of each script, unless a variable has another number.
const RUNS_MAX: u64 = 100;

#[cfg_attr(miri, ignore = "minutes; the models of the runtime are smaller")]
#[test]
#[allow(clippy::print_stdout, reason = "another program compares the lines")]
fn outcomes_of_scripts_run_by_threads() {
    for search in search_all(RUNS_MAX, explore) {
        println!("{}", search.report());
    }
}

/// Runs a script as long as the search has seeds.
fn explore(search: Search) -> Search {
    let script = Arc::new(search.script().clone());
    let search = Arc::new(Mutex::new(search));
    let same = Arc::clone(&search);
    let next_seed = move || lock(&same).next_seed();
    let same = Arc::clone(&search);
    let run_once = move |seed| {
        let outcome = run(&script, seed).line(&script);
        lock(&same).add(outcome);
    };
    #[cfg(all(blk_shuttle, forebay_plant))]
    plant();
    #[cfg(blk_shuttle)]
    schedule::check(next_seed, run_once);
    #[cfg(not(blk_shuttle))]
    while let Some(seed) = next_seed() {
        run_once(seed);
    }
    let search = lock(&search);
    search.clone()
}

/// Locks a mutex that no model sees. No thread panics while it holds the lock.
fn lock(search: &Mutex<Search>) -> MutexGuard<'_, Search> {
    search.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Plants the bug of the core that a variable names, in this thread. Shuttle runs all threads of a
/// model on the one that runs the model.
#[cfg(all(blk_shuttle, forebay_plant))]
fn plant() {
    use forebay_core::plant::{CorePlant, choose};
    let Ok(name) = std::env::var("FOREBAY_PLANT") else { return };
    let of_name = |plant: &&CorePlant| format!("{plant:?}") == name;
    let bug = *CorePlant::ALL.iter().find(of_name).expect("a bug of the core");
    choose(Some(Box::new(move |plant| plant == bug)));
}
