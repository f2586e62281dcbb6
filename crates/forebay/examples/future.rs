//! Futures without a runtime: several concurrent reads, joined and awaited by a few lines of code.
//! A plug around each poll of the join merges neighbours.

use forebay::{Buf, Completion, Disk, Io, SubmitError};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::{self, Thread};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The first future starts the disk's thread, which makes progress while this thread sleeps.
    let disk = Disk::open("ram:64M?req_ns=20000")?; // or "disk.img?direct=on", "/dev/vdb", ...
    let written = block_on(disk.start(Io::write(Buf::from(&[7; 65536][..]), 0)))?;
    assert_eq!(written.result, Ok(65536));

    let read = |n| Box::pin(disk.start(Io::read(Buf::new(4096), n * 4096).user_data(n)));
    let join = Join { running: (0..16).map(read).collect(), ended: Vec::new() };
    let reads = block_on(forebay::plugged(join));
    for read in reads {
        let Completion { result, buf, .. } = read?;
        assert_eq!((result, buf.as_deref()), (Ok(4096), Some(&[7; 4096][..])));
    }
    // One write, and one request for the sixteen adjacent reads, which merged.
    assert_eq!(disk.stats().queue.issued, 2);

    // The same without a join: `start_all` submits all of them at once, as one request.
    let reads = disk.start_all((0..16).map(|n| Io::read(Buf::new(4096), n * 4096)));
    for read in reads {
        assert_eq!(block_on(read)?.result, Ok(4096));
    }
    assert_eq!(disk.stats().queue.issued, 3);
    Ok(())
}

/// Blocks this thread until a future is ready.
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Unpark>) {
        self.0.unpark();
    }
}

/// Joins several I/Os into one future, which returns their results in the order of completion.
struct Join<F> {
    running: Vec<Pin<Box<F>>>,
    ended: Vec<Result<Completion, SubmitError>>,
}

impl<F: Future<Output = Result<Completion, SubmitError>>> Future for Join<F> {
    type Output = Vec<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Join { running, ended } = &mut *self;
        running.retain_mut(|future| match future.as_mut().poll(context) {
            Poll::Ready(result) => {
                ended.push(result);
                false
            }
            Poll::Pending => true,
        });
        match running.is_empty() {
            true => Poll::Ready(std::mem::take(ended)),
            false => Poll::Pending,
        }
    }
}
