//! Disks of a vhost-user-blk server: qemu-storage-daemon.

use crate::common::{bench_json, data_file, folder, forebay, skip_unless_required, stderr, stdout};
use crate::storage_daemon::StorageDaemon;

#[test]
fn bench_and_info_need_no_virtual_machine() {
    let folder = folder();
    let path = data_file(&folder, "disk.img", 1 << 20);
    let daemon = match StorageDaemon::new(&path) {
        Ok(daemon) => daemon,
        Err(why) => return skip_unless_required("bench_and_info_need_no_virtual_machine", &why),
    };
    let job = "--name=a --rw=randrw --bs=4k --iodepth=8 --size=1m --verify=crc32c --do_verify=1";
    let report = bench_json(&folder, &format!("{job} --filename={}", daemon.spec()));
    let job = &report["jobs"][0];
    let nr = |direction: &str| job[direction]["total_ios"].as_u64().expect("a number");
    assert!(nr("read") > 0 && nr("write") > 0 && job["error"] == 0, "{job}");
    let output = forebay(&folder).args(["info", &daemon.spec()]).output().expect("it can be run");
    let text = stdout(&output);
    assert!(output.status.success(), "{}", stderr(&output));
    for line in [
        "driver                      vhost-user\n",
        "volatile cache              yes\n",
        "  event_idx                 yes: kicks and interrupts only when the other side waits\n",
        "  fua                       no: virtio has none: a flush follows the write\n",
        "  bounce                    yes: all data is copied through memory",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}
