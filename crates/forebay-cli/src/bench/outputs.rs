//! Files that a run writes. Reports, figures and logs are truncated, so none of them may be a file
//! that the run reads, a file of a job, or another one of them. Jobs do not write to, extend or
//! remove files that the run reads either: job files, logs that it replays, and model files.
//!
//! Files are compared by their [`FileId`], before any is opened, and also if they do not exist yet.
//! The directory of `--trace` is not checked: a trace replaces no file.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use forebay_fio::generator::Direction;
use forebay_fio::job::Job;

use super::plan::{self, Target};
use crate::failure::Failure;
use crate::file_id::FileId;

/// The files of a whole run.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Outputs<'a> {
    /// The job files, which are read.
    pub(super) job_files: &'a [PathBuf],
    /// The report; `None` if it goes to standard output.
    pub(super) report: Option<&'a Path>,
    /// The page.
    pub(super) page: Option<&'a Path>,
    /// The figure.
    pub(super) figure: Option<&'a Path>,
    /// The folder of several figures.
    pub(super) figures: Option<&'a Path>,
}

/// A file to be written.
#[derive(Debug)]
struct Output {
    /// The option, with its value.
    option: String,
    path: PathBuf,
}

/// Refuses a run that would overwrite a file that it uses otherwise.
///
/// # Errors
/// Two uses of one file contradict each other, or several clones would write one log.
pub(super) fn check(jobs: &[Job], targets: &[Target], outputs: Outputs<'_>) -> Result<(), Failure> {
    let mut uses = inputs(jobs, targets, outputs.job_files);
    let mut files = Vec::new();
    for target in targets {
        let Some(path) = target.path() else { continue };
        let (id, job) = (FileId::of(&path), &jobs[target.job]);
        if let Some(how) = uses.get(&id).filter(|_| !is_stream(&path))
            && let Some(change) = change(job, target, &path)
        {
            let (name, path) = (&job.name, path.display());
            return Err(Failure::Usage(format!(
                "{name}: {change} {path}, and {how}; choose another file"
            )));
        }
        files.push((id, "a job uses this file"));
    }
    uses.extend(files);
    for output in all(jobs, targets, outputs)? {
        if is_stream(&output.path) {
            continue;
        }
        if let Some(how) = uses.insert(FileId::of(&output.path), "another output goes to it") {
            let Output { option, path } = output;
            let path = path.display();
            return Err(Failure::Usage(format!(
                "{option}: it would overwrite {path}, and {how}; choose another file"
            )));
        }
    }
    Ok(())
}

/// Returns how a job would change the file of a target, as words before its path.
fn change(job: &Job, target: &Target, path: &Path) -> Option<String> {
    let extends = || {
        let end = target.extent.fixed_end();
        fs::metadata(path).is_ok_and(|file| file.is_file() && Some(file.len()) < end)
    };
    if job.rw.has(Direction::Write) || job.rw.has(Direction::Trim) {
        // A replay has no --rw of its own.
        let writer = match job.recording {
            Some(_) => "the replay".to_owned(),
            None => format!("--rw={}", job.rw.word()),
        };
        Some(format!("{writer} would overwrite"))
    } else if job.files.unlink {
        Some("--unlink would remove".to_owned())
    } else {
        extends().then(|| "--size and --offset would extend".to_owned())
    }
}

/// Returns the files that the run reads, each with its use.
fn inputs(
    jobs: &[Job],
    targets: &[Target],
    job_files: &[PathBuf],
) -> HashMap<FileId, &'static str> {
    let mut inputs = HashMap::new();
    for path in job_files {
        let is_stdin = path == Path::new("-");
        let path = if is_stdin { Path::new("/dev/stdin") } else { path };
        inputs.insert(FileId::of(path), "it is a job file");
    }
    for path in jobs.iter().filter_map(|job| job.replay.read.as_deref()) {
        for path in files_of_log(Path::new(path)) {
            inputs.insert(FileId::of(&path), "the run replays this log");
        }
    }
    for path in targets.iter().filter_map(Target::model_file) {
        inputs.insert(FileId::of(&path), "it is the model file of a disk");
    }
    inputs
}

/// Returns all files that are written.
fn all(jobs: &[Job], targets: &[Target], outputs: Outputs<'_>) -> Result<Vec<Output>, Failure> {
    let mut all = Vec::new();
    let mut add = |option: String, path: PathBuf| all.push(Output { option, path });
    match outputs.report {
        Some(path) => add(format!("--output={}", path.display()), path.to_owned()),
        None => add("standard output".to_owned(), "/dev/stdout".into()),
    }
    for (option, path) in [("--html", outputs.page), ("--svg", outputs.figure)] {
        if let Some(path) = path {
            add(format!("{option}={}", path.display()), path.to_owned());
        }
    }
    if let Some(folder) = outputs.figures {
        for name in figures(folder, targets) {
            add(format!("--svg={}", folder.display()), folder.join(name));
        }
    }
    for job in jobs {
        let Some(log) = &job.replay.write else { continue };
        let option = format!("{}: --write_iolog={log}", job.name);
        if job.numjobs > 1 {
            return Err(Failure::Usage(format!(
                "{option}: {} clones would write one log; give each a job of its own, with its own \
                 file",
                job.numjobs
            )));
        }
        add(option, log.into());
    }
    // Clones may share a log by its name.
    let mut names = BTreeSet::new();
    for (at, clone) in plan::clones(targets).enumerate() {
        let job = &jobs[clone[0].job];
        for (option, name) in job.logs.file_names(at + 1) {
            if names.insert(name.clone()) {
                add(format!("{}: --{option}", job.name), name.into());
            }
        }
    }
    Ok(all)
}

/// Returns the names in a folder of figures that may be replaced: those of figures.
fn figures(folder: &Path, targets: &[Target]) -> BTreeSet<PathBuf> {
    let is_figure = |path: &Path| path.extension().is_some_and(|end| end == "svg");
    let existing = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let used = targets.iter().filter_map(Target::path);
    let figures = existing.chain(used).filter(|path| is_figure(path));
    figures.filter_map(|path| path.file_name().map(PathBuf::from)).collect()
}

/// Returns a log to be replayed, and its files if it is a directory.
fn files_of_log(path: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    files.chain([path.to_owned()]).collect()
}

/// Returns whether a path is a pipe, a terminal or similar: writing to it destroys nothing.
fn is_stream(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| {
        let kind = metadata.file_type();
        !kind.is_file() && !kind.is_block_device()
    })
}

#[cfg(test)]
mod tests {
    use forebay_fio::cmdline::{Parsed, parse};

    use super::*;

    /// Checks the jobs of these arguments, in which `@` stands for a directory.
    fn checked(dir: &Path, args: &str, outputs: Outputs<'_>) -> Result<(), String> {
        let args = args.replace('@', dir.to_str().expect("a UTF-8 path"));
        let parsed = parse(args.split(' ').map(Into::into));
        let Ok(Parsed::Run(command)) = parsed else { panic!("{args}: {parsed:?}") };
        let targets = plan::plan(&command.jobs).expect(&args);
        // The harness decides where standard output goes.
        let outputs = Outputs { report: outputs.report.or(Some("/dev/null".as_ref())), ..outputs };
        check(&command.jobs, &targets, outputs).map_err(|failure| failure.to_string())
    }

    #[test]
    fn output_that_is_a_file_of_any_job_is_refused() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("sub")).expect("a directory");
        for name in ["sub/data", "log", "old_clat.2.log"] {
            fs::write(at(name), "x").expect("a file");
        }
        fs::hard_link(at("sub/data"), at("hard")).expect("a link");
        let refused = |args: &str, reason: &str| {
            let error = checked(dir.path(), args, Outputs::default()).expect_err(args);
            assert!(error.contains(reason), "{args}: {error}");
        };
        let job = "--name=a --filename=ram:1M --write_iolog";
        refused(&format!("{job}=@/b.0.0 --name=b --directory=@"), "a job uses this file");
        refused(&format!("{job}=@/b.1.0 --name=b --directory=@ --numjobs=2"), "a job uses");
        refused(&format!("{job}=@/hard --name=b --opendir=@/sub"), "a job uses this file");
        refused(&format!("{job}=@/sub/../x --name=b --directory=@ --filename=x"), "a job uses");
        refused(&format!("{job}=@/w --name=b --filename=ram:1M --write_iolog=@/./w"), "another");
        refused(&format!("{job}=@/log --name=b --read_iolog=@/log"), "the run replays this log");
        refused(&format!("{job}=@/w --numjobs=2"), "2 clones would write one log");
        refused(
            "--name=a --filename=ram:1M --name=b --filename=@/old_clat.2.log --write_lat_log=@/old",
            "b: --write_lat_log: it would overwrite",
        );
        let shared = "--per_job_logs=0 --write_bw_log=@/l --filename=ram:1M --name=a --name=b";
        assert_eq!(checked(dir.path(), shared, Outputs::default()), Ok(()));
        let apart = "--filename=@/hard --name=a --write_iolog=@/w --write_bw_log=@/w --name=b";
        assert_eq!(checked(dir.path(), apart, Outputs::default()), Ok(()));
        let streams = "--filename=ram:1M --write_iolog=/dev/null --name=a --name=b";
        assert_eq!(checked(dir.path(), streams, Outputs::default()), Ok(()));
    }

    #[test]
    fn report_and_figures_that_are_files_of_a_job_are_refused() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (data, iops) = (dir.path().join("data"), dir.path().join("iops.svg"));
        let with = |args: &str, outputs: Outputs<'_>| checked(dir.path(), args, outputs);
        for outputs in [
            Outputs { report: Some(&data), ..Outputs::default() },
            Outputs { page: Some(&data), ..Outputs::default() },
            Outputs { figure: Some(&data), ..Outputs::default() },
        ] {
            assert_eq!(with("--name=a --filename=ram:1M", outputs), Ok(()));
            let error = with("--name=a --filename=@/data", outputs).expect_err("a file of the job");
            assert!(error.contains("a job uses this file"), "{error}");
        }
        let outputs = Outputs { figures: Some(dir.path()), ..Outputs::default() };
        assert_eq!(with("--name=a --filename=@/data", outputs), Ok(()));
        assert!(with("--name=a --filename=@/iops.svg", outputs).is_err());
        fs::write(&data, "x").expect("a file");
        std::os::unix::fs::symlink("data", iops).expect("a link");
        assert!(with("--name=a --filename=@/data", outputs).is_err());
        let job_files = [data.clone()];
        let outputs = Outputs { job_files: &job_files, page: Some(&data), ..Outputs::default() };
        let error = with("--name=a --filename=ram:1M", outputs).expect_err("a job file");
        assert!(error.contains("and it is a job file; choose another"), "{error}");
        for (args, reason) in [
            ("--filename=@/data --rw=write", "a: --rw=write would overwrite "),
            ("--directory=@ --opendir=@ --rw=randtrim", "a: --rw=randtrim would overwrite "),
            ("--filename=@/data --rw=read --unlink=1", "a: --unlink would remove "),
            ("--filename=@/data --rw=read --size=8m", "a: --size and --offset would extend "),
        ] {
            let outputs = Outputs { job_files: &job_files, ..Outputs::default() };
            let error = with(&format!("--name=a {args}"), outputs).expect_err("a job file");
            assert!(error.contains(reason) && error.contains("it is a job file"), "{error}");
        }
        let outputs = Outputs { page: Some(&data), ..Outputs::default() };
        let error = with("--name=a --filename=model:@/data", outputs).expect_err("a model file");
        assert!(error.contains("and it is the model file of a disk; choose another"), "{error}");
        let twice = Outputs { report: Some(&data), page: Some(&data), ..Outputs::default() };
        let error = with("--name=a --filename=ram:1M", twice).expect_err("one file");
        assert!(error.contains("another output goes to it"), "{error}");
    }
}
