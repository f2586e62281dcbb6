//! A disk that encrypts what it stores on another disk. This demonstrates a back end, and is no
//! cipher: overwriting a block repeats its key stream. Use XTS-AES for data of value.

use forebay::{Backend, Batch, BlockStatus, Disk, IoError, Op, Policy, QueueLimits, Request};

/// The disk below, and the key.
struct Encrypted(Disk, u64);

impl Backend for Encrypted {
    fn name(&self) -> &str {
        "encrypted"
    }

    /// Waits for the disk below, which is fast here. If it is not, a thread should do this.
    fn submit(&self, batch: &mut Batch<'_>) {
        for mut request in batch {
            let result = self.serve(&mut request);
            request.complete(result.map_err(|_| BlockStatus::Io));
        }
    }
}

impl Encrypted {
    fn serve(&self, request: &mut Request) -> Result<(), IoError> {
        let (offset, mut bytes) = (request.offset(), vec![0; request.len() as usize]);
        match request.op() {
            Op::Read => {
                self.0.read_at(&mut bytes, offset)?;
                self.apply(offset, &mut bytes);
                request.copy_from(0, &bytes);
            }
            Op::Write => {
                request.copy_to(0, &mut bytes);
                self.apply(offset, &mut bytes);
                self.0.write_at(&bytes, offset)?;
            }
            _ => self.0.flush()?,
        }
        Ok(())
    }

    /// Encrypts or decrypts the bytes at `offset`.
    fn apply(&self, offset: u64, bytes: &mut [u8]) {
        for (at, byte) in (offset..).zip(bytes) {
            *byte ^= ((self.1 ^ at).wrapping_mul(0x94D0_49BB_1331_11EB) >> 56) as u8;
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let below = Disk::open("ram:1M")?;
    let limits = QueueLimits::default().capacity_bytes(Some(1 << 20)).volatile_cache(true);
    let disk = Disk::with_backend(Encrypted(below.clone(), 42), limits, Policy::default())?;
    disk.write_at(&[7; 4096], 8192)?;
    let [mut plain, mut stored] = [[0; 4096]; 2];
    assert_eq!((disk.read_at(&mut plain, 8192)?, below.read_at(&mut stored, 8192)?), (4096, 4096));
    assert!(plain == [7; 4096] && stored != plain);
    Ok(disk.flush()?)
}
