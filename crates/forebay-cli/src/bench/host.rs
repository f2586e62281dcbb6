//! A one-line description of the machine: figures are only meaningful together with it.

use std::fs;

/// Returns the processor model, the number of processors, and the kernel version.
pub(super) fn describe() -> String {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let kernel = read("/proc/sys/kernel/osrelease");
    let nr_cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    format!("{}, {nr_cpus} processors, Linux {}", model(&read("/proc/cpuinfo")), kernel.trim())
}

fn model(cpuinfo: &str) -> &str {
    let line = cpuinfo.lines().find_map(|line| line.strip_prefix("model name"));
    line.and_then(|line| line.split_once(": ")).map_or("unknown processor", |(_, model)| model)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_is_named() {
        let cpuinfo = "processor\t: 0\nmodel name\t: A Processor: 3\nmodel name\t: B\n";
        assert_eq!(model(cpuinfo), "A Processor: 3");
        assert_eq!(model(""), "unknown processor");
    }
}
