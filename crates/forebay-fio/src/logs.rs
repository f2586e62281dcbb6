//! Logs of single I/Os, or of averages over windows of time: `write_bw_log`, `write_lat_log`,
//! `write_iops_log`, `log_avg_msec`, `log_offset`. `histograms` has logs of another form.
//!
//! Source: fio's HOWTO, and the files that fio 3.33 writes. A line has the milliseconds since the
//! start, the value, the direction (0 reads, 1 writes, 2 trims), the bytes of the I/O, its offset
//! if that is wanted, and its priority: 1 for the real-time class and 0 for others, or with
//! `log_prio` the number of `ioprio_set(2)`. In lines of windows bytes, offset and priority are 0.

pub(crate) mod histograms;
mod intervals;

use std::fmt::Write;

use self::histograms::HistogramLog;
use self::intervals::Intervals;

use crate::generator::Op;
use crate::measures::Measures;
use crate::priority::is_real_time;

/// The options. A log is written if it has a file name prefix.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// `write_bw_log`.
    pub bw: Option<String>,
    /// `write_lat_log`: files for slat, clat and lat.
    pub lat: Option<String>,
    /// `write_iops_log`.
    pub iops: Option<String>,
    /// `write_hist_log`.
    pub hist: Option<String>,
    /// `log_hist_msec`: the length of an interval with a histogram, ms; 0 for none.
    pub hist_msec: u64,
    /// `log_hist_coarseness`: the logarithm of the number of buckets that are counted as one.
    pub hist_coarseness: u8,
    /// `log_avg_msec`: the length of a window, ms; 0 for a line per I/O.
    pub avg_msec: u64,
    /// `log_max_value`: whether a window has the maximum latency, not the mean.
    pub max_value: bool,
    /// `log_offset`.
    pub offset: bool,
    /// `log_prio`: whether lines have the number of the priority.
    pub prio: bool,
    /// `per_job_logs=0`: whether jobs share their files.
    pub shared: bool,
}

/// The prefix that means the name of the job, as in fio for an option without a value.
pub const JOB_NAME: &str = "$jobname";

/// The log of histograms, as in file names.
const HISTOGRAMS: &str = "clat_hist";
/// The other kinds of logs, as in file names.
pub const KINDS: [&str; 5] = ["bw", "slat", "clat", "lat", "iops"];

const BW: usize = 0;
const SLAT: usize = 1;
const CLAT: usize = 2;
const LAT: usize = 3;
const IOPS: usize = 4;

/// Lines that are made room for at a time.
const CHUNK: usize = 1 << 12;

/// The logs of one clone.
#[derive(Debug, Clone)]
pub struct Logs {
    options: LogOptions,
    /// By [`KINDS`]: the chunks of lines, if the log is wanted.
    lines: [Option<Vec<Vec<Line>>>; 5],
    /// By [`KINDS`]: whether it is measured.
    is_kept: [bool; 5],
    histograms: Option<HistogramLog>,
    window: Window,
    /// When the times in the log begin, and when the open window does, ns.
    start_ns: u64,
    /// The windows of means.
    windows: Intervals,
}

/// An I/O in a log. Times are in ns.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// The time of its completion.
    pub now_ns: u64,
    /// Its completion latency.
    pub clat_ns: u64,
    /// Its total latency.
    pub lat_ns: u64,
    /// Whether it has a submission latency. Blocking calls have none.
    pub has_slat: bool,
    /// Its priority, as in `ioprio_set(2)`; 0 for none.
    pub ioprio: u16,
}

#[derive(Debug, Clone, Copy, Default)]
struct Line {
    ms: u64,
    value: u64,
    offset: u64,
    bytes: u32,
    ioprio: u16,
    direction: u8,
}

/// The I/Os that ended in a window, in one direction.
#[derive(Debug, Clone, Default)]
struct Window {
    ios: [u64; 3],
    bytes: [u64; 3],
    /// Sum, largest and number of slat, clat and lat.
    latencies: [[(u64, u64, u64); 3]; 3],
}

impl LogOptions {
    /// Returns the options of a job of this name.
    pub(crate) fn of_job(mut self, name: &str) -> Self {
        let prefixes = [&mut self.bw, &mut self.lat, &mut self.iops, &mut self.hist];
        for prefix in prefixes.into_iter().flatten() {
            if prefix == JOB_NAME {
                name.clone_into(prefix);
            }
        }
        self
    }

    /// Returns the option and the name of each file of the clone with this number, from 1 on.
    pub fn file_names(&self, number: usize) -> Vec<(&'static str, String)> {
        let options =
            ["write_bw_log", "write_lat_log", "write_lat_log", "write_lat_log", "write_iops_log"];
        let name = |(kind, option): (usize, &'static str)| {
            Some((option, self.file_name(self.prefix(kind)?, KINDS[kind], number)))
        };
        let lines = options.into_iter().enumerate().filter_map(name);
        let histograms = self.hist.iter();
        let histograms = histograms.map(|prefix| self.file_name(prefix, HISTOGRAMS, number));
        lines.chain(histograms.map(|name| ("write_hist_log", name))).collect()
    }

    /// Returns the name of the file of a kind.
    fn file_name(&self, prefix: &str, kind: &str, number: usize) -> String {
        match self.shared {
            true => format!("{prefix}_{kind}.log"),
            false => format!("{prefix}_{kind}.{number}.log"),
        }
    }

    /// Returns whether any log is wanted.
    pub fn is_any(&self) -> bool {
        [&self.bw, &self.lat, &self.iops, &self.hist].iter().any(|log| log.is_some())
    }

    /// Returns warnings about options that have no effect.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let has_log = self.hist.is_some();
        if has_log && self.hist_msec == 0 {
            warnings
                .push("--write_hist_log writes an empty log without --log_hist_msec".to_owned());
        }
        let of_log = [
            ("log_hist_msec", self.hist_msec != 0),
            ("log_hist_coarseness", self.hist_coarseness != 0),
        ];
        for (name, _) in of_log.into_iter().filter(|&(_, given)| given && !has_log) {
            warnings.push(format!("--{name} has no effect without --write_hist_log"));
        }
        warnings
    }

    /// Returns the prefix of the files of a kind.
    fn prefix(&self, kind: usize) -> Option<&str> {
        match kind {
            BW => self.bw.as_deref(),
            IOPS => self.iops.as_deref(),
            _ => self.lat.as_deref(),
        }
    }
}

impl Logs {
    /// Returns empty logs with memory for lines; `None` if no log is wanted.
    ///
    /// The log of a latency that is not measured stays empty, as in fio.
    pub fn new(options: &LogOptions, measures: &Measures) -> Option<Box<Self>> {
        let wanted = |kind| options.prefix(kind).map(|_| vec![chunk()]);
        // The bandwidth of a single I/O follows from its latency.
        let has_bw = measures.is_timed() || options.avg_msec > 0;
        let is_kept = [
            has_bw && !measures.disable_bw,
            !measures.disable_slat,
            !measures.disable_clat,
            !measures.disable_lat,
            true,
        ];
        let lines: [_; 5] = std::array::from_fn(wanted);
        let has_histograms = options.hist.is_some();
        let every_ms = if measures.disable_clat { 0 } else { options.hist_msec };
        let histograms =
            has_histograms.then(|| HistogramLog::new(every_ms, options.hist_coarseness));
        let windows = Intervals::new(options.avg_msec);
        let options = options.clone();
        options.is_any().then(|| {
            Box::new(Self {
                options,
                lines,
                is_kept,
                histograms,
                window: Window::default(),
                start_ns: 0,
                windows,
            })
        })
    }

    /// Removes all lines. Times count from `now_ns` on.
    pub fn restart(&mut self, now_ns: u64) {
        for chunks in self.lines.iter_mut().flatten() {
            chunks.truncate(1);
            chunks[0].clear();
        }
        self.window = Window::default();
        self.start_ns = now_ns;
        self.windows.restart(now_ns);
        if let Some(histograms) = &mut self.histograms {
            histograms.restart(now_ns);
        }
    }

    /// Records an I/O that moved `bytes`.
    pub fn record(&mut self, op: Op, bytes: u64, sample: Sample) {
        let slat_ns = sample.lat_ns - sample.clat_ns;
        if let Some(histograms) = &mut self.histograms {
            histograms.record(op, sample.clat_ns);
        }
        if self.options.avg_msec > 0 {
            let at = op.direction.index();
            self.window.ios[at] += 1;
            self.window.bytes[at] += bytes;
            let latencies =
                [(slat_ns, sample.has_slat), (sample.clat_ns, true), (sample.lat_ns, true)];
            for (sums, (ns, counts)) in self.window.latencies.iter_mut().zip(latencies) {
                if counts {
                    let (sum, max, number) = sums[at];
                    sums[at] = (sum + ns, max.max(ns), number + 1);
                }
            }
            return;
        }
        // fio's kilobytes per second are of 1000 here.
        let rate = (u128::from(bytes) * 1_000_000 / u128::from(sample.clat_ns.max(1))) as u64;
        let values = [
            (BW, rate, true),
            (SLAT, slat_ns, sample.has_slat),
            (CLAT, sample.clat_ns, true),
            (LAT, sample.lat_ns, true),
            (IOPS, 1, true),
        ];
        let ms = (sample.now_ns - self.start_ns) / 1_000_000;
        for (kind, value, is_there) in values {
            if is_there {
                let direction = op.direction.index() as u8;
                let (offset, bytes, ioprio) = (op.offset, op.len, sample.ioprio);
                self.push(kind, Line { ms, value, offset, bytes, ioprio, direction });
            }
        }
    }

    /// Returns the end of the open window or interval; `u64::MAX` without any.
    pub fn window_end_ns(&self) -> u64 {
        let interval_ns = self.histograms.as_ref().map_or(u64::MAX, |log| log.interval_end_ns());
        self.windows.end_ns().min(interval_ns)
    }

    /// Closes the windows that are over, and at the `end` of the job all of them. A shorter window
    /// has latencies but no rates.
    pub fn close_window(&mut self, now_ns: u64, end: bool) {
        let histograms = self.histograms.as_mut();
        if let Some(log) = histograms.filter(|log| end || now_ns >= log.interval_end_ns()) {
            log.close(now_ns);
        }
        if self.windows.are_on() && (end || now_ns >= self.windows.end_ns()) {
            self.close_mean(now_ns, end);
        }
    }

    fn close_mean(&mut self, now_ns: u64, end: bool) {
        let window = std::mem::take(&mut self.window);
        let ms = (now_ns - self.start_ns) / 1_000_000;
        // As in fio by whole milliseconds, so that even rates stay even.
        let elapsed_ms = u128::from(((now_ns - self.windows.begin_ns()) / 1_000_000).max(1));
        let per_second = |n: u64| (u128::from(n) * 1000 / elapsed_ms) as u64;
        for at in 0..3 {
            let line = |value| Line { ms, value, direction: at as u8, ..Line::default() };
            for (kind, sums) in [SLAT, CLAT, LAT].into_iter().zip(&window.latencies) {
                let (sum, max, number) = sums[at];
                if let Some(mean) = sum.checked_div(number) {
                    self.push(kind, line(if self.options.max_value { max } else { mean }));
                }
            }
            if window.ios[at] > 0 && !end {
                self.push(BW, line(per_second(window.bytes[at]) / 1024));
                self.push(IOPS, line(per_second(window.ios[at])));
            }
        }
        self.windows.next(now_ns);
    }

    /// Allocates memory for `ios` more lines. To be called while no I/O is timed.
    pub fn make_room(&mut self, ios: usize) {
        for chunks in self.lines.iter_mut().flatten() {
            if chunks.last().is_none_or(|last| last.capacity() - last.len() < ios) {
                chunks.push(chunk());
            }
        }
    }

    /// Returns the files of the clone with this number, from 1 on: name and text.
    pub fn files(&self, number: usize) -> Vec<(String, String)> {
        let mut files = Vec::new();
        for (kind, chunks) in self.lines.iter().enumerate() {
            let (Some(chunks), Some(prefix)) = (chunks, self.options.prefix(kind)) else {
                continue;
            };
            let name = self.options.file_name(prefix, KINDS[kind], number);
            let mut text = String::new();
            for line in chunks.iter().flatten() {
                // Writing into a String does not fail.
                let _ =
                    write!(text, "{}, {}, {}, {}", line.ms, line.value, line.direction, line.bytes);
                if self.options.offset {
                    let _ = write!(text, ", {}", line.offset);
                }
                let _ = match self.options.prio {
                    true => writeln!(text, ", 0x{:04x}", line.ioprio),
                    false => writeln!(text, ", {}", u8::from(is_real_time(line.ioprio))),
                };
            }
            files.push((name, text));
        }
        if let (Some(log), Some(prefix)) = (&self.histograms, &self.options.hist) {
            files.push((self.options.file_name(prefix, HISTOGRAMS, number), log.text()));
        }
        files
    }

    /// Returns whether jobs share their files.
    pub fn is_shared(&self) -> bool {
        self.options.shared
    }

    fn push(&mut self, kind: usize, line: Line) {
        if let Some(chunks) = self.lines[kind].as_mut().filter(|_| self.is_kept[kind]) {
            match chunks.last_mut() {
                Some(last) if last.len() < last.capacity() => last.push(line),
                _ => chunks.push(vec![line]),
            }
        }
    }
}

/// Allocates room for lines and touches it, so that the kernel provides the memory now.
fn chunk() -> Vec<Line> {
    let mut chunk = Vec::with_capacity(CHUNK);
    chunk.resize(CHUNK, Line { bytes: 1, ..Line::default() });
    chunk.clear();
    chunk
}

#[cfg(test)]
mod tests;
