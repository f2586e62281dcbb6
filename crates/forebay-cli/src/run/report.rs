//! The counters of the processes that have run; and those of files, and the times of I/O, if
//! `--stats` was given.

use std::fmt::Write;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use forebay_run::area::{
    AREA_BYTES, Counter, FileRow, LOOKUP_MS, Process, Stage, Times, files, processes,
};
use rustix::fs::{SeekFrom, major, minor, seek};
use rustix::io::Errno;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output;
use crate::table;

/// Writes the counters to a file, to standard output (`-`), or to standard error.
pub(super) fn write(area: &File, to: Option<&Path>, as_json: bool) -> Result<(), Failure> {
    let bytes = read(area)
        .map_err(|error| Failure::Run(format!("run: cannot read the counters: {error}")))?;
    let (processes, files) = (processes(&bytes), files(&bytes));
    let text = match as_json {
        true => format!("{:#}\n", json_of(&processes, &files)),
        false => text_of(&processes, &files),
    };
    match to {
        None => {
            output::stderr(&text);
            Ok(())
        }
        Some(path) if path == Path::new("-") => output::stdout(&text),
        Some(path) => std::fs::write(path, text).map_err(|error| {
            Failure::Run(format!("run: --stats {}: cannot be written: {error}", path.display()))
        }),
    }
}

/// Reads an area. Most of it is a hole, which is zero.
fn read(area: &File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; AREA_BYTES];
    let mut end = 0;
    loop {
        let start = match seek(area, SeekFrom::Data(end)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(bytes),
            Err(error) => return Err(error.into()),
        };
        end = seek(area, SeekFrom::Hole(start))?;
        // A process may have extended the file.
        let [from, to] = [start, end].map(|at| (at as usize).min(AREA_BYTES));
        area.read_exact_at(&mut bytes[from..to], start)?;
    }
}

/// Returns the same as JSON, without sums. Times are in nanoseconds.
pub(super) fn json_of(all: &[Process], files: &[FileRow]) -> Value {
    let of_process = |process: &Process| {
        let mut value = numbers_of(&process.counters, &process.stages);
        value["pid"] = process.pid.into();
        value["name"] = process.name.as_str().into();
        value
    };
    let of_file = |file: &FileRow| {
        let mut value = numbers_of(&file.counters, &file.stages);
        value["path"] = file.path.as_str().into();
        value["device"] = file.id.map(|(dev, _)| device(dev)).into();
        value["inode"] = file.id.map(|(_, ino)| ino).into();
        value
    };
    let processes: Vec<_> = all.iter().map(of_process).collect();
    let files: Vec<_> = files.iter().map(of_file).collect();
    json!({ "processes": processes, "files": files })
}

/// Returns the counters and times of a process or a file.
fn numbers_of(counters: &[u64], stages: &[Times]) -> Value {
    let times = Stage::ALL.iter().map(|&stage| (stage, &stages[stage as usize]));
    let times = times.filter(|(_, times)| times.count() > 0).map(|(stage, times)| {
        let [p50, p99] = [50, 99].map(|percent| times.percentile(percent));
        let figures = json!({
            "count": times.count(), "p50": p50, "p99": p99, "max": times.max(),
        });
        (name_of(stage).to_owned(), figures)
    });
    let mut value = object(&Counter::ALL.map(|it| (column(it), counters[it as usize])));
    value["times_ns"] = Value::Object(times.collect());
    value
}

fn object(counters: &[(&str, u64)]) -> Value {
    counters.iter().map(|(name, nr)| ((*name).to_owned(), Value::from(*nr))).collect()
}

/// Returns a device as other programs print it.
fn device(dev: u64) -> String {
    format!("{}:{}", major(dev), minor(dev))
}

/// Returns tables of the processes, of their times, of the files, and of the times of these. All
/// but the first are there only if they have a row.
pub(super) fn text_of(all: &[Process], files: &[FileRow]) -> String {
    if all.is_empty() {
        return String::from(
            "forebay run: no process submitted an iocb through libaio, so nothing was merged: \
             check that the program uses libaio (fio: --ioengine=libaio; sysbench: \
             --file-io-mode=async)\n",
        );
    }
    counters_of(all) + &times_of(all) + &files_of(files) + &times_of_files(files)
}

/// Returns a line for each process, and one for their sum if there are several.
fn counters_of(all: &[Process]) -> String {
    let mut text =
        String::from("forebay run: iocbs, requests to the kernel, and syncs of each process\n");
    let mut line = |pid: &str, name: &str, cells: [String; Counter::ALL.len()]| {
        write!(text, "{pid:>8} {name:<15}").expect("a string");
        cells.iter().for_each(|cell| write!(text, " {cell:>10}").expect("a string"));
        text.push('\n');
    };
    line("pid", "name", Counter::ALL.map(|counter| column(counter).to_owned()));
    for process in all {
        line(&process.pid.to_string(), &process.name, process.counters.map(|nr| nr.to_string()));
    }
    if all.len() > 1 {
        let sum = |nth: usize| all.iter().map(|process| process.counters[nth]).sum::<u64>();
        line("sum", "", std::array::from_fn(|nth| sum(nth).to_string()));
    }
    text
}

/// Returns the title of the column of a counter.
fn column(counter: Counter) -> &'static str {
    match counter {
        Counter::Iocbs => "iocbs",
        Counter::Requests => "requests",
        Counter::Merges => "merged",
        Counter::Held => "held",
        Counter::Syncs => "syncs",
        Counter::SyncsJoined => "joined",
        Counter::Full => "full",
        Counter::Repeats => "repeats",
    }
}

/// Returns the name of a stage.
fn name_of(stage: Stage) -> &'static str {
    match stage {
        Stage::Held => "held",
        Stage::Kernel => "kernel",
        Stage::Sync => "sync",
    }
}

/// Returns a line for each process and stage, and for the stages of all if there are several
/// processes.
fn times_of(all: &[Process]) -> String {
    let heading = ["pid", "name", "stage", "count", "p50", "p99", "max"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    let mut add = |pid: &str, name: &str, stage: Stage, times: &Times| {
        if let Some(figures) = figures_of(stage, times) {
            let texts = [pid, name].map(str::to_owned);
            rows.push(texts.into_iter().chain(figures).collect());
        }
    };
    for process in all {
        for stage in Stage::ALL {
            let times = &process.stages[stage as usize];
            add(&process.pid.to_string(), &process.name, stage, times);
        }
    }
    if let [first, others @ ..] = all
        && !others.is_empty()
    {
        for stage in Stage::ALL {
            let mut sum = first.stages[stage as usize].clone();
            others.iter().for_each(|process| sum.merge(&process.stages[stage as usize]));
            add("sum", "", stage, &sum);
        }
    }
    match rows.len() {
        1 => String::new(),
        _ => format!(
            "\nforebay run: time in each stage, in microseconds; `kernel` ends when the program \
             asks for events\n{}",
            table::aligned(&rows, "")
        ),
    }
}

/// Returns the stage, the number of times, and their percentiles in microseconds. `None` if there
/// is no time.
fn figures_of(stage: Stage, times: &Times) -> Option<[String; 5]> {
    let us = |ns: u64| format!("{:.1}", ns as f64 / 1e3);
    let [p50, p99] = [50, 99].map(|percent| us(times.percentile(percent)));
    let count = times.count();
    (count > 0).then(|| [name_of(stage).to_owned(), count.to_string(), p50, p99, us(times.max())])
}

/// Returns a line for each file and stage.
fn times_of_files(files: &[FileRow]) -> String {
    let heading = ["stage", "count", "p50", "p99", "max"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    let mut paths = vec!["path".to_owned()];
    for file in by_iocbs(files) {
        for stage in Stage::ALL {
            if let Some(figures) = figures_of(stage, &file.stages[stage as usize]) {
                rows.push(figures.to_vec());
                paths.push(path_of(file));
            }
        }
    }
    match rows.len() {
        1 => String::new(),
        _ => {
            let heading = "\nforebay run: time in each stage of each file, in microseconds\n";
            with_paths(heading.to_owned(), &rows, &paths)
        }
    }
}

/// Returns the files with the most iocbs first.
fn by_iocbs(files: &[FileRow]) -> Vec<&FileRow> {
    let mut sorted: Vec<_> = files.iter().collect();
    sorted.sort_by_key(|file| std::cmp::Reverse(file.counters[Counter::Iocbs as usize]));
    sorted
}

/// Returns the path of a file for a terminal: it may have any letters.
fn path_of(file: &FileRow) -> String {
    file.path.replace(|letter: char| letter.is_control(), "?")
}

/// Appends rows, each with a path at its end.
fn with_paths(mut text: String, rows: &[Vec<String>], paths: &[String]) -> String {
    let widths = table::widths(rows);
    for (row, path) in rows.iter().zip(paths) {
        writeln!(text, "{}  {path}", table::line(row, &widths)).expect("a string");
    }
    text
}

/// Returns a line for each file.
fn files_of(files: &[FileRow]) -> String {
    if files.is_empty() {
        return String::new();
    }
    let heading = Counter::ALL.map(column).into_iter().chain(["device", "inode"]);
    let mut rows = vec![heading.map(str::to_owned).collect::<Vec<_>>()];
    let mut paths = vec!["path".to_owned()];
    for file in by_iocbs(files) {
        let [device, inode] = match file.id {
            Some((dev, ino)) => [device(dev), ino.to_string()],
            None => ["-", "-"].map(str::to_owned),
        };
        let counters = file.counters.iter().map(u64::to_string);
        rows.push(counters.chain([device, inode]).collect());
        paths.push(path_of(file));
    }
    let heading = format!(
        "\nforebay run: counters of files; an iocb that bypassed the layer may count for the \
         previous file of a reused descriptor for up to {LOOKUP_MS} ms\n"
    );
    with_paths(heading, &rows, &paths)
}
