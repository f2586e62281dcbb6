//! The Debian package: the program, `libforebay_aio.so`, the replacement of `libaio.so.1`, the
//! library for C with its header, manual pages, completions and systemd units.
//!
//! One package has everything, for machines of one's own. The lint of Debian must find no error in
//! it. Then dpkg installs it in an empty root that has only the libraries that it depends on.

use std::fs;
use std::path::Path;

use super::{Profile, tree};
use crate::Outcome;
use crate::command::{Line, root, target};
use crate::libaio;

/// The library for C has the drivers of the program.
const FEATURES: &str = "--features=forebay-capi/rbd,forebay-capi/tls,forebay-capi/vhost-user";

const MAINTAINER: &str = "The Forebay developers <maintainers@forebay.invalid>";

/// The program that is linked with the C library in the installed root.
const C_PROGRAM: &str = "#include <forebay.h>\n#include <stdio.h>\nint main(void)\n{\n    \
    struct forebay_disk *disk;\n    static char block[4096];\n    if (forebay_open(\"ram:64M\", \
    &disk) < 0 || forebay_write(disk, block, sizeof block, 0) < 0) {\n        fprintf(stderr, \
    \"%s\\n\", forebay_last_error());\n        return 1;\n    }\n    puts(forebay_version());\n    \
    return forebay_close(disk);\n}\n";

/// Files that the installed root must have, beside the programs and libraries that are run.
const INSTALLED: [&str; 7] = [
    "usr/share/man/man1/forebay.1.gz",
    "usr/share/bash-completion/completions/forebay",
    "usr/share/fish/vendor_completions.d/forebay.fish",
    "usr/share/zsh/vendor-completions/_forebay",
    "usr/include/forebay.h",
    "lib/systemd/system/forebay@.service",
    "lib/systemd/system/forebay@.socket",
];

pub(super) fn run(profile: Profile) -> Outcome {
    let Profile(name) = profile;
    Line::cargo(&format!("build --profile {name} --package forebay-cli --package forebay-aio"))
        .run()?;
    Line::cargo(&format!("build --profile {name} --package forebay-capi {FEATURES}")).run()?;
    let libaio = libaio::build_in("package/libaio")?;
    let (arch, multiarch) = (dpkg_says("-qDEB_HOST_ARCH")?, dpkg_says("-qDEB_HOST_MULTIARCH")?);
    let version = super::version()?;
    let stage = super::empty_directory("deb")?;
    let files = Path::new(&stage).join("files");
    install(&target(name), &libaio, &files, &multiarch, &version)?;
    control(Path::new(&stage), &files, &arch, &multiarch, &version)?;
    let package = target(&format!("package/forebay_{version}_{arch}.deb"));
    Line::new("dpkg-deb", "--root-owner-group --build")
        .variable("SOURCE_DATE_EPOCH", super::time())
        .argument(files.display().to_string())
        .argument(package.clone())
        .run()?;
    Line::new("lintian", "--fail-on error --allow-root").argument(package.clone()).run()?;
    try_it(&package, &multiarch, &version)?;
    println!("package: {package} was built, checked by lintian, installed and tried");
    Ok(())
}

fn dpkg_says(query: &str) -> Result<String, String> {
    Ok(Line::new("dpkg-architecture", query).output()?.trim().to_owned())
}

/// Puts all files at their places below `files`.
fn install(built: &str, libaio: &str, files: &Path, multiarch: &str, version: &str) -> Outcome {
    let usr = files.join("usr");
    tree::binary(&format!("{built}/forebay"), &usr.join("bin/forebay"), "755")?;
    let own = usr.join("lib/forebay");
    let preload = "libforebay_aio.so";
    tree::binary(&format!("{built}/{preload}"), &own.join(preload), "644")?;
    tree::binary(libaio, &own.join("libaio/libaio.so.1"), "644")?;
    let lib = usr.join("lib").join(multiarch);
    let full = format!("libforebay.so.{version}");
    tree::binary(&format!("{built}/libforebay.so"), &lib.join(&full), "644")?;
    for link in ["libforebay.so.0", "libforebay.so"] {
        std::os::unix::fs::symlink(&full, lib.join(link))
            .map_err(|error| format!("package: {link}: {error}"))?;
    }
    let pc = format!(
        "prefix=/usr\nincludedir=${{prefix}}/include\nlibdir=${{prefix}}/lib/{multiarch}\n\n\
         Name: forebay\nDescription: Multi-queue block layer in user space\nVersion: {version}\n\
         Libs: -L${{libdir}} -lforebay\nCflags: -I${{includedir}}\n"
    );
    super::write(&lib.join("pkgconfig/forebay.pc"), &pc)?;
    tree::copy_from_checkout(&["crates/forebay-capi/include/forebay.h"], &usr.join("include"))?;
    let units = ["contrib/systemd/forebay@.service", "contrib/systemd/forebay@.socket"];
    tree::copy_from_checkout(&units, &files.join("lib/systemd/system"))?;
    let description = "contrib/qemu/50-forebay-vhost-user-blk.json";
    tree::copy_from_checkout(&[description], &usr.join("share/qemu/vhost-user"))?;
    let back_end = "contrib/qemu/forebay-vhost-user-blk";
    tree::copy_from_checkout(&[back_end], &usr.join("libexec"))?;
    tree::pages_and_completions(&format!("{built}/forebay"), &usr.join("share"))?;
    let of_c = root().join("crates/forebay-capi/man");
    tree::install_pages(&of_c, &usr.join("share/man"))?;
    let docs = usr.join("share/doc/forebay");
    tree::copy_from_checkout(&["README.md", "SECURITY.md", "contrib/debian/copyright"], &docs)?;
    tree::copy_from_checkout(&["CHANGELOG.md"], &docs)?;
    let changelog = docs.join("changelog");
    let date = Line::new("date", "--utc -R").argument(format!("--date=@{}", super::time()));
    let text = format!(
        "forebay ({version}) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n \
         -- {MAINTAINER}  {}\n",
        date.output()?.trim()
    );
    super::write(&changelog, &text)?;
    Line::new("gzip", "-9 --no-name").argument(changelog.display().to_string()).run()
}

/// Writes the metadata: the fields, the sums of all files, and the trigger of the linker's cache.
fn control(stage: &Path, files: &Path, arch: &str, multiarch: &str, version: &str) -> Outcome {
    let fields = super::read(&root().join("contrib/debian/control"))?;
    // dpkg-shlibdeps reads the source package's file.
    let source = format!("Source: forebay\n\nPackage: forebay\nArchitecture: {arch}\n");
    super::write(&stage.join("debian/control"), &source)?;
    let binaries = format!(
        "usr/bin/forebay usr/lib/forebay/libforebay_aio.so usr/lib/forebay/libaio/libaio.so.1 \
         usr/lib/{multiarch}/libforebay.so.{version}"
    );
    let found = Line::new("env", "--chdir")
        .argument(stage.display().to_string())
        .argument("dpkg-shlibdeps".to_owned())
        .argument("-O".to_owned());
    let found = binaries.split(' ').fold(found, |line, it| line.argument(format!("files/{it}")));
    let found = found.output()?;
    let depends = found.trim().strip_prefix("shlibs:Depends=");
    let depends = depends.ok_or_else(|| format!("package: dpkg-shlibdeps printed `{found}`"))?;
    let shell = "cd \"$0\" && find . -type d -exec chmod 755 {} + && chmod 755 usr/libexec/* && \
                 mkdir DEBIAN && find usr lib -type f -exec md5sum {} + | LC_ALL=C sort -k 2 > \
                 DEBIAN/md5sums && du -ks usr | cut -f 1";
    let size = Line::new("sh", "-c").argument(shell.to_owned());
    let size = size.argument(files.display().to_string()).output()?;
    let fields = fields
        .replace("@MAINTAINER@", MAINTAINER)
        .replace("@VERSION@", version)
        .replace("@ARCH@", arch)
        .replace("@SIZE@", size.trim())
        .replace("@DEPENDS@", depends);
    super::write(&files.join("DEBIAN/control"), &fields)?;
    super::write(&files.join("DEBIAN/triggers"), "activate-noawait ldconfig\n")?;
    super::write(&files.join("DEBIAN/shlibs"), "libforebay 0 forebay\n")
}

/// Installs the package in an empty root, with the libraries that it needs, and runs it there.
fn try_it(package: &str, multiarch: &str, version: &str) -> Outcome {
    let clean = super::empty_directory("root")?;
    let folder = Path::new(&clean);
    for file in ["var/lib/dpkg/status", "var/lib/dpkg/available"] {
        super::write(&folder.join(file), "")?;
    }
    for directory in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "tmp"] {
        let made = fs::create_dir_all(folder.join(directory));
        made.map_err(|error| format!("package: {directory}: {error}"))?;
    }
    // Its dependencies are not packages of this root but copied files.
    let installed = Line::new("dpkg", "--force-depends --force-not-root --log=/dev/null --install");
    let installed = installed.argument(format!("--root={clean}")).argument(package.to_owned());
    installed.ending().and_then(|ending| match ending {
        crate::command::Ending::Failure(why) => Err(format!("package: `{installed}`: {why}")),
        _ => Ok(()),
    })?;
    for file in INSTALLED {
        if !fs::metadata(folder.join(file)).is_ok_and(|file| file.is_file() && file.len() > 0) {
            return Err(format!("package: {file} is missing or empty after the installation"));
        }
    }
    let program = folder.join("usr/bin/forebay").display().to_string();
    copy_libraries(&program, folder)?;
    let long = super::output_in(&clean, "/usr/bin/forebay --version")?;
    if !long.contains(&format!("forebay {version}\n")) || !long.contains("features: rbd, run") {
        return Err(format!("package: --version printed\n{long}"));
    }
    super::check_commit(&long)?;
    super::measure_in(&clean, "/usr/bin/forebay")?;
    // It looks for its library beside itself, so it needs no root of its own.
    let run = Line::new("env", "--").argument(program).argument("run".to_owned());
    run.argument("--".to_owned()).argument("true".to_owned()).errors()?;
    try_c(&clean, multiarch)
}

/// Copies the libraries that a program is linked with, and the dynamic linker.
fn copy_libraries(program: &str, folder: &Path) -> Outcome {
    let list = Line::new("ldd", "").argument(program.to_owned()).output()?;
    for word in list.split_whitespace().filter(|word| word.starts_with('/')) {
        let to = folder.join(word.trim_start_matches('/'));
        // Libraries of the package are there.
        if !to.exists() {
            super::copy(Path::new(word), &to)?;
        }
    }
    Ok(())
}

/// Builds a program in C with the installed header and pkg-config's flags, and runs it.
fn try_c(clean: &str, multiarch: &str) -> Outcome {
    let source = format!("{clean}/tmp/hello.c");
    super::write(Path::new(&source), C_PROGRAM)?;
    let flags = Line::new("pkg-config", "--cflags --libs forebay")
        .variable("PKG_CONFIG_SYSROOT_DIR", clean.to_owned())
        .variable("PKG_CONFIG_LIBDIR", format!("{clean}/usr/lib/{multiarch}/pkgconfig"))
        .output()?;
    let line = Line::new("cc", "").argument(source).argument(format!("-o{clean}/tmp/hello"));
    flags.split_whitespace().fold(line, |line, flag| line.argument(flag.to_owned())).run()?;
    super::output_in(clean, "/tmp/hello").map(drop)
}
