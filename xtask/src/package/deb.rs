//! The Debian package: the program, `libforebay_aio.so`, the replacement of `libaio.so.1`, the
//! library for C with its header, manual pages, completions and systemd units.
//!
//! One package has everything, for machines of one's own. The lint of Debian must find no error in
//! it. Then dpkg installs it in a clean root ([`super::installed`]).

use std::fs;
use std::path::Path;

use super::{Profile, installed, tree};
use crate::Outcome;
use crate::command::{Line, root, target};
use crate::libaio;

/// The library for C has the drivers of the program.
const FEATURES: &str = "--features=forebay-capi/rbd,forebay-capi/tls,forebay-capi/vhost-user";

const MAINTAINER: &str = "The Forebay developers <maintainers@forebay.invalid>";

/// Checks that the programs of Debian that build and check the package are installed.
pub(super) fn check_tools() -> Outcome {
    super::check_programs(&[
        ("dpkg-shlibdeps", "--version", "dpkg-dev"),
        ("lintian", "--version", "lintian"),
        ("pkg-config", "--version", "pkg-config"),
    ])
}

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
    control(Path::new(&stage), &files, &arch, &version)?;
    let package = target(&format!("package/forebay_{version}_{arch}.deb"));
    Line::new("dpkg-deb", "--root-owner-group --build")
        .variable("SOURCE_DATE_EPOCH", super::time())
        .argument(files.display().to_string())
        .argument(package.clone())
        .run()?;
    Line::new("lintian", "--fail-on error --allow-root").argument(package.clone()).run()?;
    installed::check(&package, &arch, &multiarch, &version)?;
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
fn control(stage: &Path, files: &Path, arch: &str, version: &str) -> Outcome {
    let fields = super::read(&root().join("contrib/debian/control"))?;
    // dpkg-shlibdeps reads the control file of the source package.
    let source = format!("Source: forebay\n\nPackage: forebay\nArchitecture: {arch}\n");
    super::write(&stage.join("debian/control"), &source)?;
    let found = Line::new("env", "--chdir")
        .argument(stage.display().to_string())
        .argument("dpkg-shlibdeps".to_owned())
        .argument("-O".to_owned());
    let found = binaries(files)?.into_iter().fold(found, Line::argument).output()?;
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

/// Returns the programs and libraries of the package, relative to the parent of `files`. All of
/// them determine its dependencies.
fn binaries(files: &Path) -> Result<Vec<String>, String> {
    let list = Line::new("find", "").argument(files.display().to_string());
    let list = list.arguments("-type f -printf %P\\n").output()?;
    let mut binaries = Vec::new();
    for file in list.lines() {
        let path = files.join(file);
        let bytes = fs::read(&path);
        let bytes = bytes.map_err(|error| format!("package: {}: {error}", path.display()))?;
        if bytes.starts_with(b"\x7fELF") {
            binaries.push(format!("files/{file}"));
        }
    }
    binaries.sort();
    Ok(binaries)
}
