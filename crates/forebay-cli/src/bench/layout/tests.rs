//! Layouts of files that are missing or too short, and their undoing.

use forebay_fio::cmdline::{Parsed, parse};

use super::*;
use crate::bench::plan::plan;

fn layout(args: &str, path: &std::path::Path) -> Layout {
    let args = format!("{args} --filename={}", path.display());
    let Ok(Parsed::Run(command)) = parse(args.split(' ').map(Into::into)) else { panic!("{args}") };
    let targets = plan(&command.jobs).expect("specs");
    Layout::plan(&command.jobs, &targets).expect("sizes")
}

#[track_caller]
fn check(from: &[u8], to: u64, rw: &str) -> Vec<u8> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("data");
    std::fs::write(&path, from).expect("a file");
    let mut layout = layout(&format!("--name=a --rw={rw} --size={to}"), &path);
    let len = || std::fs::metadata(&path).expect("a file").len();
    layout
        .rehearse(|| {
            assert_eq!(len(), to);
            Ok(())
        })
        .expect("nothing to refuse");
    assert_eq!(len(), from.len() as u64, "nothing is left of the rehearsal");
    layout.run(&Stop::default(), |_| Ok(())).expect("laid out");
    let data = std::fs::read(&path).expect("a file");
    assert_eq!(data.len() as u64, to);
    assert_eq!(&data[..from.len()], from, "the data stays");
    data
}

#[test]
fn a_file_that_will_be_read_has_data() {
    let data = check(b"", 3 << 20, "randrw");
    let zeros = data.iter().filter(|&&byte| byte == 0).count();
    assert!(zeros < data.len() / 100, "{zeros} zero bytes");
}

#[test]
fn part_that_is_read_has_data_also_if_a_later_job_fills_the_file() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("data");
    let file = format!("--filename={}", path.display());
    let args = format!(
        "--name=a --rw=read --size=64k {file} --name=b --stonewall --rw=write --fill_device=1 \
         --size=1m"
    );
    let filling = layout(&args, &path).run(&Stop::default(), |_| Ok(())).expect("laid out");
    let data = std::fs::read(&path).expect("a file");
    let zeros = |part: &[u8]| part.iter().filter(|&&byte| byte == 0).count();
    assert_eq!((data.len(), zeros(&data[64 << 10..])), (1 << 20, (1 << 20) - (64 << 10)));
    assert!(zeros(&data[..64 << 10]) < 1 << 10);
    drop(filling);
    assert_eq!(std::fs::metadata(&path).expect("a file").len(), 64 << 10);
}

#[test]
fn a_file_is_extended_behind_its_data() {
    check(b"kept", 10_000, "read");
    check(b"kept", 10_000, "write");
}

#[test]
fn a_signal_takes_it_back() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (new, old) = (dir.path().join("new"), dir.path().join("old"));
    std::fs::write(&old, "kept").expect("a file");
    for path in [&new, &old] {
        let layout = layout("--name=a --rw=read --size=1m", path);
        let error = layout.run(&Stop::set(), |_| Ok(())).expect_err("stopped").to_string();
        let start = format!("a: cannot lay out {}: stopped by a signal; ", path.display());
        assert!(error.starts_with(&start), "{error}");
    }
    assert!(!new.exists());
    assert_eq!(std::fs::read(&old).expect("the file"), b"kept");
}

#[test]
fn data_that_another_program_wrote_meanwhile_is_kept() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("old");
    std::fs::write(&path, "kept").expect("a file");
    let mut layout = layout("--name=a --rw=read --size=1k", &path);
    std::fs::write(&path, [7; 5000]).expect("a longer file");
    layout.rehearse(|| Ok(())).expect("nothing to refuse");
    drop(layout);
    assert_eq!(std::fs::read(&path).expect("the file"), [7; 5000]);
}

#[test]
fn a_link_to_nothing_is_left_alone() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(dir.path().join("nothing"), &link).expect("a link");
    let args = format!("--name=a --rw=read --size=1m --filename={}", link.display());
    let Ok(Parsed::Run(command)) = parse(args.split(' ').map(Into::into)) else { panic!("{args}") };
    let targets = plan(&command.jobs).expect("specs");
    let refused = Layout::plan(&command.jobs, &targets).expect_err("nothing").to_string();
    assert!(refused.contains("is a link to a file that does not exist"), "{refused}");
    assert!(link.is_symlink());
}

#[test]
fn a_refusal_takes_it_back() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("new");
    let mut layout = layout("--name=a --rw=read --size=1m", &path);
    let refused = layout.rehearse(|| Err::<(), _>(Failure::Run("no".to_owned())));
    drop(layout);
    assert!(refused.is_err() && !path.exists());
}

#[test]
fn folders_of_a_file_are_created_and_taken_back() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("a.0/b/x.0");
    let mut refused = layout("--name=a --rw=read --size=4k", &path);
    let _ = refused.rehearse(|| Err::<(), _>(Failure::Run("no".to_owned())));
    assert!(path.exists(), "the layout is undone when it is dropped");
    drop(refused);
    assert!(!dir.path().join("a.0").exists());
    let mut wanted = layout("--name=a --rw=read --size=4k", &path);
    wanted.rehearse(|| Ok(())).expect("nothing to refuse");
    wanted.run(&Stop::default(), |_| Ok(())).expect("laid out");
    assert_eq!(std::fs::metadata(&path).expect("a file").len(), 4096);
}

#[test]
fn folder_that_appears_meanwhile_is_used_and_kept() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    // The second part of the path exists as soon as the first one does.
    let path = dir.path().join("new/../x");
    let mut wanted = layout("--name=a --rw=read --size=4k", &path);
    wanted.rehearse(|| Ok(())).expect("nothing to refuse");
    wanted.run(&Stop::default(), |_| Ok(())).expect("laid out");
    assert_eq!(std::fs::metadata(dir.path().join("x")).expect("a file").len(), 4096);
}
