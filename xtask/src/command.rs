//! Runs other programs from the root of the checkout, and can print equivalent command lines.

use std::env;
use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::Outcome;

/// Returns the root of the checkout: the parent directory of this package.
pub(crate) fn root() -> PathBuf {
    // Cargo sets this variable for `cargo run` and for tests.
    let package = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    package.and_then(|dir| dir.parent().map(PathBuf::from)).unwrap_or_else(|| PathBuf::from("."))
}

/// Returns a directory with this name inside cargo's target directory, for build outputs or tools.
pub(crate) fn target(name: &str) -> String {
    let base =
        env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    root().join(base).join(name).display().to_string()
}

/// The result of a program that ran.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) succeeded: bool,
    pub(crate) stdout: String,
}

/// One program with its arguments. Its `Display` form can be pasted into a shell.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    program: &'static str,
    arguments: Vec<String>,
    variables: Vec<(&'static str, String)>,
    /// Seconds until the program and its children are killed.
    limit: Option<u32>,
}

/// How a program ended.
pub(crate) enum Ending {
    Success,
    /// With both output streams.
    Failure(String),
    /// It was killed at its time limit.
    Timeout,
}

impl Line {
    /// Splits `arguments` at spaces: none of our arguments contains one.
    pub(crate) fn new(program: &'static str, arguments: &str) -> Self {
        let arguments = arguments.split_whitespace().map(String::from).collect();
        Line { program, arguments, variables: Vec::new(), limit: None }
    }

    pub(crate) fn cargo(arguments: &str) -> Self {
        Line::new("cargo", arguments)
    }

    pub(crate) fn variable(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.variables.push((name, value.into()));
        self
    }

    /// Adds one argument unchanged, including its spaces.
    pub(crate) fn argument(mut self, argument: String) -> Self {
        self.arguments.push(argument);
        self
    }

    /// Adds arguments, which are split at spaces.
    pub(crate) fn arguments(mut self, arguments: &str) -> Self {
        self.arguments.extend(arguments.split_whitespace().map(String::from));
        self
    }

    /// Runs the program with our output streams and without input.
    pub(crate) fn run(&self) -> Outcome {
        let status = self.command().status().map_err(|error| self.not_started(&error))?;
        if status.success() { Ok(()) } else { Err(format!("`{self}` ended with {status}")) }
    }

    /// Runs the program, echoes its standard output line by line, and returns it.
    pub(crate) fn run_and_keep(&self) -> Result<Ran, String> {
        let child = self.command().stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| self.not_started(&error))?;
        let mut stdout = String::new();
        for line in BufReader::new(child.stdout.take().expect("a pipe")).lines() {
            let line = line.map_err(|error| format!("`{self}`: its output: {error}"))?;
            println!("{line}");
            stdout.push_str(&line);
            stdout.push('\n');
        }
        let status = child.wait().map_err(|error| format!("`{self}`: {error}"))?;
        Ok(Ran { succeeded: status.success(), stdout })
    }

    /// Runs the program, and returns its standard output.
    pub(crate) fn output(&self) -> Result<String, String> {
        let output = self
            .command()
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| self.not_started(&error))?;
        if !output.status.success() {
            return Err(format!("`{self}` ended with {}", output.status));
        }
        String::from_utf8(output.stdout).map_err(|_| format!("`{self}` wrote something not UTF-8"))
    }

    /// Runs the program, and returns its standard output. Prints what it writes to standard error
    /// only if it fails, for programs that write noise there.
    pub(crate) fn output_of_noisy(&self) -> Result<String, String> {
        let output = self.command().output().map_err(|error| self.not_started(&error))?;
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{errors}\n`{self}` ended with {}", output.status));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs the program, and returns what it writes to standard error.
    pub(crate) fn errors(&self) -> Result<String, String> {
        let output = self.command().output().map_err(|error| self.not_started(&error))?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        match output.status.success() {
            true => Ok(text),
            false => Err(format!("`{self}` ended with {}\n{text}", output.status)),
        }
    }

    /// Returns whether the program runs and succeeds. Discards its output.
    pub(crate) fn succeeds(&self) -> bool {
        let status = self.command().stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    }

    /// Kills the program and its children after this many seconds.
    pub(crate) fn limit(mut self, seconds: u32) -> Self {
        self.limit = Some(seconds);
        self
    }

    /// Runs the program, and captures its output.
    pub(crate) fn ending(&self) -> Result<Ending, String> {
        /// The exit status of timeout(1) after a timeout.
        const TIMEOUT: Option<i32> = Some(124);
        let output = self.command().output().map_err(|error| self.not_started(&error))?;
        if output.status.success() {
            return Ok(Ending::Success);
        }
        if self.limit.is_some() && output.status.code() == TIMEOUT {
            return Ok(Ending::Timeout);
        }
        let both = [output.stdout, output.stderr].concat();
        Ok(Ending::Failure(String::from_utf8_lossy(&both).into_owned()))
    }

    fn command(&self) -> Command {
        let program = match (self.program, env::var_os("CARGO")) {
            // The cargo that runs this program, so that `cargo +1.95 xtask` keeps using that
            // toolchain.
            ("cargo", Some(cargo)) => cargo,
            (program, _) => program.into(),
        };
        let mut command = match self.limit {
            None => Command::new(program),
            Some(seconds) => {
                let mut timeout = Command::new("timeout");
                timeout.args(["--kill-after=10", &seconds.to_string()]).arg(program);
                timeout
            }
        };
        command
            .args(&self.arguments)
            .envs(self.variables.iter().map(|(name, value)| (name, value)));
        if self.program == "cargo" {
            // Cargo has set these for this program. ring's build script depends on some of them, so
            // it would run again after each change between `cargo build` and `cargo xtask`.
            let names = env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
            let is_of_xtask = |name: &String| {
                name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
            };
            names.filter(is_of_xtask).for_each(|name| _ = command.env_remove(name));
        }
        command.current_dir(root()).stdin(Stdio::null());
        command
    }

    fn not_started(&self, error: &std::io::Error) -> String {
        format!("`{self}` could not be started: {error}")
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.variables {
            write!(f, "{name}='{value}' ")?;
        }
        f.write_str(self.program)?;
        self.arguments.iter().try_for_each(|argument| write!(f, " {argument}"))
    }
}

#[cfg(test)]
mod tests {
    use super::{Ending, Line, root};

    #[test]
    fn a_line_displays_as_it_would_be_typed() {
        let line = Line::cargo("doc --no-deps").variable("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(line.to_string(), "RUSTDOCFLAGS='-D warnings' cargo doc --no-deps");
    }

    #[test]
    fn output_is_kept_whether_a_program_succeeds_or_fails() {
        let ran = Line::new("echo", "one two").run_and_keep().unwrap();
        assert!(ran.succeeded);
        assert_eq!(ran.stdout, "one two\n");
        assert!(!Line::new("false", "").run_and_keep().unwrap().succeeded);
    }

    #[test]
    fn the_root_has_the_workspace_manifest() {
        let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
        assert!(manifest.contains("[workspace]"));
    }

    #[test]
    fn a_program_that_does_not_end_is_killed() {
        let endings = ["true", "false", "sleep 60"].map(|line| {
            let (program, arguments) = line.split_once(' ').unwrap_or((line, ""));
            Line::new(program, arguments).limit(1).ending().unwrap()
        });
        assert!(matches!(endings, [Ending::Success, Ending::Failure(_), Ending::Timeout]));
    }

    #[test]
    fn a_program_that_fails_or_is_missing_is_an_error_that_names_it() {
        assert!(Line::new("true", "").run().is_ok());
        assert!(Line::new("false", "").run().unwrap_err().contains("`false`"));
        let missing = Line::new("forebay-no-such-program", "--version");
        assert!(!missing.succeeds());
        assert!(missing.run().unwrap_err().contains("could not be started"));
    }
}
