//! Sixteen small reads become one request.

use forebay::{Buf, Disk, Io};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let disk = Disk::open("ram:64M")?;
    let mut queue = disk.queue();
    let plug = forebay::plug();
    for n in 0..16 {
        queue.submit(Io::read(Buf::new(4096), n * 4096).user_data(n))?;
    }
    drop(plug);
    let mut done = Vec::new();
    queue.reap(16, 16, &mut done);
    assert_eq!((done.len(), disk.stats().queue.issued), (16, 1));
    Ok(())
}
