//! Running one command, and what its report says.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What one run measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) iops: f64,
    /// Completion latency, us.
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// Processor time of the job's threads for each I/O, us.
    pub(crate) cpu_us: f64,
    /// Merges for each I/O, as the disk counted them.
    pub(crate) merged: f64,
}

/// Builds the program, as a user would, and says where it is.
pub(crate) fn build() -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo).args(["build", "--release", "-p", "forebay-cli"]).status()?;
    ensure!(status.success(), "cargo build --release -p forebay-cli failed");
    let me = std::env::current_exe()?;
    let folder = me.parent().and_then(Path::parent).context("a program is in a folder")?;
    Ok(folder.join("release").join("forebay"))
}

/// Makes the file that is read from, with data in it: a hole would not reach the device.
pub(crate) fn lay_out(path: &Path, size_mib: u64) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    say(&format!("laying out {} ({size_mib} MiB)", path.display()));
    // It gets its name when it is whole: what an interruption leaves is not taken for it.
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".unfinished");
    let unfinished = Path::new(&unfinished);
    write_data(unfinished, size_mib)
        .and_then(|()| Ok(fs::rename(unfinished, path)?))
        .inspect_err(|_| drop(fs::remove_file(unfinished)))
        .with_context(|| path.display().to_string())
}

fn write_data(path: &Path, size_mib: u64) -> Result<()> {
    let mut file = File::create(path)?;
    let mut block = vec![0u8; 1 << 20];
    let mut state = 0x2545_F491_4F6C_DD1Du64;
    for _ in 0..size_mib {
        for word in block.chunks_exact_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
        file.write_all(&block)?;
    }
    file.sync_all()?;
    Ok(())
}

/// Runs a command that prints fio's JSON, and reads the figures of its reads.
pub(crate) fn run(program: &Path, arguments: &[String]) -> Result<Sample> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .with_context(|| format!("{}: is it installed?", program.display()))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("{} {}: {stderr}", program.display(), arguments.join(" "));
    }
    let report: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("{}: not JSON", program.display()))?;
    sample(&report).context("a report without the keys of a read job")
}

fn sample(report: &Value) -> Option<Sample> {
    let job = report.get("jobs")?.get(0)?;
    let read = job.get("read")?;
    let total = read.get("total_ios")?.as_f64()?;
    let runtime_us = read.get("runtime")?.as_f64()? * 1000.0;
    let busy = job.get("usr_cpu")?.as_f64()? + job.get("sys_cpu")?.as_f64()?;
    let percentile = |key| {
        let ns = read.get("clat_ns")?.get("percentile")?.get(key)?.as_f64()?;
        Some(ns / 1000.0)
    };
    let disk = report.get("disk_util").and_then(|disks| disks.get(0));
    let merges = disk.and_then(|disk| disk.get("read_merges")?.as_f64()).unwrap_or(0.0);
    Some(Sample {
        iops: read.get("iops")?.as_f64()?,
        p50_us: percentile("50.000000")?,
        p99_us: percentile("99.000000")?,
        cpu_us: busy / 100.0 * runtime_us / total,
        merged: merges / total,
    })
}

/// A line for whoever waits.
pub(crate) fn say(line: &str) {
    // Nothing is lost if nobody listens.
    let _ = writeln!(std::io::stderr(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::lay_out;
    use std::fs;

    #[test]
    fn what_an_interruption_left_is_not_the_file() {
        let folder = std::env::temp_dir().join(format!("figures-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let path = folder.join("figures.img");
        fs::write(folder.join("figures.img.unfinished"), "x").unwrap();
        lay_out(&path, 1).unwrap();
        let len = fs::metadata(&path).unwrap().len();
        let entries = fs::read_dir(&folder).unwrap().count();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!((len, entries), (1 << 20, 1));
    }
}
