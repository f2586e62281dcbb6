//! Preloaded library that keeps the stacks of threads in loom's models. Without it, the programs
//! map millions of stacks, and in some models the kernel takes two thirds of the processor time.

use std::fs;

use crate::command::{Line, root, target};

/// The variable with the command that cargo starts test programs with.
const RUNNER: &str = "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER";

/// Returns the command with the library preloaded into the test programs that it runs. On other
/// platforms, and without a C compiler, prints a line and returns the command unchanged.
pub(crate) fn kept(line: Line) -> Result<Line, String> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu")) {
        println!("stacks: not kept on this platform, so models take longer");
        return Ok(line);
    }
    if !Line::new("cc", "--version").succeeds() {
        println!("stacks: not kept without a C compiler (cc), so models take longer");
        return Ok(line);
    }
    let folder = target("stacks");
    fs::create_dir_all(&folder).map_err(|error| format!("stacks: {folder}: {error}"))?;
    // Several gates may build it at once: each writes a file of its own, and renames it.
    let (library, own) =
        (format!("{folder}/stacks.so"), format!("{folder}/stacks-{}.so", std::process::id()));
    Line::new("cc", "-std=c11 -Wall -Wextra -Werror -O2 -shared -fPIC -pthread -o")
        .argument(own.clone())
        .argument(root().join("xtask/src/stacks.c").display().to_string())
        .run()?;
    fs::rename(&own, &library).map_err(|error| format!("stacks: {library}: {error}"))?;
    // A path with a space or a colon cannot be preloaded.
    if library.contains([' ', ':']) {
        println!("stacks: not kept, because the path {library} cannot be preloaded");
        return Ok(line);
    }
    Ok(line.variable(RUNNER, format!("env LD_PRELOAD={library}")))
}

#[cfg(test)]
mod tests {
    use super::kept;
    use crate::command::Line;

    #[test]
    #[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
    fn library_builds_and_is_preloaded() {
        if !Line::new("cc", "--version").succeeds() {
            println!("library_builds_and_is_preloaded: SKIPPED without a C compiler (cc)");
            return;
        }
        let line = kept(Line::new("cargo", "test")).unwrap().to_string();
        assert!(line.contains("LD_PRELOAD="), "{line}");
    }
}
