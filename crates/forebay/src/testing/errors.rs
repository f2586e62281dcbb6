//! Check of errors: merging does not spread them.

use super::Subject;
use super::helpers::{assert_read, assert_result, pattern, reap_all, submit};
use crate::{Buf, Disk, Io, IoError};

const BLOCK: u64 = 4096;

/// Three neighbours merge to one request, whose middle cannot be read.
pub(super) fn an_error_ends_only_its_own_io(subject: &Subject<'_>) {
    let Some((disks, offset, status)) = subject.open_failing() else { return };
    for disk in disks {
        let first = offset - BLOCK;
        for n in [0, 2] {
            let at = first + n * BLOCK;
            assert_eq!(disk.write_at(&pattern(6, at, BLOCK), at), Ok(BLOCK as usize));
        }
        let mut queue = disk.queue();
        for _ in 0..10 {
            let plug = crate::plug();
            for n in 0..3 {
                submit(
                    &mut queue,
                    Io::read(Buf::new(BLOCK as usize), first + n * BLOCK).user_data(n),
                );
            }
            drop(plug);
            for done in reap_all(&mut queue) {
                let expected = if done.user_data == 1 { Err(status) } else { Ok(BLOCK) };
                let what = format!("the read of block {} of 3", done.user_data + 1);
                assert_result(&what, &done.result, &expected);
                if done.result.is_ok() {
                    let at = first + done.user_data * BLOCK;
                    assert_read(&disk, &done.buf.expect("its buffer"), &pattern(6, at, BLOCK));
                }
            }
            assert_eq!(read(&disk, offset), Err(IoError::Ended(status)));
        }
        assert!(!disk.is_failed(), "an error of one block is no error of the device");
        assert_eq!(read(&disk, first), Ok(BLOCK as usize));
    }
}

fn read(disk: &Disk, at: u64) -> Result<usize, IoError> {
    disk.read_at(&mut Buf::new(BLOCK as usize), at)
}
