//! The Debian package as dpkg installs it: in a root that has the packages which it depends on, as
//! they are on this machine, and no other file. A missing dependency therefore fails the check.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::clean::CleanRoot;
use super::depends::{self, Installed};
use super::tree;
use crate::Outcome;
use crate::command::{Ending, Line, root};
use crate::tools;

/// A program in C that uses the library, after it has loaded the libraries of its arguments.
const C_PROGRAM: &str = "#include <dlfcn.h>
#include <forebay.h>
#include <stdio.h>
int main(int count, char **names)
{
    struct forebay_disk *disk;
    static char block[4096];
    for (int i = 1; i < count; i++)
        if (!dlopen(names[i], RTLD_NOW)) {
            fprintf(stderr, \"%s\\n\", dlerror());
            return 1;
        }
    if (forebay_open(\"ram:64M\", &disk) < 0 || forebay_write(disk, block, sizeof block, 0) < 0) {
        fprintf(stderr, \"%s\\n\", forebay_last_error());
        return 1;
    }
    puts(forebay_version());
    return forebay_close(disk);
}
";

const PROGRAM: &str = "/usr/bin/forebay";

/// The library of `forebay run`, and the replacement of libaio.
const PRELOADED: [&str; 2] =
    ["/usr/lib/forebay/libforebay_aio.so", "/usr/lib/forebay/libaio/libaio.so.1"];

/// The files of the package, beside its manual pages and completions. `@LIB@` stands for the
/// directory of libraries.
const FILES: [&str; 17] = [
    "@LIB@/libforebay.so",
    "@LIB@/libforebay.so.0",
    "@LIB@/libforebay.so.@VERSION@",
    "@LIB@/pkgconfig/forebay.pc",
    "lib/systemd/system/forebay@.service",
    "lib/systemd/system/forebay@.socket",
    "usr/bin/forebay",
    "usr/include/forebay.h",
    "usr/lib/forebay/libaio/libaio.so.1",
    "usr/lib/forebay/libforebay_aio.so",
    "usr/libexec/forebay-vhost-user-blk",
    "usr/share/doc/forebay/CHANGELOG.md",
    "usr/share/doc/forebay/README.md",
    "usr/share/doc/forebay/SECURITY.md",
    "usr/share/doc/forebay/changelog.gz",
    "usr/share/doc/forebay/copyright",
    "usr/share/qemu/vhost-user/50-forebay-vhost-user-blk.json",
];

/// Installs the package in a clean root, checks its files, and runs all that it contains.
pub(super) fn check(package: &str, arch: &str, multiarch: &str, version: &str) -> Outcome {
    let clean = CleanRoot::create("root")?;
    let depends = Line::new("dpkg-deb", "--field").argument(package.to_owned());
    let depends = depends.arguments("Depends").output()?;
    let installed = depends::installed(arch)?;
    let needed = depends::closure("forebay", depends.trim(), &installed);
    let needed = needed.map_err(|error| format!("package: {error}"))?;
    fill(&clean, &needed)?;
    install(&clean, package)?;
    clean.check_files(&files(&clean)?, PROGRAM, "usr/share", others(multiarch, version)?)?;
    clean.check_version(PROGRAM, &[&format!("forebay {version}\n"), "features: rbd, run"])?;
    clean.check_measurement(PROGRAM)?;
    check_run(&clean)?;
    check_c(&clean, multiarch)?;
    clean.remove()
}

/// Copies the files of installed packages into the root, and what dpkg has recorded of them.
fn fill(clean: &CleanRoot, packages: &[&Installed]) -> Outcome {
    // Installers of Debian create these links before they unpack any package.
    for name in ["bin", "lib", "lib32", "lib64", "libx32", "sbin"] {
        if let Ok(to) = fs::read_link(Path::new("/").join(name)) {
            let made = fs::create_dir_all(clean.path().join(&to));
            made.and_then(|()| symlink(&to, clean.path().join(name)))
                .map_err(|error| format!("package: /{name} of the clean root: {error}"))?;
        }
    }
    for directory in ["tmp", "var/lib/dpkg/info", "var/lib/dpkg/updates"] {
        let made = fs::create_dir_all(clean.join(directory));
        made.map_err(|error| format!("package: {directory}: {error}"))?;
    }
    let mut status = String::new();
    for package in packages {
        let name = package.full_name().to_owned();
        let list = Line::new("dpkg-query", "--listfiles").argument(name.clone()).output()?;
        // The other lines are notes about diversions.
        for path in list.lines().filter(|line| line.starts_with('/')) {
            copy(Path::new(path), &clean.join(path))
                .map_err(|error| format!("package: {path} of {name}: {error}"))?;
        }
        super::write(&clean.join(&format!("var/lib/dpkg/info/{name}.list")), &list)?;
        let paragraph = Line::new("dpkg-query", "--status").argument(name).output()?;
        status.extend([paragraph.trim_end(), "\n\n"]);
    }
    let names: Vec<_> = packages.iter().map(|package| package.full_name()).collect();
    println!("package: the clean root has {}", names.join(", "));
    // The format whose lists have names with architectures.
    super::write(&clean.join("var/lib/dpkg/info/format"), "1\n")?;
    super::write(&clean.join("var/lib/dpkg/status"), &status)
}

/// Copies a directory without its contents, a link or a file, unless it exists. A file that this
/// machine lacks is left out: images of containers often have no documentation.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    let Ok(metadata) = fs::symlink_metadata(from) else { return Ok(()) };
    if fs::symlink_metadata(to).is_ok() {
        return Ok(());
    }
    if metadata.is_dir() {
        fs::create_dir_all(to)
    } else if metadata.is_symlink() {
        symlink(fs::read_link(from)?, to)
    } else {
        fs::copy(from, to).map(drop)
    }
}

/// Installs the package. Dpkg checks that its dependencies are there in sufficient versions, and
/// that the sums of its files are right.
fn install(clean: &CleanRoot, package: &str) -> Outcome {
    let dpkg = |options| {
        let line = Line::new("dpkg", options).arguments("--log=/dev/null");
        line.argument(format!("--root={}", clean.path().display()))
    };
    // Without the privilege of root, files belong to the user.
    let line = dpkg("--force-not-root").arguments("--install").argument(package.to_owned());
    if let Ending::Failure(why) = line.ending()? {
        return Err(format!("package: `{line}` failed:\n{why}"));
    }
    for action in ["--audit", "--verify"] {
        let line = dpkg(action).arguments("forebay");
        let found = line.output()?;
        if !found.is_empty() {
            return Err(format!("package: `{line}` found\n{found}"));
        }
    }
    Ok(())
}

/// Returns the installed files of the package, as dpkg lists them.
fn files(clean: &CleanRoot) -> Result<BTreeSet<String>, String> {
    let admin = clean.join("var/lib/dpkg");
    let list = Line::new("dpkg-query", "").argument(format!("--admindir={}", admin.display()));
    let list = list.arguments("--listfiles forebay").output()?;
    let is_directory =
        |path: &&str| fs::metadata(clean.join(path)).is_ok_and(|found| found.is_dir());
    let files = list.lines().filter(|path| !is_directory(path));
    Ok(files.map(|path| path.trim_start_matches('/').to_owned()).collect())
}

/// Returns the files that the package must have beside the pages and completions of the program.
fn others(multiarch: &str, version: &str) -> Result<Vec<String>, String> {
    let lib = format!("usr/lib/{multiarch}");
    let own = FILES.iter().map(|file| file.replace("@LIB@", &lib).replace("@VERSION@", version));
    let of_c = tree::names(&root().join("crates/forebay-capi/man"))?;
    let of_c = of_c.iter().map(|name| tree::page("usr/share", name));
    Ok(own.chain(of_c).collect())
}

/// Runs a program with the library of `forebay run`, which needs `/proc`.
fn check_run(clean: &CleanRoot) -> Outcome {
    let line = match clean.line_with_proc(&format!("{PROGRAM} run -- {PROGRAM} --version")) {
        Ok(line) => line,
        Err(why) if tools::are_required() => return Err(format!("package: {why}")),
        Err(why) => {
            println!("package: SKIPPED `forebay run` in the clean root: {why}");
            return Ok(());
        }
    };
    println!("package: {line}");
    // The dynamic linker only warns if it cannot load the library.
    match line.errors()? {
        errors if errors.contains("cannot be preloaded") => Err(format!("package: {errors}")),
        _ => Ok(()),
    }
}

/// Builds a program in C with the installed header and the flags of pkg-config, and runs it.
fn check_c(clean: &CleanRoot, multiarch: &str) -> Outcome {
    let (source, program) = (clean.join("tmp/hello.c"), clean.join("tmp/hello"));
    super::write(&source, C_PROGRAM)?;
    let pkg_config = clean.join(&format!("usr/lib/{multiarch}/pkgconfig"));
    let flags = Line::new("pkg-config", "--cflags --libs forebay")
        .variable("PKG_CONFIG_SYSROOT_DIR", clean.path().display().to_string())
        .variable("PKG_CONFIG_LIBDIR", pkg_config.display().to_string())
        .output()?;
    let line = Line::new("cc", "").argument(source.display().to_string());
    let line = line.argument(format!("-o{}", program.display()));
    flags.split_whitespace().fold(line, |line, flag| line.argument(flag.to_owned())).run()?;
    for loaded in ["", PRELOADED[0], PRELOADED[1]] {
        clean.output(&format!("/tmp/hello {loaded}"))?;
    }
    Ok(())
}
