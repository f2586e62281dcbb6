//! `cargo xtask tidy`: rules on the text of the tree that no compiler checks.
//!
//! A rule that nobody checks is a wish. Each rule here is a named constant or a small function with
//! its reason, looks at every file that git tracks or would track, and knows no exception.

mod files;
mod finding;
mod rust_rules;
mod text_rules;

use crate::Outcome;
use crate::command::root;

use files::SourceFile;
use finding::Finding;

pub(crate) fn run() -> Outcome {
    let files = files::list(&root())?;
    let mut findings: Vec<Finding> = files.iter().flat_map(check).collect();
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    if findings.is_empty() {
        println!("tidy: {} files, nothing to say", files.len());
        Ok(())
    } else {
        Err(format!("tidy has {} findings in {} files", findings.len(), files.len()))
    }
}

fn check(file: &SourceFile) -> Vec<Finding> {
    let mut findings = text_rules::check(file);
    if file.path.ends_with(".rs") {
        findings.extend(rust_rules::check(file));
    }
    findings
}
