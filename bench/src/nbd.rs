//! `figures nbd`: compares `forebay serve` with other NBD servers.
//!
//! A run goes through all loads in each round, and at each load through the servers in turn. The
//! results are the ratio of our server to the best of the others, round by round, and each server's
//! CPU time for an I/O. Every server is started for its run only, on the same file and a unix
//! socket. The clients are third-party programs: fio's engine `nbd`, and `nbdcopy`.

mod client;
mod idle;
mod layout;
mod loads;
mod rounds;
mod servers;
mod table;

use crate::distance::Distance;
use crate::measure;
use crate::servers::{self as shared, Comparison, Running};
use anyhow::Result;
use loads::Load;
use rounds::Run;
use std::path::PathBuf;
use std::time::Instant;

/// This comparison.
pub(crate) static COMPARISON: Comparison = Comparison {
    command: "nbd",
    subject: "NBD servers",
    example: "random 4k",
    servers: &["forebay", "nbdkit", "qemu-nbd", "qsd"],
    seconds: 2,
    poll_us: None,
    file: "target/figures-nbd.img",
    overwrites: true,
    size_mib: 1024,
    min_size_mib: 64,
};

/// A load and its samples, in the order of the servers.
#[derive(Debug)]
struct Cell {
    load: &'static Load,
    /// By server and round; `None` if a run failed or there was none.
    samples: Vec<Vec<Option<Sample>>>,
    /// By round: the distance at which all its samples were taken.
    distances: Vec<Distance>,
}

/// Figures of one run of one server. A figure that the load does not have is NaN.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// I/Os per second; for nbdcopy, MiB per second; for memory, MiB.
    value: f64,
    /// Completion latency, us.
    p50_us: f64,
    p99_us: f64,
    /// The server's processor time for each I/O, us.
    server_us: f64,
    /// The clients' processor time for each I/O, us.
    client_us: f64,
    /// The share of a processor that each client thread used, 0 to 1.
    client_busy: f64,
}

pub(crate) fn main() -> Result<()> {
    let Some(options) = COMPARISON.options(std::env::args_os().skip(2))? else { return Ok(()) };
    if options.list {
        return shared::list(servers::ALL, loads::ALL);
    }
    let servers = shared::chosen(servers::ALL, &options.servers)?;
    let forebay = if servers.iter().any(|server| server.is_ours()) {
        measure::build()?
    } else {
        PathBuf::new()
    };
    let loads = shared::chosen_loads(loads::ALL, &options.loads, options.is_quick)?;
    let media: Vec<_> = loads.iter().map(|load| load.medium).collect();
    let file = layout::lay_out(&options.file, options.size_mib, &media)?;
    let rounds = options.pairs;
    let started = Instant::now();
    let run = Run { forebay: &forebay, file: &file, seconds: options.seconds, started };
    let mut cells: Vec<Cell> = loads
        .into_iter()
        .map(|load| Cell { load, samples: vec![Vec::new(); servers.len()], distances: Vec::new() })
        .collect();
    for nth in 0..rounds {
        run.round(&mut cells, &servers, (nth, rounds));
        let command = COMPARISON.command(&options, nth + 1);
        let text = table::render(&cells, &servers, &command, started.elapsed())?;
        options.write_table(&text, nth + 1 == rounds)?;
    }
    Ok(())
}

/// Returns the URI of a server's only export, the default one.
fn uri(server: &Running) -> String {
    format!("nbd+unix:///?socket={}", server.socket().display())
}
