//! Blocking calls: write, make durable, read back.

use forebay::Disk;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let disk = Disk::open("ram:64M")?;
    disk.write_at(&[42; 4096], 8192)?;
    disk.flush()?;
    let mut page = [0; 4096];
    disk.read_at(&mut page, 8192)?;
    assert_eq!(page, [42; 4096]);
    Ok(())
}
