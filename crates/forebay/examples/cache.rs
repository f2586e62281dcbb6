//! A disk with a read cache in memory, in front of another disk. Its thread serves the requests.

use forebay::{Backend, Batch, BlockStatus, Disk, IoError, Op, Policy, QueueLimits, Request};
use std::collections::HashMap;
use std::sync::mpsc::{Sender, channel};

const PAGE: usize = 4096;

struct Cached(Sender<Request>);

impl Backend for Cached {
    fn name(&self) -> &str {
        "cached"
    }

    fn submit(&self, batch: &mut Batch<'_>) {
        batch.for_each(|request| drop(self.0.send(request)));
    }
}

/// The pages by offset. A real cache has a limit.
type Pages = HashMap<u64, Vec<u8>>;

fn serve(disk: &Disk, pages: &mut Pages, request: &mut Request) -> Result<(), IoError> {
    for at in (0..request.len()).step_by(PAGE) {
        let (mut page, offset) = (vec![0; PAGE], request.offset() + at);
        match (request.op(), pages.get(&offset)) {
            (Op::Read, Some(page)) => request.copy_from(at, page),
            (Op::Read, None) => {
                disk.read_at(&mut page, offset)?;
                request.copy_from(at, &page);
                pages.insert(offset, page);
            }
            _ => {
                request.copy_to(at, &mut page);
                disk.write_at(&page, offset)?;
                pages.insert(offset, page);
            }
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (slow, (sender, requests)) = (Disk::open("ram:1M")?, channel::<Request>());
    let (below, mut pages) = (slow.clone(), Pages::new());
    std::thread::spawn(move || {
        for mut request in requests {
            let result = serve(&below, &mut pages, &mut request);
            request.complete(result.map_err(|_| BlockStatus::Io));
        }
    });
    let limits = QueueLimits::default().capacity_bytes(Some(1 << 20)).physical_block_size(4096);
    let limits = limits.logical_block_size(4096);
    let disk = Disk::with_backend(Cached(sender), limits, Policy::default())?;
    (0..100).try_for_each(|_| disk.read_at(&mut [0; PAGE], 8192).map(|_| ()))?;
    assert_eq!(slow.stats().queue.op(Op::Read).requests, 1);
    Ok(())
}
