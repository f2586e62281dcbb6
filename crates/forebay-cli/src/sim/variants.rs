//! The disks on which to run the same jobs (`--compare`, `--sweep`).

use forebay_sim::JobDisk;

use super::notes::{self, Events, Kinds};
use super::settings::{self, Settings, Tasks};
use crate::failure::Failure;

/// The base disk, or a disk that differs from it by one setting.
#[derive(Debug)]
pub(super) struct Variant {
    /// The setting that differs; `None` for the base disk.
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

    /// Returns the setting that differs, or `(base)`.
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
/// one per value; without either, the base disk.
///
/// # Errors
/// A setting that is wrong or not simulated, or that has no effect: on its own disk, or on every
/// disk if all have it.
pub(super) fn of(
    base: &Settings,
    tasks: Tasks,
    compare: &[String],
    sweep: Option<&str>,
) -> Result<Vec<Variant>, Failure> {
    let variant = |key: &str, value: &str| {
        let mut setting = Settings::default();
        setting.add(key, value);
        let variant = Variant::of(&base.then(&setting), tasks, Some(format!("{key}={value}")))?;
        match variant.idle.iter().find(|(idle, _)| idle == key) {
            Some((_, reason)) => Err(reason.clone()),
            None => Ok(variant),
        }
    };
    let checked = |variants: Vec<Variant>| match idle_everywhere(&variants) {
        Some(reason) => Err(Failure::Usage(reason)),
        None => Ok(variants),
    };
    if let Some(text) = sweep {
        let hint = "expected KEY=A,B,C, such as queue_depth=1,8";
        let wrong = |why: String| Failure::Usage(format!("--sweep={text}: {why}"));
        let (key, values) = settings::pair(text).map_err(|_| wrong(hint.to_owned()))?;
        let is_device = key == settings::DEVICE && text.contains(':');
        if is_device {
            let why = "a comma separates values; use --compare for a device with constants";
            return Err(wrong(why.to_owned()));
        }
        let mut variants: Vec<Variant> = Vec::new();
        for value in values.split(',') {
            let found = variant(&key, value).map_err(wrong)?;
            let twin = variants.iter().find(|other| other.disk == found.disk);
            if let Some(twin) = twin {
                let twin = twin.label();
                return Err(wrong(format!("{value}: the same disk as {twin}; leave one out")));
            }
            variants.push(found);
        }
        return checked(variants);
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn base() -> Settings {
        let mut base = Settings::default();
        base.add("device", "nvme");
        base
    }

    fn names(compare: &[&str], sweep: Option<&str>) -> Vec<String> {
        let compare: Vec<_> = compare.iter().map(|text| (*text).to_owned()).collect();
        let variants = of(&base(), Tasks::Jobs, &compare, sweep).expect("good settings");
        variants.iter().map(|variant| variant.label().to_owned()).collect()
    }

    #[test]
    fn variants_have_the_setting_that_differs_as_their_name() {
        assert_eq!(names(&[], None), ["(base)"]);
        assert_eq!(
            names(&["wake=batch", "device=hdd"], None),
            ["(base)", "wake=batch", "device=hdd"]
        );
        assert_eq!(names(&[], Some("queue_depth=1,64")), ["queue_depth=1", "queue_depth=64"]);
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
            let error = of(&base(), Tasks::Jobs, &[], Some(wrong)).expect_err(wrong).to_string();
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
            let error = of(&base, Tasks::Jobs, &[wrong.to_owned()], None);
            let error = error.expect_err(wrong).to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn setting_of_all_disks_is_refused_if_it_has_an_effect_on_none() {
        let mut base = base();
        base.add("tag_need", "parts");
        let variants =
            of(&base, Tasks::Jobs, &[], Some("wake=fair,batch")).expect("an effect on the first");
        assert_eq!(variants.len(), 2);
        let beside_base = of(&base, Tasks::Jobs, &["wake=batch".to_owned()], None);
        assert_eq!(beside_base.expect("an effect on the base disk").len(), 2);
        let error = of(&base, Tasks::Jobs, &[], Some("wake=batch,single"));
        let error = error.expect_err("no effect").to_string();
        assert!(error.contains("tag_need=parts: no effect on nvme: needs "), "{error}");
        base.add("wake", "batch");
        let error = of(&base, Tasks::Jobs, &[], None).expect_err("no effect").to_string();
        assert!(error.contains("tag_need=parts: no effect on nvme: needs "), "{error}");
    }
}
