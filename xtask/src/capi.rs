//! The library for C. `cargo xtask capi PREFIX` installs it with cargo-c: the shared and the static
//! library, the header, the file for pkg-config, and the manual pages. Not a gate: building cargo-c
//! takes minutes. The tests of the crate check the rest without it.

use std::fs;
use std::path::Path;

use crate::Outcome;
use crate::command::{Line, root, target};

/// Installs with opt-level 0: the tool runs for seconds, so the build time dominates.
const INSTALL: &str = "CARGO_PROFILE_RELEASE_OPT_LEVEL=0 cargo install --locked cargo-c@0.10.24";

/// Builds the cost example in C with the profile `dist`, linked with the shared library. Returns
/// its name among the examples.
pub(crate) fn build_cost_example() -> Result<&'static str, String> {
    Line::cargo("build --profile dist --package forebay-capi").run()?;
    let library = target("dist");
    let soname = Path::new(&library).join("examples/libforebay.so.0");
    // An earlier run may have left it.
    let _ = fs::remove_file(&soname);
    std::os::unix::fs::symlink("../libforebay.so", &soname)
        .map_err(|error| format!("{}: {error}", soname.display()))?;
    Line::new("cc", "-std=c11 -O2 crates/forebay-capi/examples/cost.c -lforebay")
        .argument("-Icrates/forebay-capi/include".to_owned())
        .argument(format!("-L{library}"))
        .argument(format!("-Wl,-rpath,{library}/examples"))
        .argument(format!("-o{library}/examples/cost-c"))
        .run()?;
    Ok("cost-c")
}

pub(crate) fn install(prefix: &str) -> Outcome {
    if !Line::cargo("cinstall --version").succeeds() {
        return Err(format!("capi: cargo-c is not installed; install it with\n      {INSTALL}"));
    }
    let prefix = std::path::absolute(prefix).map_err(|error| format!("{prefix}: {error}"))?;
    let prefix = prefix.display().to_string();
    // A package sets DESTDIR, and cargo-c prepends it.
    // With the same drivers as the program.
    Line::cargo("cinstall --release --locked --package forebay-capi --libdir lib")
        .argument("--features=rbd,tls,vhost-user".to_owned())
        .argument(format!("--prefix={prefix}"))
        .run()?;
    let destination = std::env::var("DESTDIR").unwrap_or_default() + &prefix;
    let pages = Path::new(&destination).join("share/man/man3");
    fs::create_dir_all(&pages).map_err(|error| format!("{}: {error}", pages.display()))?;
    let source = root().join("crates/forebay-capi/man");
    let failed = |error| format!("{}: {error}", source.display());
    for page in fs::read_dir(&source).map_err(failed)? {
        let page = page.map_err(failed)?;
        let to = pages.join(page.file_name());
        fs::copy(page.path(), &to).map_err(|error| format!("{}: {error}", to.display()))?;
    }
    println!("capi: installed below {destination}");
    Ok(())
}
