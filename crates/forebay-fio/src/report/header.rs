//! The header of a report: one line per job, the version, and the number of threads.

use std::fmt::Write;

use crate::job::Job;

/// Returns the lines of the header. `engines` has the name of the engine of each job.
pub fn render(jobs: &[Job], version: &str, engines: &[String]) -> String {
    let mut text = String::new();
    for (job, engine) in jobs.iter().zip(engines) {
        let [r, w, t] = job.sizes.each_ref().map(|rule| {
            let size = |bytes: u32| job.measures.units.size(bytes.into());
            format!("{}-{}", size(rule.min()), size(rule.max()))
        });
        // Writing into a String does not fail.
        let _ = writeln!(
            text,
            "{}: (g={}): rw={}, bs=(R) {r}, (W) {w}, (T) {t}, ioengine={engine}, \
             iodepth={}",
            job.name,
            job.group,
            job.rw.word(),
            job.iodepth
        );
        if job.numjobs > 1 {
            text.push_str("...\n");
        }
    }
    let threads: u64 = jobs.iter().map(|job| u64::from(job.numjobs)).sum();
    let plural = if threads == 1 { "" } else { "s" };
    let _ = writeln!(text, "{version}\nStarting {threads} thread{plural}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Engine, Given};

    #[test]
    fn it_reads_like_that_of_fio() {
        let given = Given { numjobs: Some(2), bs: Some(65_536), ..Given::default() };
        let two = Job::new("a".to_owned(), given, Vec::new()).expect("no conflict");
        let given = Given { ioengine: Some(Engine::Libaio), iodepth: Some(8), ..Given::default() };
        let mut one = Job::new("b".to_owned(), given, Vec::new()).expect("no conflict");
        one.group = 1;
        assert_eq!(
            render(&[two, one], "forebay-1.2.3", &["file".to_owned(), "libaio (file)".to_owned()]),
            "a: (g=0): rw=read, bs=(R) 64.0KiB-64.0KiB, (W) 64.0KiB-64.0KiB, (T) 64.0KiB-64.0KiB, \
             ioengine=file, iodepth=1\n...\n\
             b: (g=1): rw=read, bs=(R) 4096B-4096B, (W) 4096B-4096B, (T) 4096B-4096B, \
             ioengine=libaio (file), iodepth=8\n\
             forebay-1.2.3\nStarting 3 threads\n"
        );
    }
}
