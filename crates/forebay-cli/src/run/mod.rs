//! `forebay run`: a program that uses libaio, unmodified, on the layer.
//!
//! The program gets `libforebay_aio.so` preloaded. This process stays its parent: it forwards
//! signals, and prints the counters of the whole tree of processes at the end.
//!
//! - [`program`]: whether a library can be preloaded into a program;
//! - [`library`]: where the library is;
//! - [`signals`]: which signals are forwarded;
//! - [`report`]: the counters.

mod library;
mod program;
mod report;
mod signals;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::thread;

use forebay_run::area::{self, AREA_BYTES};
use forebay_run::{POLICY_VARIABLE, Settings};
use rustix::fs::MemfdFlags;
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::isatty;
use signal_hook::consts::{SIGINT, SIGQUIT};
use signal_hook::iterator::Signals;

use crate::failure::Failure;
use crate::version;

/// The variable of the dynamic linker with the libraries to load first.
const PRELOAD: &str = "LD_PRELOAD";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A setting of the layer: plug, nomerges, hold, hold_outstanding, hold_bios, hold_groups,
    /// hold_us or join_syncs; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    policy: Vec<String>,
    /// Also count by file and measure times, and write the report to this file instead of standard
    /// error; - is standard output
    #[arg(long, value_name = "FILE")]
    stats: Option<PathBuf>,
    /// Write the report as JSON, with times in nanoseconds; files and times need --stats
    #[arg(long)]
    json: bool,
    /// The program and its arguments, after --
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Runs the program. Returns its exit code; 128 and the number of the signal that has ended it.
pub(crate) fn main(args: &Args) -> Result<ExitCode, Failure> {
    if version::IS_STATIC {
        let why = "run: this program is linked statically, and has no library to preload: use one \
                   that is linked dynamically, such as the Debian package's";
        return Err(Failure::Run(why.to_owned()));
    }
    let policy = policy_of(&args.policy)?;
    let (name, arguments) = args.command.split_first().expect("clap requires a command");
    let path = program::find(name).map_err(|why| failure(name, &why))?;
    program::check(&path).map_err(|why| failure(name, &why))?;
    let library = library::find().map_err(Failure::Run)?;
    let (area, variable) = area(args.stats.is_some()).map_err(|error| {
        Failure::Run(format!("run: cannot create the memory of the counters: {error}"))
    })?;
    // Handlers first, so that no signal is lost.
    let signals = Signals::new(signals::to_forward())
        .map_err(|error| Failure::Run(format!("run: cannot handle signals: {error}")))?;
    let mut child = Command::new(&path)
        .args(arguments)
        .env(PRELOAD, preload(&library, std::env::var_os(PRELOAD).as_deref()))
        .env(area::VARIABLE, variable)
        .env(POLICY_VARIABLE, policy)
        .spawn()
        .map_err(|error| failure(name, &format!("cannot be started: {error}")))?;
    let status = wait(&mut child, signals);
    let status = status.map_err(|error| failure(name, &format!("wait failed: {error}")))?;
    report::write(&area, args.stats.as_deref(), args.json)?;
    Ok(code_of(status))
}

/// Returns the failure for a command line of `forebay run` with a program, but without `--`.
pub(crate) fn missing_dashes(args: &[OsString]) -> Option<Failure> {
    let words = args.get(1..).filter(|words| words.first().is_some_and(|word| word == "run"))?;
    let mut rest = words[1..].iter();
    let program = loop {
        let word = rest.next()?;
        match word.to_str() {
            // Their values.
            Some("--policy" | "--stats") => _ = rest.next(),
            _ if word.as_encoded_bytes().starts_with(b"-") => {}
            _ => break word,
        }
    };
    let is_missing = !words.iter().any(|word| word == "--");
    is_missing.then(|| {
        let program = program.display();
        Failure::Usage(format!("run: put -- before the program: forebay run -- {program} ..."))
    })
}

fn failure(name: &OsStr, why: &str) -> Failure {
    Failure::Run(format!("run: {}: {why}", name.display()))
}

/// Checks the settings. Returns them as one text.
fn policy_of(settings: &[String]) -> Result<String, Failure> {
    let mut all = Settings::default();
    for setting in settings {
        let (key, value) = setting.split_once('=').unwrap_or((setting, ""));
        all.set(key, value).map_err(|expected| {
            Failure::Usage(format!("run: --policy {setting}: expected {expected}"))
        })?;
    }
    Ok(settings.join("&"))
}

/// Returns the memory of the counters, and the variable that names it. Only processes of the same
/// user can open it. If it is detailed, they also count by file, and measure times.
fn area(is_detailed: bool) -> std::io::Result<(File, OsString)> {
    let fd = rustix::fs::memfd_create("forebay-run", MemfdFlags::CLOEXEC)?;
    let file = File::from(fd);
    file.set_len(AREA_BYTES as u64)?;
    if is_detailed {
        area::set_detailed(&file)?;
    }
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let variable = area::variable(&file, Path::new(&path))?;
    Ok((file, variable))
}

/// Returns the list of libraries to preload: ours, and then those that were given.
fn preload(library: &OsStr, given: Option<&OsStr>) -> OsString {
    let mut list = library.to_owned();
    if let Some(given) = given.filter(|given| !given.is_empty()) {
        list.push(":");
        list.push(given);
    }
    list
}

/// Waits for the program, and forwards signals to it meanwhile.
///
/// A terminal sends its signals to this process and the program, so they are not forwarded there.
fn wait(child: &mut Child, mut signals: Signals) -> std::io::Result<ExitStatus> {
    let pid = Pid::from_child(child);
    let has_terminal = isatty(std::io::stdin()) || isatty(std::io::stderr());
    let handle = signals.handle();
    let forwarding = thread::spawn(move || {
        for number in signals.forever() {
            if has_terminal && matches!(number, SIGINT | SIGQUIT) {
                continue;
            }
            if let Some(signal) = Signal::from_named_raw(number) {
                // The program may have ended.
                let _ = kill_process(pid, signal);
            }
        }
    });
    let status = child.wait();
    handle.close();
    // The thread has no result, and ends with its handle.
    let _ = forwarding.join();
    status
}

/// Returns the exit code for a status, as a shell has it.
fn code_of(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

#[cfg(test)]
mod tests;
