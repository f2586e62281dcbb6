//! CPU time, context switches and page faults of the calling thread, from `/proc/thread-self`.
//!
//! User and system time are in clock ticks of 10 ms, but their sum is in nanoseconds. As the kernel
//! does for its own figures, the sum is divided in the proportion of the ticks.

use std::fs::File;
use std::io::Read;

use forebay_fio::stats::Usage;

/// Returns the figures of the calling thread since its start; figures that cannot be read are 0.
pub(super) fn of_this_thread() -> Usage {
    let read = |file: &str| read_once(&format!("/proc/thread-self/{file}"));
    parse(&read("stat"), &read("schedstat"), &read("status"))
}

/// Returns the voluntary context switches of a thread of this process since its start; 0 if the
/// thread has ended.
pub(crate) fn voluntary_switches(thread: i32) -> u64 {
    let status = read_once(&format!("/proc/self/task/{thread}/status"));
    parse("", "", &status).voluntary_switches
}

/// Returns the usage between two readings.
pub(super) fn between(before: &Usage, after: &Usage) -> Usage {
    Usage {
        user_us: after.user_us.saturating_sub(before.user_us),
        system_us: after.system_us.saturating_sub(before.system_us),
        voluntary_switches: after.voluntary_switches - before.voluntary_switches,
        involuntary_switches: after.involuntary_switches - before.involuntary_switches,
        major_faults: after.major_faults - before.major_faults,
        minor_faults: after.minor_faults - before.minor_faults,
    }
}

/// Reads a file of a thread with one call, which these files allow, because a thousand jobs read
/// them at their start. Returns nothing if the file cannot be read.
fn read_once(path: &str) -> String {
    let mut text = [0; 4096];
    let len = File::open(path).and_then(|mut file| file.read(&mut text)).unwrap_or(0);
    String::from_utf8_lossy(&text[..len]).into_owned()
}

fn parse(stat: &str, schedstat: &str, status: &str) -> Usage {
    // The second field, the name in parentheses, may contain anything, so the code parses the rest.
    // Field numbers are those of proc(5), less the first three fields.
    let behind_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields: Vec<&str> = behind_name.split_whitespace().collect();
    let field = |number: usize| number_of(fields.get(number - 3).copied());
    let (user_ticks, system_ticks) = (field(14), field(15));
    let total_us = number_of(schedstat.split_whitespace().next()) / 1000;
    let user_us = match user_ticks + system_ticks {
        0 => total_us,
        ticks => (u128::from(total_us) * u128::from(user_ticks) / u128::from(ticks)) as u64,
    };
    let switches = |name: &str| {
        let number = status.lines().find_map(|line| line.strip_prefix(name));
        number_of(number.map(str::trim))
    };
    Usage {
        user_us,
        system_us: total_us - user_us,
        voluntary_switches: switches("voluntary_ctxt_switches:"),
        involuntary_switches: switches("nonvoluntary_ctxt_switches:"),
        major_faults: field(12),
        minor_faults: field(10),
    }
}

fn number_of(text: Option<&str>) -> u64 {
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_proc_are_understood() {
        let stat = "24163 (a) b) R 1 2 3 4 -1 5 102 0 7 0 30 10 0 0 20 0 1 0 336164";
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t2\n";
        let usage = parse(stat, "400000000 34610 1\n", status);
        assert_eq!((usage.user_us, usage.system_us), (300_000, 100_000));
        assert_eq!((usage.minor_faults, usage.major_faults), (102, 7));
        assert_eq!((usage.voluntary_switches, usage.involuntary_switches), (5, 2));
        assert_eq!(parse("", "", ""), Usage::default());
    }

    #[test]
    fn each_sleep_of_a_thread_is_a_voluntary_switch() {
        let this = rustix::thread::gettid().as_raw_nonzero().get();
        let before = voluntary_switches(this);
        (0..3).for_each(|_| std::thread::sleep(std::time::Duration::from_millis(1)));
        assert!(voluntary_switches(this) >= before + 3);
        assert_eq!(voluntary_switches(i32::MAX), 0, "there is no such thread");
    }

    #[test]
    fn each_figure_of_a_difference_is_its_own() {
        let before = Usage {
            user_us: 1,
            system_us: 20,
            voluntary_switches: 300,
            involuntary_switches: 4000,
            major_faults: 50_000,
            minor_faults: 600_000,
        };
        let mut after = before;
        after += &before;
        after += &before;
        let used = between(&before, &after);
        assert_eq!((used.user_us, used.system_us), (2, 40));
        assert_eq!((used.voluntary_switches, used.involuntary_switches), (600, 8000));
        assert_eq!((used.major_faults, used.minor_faults), (100_000, 1_200_000));
    }

    #[test]
    fn this_thread_uses_time() {
        let before = of_this_thread();
        let mut sum = 0_u64;
        for i in 0..20_000_000_u64 {
            sum = std::hint::black_box(sum.wrapping_add(i));
        }
        let used = between(&before, &of_this_thread());
        assert!(used.user_us + used.system_us > 1000, "{used:?}");
    }
}
