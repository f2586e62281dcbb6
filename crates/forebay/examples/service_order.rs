//! The order in which a disk serves requests that are submitted at once.
//!
//! `service_order SPEC REQUEST...` submits each request by itself, and prints the requests in the
//! order of their completions. A request is `R` or `W` with the number of a block of 4 KiB, such as
//! `R16`. If the device serves one request at a time, and takes longer for the first than the
//! submission takes, that is the order in which the scheduler has handed them out.

#![allow(clippy::print_stdout, reason = "an example talks through its standard streams")]

use forebay::{Buf, Disk, Io};
use std::error::Error;

const BLOCK: usize = 4096;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let spec = arguments.next().unwrap_or_else(|| String::from("ram:1M"));
    let mut requests: Vec<String> = arguments.collect();
    if requests.is_empty() {
        requests = ["R0", "W8", "R4"].map(String::from).into();
    }
    let disk = Disk::open(&spec)?;
    let mut queue = disk.queue();
    for (nth, request) in requests.iter().enumerate() {
        let (op, block) = request.split_at_checked(1).ok_or("an empty request")?;
        let offset = block.parse::<u64>()? * BLOCK as u64;
        let io = match op {
            "R" => Io::read(Buf::new(BLOCK), offset),
            "W" => Io::write(Buf::new(BLOCK), offset),
            _ => return Err(format!("{request}: expected R or W and a block").into()),
        };
        queue.submit(io.user_data(nth as u64))?;
    }
    let mut order = Vec::new();
    while order.len() < requests.len() {
        let mut done = Vec::new();
        queue.reap(1, 1, &mut done);
        for completion in done {
            completion.result?;
            order.push(requests[completion.user_data as usize].as_str());
        }
    }
    println!("{}", order.join(" "));
    Ok(())
}
