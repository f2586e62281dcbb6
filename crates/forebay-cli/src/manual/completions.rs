//! `forebay completions`: scripts that complete commands, options and values in a shell.

use clap::ValueEnum;
use clap_complete::{Shell as Generator, generate};

use crate::failure::Failure;
use crate::output;

/// A shell.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Fish,
    Zsh,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

/// Prints the script of a shell.
pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    output::stdout(&script(args.shell))
}

/// Returns the script of a shell.
pub(super) fn script(shell: Shell) -> String {
    let generator = match shell {
        Shell::Bash => Generator::Bash,
        Shell::Fish => Generator::Fish,
        Shell::Zsh => Generator::Zsh,
    };
    let mut script = Vec::new();
    generate(generator, &mut super::commands(), "forebay", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    match shell {
        Shell::Bash => with_values_after_equals_signs(script),
        _ => script,
    }
}

/// Returns the script for bash, with values completed in `--option=value` too. bash splits words at
/// equals signs, so the word before the value is the sign, and the option is before that.
fn with_values_after_equals_signs(script: String) -> String {
    const MARK: &str = "    cmd=\"\"\n";
    const LINES: &str = "    if [[ \"${cur}\" == \"=\" ]]; then\n        cur=\"\"\n    \
                         elif [[ \"${prev}\" == \"=\" ]]; then\n        \
                         prev=\"${COMP_WORDS[COMP_CWORD-2]}\"\n    fi\n";
    script.replacen(MARK, &format!("{LINES}{MARK}"), 1)
}
