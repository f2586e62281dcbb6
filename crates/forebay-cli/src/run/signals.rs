//! The signals that `forebay run` forwards to the program.
//!
//! Source: proc_pid_status(5) for the mask of ignored signals.

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

const ALL: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

/// Returns the signals to forward: those that this process does not ignore, as it does under
/// `nohup`. If it handled an ignored signal, `exec` would reset it to the default action in the
/// program.
pub(super) fn to_forward() -> Vec<i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = ignored_of(&status);
    ALL.into_iter().filter(|signal| ignored & 1 << (signal - 1) == 0).collect()
}

/// Returns the mask of ignored signals in the status of a process.
pub(super) fn ignored_of(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
