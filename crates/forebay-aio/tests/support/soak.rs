//! Programs on both libraries, several at once, for a given time. `cargo xtask long aio` runs this
//! for minutes.

use super::faults::{self, Kind, Programs};
use super::{compile, library, play};
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The variable with the seconds after which no more programs are started.
const SECONDS: &str = "FOREBAY_AIO_SOAK_SECONDS";

/// The variable with the seed of the first program. Each one adds one.
const SEED: &str = "FOREBAY_AIO_SOAK_SEED";

/// The variable with the name of the only job to run, always with the first seed.
const ONLY: &str = "FOREBAY_AIO_SOAK_ONLY";

/// The time between two lines about the progress.
const PERIOD: Duration = Duration::from_secs(60);

/// A program to run on both libraries.
#[derive(Clone, Copy, Debug)]
enum Job {
    /// Its argument is a seed.
    Seeded(&'static str),
    /// It has these arguments.
    Plain(&'static str, &'static [&'static str]),
    /// `faults.c`, whose argument is a seed.
    Faults(Kind),
}

const JOBS: [Job; 9] = [
    Job::Seeded("random"),
    Job::Plain("threads", &["300"]),
    Job::Faults(Kind::Parts),
    Job::Plain("holds", &[]),
    Job::Plain("reuse", &[]),
    Job::Faults(Kind::Device),
    Job::Plain("processes", &[]),
    Job::Plain("locks", &[]),
    Job::Faults(Kind::Whole),
];

impl Job {
    fn name(self) -> String {
        match self {
            Job::Seeded(name) | Job::Plain(name, _) => name.to_owned(),
            Job::Faults(kind) => format!("faults-{}", kind.name()),
        }
    }
}

/// The jobs of a thread, with its own copies of the programs.
#[derive(Debug)]
struct Worker {
    folder: tempfile::TempDir,
    faults: Programs,
}

impl Worker {
    /// Compiles the programs. `None` if the system's library is not installed.
    fn new() -> Option<Worker> {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        for job in JOBS {
            if let Job::Seeded(name) | Job::Plain(name, _) = job {
                compile(name, folder.path())?;
            }
        }
        Some(Worker { faults: Programs::compile(folder.path())?, folder })
    }

    /// Returns another worker, with links to the same programs.
    fn link(&self) -> Worker {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        for entry in fs::read_dir(self.folder.path()).expect("the folder") {
            let entry = entry.expect("a program");
            fs::hard_link(entry.path(), folder.path().join(entry.file_name())).expect("a link");
        }
        Worker { faults: Programs::of(folder.path()), folder }
    }

    fn program(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs a job on both libraries. Returns the iocbs and merges of the layer.
    ///
    /// # Errors
    /// A program has failed, the outputs differ, or the layer has merged nothing.
    fn run(&self, job: Job, seed: u64) -> Result<[u64; 2], String> {
        let text = seed.to_string();
        let [iocbs, merges] = match job {
            Job::Seeded(name) => self.compare(name, &[&text])?,
            Job::Plain(name, arguments) => self.compare(name, arguments)?,
            Job::Faults(kind) => self.faults.compare(kind, seed)?.1,
        };
        match iocbs > 0 && merges > 0 {
            true => Ok([iocbs, merges]),
            false => Err(format!("{iocbs} iocbs, {merges} merges")),
        }
    }

    fn compare(&self, name: &str, arguments: &[&str]) -> Result<[u64; 2], String> {
        let file = self.folder.path().join("file");
        let (system, _) = play(&self.program(name), &file, arguments, Path::new(""))?;
        let (own, counted) = play(&self.program(name), &file, arguments, library())?;
        let sum = |nth: usize| counted.processes.iter().map(|process| process.counters[nth]).sum();
        match faults::first_difference(&system, &own) {
            None => Ok([sum(0), sum(2)]),
            Some(difference) => Err(difference),
        }
    }
}

/// The jobs that have ended well.
#[derive(Clone, Debug, Default)]
struct Tally {
    nr_runs: u64,
    iocbs: u64,
    merges: u64,
}

impl Tally {
    fn add(&mut self, [iocbs, merges]: [u64; 2]) {
        self.nr_runs += 1;
        self.iocbs += iocbs;
        self.merges += merges;
    }

    fn line(&self, name: &str) -> String {
        let Tally { nr_runs, iocbs, merges } = self;
        format!("  {name:<14} {nr_runs:>7} runs {iocbs:>10} iocbs {merges:>10} merges\n")
    }
}

/// Returns a line for each job, and one for all of them.
fn table(jobs: &[Job], tallies: &[Tally]) -> String {
    let mut all = Tally::default();
    let mut text = String::new();
    for (job, tally) in jobs.iter().zip(tallies) {
        text += &tally.line(&job.name());
        all.nr_runs += tally.nr_runs;
        all.iocbs += tally.iocbs;
        all.merges += tally.merges;
    }
    text + &all.line("all")
}

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable}={value}: expected a number")))
}

/// Returns the jobs that this machine can run.
fn jobs(worker: &Worker) -> Vec<Job> {
    let only = std::env::var(ONLY).ok();
    let is_wanted = |job: &Job| only.as_ref().is_none_or(|only| *only == job.name());
    let can_run = |job: &Job| {
        let Job::Faults(kind) = *job else { return true };
        faults::can_have(&worker.faults, kind, &format!("soak of {}", job.name()))
    };
    let jobs: Vec<Job> = JOBS.into_iter().filter(is_wanted).filter(can_run).collect();
    let names = JOBS.into_iter().map(|job| job.name()).collect::<Vec<_>>().join(", ");
    let only = only.unwrap_or_default();
    assert!(
        !jobs.is_empty(),
        "{ONLY}={only}: this machine can run no such job; the jobs are {names}"
    );
    jobs
}

/// The state that all threads share.
#[derive(Debug)]
struct Soak {
    jobs: Vec<Job>,
    first: u64,
    end: Instant,
    next: AtomicU64,
    is_over: AtomicBool,
    tallies: Mutex<Vec<Tally>>,
    failure: Mutex<Option<String>>,
}

impl Soak {
    /// Runs jobs until the time is over, or one has failed.
    fn work(&self, worker: &Worker) {
        while !self.is_over.load(Ordering::Relaxed) && Instant::now() < self.end {
            let nth = self.next.fetch_add(1, Ordering::Relaxed);
            let at = (nth % self.jobs.len() as u64) as usize;
            let seed = self.first + if std::env::var_os(ONLY).is_some() { 0 } else { nth };
            match worker.run(self.jobs[at], seed) {
                Ok(counters) => self.tallies.lock().expect("no panic")[at].add(counters),
                Err(error) => {
                    self.is_over.store(true, Ordering::Relaxed);
                    let name = self.jobs[at].name();
                    let mut text = format!("{name}, run {nth}, seed {seed}: {error}\n");
                    let test = "cargo test -p forebay-aio --test calls -- --nocapture soak::";
                    writeln!(text, "repeat: {ONLY}={name} {SEED}={seed} {SECONDS}=60 {test}")
                        .expect("a string");
                    self.failure.lock().expect("no panic").get_or_insert(text);
                }
            }
        }
    }

    /// Prints the progress until the time is over.
    fn report(&self, start: Instant) {
        let mut next = start + PERIOD;
        while !self.is_over.load(Ordering::Relaxed) && Instant::now() < self.end {
            thread::sleep(Duration::from_millis(100));
            if Instant::now() >= next {
                next += PERIOD;
                let tallies = self.tallies.lock().expect("no panic");
                let nr_runs: u64 = tallies.iter().map(|tally| tally.nr_runs).sum();
                let line = format!("soak: {} s, {nr_runs} runs\n", start.elapsed().as_secs());
                // Standard output may be closed.
                let _ = std::io::stdout().write_all(line.as_bytes());
            }
        }
    }
}

#[test]
fn programs_side_by_side_have_the_results_of_the_system_library() {
    let seconds = number(SECONDS).unwrap_or(3);
    let first = number(SEED).unwrap_or(1);
    let nr_workers = 2 * thread::available_parallelism().map_or(2, usize::from).min(8);
    let Some(worker) = Worker::new() else { return };
    let workers: Vec<_> = (0..nr_workers).map(|_| worker.link()).collect();
    let jobs = jobs(&worker);
    let start = Instant::now();
    println!("soak: {seconds} s, {nr_workers} programs at once, first seed {first}");
    let soak = Soak {
        tallies: Mutex::new(vec![Tally::default(); jobs.len()]),
        jobs,
        first,
        end: start + Duration::from_secs(seconds),
        next: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
        failure: Mutex::new(None),
    };
    thread::scope(|scope| {
        workers.iter().for_each(|worker| _ = scope.spawn(|| soak.work(worker)));
        soak.report(start);
    });
    let tallies = soak.tallies.into_inner().expect("no panic");
    print!("{}", table(&soak.jobs, &tallies));
    if let Some(failure) = soak.failure.into_inner().expect("no panic") {
        panic!("{failure}");
    }
    assert!(tallies.iter().any(|tally| tally.nr_runs > 0), "no job has ended");
}
