//! What a report in fio's JSON says of a run as a whole: fio's, or our own, which has its keys.
//!
//! Only what two runs are compared by is read. The report has to be that of one group
//! (`group_reporting`): percentiles of several jobs cannot be put together afterwards.
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
    /// The directions in which there was I/O: reads, writes, trims.
    pub directions: Vec<DirectionSample>,
    /// Context switches of the threads of the jobs, voluntary or not.
    pub switches: u64,
    /// Merges of the disks; fio, which has no layer, says those of the device below.
    pub merges: u64,
    /// System calls that our own layer has made; fio does not count its own.
    pub system_calls: Option<u64>,
}

/// The figures of a direction.
#[derive(Debug, Clone, PartialEq)]
pub struct DirectionSample {
    /// Which one.
    pub direction: Direction,
    /// I/Os.
    pub total_ios: u64,
    /// I/Os per second.
    pub iops: f64,
    /// Bytes per second.
    pub bw_bytes: f64,
    /// Completion latency, mean, ns.
    pub clat_mean_ns: f64,
    /// Half of the I/Os took no longer, ns.
    pub clat_p50_ns: Option<f64>,
    /// 99 of 100 took no longer, ns.
    pub clat_p99_ns: Option<f64>,
    /// 999 of 1000 took no longer, ns.
    pub clat_p999_ns: Option<f64>,
}

/// Why a report cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SampleError {
    /// There is none in the text.
    #[error("there is no report in JSON; it begins: {0:?}")]
    NotJson(String),
    /// A key is missing.
    #[error("the report has no {0}")]
    Missing(String),
    /// Jobs that are not one group.
    #[error("the report has {0} jobs, not one group")]
    NotOneGroup(usize),
}

impl Sample {
    /// Reads a report. fio puts warnings before it; they are passed over.
    ///
    /// # Errors
    ///
    /// [`SampleError`] if the text holds no report, or none of one group.
    pub fn parse(text: &str) -> Result<Self, SampleError> {
        let json = text.find("{\n").map_or("", |start| &text[start..]);
        // Behind the report there may be words, too.
        let report = serde_json::Deserializer::from_str(json).into_iter::<Value>().next();
        let Some(Ok(report)) = report else {
            return Err(SampleError::NotJson(text.trim().chars().take(80).collect()));
        };
        Self::of(&report)
    }

    /// I/Os of all directions.
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

    /// What fio 3.33 printed for random reads, shortened.
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
    fn what_is_no_report_is_refused() {
        let error = |text: &str| Sample::parse(text).expect_err(text).to_string();
        assert_eq!(error("fio: no\n"), "there is no report in JSON; it begins: \"fio: no\"");
        assert_eq!(error("{\n}"), "the report has no jobs");
        assert_eq!(error("{\n\"jobs\": [1, 2]}"), "the report has 2 jobs, not one group");
        assert_eq!(error("{\n\"jobs\": [{}]}"), "the report has no total_ios");
        assert_eq!(error(&FIO.replace("\"ctx\"", "\"x\"")), "the report has no ctx");
        let cut = error(&FIO[..FIO.len() / 2]);
        assert!(cut.starts_with("there is no report in JSON; it begins: \"{"), "{cut}");
    }
}
