//! The static program for any distribution: a tar archive with the program, its manual pages and
//! its completions. It lacks the driver `rbd` and `forebay run`, which load libraries.

use std::path::Path;

use super::clean::CleanRoot;
use super::{Profile, tree};
use crate::Outcome;
use crate::command::{Ending, Line, root, target};

const TARGET: &str = "x86_64-unknown-linux-musl";

/// Arguments that the program must refuse, and a part of the reason.
const REFUSED: [(&str, &str); 2] = [
    ("run -- /program", "run: this program is linked statically"),
    ("info rbd:pool/image", "this program is linked statically, and such a program loads"),
];

/// Parts of the text that the program prints for `--version`.
pub(super) const PARTS: [&str; 2] =
    ["target: x86_64-unknown-linux-musl\n", "features: tls, usdt, vhost-user\n"];

/// Files of the checkout in the archive.
const DOCUMENTS: [&str; 5] =
    ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE", "SECURITY.md"];

/// Checks that the compilers are installed, and that this machine runs the program.
pub(super) fn check_tools() -> Outcome {
    if std::env::consts::ARCH != "x86_64" {
        return Err(format!("this machine does not run programs for {TARGET}"));
    }
    let library = Line::new("rustc", &format!("--print target-libdir --target {TARGET}"));
    if !Path::new(library.output()?.trim()).exists() {
        let add = format!("rustup target add {TARGET}");
        return Err(format!("the target is not installed; install it with `{add}`"));
    }
    super::check_programs(&[("musl-gcc", "--version", "musl-tools")])
}

pub(super) fn run(profile: Profile) -> Outcome {
    let program = build(profile)?;
    let version = super::version()?;
    let name = format!("forebay-{version}-{TARGET}");
    let stage = super::empty_directory("static")?;
    let files = Path::new(&stage).join(&name);
    tree::binary(&program, &files.join("bin/forebay"), "755")?;
    tree::pages_and_completions(&program, &files.join("share"))?;
    tree::copy_from_checkout(&DOCUMENTS, &files)?;
    let archive = target(&format!("package/{name}.tar.gz"));
    // `--no-name`: without the time in the header of gzip.
    Line::new("tar", "--create --sort=name --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX")
        .argument("--use-compress-program=gzip -9 --no-name".to_owned())
        .argument(format!("--mtime=@{}", super::time()))
        .argument(format!("--directory={stage}"))
        .argument(format!("--file={archive}"))
        .argument(name.clone())
        .run()?;
    check(&archive, &name)?;
    println!(
        "package: {archive} was built, unpacked in an empty root, and its program tried there"
    );
    Ok(())
}

/// Builds the program, and returns its path. It must need no library.
pub(super) fn build(Profile(profile): Profile) -> Result<String, String> {
    let line = format!("build --profile {profile} --package forebay-cli --target {TARGET}");
    Line::cargo(&line).run()?;
    let program = target(&format!("{TARGET}/{profile}/forebay"));
    let dynamic = Line::new("readelf", "--dynamic --wide").argument(program.clone()).output()?;
    match dynamic.contains("(NEEDED)") {
        true => Err(format!("package: {program} is not static:\n{dynamic}")),
        false => Ok(program),
    }
}

/// Unpacks the archive in a clean root, checks its files, and runs its program.
fn check(archive: &str, name: &str) -> Outcome {
    let clean = CleanRoot::create("static-root")?;
    Line::new("tar", "--extract")
        .argument(format!("--directory={}", clean.path().display()))
        .argument(format!("--file={archive}"))
        .run()?;
    let program = format!("/{name}/bin/forebay");
    let others = DOCUMENTS.iter().chain(&["bin/forebay"]).map(|it| format!("{name}/{it}"));
    clean.check_files(&clean.files()?, &program, &format!("{name}/share"), others.collect())?;
    clean.check_version(&program, &PARTS)?;
    for (arguments, reason) in REFUSED {
        let line = clean.line(&format!("{program} {arguments}"));
        match line.ending()? {
            Ending::Failure(text) if text.contains(reason) => {}
            _ => return Err(format!("package: `{line}` does not fail with `{reason}`")),
        }
    }
    clean.check_measurement(&program)?;
    clean.remove()
}

/// Returns the folder with the files of the container.
pub(super) fn container_files() -> std::path::PathBuf {
    root().join("contrib/container")
}
