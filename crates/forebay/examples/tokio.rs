//! Futures on a tokio runtime, which drives the disk. Tasks that read neighbours in one poll make
//! one request.

use forebay::{Buf, Disk, Io, plugged};
use tokio::runtime::Builder;
use tokio::task::LocalSet;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let disk = Disk::open("ram:64M?req_ns=20000")?; // or "disk.img?direct=on", "/dev/vdb", ...
    let runtime = Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        // Ends when the disk is closed. Without it, the first future starts a thread of the disk.
        let driver = tokio::spawn(disk.drive());
        // The plug is around each poll of the set, and a poll of the set runs all tasks that are
        // ready.
        let tasks = LocalSet::new();
        plugged(tasks.run_until(read_in_tasks(&disk))).await?;
        assert_eq!(disk.stats().queue.issued, 1);
        // The same without tasks.
        for read in disk.start_all((0..16).map(|n| Io::read(Buf::new(4096), n * 4096))) {
            assert_eq!(read.await?.result, Ok(4096));
        }
        assert_eq!(disk.stats().queue.issued, 2);
        drop(disk);
        driver.await??;
        Ok(())
    })
}

/// Reads sixteen neighbouring blocks, each in a task of its own.
async fn read_in_tasks(disk: &Disk) -> Result<(), Failure> {
    let tasks: Vec<_> = (0..16)
        .map(|n| {
            let disk = disk.clone();
            let read = async move { disk.start(Io::read(Buf::new(4096), n * 4096)).await };
            tokio::task::spawn_local(read)
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await??.result, Ok(4096));
    }
    Ok(())
}
