//! `cargo xtask loom`: checks small models of concurrent code in every interleaving.

use crate::command::{Line, target};
use crate::suite::{self, Suite};
use crate::{Outcome, stacks};

const SUITES: &[Suite] = &[
    Suite { target: "--package forebay-core --test loom", names: &[], skips: &[] },
    Suite { target: "--package forebay-core --lib", names: &["models"], skips: &[] },
    Suite { target: "--package forebay --lib", names: &["loom", "models"], skips: &[] },
    Suite { target: "--package forebay-vhost-user --lib", names: &["models"], skips: &[] },
    Suite { target: "--package forebay-aio --lib", names: &["models"], skips: &[] },
];

pub(crate) fn run() -> Outcome {
    // A separate directory: switching flags in a shared one would rebuild everything each time.
    // Optimized, because a model runs thousands of times.
    let line = Line::cargo("test --profile models --target-dir")
        .argument(target("loom"))
        .variable("RUSTFLAGS", "--cfg blk_loom");
    suite::run("loom", SUITES, &stacks::kept(line)?)
}
