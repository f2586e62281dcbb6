//! Blocking calls: their results and errors, compared with those of the standard library.

use crate::common::{Scratch, open};
use forebay::{BlockStatus, Buf, Io, IoError, Op};
use std::io::ErrorKind;

const LEN: u64 = 1 << 20;

#[test]
fn read_exact_at_fills_the_buffer_or_fails() {
    let disk = open("ram:1M");
    disk.write_all_at(&[7; 4096], 8192).expect("a write");
    let mut block = [0; 4096];
    disk.read_exact_at(&mut block, 8192).expect("a read");
    assert_eq!(block, [7; 4096]);
    disk.read_exact_at(&mut [], 0).expect("nothing to read");
    let refused = disk.read_exact_at(&mut block, LEN).expect_err("behind the end");
    assert!(matches!(refused, IoError::Refused(_)), "{refused}");
}

#[test]
fn exact_read_behind_the_end_of_a_file_names_the_missing_bytes() {
    for driver in ["file", "aio", "psync"] {
        let scratch = Scratch::new(10_000);
        let disk = open(&format!("{driver}:{}", scratch.spec("capacity=growing")));
        let error = disk.read_exact_at(&mut [0; 4096], 8192).expect_err("1808 bytes are there");
        let expected = IoError::Short { op: Op::Read, offset: 8192, len: 4096, missing: 2288 };
        assert_eq!(error, expected, "{driver}");
        let text = "short read of 4096 bytes at byte 8192: 2288 bytes are missing, from byte 10000 \
                    on; the file ends there";
        assert_eq!(error.to_string(), text);
        assert_eq!(std::io::Error::from(error).kind(), ErrorKind::UnexpectedEof);
        disk.read_exact_at(&mut [0; 512], 9488).expect("the last bytes");
        let error = disk.read_exact_at(&mut [0; 512], 20_000).expect_err("nothing is there");
        assert!(matches!(error, IoError::Short { missing: 512, .. }), "{error}");
        disk.write_all_at(&[1; 4096], 8192).expect("the file grows");
        disk.read_exact_at(&mut [0; 4096], 8192).expect("all bytes are there");
    }
}

#[test]
fn short_write_becomes_an_error_of_the_standard_library() {
    let error = IoError::Short { op: Op::Write, offset: 512, len: 1024, missing: 24 };
    let text = "short write of 1024 bytes at byte 512: 24 bytes are missing, from byte 1512 on";
    assert_eq!(error.to_string(), text);
    assert_eq!(std::io::Error::from(error).kind(), ErrorKind::WriteZero);
    assert_eq!(error.errno(), 5, "EIO");
    let other = std::io::Error::from(IoError::Ended(BlockStatus::NoSpace));
    assert_eq!(other.kind(), ErrorKind::StorageFull);
}

#[test]
fn buffer_is_made_from_a_vector_and_lends_its_bytes() {
    let mut buf = Buf::from(vec![1, 2, 3]);
    assert_eq!(buf.as_ref(), [1, 2, 3]);
    buf.as_mut()[0] = 9;
    let (disk, bytes) =
        (open("ram:1M?logical_block_size=1"), |buf: &dyn AsRef<[u8]>| buf.as_ref().len());
    assert_eq!(bytes(&buf), 3);
    let mut queue = disk.queue();
    queue.submit(Io::write(buf, 0)).expect("it is submitted");
    drop(queue);
    let mut read = [0; 3];
    disk.read_exact_at(&mut read, 0).expect("a read");
    assert_eq!(read, [9, 2, 3]);
}
