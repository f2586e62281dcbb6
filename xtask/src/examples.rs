//! `cargo xtask examples`: runs every example, because an example that compiles may still be wrong.

use std::path::Path;

use crate::Outcome;
use crate::command::{Line, root, target};

const DIRECTORIES: [&str; 2] = ["crates/forebay/examples", "crates/forebay-insight/examples"];

/// Builds the examples and the program. With the features of the whole workspace and those of the
/// dev-dependencies, so that the step `tests` need not build any of it again.
pub(crate) const BUILD: &str = "build --quiet --workspace --examples --bin forebay";

pub(crate) fn run() -> Outcome {
    let mut all = Vec::new();
    for directory in DIRECTORIES {
        all.extend(names(&root().join(directory))?);
    }
    Line::cargo(BUILD).run()?;
    for name in &all {
        println!("examples: {name}");
        // `env` runs a program whose name is known only now.
        Line::new("env", "").argument(target(&format!("debug/examples/{name}"))).run()?;
    }
    println!("examples: {} ran", all.len());
    Ok(())
}

/// Returns the names of the examples: `x.rs` and `x/main.rs` are both `x`. A missing directory has
/// none.
fn names(directory: &Path) -> Result<Vec<String>, String> {
    if !directory.exists() {
        return Ok(Vec::new());
    }
    let failed = |error| format!("{} cannot be listed: {error}", directory.display());
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let is_example =
            path.extension().is_some_and(|end| end == "rs") || path.join("main.rs").exists();
        if let Some(name) = path.file_stem().filter(|_| is_example) {
            names.push(name.to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::names;
    use std::fs;

    #[test]
    fn files_and_directories_with_a_main_are_examples() {
        let directory = std::env::temp_dir().join(format!("xtask-examples-{}", std::process::id()));
        fs::create_dir_all(directory.join("long")).unwrap();
        fs::create_dir_all(directory.join("data")).unwrap();
        for file in ["short.rs", "long/main.rs", "data/input.txt", "notes.md"] {
            fs::write(directory.join(file), "").unwrap();
        }
        let found = names(&directory);
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(found.unwrap(), ["long", "short"]);
    }

    #[test]
    fn no_directory_is_no_example() {
        assert!(names(std::path::Path::new("no/such/directory")).unwrap().is_empty());
    }
}
