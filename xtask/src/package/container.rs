//! The container image: the static program and nothing else, built by buildah, which needs no
//! daemon. `docker build` and `podman build` take the same Containerfile.

use std::path::Path;

use super::clean::CleanRoot;
use super::{Profile, archive};
use crate::Outcome;
use crate::command::{Line, target};

/// The image's name in the storage of this build.
const IMAGE: &str = "localhost/forebay";

/// Checks that buildah, and what the static program needs, are installed.
pub(super) fn check_tools() -> Outcome {
    super::check_programs(&[("buildah", "--version", "buildah")])?;
    archive::check_tools()
}

pub(super) fn run(profile: Profile) -> Outcome {
    let program = archive::build(profile)?;
    let version = super::version()?;
    let context = super::empty_directory("container")?;
    let program_of_image = Path::new(&context).join("forebay");
    super::tree::binary(&program, &program_of_image, "755")?;
    let containerfile = archive::container_files().join("Containerfile");
    super::copy(&containerfile, &Path::new(&context).join("Containerfile"))?;
    // A file is the only layer, so no tool needs to mount anything.
    buildah("build --isolation chroot --layers=false")
        .argument(format!("--timestamp={}", super::time()))
        .argument(format!("--build-arg=VERSION={version}"))
        .argument(format!("--tag={IMAGE}:{version}"))
        .argument(context)
        .run()?;
    let image = target(&format!("package/forebay-{version}-oci.tar"));
    // An existing archive would get another image.
    let _ = std::fs::remove_file(&image);
    buildah("push")
        .argument(format!("{IMAGE}:{version}"))
        .argument(format!("oci-archive:{image}:forebay:{version}"))
        .run()?;
    check(&version)?;
    println!("package: {image} was built, and its files tried in a root of their own");
    Ok(())
}

/// Returns buildah with a storage below the target directory, so that it needs no other.
fn buildah(arguments: &str) -> Line {
    let storage = target("package/storage");
    Line::new("buildah", "--storage-driver=vfs")
        .argument(format!("--root={storage}/root"))
        .argument(format!("--runroot={storage}/run"))
        .arguments(arguments)
}

/// Runs the program in the files of a container from the image.
fn check(version: &str) -> Outcome {
    let container = buildah("from").argument(format!("{IMAGE}:{version}")).output()?;
    let container = container.trim().to_owned();
    let checked = buildah("mount").argument(container.clone()).output().and_then(|directory| {
        let clean = CleanRoot::at(directory.trim());
        let files = clean.files()?;
        if !files.iter().eq(["forebay"]) {
            return Err(format!("package: the image has other files than forebay: {files:?}"));
        }
        clean.check_version("/forebay", &archive::PARTS)?;
        clean.check_measurement("/forebay")
    });
    buildah("rm").argument(container).output()?;
    checked
}
