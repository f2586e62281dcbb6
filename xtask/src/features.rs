//! Checks that the library builds without its optional features, and with each of them alone.
//!
//! The other gates build it as a dependency of programs that enable several features, or with all
//! of them. An item that one feature needs and only another one defines would not show there. The
//! list of features is that of the manifest.

use crate::Outcome;
use crate::command::{Line, root};

/// Path of the manifest.
const MANIFEST: &str = "crates/forebay/Cargo.toml";

pub(crate) fn check() -> Outcome {
    let manifest = std::fs::read_to_string(root().join(MANIFEST))
        .map_err(|error| format!("bare: {MANIFEST} cannot be read: {error}"))?;
    build("")?;
    println!("bare: forebay builds without features");
    for feature in features(&manifest) {
        build(&format!("--features {feature}"))?;
        println!("bare: forebay builds with the feature {feature} alone");
    }
    Ok(())
}

/// Checks the library with these arguments. A warning is an error.
fn build(arguments: &str) -> Outcome {
    let line = Line::cargo(&format!("check --quiet --package forebay --lib {arguments}"));
    let output = line.errors()?;
    if output.contains("warning:") { Err(format!("`{line}` warns:\n{output}")) } else { Ok(()) }
}

/// Returns the names of the features in a manifest, except for `default`.
fn features(manifest: &str) -> Vec<&str> {
    let section = manifest.split("\n[").find_map(|section| section.strip_prefix("features]\n"));
    let names = section.unwrap_or_default().lines().filter_map(|line| line.split_once(" = "));
    names.map(|(name, _)| name).filter(|name| *name != "default").collect()
}

#[cfg(test)]
mod tests {
    use super::{MANIFEST, features};
    use crate::command::root;
    use std::collections::BTreeSet;
    use std::fs;

    #[test]
    fn features_are_the_keys_of_their_section() {
        let manifest = "[package]\nname = \"a\"\n\n[features]\ndefault = [\"b\"]\n# A comment.\n\
                        b = [\"dep:x\"]\nc-d = []\n\n[dependencies]\nx = \"1\"\n";
        assert_eq!(features(manifest), ["b", "c-d"]);
        assert_eq!(features("[package]\nname = \"a\"\n").len(), 0);
    }

    #[test]
    fn docs_rs_documents_the_features_of_each_published_crate() {
        let crates =
            fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path());
        let mut documented = Vec::new();
        for dir in crates {
            let manifest = fs::read_to_string(dir.join("Cargo.toml")).unwrap();
            if features(&manifest).is_empty() || manifest.contains("\npublish = false\n") {
                continue;
            }
            let expected = "\n[package.metadata.docs.rs]\nall-features = true\n";
            assert!(manifest.contains(expected), "{}", dir.display());
            documented.push(dir.file_name().unwrap().to_str().unwrap().to_owned());
        }
        documented.sort();
        assert_eq!(documented, ["forebay", "forebay-serve"]);
    }

    #[test]
    fn readme_and_testing_page_name_every_feature_of_the_library() {
        let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
        let manifest = read(MANIFEST);
        let expected: BTreeSet<_> = features(&manifest).into_iter().collect();
        assert!(expected.len() >= 5, "{expected:?}");

        let readme = read("README.md");
        let (_, table) = readme.split_once("\n| feature | what it adds |\n|---|---|\n").unwrap();
        let rows = table.lines().map_while(|line| line.strip_prefix("| `"));
        let named: BTreeSet<_> = rows.filter_map(|row| Some(row.split_once('`')?.0)).collect();
        assert_eq!(named, expected, "the table of features in README.md");

        let testing = read("TESTING.md");
        let (_, list) = testing.split_once("the tests of the features ").unwrap();
        let (list, _) = list.split_once(" are not built").unwrap();
        let named: BTreeSet<_> = list.split('`').skip(1).step_by(2).collect();
        assert_eq!(named, expected, "the list of features in TESTING.md");
    }
}
