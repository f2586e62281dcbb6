//! `figures vhost`: compares `forebay serve --vhost-user-blk` with other vhost-user-blk servers.
//!
//! All servers have the same client, `forebay bench` on a disk `vhost-user:PATH` that polls. Every
//! server is started for its run only. A server that cannot be run is skipped by its name, with the
//! reason.

mod client;
mod loads;
mod servers;
mod table;

use crate::distance::{self, Distance};
use crate::measure::{self, say};
use crate::servers::{self as shared, Comparison, Medium, Options, Paths, Server};
use anyhow::{Result, ensure};
use loads::Load;

/// This comparison.
pub(crate) static COMPARISON: Comparison = Comparison {
    command: "vhost",
    subject: "vhost-user-blk servers",
    example: "null: random",
    servers: &["forebay", "qsd", "spdk"],
    seconds: 3,
    poll_us: Some(1000),
    file: "target/figures.img",
    overwrites: false,
    size_mib: 2048,
    min_size_mib: 1,
};

/// Figures of one run of one server. A figure that it does not have is NaN.
#[derive(Clone, Copy, Debug)]
struct Sample {
    iops: f64,
    /// Completion latency, us.
    p50_us: f64,
    p99_us: f64,
    /// Processor time of the server, and of the client's threads, for each I/O, us.
    server_us: f64,
    client_us: f64,
    /// The share of the I/Os that our server merged into other requests.
    merged: f64,
}

/// A load and its samples, with the distance of each run.
#[derive(Debug)]
struct Cell {
    load: &'static Load,
    /// By server and pair; `None` if a run failed or there was none.
    samples: Vec<Vec<Option<(Sample, Distance)>>>,
}

pub(crate) fn main() -> Result<()> {
    let Some(options) = COMPARISON.options(std::env::args_os().skip(2))? else { return Ok(()) };
    if options.list {
        return shared::list(servers::ALL, loads::ALL);
    }
    let loads = shared::chosen_loads(loads::ALL, &options.loads, options.is_quick)?;
    let forebay = measure::build()?;
    if loads.iter().any(|load| load.medium == Medium::Direct) {
        measure::lay_out(&forebay, &options.file, options.size_mib)?;
    }
    let file = std::path::absolute(&options.file)?;
    let paths = Paths { forebay: &forebay, file: &file };
    let mut skipped = Vec::new();
    let mut servers = shared::chosen(servers::ALL, &options.servers)?;
    servers.retain(|server| match server.start(paths, Medium::Null) {
        Ok(_) => true,
        Err(error) => {
            say(&format!("vhost: SKIPPED: {}: {error:#}", server.name));
            skipped.push((server.name, format!("{error:#}")));
            false
        }
    });
    ensure!(!servers.is_empty(), "no server can be run");
    let pairs = options.pairs;
    let cell = |load| Cell { load, samples: vec![Vec::new(); servers.len()] };
    let mut cells: Vec<Cell> = loads.into_iter().map(cell).collect();
    for nth in 0..pairs {
        for cell in &mut cells {
            say(&format!("pair {} of {pairs}: {}", nth + 1, cell.load.name));
            for step in 0..servers.len() {
                let which = (step + nth) % servers.len();
                let sample = measure(&options, paths, cell.load, servers[which]);
                cell.samples[which].push(sample);
            }
        }
        let command = COMPARISON.command(&options, nth + 1);
        let text = table::render(&cells, &servers, &skipped, &command, poll_us(&options))?;
        options.write_table(&text, nth + 1 == pairs)?;
    }
    Ok(())
}

/// Returns how long the client polls, us.
fn poll_us(options: &Options) -> u32 {
    options.poll_us.unwrap_or_default()
}

/// Runs a load on a server. A run that fails is reported and has no sample.
fn measure(
    options: &Options,
    paths: Paths<'_>,
    load: &'static Load,
    server: &'static Server,
) -> Option<(Sample, Distance)> {
    if !server.serves(load.medium) {
        return None;
    }
    let begun = distance::now();
    let sample = server.start(paths, load.medium).and_then(|running| {
        client::run(paths.forebay, &running, load, options.seconds, poll_us(options))
    });
    match sample {
        Ok(sample) => Some((sample, begun.until(distance::now()))),
        Err(error) => {
            say(&format!("{}: {}: {error:#}", load.name, server.name));
            None
        }
    }
}
