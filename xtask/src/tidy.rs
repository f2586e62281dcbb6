//! `cargo xtask tidy`: checks rules on the text of the tree that the compiler does not check.
//!
//! Each rule is a named constant or a small function with its reason. It applies to every file that
//! git tracks or would track, without exception.

mod dialect;
mod files;
mod finding;
mod paths;
mod prose;
mod rust_rules;
mod text_rules;

use crate::Outcome;
use crate::command::root;

use files::SourceFile;
use finding::Finding;

pub(crate) fn run() -> Outcome {
    let files = files::list(&root())?;
    let mut findings: Vec<Finding> = files.iter().flat_map(check).collect();
    findings.extend(paths::check(&files));
    findings.extend(dialect::check(&files)?);
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    if findings.is_empty() {
        println!("tidy: {} files, no findings", files.len());
        Ok(())
    } else {
        Err(format!("tidy has {} findings in {} files", findings.len(), files.len()))
    }
}

/// Runs `--lower`: lowers the limits of the ratchet where the tree has improved.
pub(crate) fn lower() -> Outcome {
    dialect::lower(&files::list(&root())?)
}

fn check(file: &SourceFile) -> Vec<Finding> {
    let mut findings = text_rules::check(file);
    if file.path.ends_with(".rs") {
        findings.extend(rust_rules::check(file));
    }
    findings
}
