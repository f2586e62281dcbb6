//! A file as a disk, and a write that is durable when it completes.

use forebay::{Buf, Disk, Io};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::temp_dir().join("forebay-durable.img");
    std::fs::File::create(&path)?.set_len(1 << 20)?;
    let disk = Disk::open(&path.to_string_lossy())?;
    let mut queue = disk.queue();
    queue.submit(Io::write(Buf::from(&b"committed"[..]), 0).fua())?;
    let mut done = Vec::new();
    queue.reap(1, 1, &mut done);
    assert_eq!(done[0].result, Ok(9));
    Ok(std::fs::remove_file(&path)?)
}
