//! The figures of a whole run, read from a JSON report of fio or of Forebay, which has fio's keys.
//!
//! Only figures that comparisons need are read. The report must have one group (`group_reporting`),
//! because percentiles of several jobs cannot be combined afterwards.
//!
//! Source: the output of fio 3.33, and fio's HOWTO, "JSON output".

use serde_json::Value;
use thiserror::Error;

use crate::generator::Direction;

/// The figures of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sample {
    /// The program and its version, such as `fio-3.33`.
    pub version: String,
    /// The directions with I/O: reads, writes, trims.
    pub directions: Vec<DirectionSample>,
    /// Context switches of the job threads, voluntary and involuntary ones.
    pub switches: u64,
    /// Merges of the disks. Those of fio are the device's, because fio has no layer.
    pub merges: u64,
    /// System calls of the layer; `None` for fio, which does not count its own.
    pub system_calls: Option<u64>,
}

/// The figures of a direction.
#[derive(Debug, Clone, PartialEq)]
pub struct DirectionSample {
    /// The direction.
    pub direction: Direction,
    /// I/Os.
    pub total_ios: u64,
    /// I/Os per second.
    pub iops: f64,
    /// Bytes per second.
    pub bw_bytes: f64,
    /// Mean completion latency, ns.
    pub clat_mean_ns: f64,
    /// 50th percentile of the completion latency, ns.
    pub clat_p50_ns: Option<f64>,
    /// 99th percentile of the completion latency, ns.
    pub clat_p99_ns: Option<f64>,
    /// 99.9th percentile of the completion latency, ns.
    pub clat_p999_ns: Option<f64>,
}

/// Why a report cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SampleError {
    /// The text has no report.
    #[error("no JSON report in the output, which begins: {0:?}")]
    NotJson(String),
    /// A key is missing.
    #[error("no {0} in the JSON report")]
    Missing(String),
    /// There is more than one entry.
    #[error("{0} jobs in the JSON report, not one group")]
    NotOneGroup(usize),
}

impl Sample {
    /// Reads a report. Warnings of fio before it are skipped.
    ///
    /// # Errors
    ///
    /// [`SampleError`] if the text has no report, or not one of a single group.
    pub fn parse(text: &str) -> Result<Self, SampleError> {
        let json = text.find("{\n").map_or("", |start| &text[start..]);
        // Behind the report there may be words, too.
        let report = serde_json::Deserializer::from_str(json).into_iter::<Value>().next();
        let Some(Ok(report)) = report else {
            return Err(SampleError::NotJson(text.trim().chars().take(80).collect()));
        };
        Self::of(&report)
    }

    /// Returns the I/Os of all directions.
    pub fn total_ios(&self) -> u64 {
        self.directions.iter().map(|direction| direction.total_ios).sum()
    }

    fn of(report: &Value) -> Result<Self, SampleError> {
        let jobs = report["jobs"].as_array().ok_or_else(|| missing("jobs"))?;
        let [job] = &jobs[..] else { return Err(SampleError::NotOneGroup(jobs.len())) };
        let mut directions = Vec::new();
        for direction in Direction::ALL {
            let figures = &job[direction.word()];
            if number(figures, "total_ios")? > 0.0 {
                directions.push(DirectionSample::of(direction, figures)?);
            }
        }
        let all = |list: &str| report[list].as_array().map_or(&[][..], Vec::as_slice).iter();
        let merges = all("disk_util").map(|disk| {
            let of = |key: &str| disk[key].as_u64().unwrap_or(0);
            of("read_merges") + of("write_merges")
        });
        let calls: Option<Vec<u64>> =
            all("forebay").map(|disk| disk["system_calls"].as_u64()).collect();
        Ok(Self {
            version: report["fio version"].as_str().unwrap_or_default().to_owned(),
            directions,
            switches: number(job, "ctx")? as u64,
            merges: merges.sum(),
            system_calls: calls.filter(|calls| !calls.is_empty()).map(|calls| calls.iter().sum()),
        })
    }
}

impl DirectionSample {
    fn of(direction: Direction, figures: &Value) -> Result<Self, SampleError> {
        let clat = &figures["clat_ns"];
        let percentile = |key: &str| clat["percentile"][key].as_f64();
        Ok(Self {
            direction,
            total_ios: number(figures, "total_ios")? as u64,
            iops: number(figures, "iops")?,
            bw_bytes: number(figures, "bw_bytes")?,
            clat_mean_ns: number(clat, "mean")?,
            clat_p50_ns: percentile("50.000000"),
            clat_p99_ns: percentile("99.000000"),
            clat_p999_ns: percentile("99.900000"),
        })
    }
}

fn number(object: &Value, key: &str) -> Result<f64, SampleError> {
    object[key].as_f64().ok_or_else(|| missing(key))
}

fn missing(key: &str) -> SampleError {
    SampleError::Missing(key.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of fio 3.33 for random reads, shortened.
    const FIO: &str = include_str!("sample/fio-3.33.json");

    #[test]
    fn a_report_of_fio_is_read() {
        let sample = Sample::parse(FIO).expect("it is one");
        let [read] = &sample.directions[..] else { panic!("{sample:?}") };
        assert_eq!(sample.version, "fio-3.33");
        assert_eq!((sample.total_ios(), sample.switches), (48144, 48126));
        assert_eq!((sample.merges, sample.system_calls), (3, None));
        assert_eq!((read.direction, read.total_ios), (Direction::Read, 48144));
        assert_eq!((read.iops, read.bw_bytes), (48_095.904_096, 197_000_823.0));
        assert_eq!(read.clat_mean_ns, 15_930.514_581);
        assert_eq!(read.clat_p50_ns, Some(10_304.0));
        assert_eq!(read.clat_p99_ns, Some(19_840.0));
        assert_eq!(read.clat_p999_ns, Some(1_941_504.0));
    }

    #[test]
    fn words_around_it_are_passed_over() {
        let text = format!("fio: a warning {{1}}\n{FIO}\nfio: more\n");
        assert_eq!(Sample::parse(&text), Sample::parse(FIO));
    }

    #[test]
    fn system_calls_are_those_of_all_disks_of_the_layer() {
        let ours = FIO.trim_end().trim_end_matches('}').trim_end().to_owned()
            + ",\n\"forebay\": [{\"system_calls\": 5}, {\"system_calls\": 6}]}";
        assert_eq!(Sample::parse(&ours).expect("a report").system_calls, Some(11));
    }

    #[test]
    fn text_that_is_no_report_is_refused() {
        let error = |text: &str| Sample::parse(text).expect_err(text).to_string();
        assert_eq!(error("fio: no\n"), "no JSON report in the output, which begins: \"fio: no\"");
        assert_eq!(error("{\n}"), "no jobs in the JSON report");
        assert_eq!(error("{\n\"jobs\": [1, 2]}"), "2 jobs in the JSON report, not one group");
        assert_eq!(error("{\n\"jobs\": [{}]}"), "no total_ios in the JSON report");
        assert_eq!(error(&FIO.replace("\"ctx\"", "\"x\"")), "no ctx in the JSON report");
        let cut = error(&FIO[..FIO.len() / 2]);
        assert!(cut.starts_with("no JSON report in the output, which begins: \"{"), "{cut}");
    }
}
