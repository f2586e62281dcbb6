//! The disks on which to run the same jobs (`--compare`, `--sweep`).

use forebay_sim::JobDisk;

use super::notes::{self, Events, Kinds};
use super::settings::{self, Settings, Tasks};
use crate::failure::Failure;

/// The largest number of settings of a command. The figures of all runs stay in memory.
const SETTINGS_MAX: usize = 64;

/// The base disk, or a disk that differs from it by one setting, or by one for each sweep.
#[derive(Debug)]
pub(super) struct Variant {
    /// The settings that differ; `None` for the base disk.
    pub(super) name: Option<String>,
    /// The device, as the user wrote it.
    pub(super) device: String,
    pub(super) disk: JobDisk,
    /// The kinds of I/O of the load.
    pub(super) kinds: Kinds,
    /// The settings without effect on this disk, each with the reason.
    idle: Vec<(String, String)>,
}

impl Variant {
    fn of(settings: &Settings, tasks: Tasks, name: Option<String>) -> Result<Self, String> {
        let disk = settings.disk_with_idle(tasks)?;
        let idle = settings.idle(&disk).into_iter();
        let idle = idle.map(|(key, reason)| (key.to_owned(), reason)).collect();
        let (device, kinds) = (settings.device().to_owned(), Kinds::default());
        Ok(Variant { name, device, disk, kinds, idle })
    }

    /// Returns the settings that differ, or `(base)`.
    pub(super) fn label(&self) -> &str {
        self.name.as_deref().unwrap_or("(base)")
    }

    /// Returns notes about settings that had no effect on the load, with these events.
    pub(super) fn notes(&self, events: &Events) -> Vec<String> {
        notes::of(&self.disk, self.kinds, events)
    }
}

/// Returns why a setting is refused that has no effect on any of these disks. If it has one on some
/// of them, the comparison shows that.
fn idle_everywhere(variants: &[Variant]) -> Option<String> {
    let (first, others) = variants.split_first()?;
    let is_idle = |key: &str, variant: &Variant| variant.idle.iter().any(|(other, _)| other == key);
    let mut idle = first.idle.iter();
    let found = idle.find(|(key, _)| others.iter().all(|variant| is_idle(key, variant)));
    found.map(|(_, reason)| reason.clone())
}

/// Returns the disks to run on: for `--compare`, the base disk and one per setting; for `--sweep`,
/// one per value, or per combination of values; without either, the base disk.
///
/// # Errors
/// A setting that is wrong or not simulated, or that has no effect: on its own disk, or on every
/// disk if all have it.
pub(super) fn of(
    base: &Settings,
    tasks: Tasks,
    compare: &[String],
    sweep: &[String],
) -> Result<Vec<Variant>, Failure> {
    if !sweep.is_empty() {
        return swept(base, tasks, sweep);
    }
    let variant = |key: &str, value: &str| {
        let mut setting = Settings::default();
        setting.add(key, value);
        let variant = Variant::of(&base.then(&setting), tasks, Some(format!("{key}={value}")))?;
        match variant.idle.iter().find(|(idle, _)| idle == key) {
            Some((_, reason)) => Err(reason.clone()),
            None => Ok(variant),
        }
    };
    let mut variants = vec![Variant::of(base, tasks, None).map_err(Failure::Usage)?];
    for text in compare {
        let wrong = |why| Failure::Usage(format!("--compare={text}: {why}"));
        let found = settings::pair(text).and_then(|(key, value)| variant(&key, &value));
        let found = found.map_err(wrong)?;
        if let Some(twin) = variants.iter().find(|other| other.disk == found.disk) {
            let twin = twin.label();
            return Err(wrong(format!(
                "the same disk as {twin}; leave it out, or set another value"
            )));
        }
        variants.push(found);
    }
    checked(variants)
}

/// Returns the disks, unless a setting has no effect on any of them.
fn checked(variants: Vec<Variant>) -> Result<Vec<Variant>, Failure> {
    match idle_everywhere(&variants) {
        Some(reason) => Err(Failure::Usage(reason)),
        None => Ok(variants),
    }
}

/// Returns a disk for each combination of the values of the sweeps, in their order.
fn swept(base: &Settings, tasks: Tasks, sweep: &[String]) -> Result<Vec<Variant>, Failure> {
    let wrong = |why: String| match sweep {
        [text] => Failure::Usage(format!("--sweep={text}: {why}")),
        _ => Failure::Usage(format!("--sweep: {why}")),
    };
    let mut combinations: Vec<Vec<(String, String)>> = vec![Vec::new()];
    for text in sweep {
        let (key, values) = swept_values(text)?;
        if combinations[0].iter().any(|(other, _)| *other == key) {
            let why = format!("{key} is swept twice; give all of its values at once");
            return Err(Failure::Usage(format!("--sweep={text}: {why}")));
        }
        let with = |pairs: &Vec<(String, String)>| {
            let (key, pairs) = (key.clone(), pairs.clone());
            let with = move |value| [&pairs[..], &[(key.clone(), value)]].concat();
            values.clone().into_iter().map(with)
        };
        combinations = combinations.iter().flat_map(with).collect();
        let nr = combinations.len();
        if nr > SETTINGS_MAX {
            return Err(wrong(format!(
                "{nr} settings: expected at most {SETTINGS_MAX}; give fewer values"
            )));
        }
    }
    let mut variants: Vec<Variant> = Vec::new();
    for pairs in &combinations {
        let mut settings = Settings::default();
        pairs.iter().for_each(|(key, value)| settings.add(key, value));
        let label: Vec<_> = pairs.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let label = label.join(" ");
        let found = Variant::of(&base.then(&settings), tasks, Some(label.clone()));
        let found = found.map_err(wrong)?;
        if let Some(twin) = variants.iter().find(|other| other.disk == found.disk) {
            let value = if let ([_], [(_, value)]) = (sweep, &pairs[..]) { value } else { &label };
            let twin = twin.label();
            return Err(wrong(format!("{value}: the same disk as {twin}; leave one out")));
        }
        variants.push(found);
    }
    // A value must have an effect in one of its combinations.
    for (at, (key, value)) in combinations.iter().flat_map(|pairs| pairs.iter().enumerate()) {
        let with = combinations.iter().zip(&variants).filter(|(pairs, _)| pairs[at].1 == *value);
        let reason_of = |variant: &Variant| {
            variant.idle.iter().find(|(idle, _)| idle == key).map(|(_, reason)| reason.clone())
        };
        let reasons: Option<Vec<String>> = with.map(|(_, variant)| reason_of(variant)).collect();
        if let Some(reason) = reasons.and_then(|reasons| reasons.into_iter().next()) {
            return Err(wrong(reason));
        }
    }
    checked(variants)
}

/// Returns the key and the values of a sweep.
fn swept_values(text: &str) -> Result<(String, Vec<String>), Failure> {
    let wrong = |why: &str| Failure::Usage(format!("--sweep={text}: {why}"));
    let hint = "expected KEY=A,B,C, such as queue_depth=1,8";
    let (key, values) = settings::pair(text).map_err(|_| wrong(hint))?;
    if key == settings::DEVICE && text.contains(':') {
        return Err(wrong("a comma separates values; use --compare for a device with constants"));
    }
    Ok((key, values.split(',').map(str::to_owned).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base() -> Settings {
        let mut base = Settings::default();
        base.add("device", "nvme");
        base
    }

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    fn names(compare: &[&str], sweep: &[&str]) -> Vec<String> {
        let (compare, sweep) = (texts(compare), texts(sweep));
        let variants = of(&base(), Tasks::Jobs, &compare, &sweep).expect("good settings");
        variants.iter().map(|variant| variant.label().to_owned()).collect()
    }

    #[test]
    fn variants_have_the_setting_that_differs_as_their_name() {
        assert_eq!(names(&[], &[]), ["(base)"]);
        assert_eq!(
            names(&["wake=batch", "device=hdd"], &[]),
            ["(base)", "wake=batch", "device=hdd"]
        );
        assert_eq!(names(&[], &["queue_depth=1,64"]), ["queue_depth=1", "queue_depth=64"]);
        for (wrong, why) in [
            ("wake", "--sweep=wake: expected KEY=A,B,C, such as queue_depth=1,8"),
            ("wake=lifo", "--sweep=wake=lifo: wake=lifo: expected fair,"),
            ("queue_depth=1,1", "queue_depth=1,1: 1: the same disk as queue_depth=1; leave one"),
            (
                "flush=hold,tail",
                "flush=tail: no effect on nvme: needs a device that accepts a flush",
            ),
            ("queue_depth=1,", "--sweep=queue_depth=1,: queue_depth=: expected a number"),
            ("device=nvme:size=1g,hdd", "a comma separates values; use --compare"),
        ] {
            let error =
                of(&base(), Tasks::Jobs, &[], &texts(&[wrong])).expect_err(wrong).to_string();
            assert!(error.contains(why), "{error}");
        }
        for (wrong, why) in [
            ("device=nvme", "--compare=device=nvme: the same disk as (base); leave it out"),
            ("elide=on", "elide=on: no effect on nvme: needs a volatile cache; leave it out"),
            (
                "tag_need=parts",
                "no effect on nvme: needs wake=fair without reserved_tags and async_depth; leave",
            ),
        ] {
            let mut base = base();
            base.add("wake", "batch");
            let error = of(&base, Tasks::Jobs, &texts(&[wrong]), &[]);
            let error = error.expect_err(wrong).to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn setting_of_all_disks_is_refused_if_it_has_an_effect_on_none() {
        let mut base = base();
        base.add("tag_need", "parts");
        let variants =
            of(&base, Tasks::Jobs, &[], &texts(&["wake=fair,batch"])).expect("an effect on one");
        assert_eq!(variants.len(), 2);
        let beside_base = of(&base, Tasks::Jobs, &texts(&["wake=batch"]), &[]);
        assert_eq!(beside_base.expect("an effect on the base disk").len(), 2);
        let error = of(&base, Tasks::Jobs, &[], &texts(&["wake=batch,single"]));
        let error = error.expect_err("no effect").to_string();
        assert!(error.contains("tag_need=parts: no effect on nvme: needs "), "{error}");
        base.add("wake", "batch");
        let error = of(&base, Tasks::Jobs, &[], &[]).expect_err("no effect").to_string();
        assert!(error.contains("tag_need=parts: no effect on nvme: needs "), "{error}");
    }

    #[test]
    fn several_sweeps_give_all_combinations() {
        let names = names(&[], &["wake=fair,batch", "queue_depth=1,8"]);
        let expected = [
            "wake=fair queue_depth=1",
            "wake=fair queue_depth=8",
            "wake=batch queue_depth=1",
            "wake=batch queue_depth=8",
        ];
        assert_eq!(names, expected);
        let refused = |sweep: &[&str]| {
            of(&base(), Tasks::Jobs, &[], &texts(sweep)).expect_err("refused").to_string()
        };
        let twice = refused(&["wake=fair,batch", "wake=single"]);
        assert_eq!(
            twice,
            "--sweep=wake=single: wake is swept twice; give all of its values at once"
        );
        let many = refused(&["queue_depth=1,2,3,4,5,6,7,8,9", "nr_requests=1,2,3,4,5,6,7,8"]);
        assert_eq!(many, "--sweep: 72 settings: expected at most 64; give fewer values");
        // It has an effect beside one of the policies.
        assert_eq!(super::tests::names(&[], &["wake=fair,batch", "tag_need=one,parts"]).len(), 4);
        let idle = refused(&["wake=single,batch", "tag_need=one,parts"]);
        assert!(idle.starts_with("--sweep: tag_need=one: no effect on nvme: needs "), "{idle}");
    }
}
