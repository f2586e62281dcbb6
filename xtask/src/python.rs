//! `cargo xtask python`: the Python package. Builds a wheel with maturin, installs it into a
//! virtual environment in the target directory, runs the tests of the package, and counts the
//! instructions of an I/O (valgrind).
//!
//! The tests run on a build with the profile `dev`, which shares its dependencies with the step
//! `tests`. The count is that of the profile `release`, which pip uses.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::Outcome;
use crate::command::{Line, root, target};
use crate::{instructions, tools};

/// The version is fixed, because another one may build another wheel. Keep it in step with
/// `crates/forebay-python/pyproject.toml`.
const MATURIN: &str = "maturin==1.16.0";

const CRATE: &str = "crates/forebay-python";

/// The first version with the buffer protocol in its stable ABI.
const VERSION_CHECK: &str = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))";

/// Maximum number of instructions of an I/O in lists of 32 on `null`, with reusable objects.
const COST_MAX: f64 = 1500.0;

pub(crate) fn run() -> Outcome {
    let has_python = Line::new("python3", "-c").argument(VERSION_CHECK.to_owned()).succeeds();
    if !has_python {
        let text = "python3 3.11 or newer with venv is missing: apt-get install python3-venv";
        if tools::are_required() {
            return Err(text.to_owned());
        }
        println!("python: SKIPPED, {text}");
        return Ok(());
    }
    let venv = match Venv::with_maturin() {
        Err(error) if !tools::are_required() => {
            println!("python: SKIPPED, {MATURIN} cannot be installed: {error}");
            return Ok(());
        }
        venv => venv?,
    };
    venv.install_wheel()?;
    let tests = format!("-W error {CRATE}/tests/run_all.py");
    venv.python(&tests).run()?;
    cost()
}

/// A virtual environment.
struct Venv(PathBuf);

impl Venv {
    /// Returns the environment in the target directory. Creates it if maturin is not in it.
    fn with_maturin() -> Result<Venv, String> {
        let venv = Venv(PathBuf::from(target("python/venv")));
        let version = format!("{}\n", MATURIN.replace("==", " "));
        let found = venv.0.join("bin/maturin").exists()
            && venv.python("-m maturin --version").output().is_ok_and(|found| found == version);
        if !found {
            let place = venv.0.display().to_string();
            Line::new("python3", "-m venv --clear").argument(place).run()?;
            let pip = "-m pip --disable-pip-version-check install --quiet --retries 5";
            venv.python(pip).argument(MATURIN.to_owned()).run()?;
        }
        Ok(venv)
    }

    /// Returns a command of its interpreter. The user's variables for Python have no effect.
    fn python(&self, arguments: &str) -> Line {
        let program = self.0.join("bin/python").display().to_string();
        // `env` runs a program whose name is known only now.
        let line = Line::new("env", "-u PYTHONPATH -u PYTHONHOME").argument(program);
        arguments.split_whitespace().map(str::to_owned).fold(line, Line::argument)
    }

    fn install_wheel(&self) -> Outcome {
        let wheels = PathBuf::from(target("python/wheels"));
        // An earlier run may have left one of another version.
        let _ = fs::remove_dir_all(&wheels);
        let build =
            format!("-m maturin build --quiet --locked --profile dev -m {CRATE}/Cargo.toml");
        let interpreter = self.0.join("bin/python").display().to_string();
        self.python(&build)
            .argument(format!("--interpreter={interpreter}"))
            .argument(format!("--out={}", wheels.display()))
            .run()?;
        let failed = |error| format!("{}: {error}", wheels.display());
        let mut found = fs::read_dir(&wheels).map_err(failed)?;
        let wheel = found.next().ok_or("maturin has built no wheel")?.map_err(failed)?.path();
        let pip = "-m pip --disable-pip-version-check install --quiet --no-index --no-deps \
                   --force-reinstall";
        self.python(pip).argument(wheel.display().to_string()).run()
    }
}

/// Counts the instructions of an I/O, as the difference between a long and a short run.
fn cost() -> Outcome {
    if !instructions::has_valgrind() {
        if tools::are_required() {
            return Err("valgrind is missing: apt-get install valgrind".to_owned());
        }
        println!("python: the count is skipped: valgrind is not installed");
        return Ok(());
    }
    // The step `instructions` builds the library with the same features.
    Line::cargo("build --release --package forebay-python --no-default-features").run()?;
    let packages = package_of_release()?;
    let script = root().join(CRATE).join("examples/cost.py").display().to_string();
    let count = |nr: u64| {
        // Debian's own interpreter, not one that a wrapper script starts. Hashes and caches of
        // bytecode would differ between runs.
        let line = Line::new("valgrind", "--tool=callgrind --callgrind-out-file=/dev/null")
            .argument(interpreter()?)
            .argument(script.clone())
            .argument(nr.to_string())
            .variable("PYTHONPATH", packages.display().to_string())
            .variable("PYTHONHASHSEED", "0")
            .variable("PYTHONDONTWRITEBYTECODE", "1");
        instructions::collected(&line)
    };
    let each = (count(105_600)? - count(9_600)?) / 96_000.0;
    println!("python: {each:5.0} instructions of at most {COST_MAX:4.0}: an I/O in lists of 32");
    if each > COST_MAX {
        return Err(format!("an I/O from Python costs {each:.0} instructions, over {COST_MAX}"));
    }
    Ok(())
}

/// Returns the path of the interpreter behind `python3`.
fn interpreter() -> Result<String, String> {
    let code = "import sys; print(sys.executable)".to_owned();
    let path = Line::new("python3", "-c").argument(code).output()?;
    Ok(path.trim_end().to_owned())
}

/// Returns a directory with the package, whose module is that of the profile `release`.
fn package_of_release() -> Result<PathBuf, String> {
    let packages = PathBuf::from(target("python/release"));
    let package = packages.join("forebay");
    let failed = |error| format!("{}: {error}", package.display());
    // An earlier run may have left it.
    let _ = fs::remove_dir_all(&package);
    fs::create_dir_all(&package).map_err(failed)?;
    let sources = root().join(CRATE).join("python/forebay");
    for source in fs::read_dir(&sources).map_err(failed)? {
        let source = source.map_err(failed)?;
        if source.path().is_file() {
            symlink(source.path(), package.join(source.file_name())).map_err(failed)?;
        }
    }
    let module = Path::new(&target("release")).join("lib_forebay.so");
    symlink(module, package.join("_forebay.abi3.so")).map_err(failed)?;
    Ok(packages)
}
