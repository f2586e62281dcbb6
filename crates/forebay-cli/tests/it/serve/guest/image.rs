//! Kernel and tools for a guest, and the initial file system that its kernel unpacks.
//!
//! The kernel, its modules and busybox are packages of the distribution. apt downloads them once,
//! and nothing is installed. Other tools are those of the host, with their libraries.

use crate::common::{folder, stdout};
use crate::serve::tools::{run, try_run};
use std::fs::{Permissions, copy, create_dir_all, read_dir, rename, set_permissions, write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use tempfile::TempDir;

/// The modules that disks and file systems need, in load order.
const MODULES: [&str; 8] = [
    "drivers/virtio/virtio_ring.ko",
    "drivers/virtio/virtio.ko",
    "drivers/virtio/virtio_pci_legacy_dev.ko",
    "drivers/virtio/virtio_pci_modern_dev.ko",
    "drivers/virtio/virtio_pci.ko",
    "drivers/block/virtio_blk.ko",
    "lib/libcrc32c.ko",
    "fs/xfs/xfs.ko",
];

/// The distribution's kernel and busybox, unpacked.
pub(super) struct Distribution(PathBuf);

impl Distribution {
    /// Returns the packages, which the first call downloads unless an earlier run has done so.
    ///
    /// # Errors
    /// Returns why they are not there.
    pub(super) fn get() -> Result<&'static Distribution, &'static str> {
        static FOUND: OnceLock<Option<Distribution>> = OnceLock::new();
        FOUND.get_or_init(|| unpacked().map(Distribution)).as_ref().ok_or(
            "the kernel of the distribution is not there: apt-get download linux-image-... and \
             busybox-static failed; apt-get update, and check the network",
        )
    }

    /// Returns the path of the kernel.
    pub(super) fn kernel(&self) -> PathBuf {
        only_entry(&self.0.join("boot"), "vmlinuz")
    }

    /// Creates `initrd.cpio` in `folder`: busybox, modules, these tools of the host, and an init
    /// script that ends with `script`.
    pub(super) fn pack(&self, folder: &TempDir, script: &str, tools: &[&str]) {
        let root = self.fill(&folder.path().join("initrd"), folder, script, tools);
        let version = only_entry(&self.0.join("lib/modules"), "");
        let mut order = String::new();
        for module in MODULES {
            let name = module.rsplit('/').next().expect("a name");
            copy(version.join("kernel").join(module), root.join("modules").join(name))
                .expect("a module of the kernel");
            order.push_str(name);
            order.push('\n');
        }
        write(root.join("modules/order"), order).expect("a file");
        let pack = "cd initrd && bin/busybox find . | bin/busybox cpio -o -H newc > \
                    ../initrd.cpio && cd .. && rm -r initrd";
        run(folder, "sh", &["-c", pack]);
    }

    /// Creates `root.img` in `folder`: ext4 with busybox, these tools of the host, and an init
    /// script that ends with `script`. The modules are loaded when the guest has this root.
    pub(super) fn make_root(&self, folder: &TempDir, mib: u64, script: &str, tools: &[&str]) {
        self.fill(&folder.path().join("root"), folder, script, tools);
        let size = format!("{mib}M");
        run(folder, "mkfs.ext4", &["-q", "-d", "root", "root.img", &size]);
        run(folder, "rm", &["-r", "root"]);
    }

    /// Creates the folder `root`: busybox, these tools of the host, and the init script, without
    /// modules. Returns its path.
    fn fill(&self, root: &Path, folder: &TempDir, script: &str, tools: &[&str]) -> PathBuf {
        for part in ["bin", "modules", "usr/bin"] {
            create_dir_all(root.join(part)).expect("a folder");
        }
        copy(self.0.join("bin/busybox"), root.join("bin/busybox")).expect("a copy");
        write(root.join("modules/order"), "").expect("a file");
        for tool in tools {
            add_tool(folder, root, tool);
        }
        let init = [include_str!("scripts/init.sh"), script, "report DONE\npoweroff -f\n"].concat();
        let path = root.join("init");
        write(&path, init).expect("a file");
        set_permissions(path, Permissions::from_mode(0o755)).expect("it is ours");
        root.to_owned()
    }
}

fn unpacked() -> Option<PathBuf> {
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest");
    if kept.join("bin/busybox").exists() {
        return Some(kept);
    }
    let folder = folder();
    let said = stdout(&try_run(&folder, "apt-cache", &["depends", "linux-image-cloud-amd64"]));
    let kernel = said.lines().find_map(|line| line.trim().strip_prefix("Depends: linux-image-"))?;
    let kernel = format!("linux-image-{kernel}");
    let got = try_run(&folder, "apt-get", &["-q", "download", &kernel, "busybox-static"]);
    if !got.status.success() {
        return None;
    }
    for entry in read_dir(folder.path()).ok()?.flatten() {
        let package = entry.file_name().into_string().ok()?;
        if package.ends_with(".deb") {
            run(&folder, "dpkg-deb", &["--extract", &package, "root"]);
        }
    }
    // A concurrent test run may have created it first.
    let _ = rename(folder.path().join("root"), &kept);
    kept.join("bin/busybox").exists().then_some(kept)
}

/// Copies a program of the host and the libraries that `ldd` lists, each to its place.
fn add_tool(folder: &TempDir, root: &Path, tool: &str) {
    let program = run(folder, "sh", &["-c", &format!("command -v {tool}")]);
    let program = program.trim();
    copy(program, root.join("usr/bin").join(tool)).expect("a copy");
    let libraries = run(folder, "ldd", &[program]);
    for library in libraries.split_whitespace().filter(|word| word.starts_with('/')) {
        let to = root.join(&library[1..]);
        create_dir_all(to.parent().expect("a folder")).expect("a folder");
        copy(library, to).expect("a copy");
    }
}

fn only_entry(folder: &Path, begin: &str) -> PathBuf {
    let entries = read_dir(folder).expect("a folder").flatten();
    let mut paths = entries.map(|entry| entry.path());
    let begins = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(begin))
    };
    paths.find(begins).unwrap_or_else(|| panic!("no {begin} in {}", folder.display()))
}
