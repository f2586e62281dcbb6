//! The order in which requests that wait together are served.
//!
//! The device serves one request at a time, each in the same time. The first request occupies it
//! while all others are submitted, one by one.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::guest;
use crate::measure::say;

/// Each request takes 100 ms.
const DEVICE: &str = "model:ssd-sas?latency_ns=100000000&nr_channels=1&data=off";

/// The distance of two requests in blocks of 4 KiB, so that none merge.
const STEP: u64 = 16;

/// A scheduler with its settings, which have the same names and units in Linux and here. All have
/// more tags than requests. Linux 6.1 resets `async_depth` when `nr_requests` changes.
const SETTINGS: [&str; 7] = [
    "scheduler=mq-deadline nr_requests=256 async_depth=256 read_expire=100000 write_expire=100000",
    "scheduler=mq-deadline nr_requests=256 async_depth=256 read_expire=100000 write_expire=100000 \
     fifo_batch=4 writes_starved=1",
    "scheduler=mq-deadline nr_requests=256 async_depth=256 read_expire=100000 write_expire=100000 \
     fifo_batch=3 writes_starved=3",
    "scheduler=mq-deadline nr_requests=256 async_depth=256 read_expire=1250 write_expire=2150 \
     fifo_batch=8",
    "scheduler=mq-deadline nr_requests=256 async_depth=256 read_expire=1250 write_expire=2250 \
     fifo_batch=8",
    "scheduler=mq-deadline nr_requests=256 async_depth=256 read_expire=450 write_expire=2050 \
     fifo_batch=4",
    "scheduler=kyber nr_requests=256",
];

/// Returns the requests in the order of their submission: a letter and a number, which is the
/// address in steps. The kernel takes up to three requests from its scheduler before the others
/// come. So the first three are those that every scheduler serves first.
fn requests() -> Vec<String> {
    let mut addresses: Vec<u64> = (3..48).collect();
    let mut is_read: Vec<bool> = (3..48).map(|nth| nth % 2 == 0).collect();
    let mut state = 1_u64;
    let mut below = |bound: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % bound
    };
    for nth in (1..addresses.len()).rev() {
        addresses.swap(nth, below(nth + 1));
        is_read.swap(nth, below(nth + 1));
    }
    let letter = |is_read| if is_read { 'R' } else { 'W' };
    let rest = addresses.iter().zip(is_read);
    let rest = rest.map(|(address, is_read)| format!("{}{address}", letter(is_read)));
    ["R0", "R1", "R2"].map(String::from).into_iter().chain(rest).collect()
}

fn address(request: &str) -> Result<u64> {
    Ok(request[1..].parse()?)
}

/// Returns the section of the page, and the version of the kernel.
pub(super) fn render(forebay: &Path) -> Result<(String, String)> {
    let requests = requests();
    let (orders, version) = kernel(forebay, &requests)?;
    let mut text = String::new();
    writeln!(
        text,
        "## The order of service\n\n\
         The device serves one request at a time, in 100 ms. These requests are submitted one by \
         one while it serves the first: R is a read and W a write of 4k, and the number its \
         address in steps of 64k.\n\n\
         {}\n\n\
         The kernel's order is that of its trace (`block_rq_issue`), Forebay's that of the \
         completions. Both have the settings of the row, and room for one request at the \
         device.\n",
        requests.join(" ")
    )?;
    for (settings, kernel) in SETTINGS.iter().zip(&orders) {
        say(&format!("{}: order here: {settings}", super::NAME));
        let ours = ours(forebay, settings, &requests)?;
        let nr_same = kernel.iter().zip(&ours).take_while(|(kernel, ours)| kernel == ours).count();
        write!(text, "`{settings}`: ")?;
        if *kernel == ours {
            writeln!(text, "all {nr_same} requests in the same order.\n")?;
            writeln!(text, "- both: {}\n", kernel.join(" "))?;
        } else {
            writeln!(text, "the first {nr_same} requests in the same order.\n")?;
            writeln!(text, "- Linux: {}", kernel.join(" "))?;
            writeln!(text, "- Forebay: {}\n", ours.join(" "))?;
        }
    }
    Ok((text, version))
}

/// Returns the kernel's order with each of the settings, and its version.
fn kernel(forebay: &Path, requests: &[String]) -> Result<(Vec<Vec<String>>, String)> {
    let mut calls = String::from(
        "cat > /tmp/requests <<END\n\
         fio version 2 iolog\n/dev/vda add\n/dev/vda open\n",
    );
    for request in requests {
        let op = if request.starts_with('R') { "read" } else { "write" };
        writeln!(calls, "/dev/vda {op} {} 4096", address(request)? * STEP * 4096)?;
    }
    calls.push_str("/dev/vda close\nEND\n");
    for (nth, settings) in SETTINGS.iter().enumerate() {
        writeln!(calls, "order order-{nth} {settings}")?;
    }
    say(&format!("{}: order in the guest", super::NAME));
    let work = Duration::from_millis(100 * (requests.len() * SETTINGS.len()) as u64);
    let spec = format!("{DEVICE}&scheduler=none");
    let console = guest::run(forebay, &spec, 1, &calls, work)?;
    let orders = (0..SETTINGS.len()).map(|nth| {
        let trace = console.section(&format!("order-{nth}"))?;
        let order: Vec<String> = trace.lines().filter_map(issued).collect();
        ensure!(order.len() == requests.len(), "{} requests of {}", order.len(), requests.len());
        Ok(order)
    });
    let orders: Result<_> = orders.collect();
    Ok((orders?, console.kernel()?.to_owned()))
}

/// Parses a line of the trace such as `... block_rq_issue: 254,0 WS 4096 () 128 + 8 [fio]`.
fn issued(line: &str) -> Option<String> {
    let (_, event) = line.split_once("block_rq_issue: ")?;
    let mut words = event.split_whitespace();
    let letter = words.nth(1)?.chars().next()?;
    let sector: u64 = words.nth(2)?.parse().ok()?;
    Some(format!("{letter}{}", sector / 8 / STEP))
}

fn ours(forebay: &Path, settings: &str, requests: &[String]) -> Result<Vec<String>> {
    let spec = format!("{DEVICE}&{}&device_depth=1", settings.replace(' ', "&"));
    let mut command = Command::new(forebay.with_file_name("examples").join("service_order"));
    command.arg(spec);
    for request in requests {
        command.arg(format!("{}{}", &request[..1], address(request)? * STEP));
    }
    let output = command.output().context("the example service_order")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let order = String::from_utf8(output.stdout)?;
    let order = order.split_whitespace().map(|word| {
        let block: u64 = word[1..].parse()?;
        Ok(format!("{}{}", &word[..1], block / STEP))
    });
    order.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_is_requested_once() {
        let mut addresses: Vec<u64> =
            requests().iter().map(|request| address(request).expect("a number")).collect();
        addresses.sort_unstable();
        assert!(addresses.into_iter().eq(0..48));
    }

    #[test]
    fn trace_line_is_parsed() {
        let line =
            "  kworker/0:1H-36 [000] ..... 3.1: block_rq_issue: 254,0 WS 4096 () 256 + 8 [f]";
        assert_eq!(issued(line).as_deref(), Some("W2"));
        assert_eq!(issued("# tracer: nop"), None);
    }
}
