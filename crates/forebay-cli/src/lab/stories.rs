//! The subject of each experiment in a few sentences, for its pictures.

/// Returns the heading of an experiment. Experiments with the same story share one.
pub(super) fn heading(experiment: &str) -> &str {
    if experiment.starts_with("tags-4k") { "tags-4k" } else { experiment }
}

/// Returns the story of an experiment.
pub(super) fn story(experiment: &str) -> &'static str {
    match experiment {
        "run" => RUN,
        "flush-each" => FLUSH_EACH,
        "flush-100" => FLUSH_100,
        "tags-rotation" => ROTATION,
        super::mixed::NAME => MIXED,
        name if name.starts_with("tags-4k") => SMALL,
        _ => TAGS,
    }
}

const TAGS: &str = "Many jobs compete for too few tags. Before the change (batch) a thread that \
     wakes gets a few tags and sleeps again in the middle of its read, so a rotating disk serves \
     the four parts as separate reads: the published rate falls from 120 to 100 reads per second. \
     After it (stash) nothing is lost in total, but with 72 jobs on hdd 68 complete nothing; with \
     fair, where I/Os wait for tags and no thread does, the rate stays and every job gets its \
     share.";

const ROTATION: &str = "The published load of tags, on a disk whose seeks depend on the distance \
     and that turns 7200 times per minute. The shortest seek, the longest one and the rate were \
     chosen to match the published rows. The order of the policies is a result.";

const SMALL: &str = "Reads of 4 KiB by more and more jobs, with the same total depth. Some \
     published rates are more than the devices can do by the other rows of the same tables, and \
     are not reproduced. They appear when the rates of jobs are added up although the jobs did not \
     run at the same time.";

const MIXED: &str = "Twelve jobs that read 1 MiB and twelve that read 4 KiB compete for few tags; \
     nothing was published about this load. A split read takes each freed tag by itself (one), or \
     gathers tags for all its parts (parts). Gathering gains a little on hdd and loses a little on \
     flash, so it is the default on rotational disks only.";

const RUN: &str = "Each completion requests a run of the queue, even while one is pending \
     (always, before), or only if none is (dedupe, after). The published gain is 42 % with 256 \
     reads in flight and 60 % with 1024. Forebay queues no such work, so its own gain is 0; with \
     the published cost injected the gains come out, but four constants were chosen for these four \
     points.";

const FLUSH_EACH: &str = "Threads write 16 KiB and call fsync after each write, on a disk that \
     cannot queue a flush beside other requests. Requests that it refuses go back to the tail of \
     the queue (tail, before), or are held until the flush has ended (hold, after). About a fifth \
     was published to be lost with tail; one constant of the model was fitted to that figure.";

const FLUSH_100: &str = "The same disk under fileio of sysbench: after each 100 writes of all \
     threads, an fsync for each of 128 files. Most of these flushes find nothing to write. With \
     elide=on a flush without writes before it does not reach the disk.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_experiment_has_a_story_of_three_or_four_sentences() {
        for name in
            ["tags", "tags-rotation", "tags-4k-256", "tags-mixed", "run", "flush-each", "flush-100"]
        {
            let nr = story(name).matches(['.', ';']).count();
            assert!((3..=4).contains(&nr), "{name}: {nr}");
        }
    }
}
