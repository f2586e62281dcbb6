//! Sequential I/O that goes backwards, beside the real fio.

use std::path::Path;

use crate::common::{self, bench, folder, ios, skip_without, stderr};

#[test]
fn backward_offsets_are_those_of_fio() {
    let test = "backward_offsets_are_those_of_fio";
    let options = [
        "--rw=read:-8k --size=256k",
        "--rw=write:-8k --size=256k",
        "--rw=read:-8k --size=64k --offset=256k --io_size=200k",
        "--rw=read:-12k --size=64k",
        "--rw=read:-4k --size=32k",
        "--rw=read:-2k --size=32k",
    ];
    let all = options.map(|options| {
        format!("--name=a --filename=x --write_iolog=log --ioengine=sync {options}")
    });
    common::all_beside_fio(test, &all, |args, [theirs, ours]| {
        assert!(theirs.len() >= 8, "{args}");
        assert_eq!(ours, theirs, "{args}");
    });
    let args = "--name=a --filename=x --write_iolog=log --ioengine=sync --rw=rw:-8k --size=256k";
    let Some([theirs, ours]) = common::ios_beside_fio(test, args) else { return };
    for action in ["read", "write"] {
        let of = |ios: &[common::Io]| -> Vec<u64> {
            ios.iter().filter(|io| io.0 == action).map(|io| io.1).collect()
        };
        // The mixes are drawn differently, so one has more reads than the other.
        let (theirs, ours) = (of(&theirs), of(&ours));
        let both = theirs.len().min(ours.len());
        assert!(both > 16, "{action}");
        assert_eq!(ours[..both], theirs[..both], "{action}");
    }
}

#[test]
fn backward_example_of_fio_reads_the_offsets_of_fio() {
    let test = "backward_example_of_fio_reads_the_offsets_of_fio";
    let example = Path::new("/usr/share/doc/fio/examples/backwards-read.fio");
    let Ok(text) = std::fs::read_to_string(example) else {
        return skip_without("fio-examples", test);
    };
    let (theirs, ours) = (folder(), folder());
    let log = |folder: &tempfile::TempDir| {
        ios(&std::fs::read_to_string(folder.path().join("log")).expect("a log"))
    };
    for folder in [&theirs, &ours] {
        // Smaller, so that it takes no time.
        let small = text.replace("128m", "4m") + "\nwrite_iolog=log\n";
        std::fs::write(folder.path().join("job.fio"), small).expect("a file");
    }
    if common::fio(test, &theirs, "job.fio").is_none() {
        return;
    }
    let run = bench(&ours, "job.fio");
    assert_eq!(run.status.code(), Some(0), "{}", stderr(&run));
    let (theirs, ours) = (log(&theirs), log(&ours));
    assert_eq!(theirs.len(), 1024);
    assert_eq!(ours, theirs);
}
