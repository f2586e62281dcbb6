//! Every short history: all interactions of a few bios on a device with a volatile cache.
//!
//! A *script* is a sequence of bios on three sectors. Each bio is a read, a write, a write with
//! FUA, a write with PREFLUSH, a flush or a discard, and is submitted within an open plug or not. A
//! *path* is a script with one order of completions, and with one set of commands that fail. All
//! paths of all scripts of a length run on the real core, under every policy that affects flushes.
//! After every event of each path the power may fail: the states that a crash can leave must be
//! among those that the user expects (`check/durable.rs`). That costs no time, since the states of
//! a crash are sets, one for each sector, and are compared as sets.
//!
//! In addition, every bio ends once, with a result that follows from its commands, and none is left
//! behind.
//!
//! With [`Kinds::Points`] a flush may have a durable point as its limit, and the user may
//! acknowledge the loss that a failed flush has caused. With [`Kinds::Splits`] and
//! [`Setting::scarce`] each bio is split into parts, which wait for tags.
//!
//! With [`FileUse`] the device is a file with open file descriptions. Then a write-back may fail at
//! any time, a later sync reports the error by the rule of [`forebay_model::ErrSeq`], and another
//! program may sync the file in between.
//!
//! Equivalent histories are tried once: interchangeable sectors, other orders of plain completions
//! with nothing between them, and settings that do not affect any bio of the script.

mod choices;
mod rig;
mod script;

use crate::Plant;
use crate::trace;
use choices::Choices;
use forebay_core::FlushPolicy;
use rig::Rig;
use script::{Kind, Letter};
use std::fmt;

/// How a device that is a file is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileUse {
    /// Writes with FUA go through the page cache. Then another sync through the same description
    /// may report that their own data was not written back.
    pub page_cache: bool,
    /// The second context opens the file at its first use, and not with the disk.
    pub opens_late: bool,
    /// The second context belongs to a second disk on the file.
    pub second_disk: bool,
}

/// Settings of the layer and the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The order of commands if the device takes a flush only on its own.
    pub flush: FlushPolicy,
    /// Flushes are elided.
    pub elide: bool,
    /// The device supports FUA.
    pub fua: bool,
    /// The device takes a flush beside other commands.
    pub flush_queueable: bool,
    /// The maximum number of requests at the device.
    pub queue_depth: u32,
    /// A command has at most one sector, so larger bios are split.
    pub is_splitting: bool,
    /// How the file is used, if the device is one.
    pub file: Option<FileUse>,
    /// The planted bug. It takes effect at every chance.
    pub bug: Option<Plant>,
}

impl Setting {
    /// Returns all settings of a correct device.
    pub fn all() -> Vec<Setting> {
        let mut all = Vec::new();
        for (flush_queueable, flush) in FlushPolicy::ALL
            .map(|flush| (false, flush))
            .into_iter()
            .chain([(true, FlushPolicy::default())])
        {
            for elide in [true, false] {
                for fua in [true, false] {
                    all.push(Setting { flush, elide, fua, flush_queueable, ..Setting::PLAIN });
                }
            }
        }
        all
    }

    const PLAIN: Setting = Setting {
        flush: FlushPolicy::Hold,
        elide: false,
        fua: false,
        flush_queueable: true,
        queue_depth: 8,
        is_splitting: false,
        file: None,
        bug: None,
    };

    /// Returns all settings of a correct device that splits bios and has fewer tags than they need.
    pub fn scarce() -> Vec<Setting> {
        let scarce = |queue_depth| {
            let all = Setting::all().into_iter();
            all.map(move |setting| Setting { queue_depth, is_splitting: true, ..setting })
        };
        scarce(1).chain(scarce(2)).collect()
    }

    /// Returns all settings of a correct file.
    pub fn files() -> Vec<Setting> {
        let mut all = Vec::new();
        for (elide, fua) in [(false, false), (false, true), (true, false), (true, true)] {
            for page_cache in [true, false] {
                for (opens_late, second_disk) in [(false, false), (true, false), (true, true)] {
                    let file = Some(FileUse { page_cache, opens_late, second_disk });
                    all.push(Setting { elide, fua, file, ..Setting::PLAIN });
                }
            }
        }
        all
    }

    /// Returns whether the setting affects some bio of the script.
    fn concerns(&self, script: &[Letter]) -> bool {
        let has = |kind| script.iter().any(|letter| letter.kind == kind);
        let asks = has(Kind::Flush) || has(Kind::FlushUpTo) || has(Kind::PreflushWrite);
        let emulates = has(Kind::WriteFua) && !self.fua;
        let is_native = has(Kind::WriteFua) && self.fua;
        let has_second = script.iter().any(|letter| letter.hctx > 0);
        (self.flush_queueable || asks || emulates)
            && (self.elide || asks)
            && (self.fua || has(Kind::WriteFua))
            && self.file.is_none_or(|file| {
                (file.page_cache || is_native) && (!file.opens_late || has_second)
            })
    }
}

/// The set of histories to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    /// The number of bios in a script.
    pub length: usize,
    /// The number of hardware contexts that get the bios. Each has its own thread.
    pub nr_hctxs: usize,
    /// The maximum number of commands that fail.
    pub failures_max: u32,
    /// Only writes and flushes fail.
    pub writes_fail: bool,
    /// The kinds of bios.
    pub kinds: Kinds,
    /// Plugs of a single bio are tried too.
    pub short_plugs: bool,
    /// Reads complete at once, and succeed.
    pub eager_reads: bool,
    /// One of so many scripts is tried.
    pub one_of: u64,
    /// The maximum number of failed write-backs of a file.
    pub write_back_errors_max: u32,
}

/// The kinds of bios in scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kinds {
    /// All kinds, within plugs and without.
    All,
    /// Writes, writes with PREFLUSH, and flushes; without plugs.
    Flushes,
    /// Writes, writes with FUA, and flushes; without plugs.
    Syncs,
    /// Writes, flushes, and flushes up to a durable point; without plugs. The user also
    /// acknowledges losses, at every moment.
    Points,
    /// Writes of two sectors, also with FUA or PREFLUSH, and flushes; without plugs.
    Splits,
}

impl Kinds {
    /// Returns how many sectors a bio has, if it is not a flush.
    fn nr_sectors(self) -> u64 {
        if self == Kinds::Splits { 2 } else { 1 }
    }
}

impl Scope {
    /// Returns the scope of all histories of this length.
    pub const fn all(length: usize) -> Scope {
        Scope {
            length,
            nr_hctxs: 1,
            failures_max: u32::MAX,
            writes_fail: false,
            kinds: Kinds::All,
            short_plugs: true,
            eager_reads: false,
            one_of: 1,
            write_back_errors_max: 0,
        }
    }

    /// Returns the scope of scripts of this length on a file: one write-back fails, and no command
    /// fails on its own.
    pub const fn file(length: usize, nr_hctxs: usize, kinds: Kinds) -> Scope {
        let short_plugs = matches!(kinds, Kinds::All);
        let (failures_max, write_back_errors_max) = (0, 1);
        let all = Scope::all(length);
        Scope { nr_hctxs, kinds, short_plugs, failures_max, write_back_errors_max, ..all }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Scope { length, nr_hctxs, failures_max, write_back_errors_max, .. } = self;
        write!(f, "{length} bios, {nr_hctxs} contexts, ")?;
        match *failures_max {
            u32::MAX => f.write_str("any failures")?,
            nr => write!(f, "{nr} failures")?,
        }
        if *write_back_errors_max > 0 {
            write!(f, ", {write_back_errors_max} failed write-backs")?;
        }
        match self.one_of {
            1 => Ok(()),
            nr => write!(f, ", one of {nr}"),
        }
    }
}

/// Counts of what was tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Scripts, each with all settings.
    pub nr_scripts: u64,
    /// Paths.
    pub nr_paths: u64,
    /// Events after which every possible state after a crash was checked, and a crash could leave
    /// one of several values in some sector. Each event counts once.
    pub nr_crash_points: u64,
    /// The hash over all events of all paths.
    pub hash: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { nr_scripts, nr_paths, nr_crash_points, .. } = self;
        write!(f, "{nr_scripts} scripts, {nr_paths} paths, {nr_crash_points} crash points")
    }
}

impl std::ops::AddAssign for Report {
    fn add_assign(&mut self, other: Report) {
        self.nr_scripts += other.nr_scripts;
        self.nr_paths += other.nr_paths;
        self.nr_crash_points += other.nr_crash_points;
        self.hash = trace::mix(self.hash, other.hash);
    }
}

/// A path that broke a rule.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The name of the rule.
    pub rule: &'static str,
    /// A description of the violation.
    pub what: String,
    /// The settings of the layer and the device.
    pub setting: Setting,
    /// The path, step by step.
    pub path: Vec<String>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "broken rule: {}: {}", self.rule, self.what)?;
        writeln!(f, "{:?}", self.setting)?;
        self.path.iter().try_for_each(|step| writeln!(f, "  {step}"))
    }
}

impl std::error::Error for Fault {}

/// Tries all histories within the scope, under each setting that affects them.
///
/// # Errors
/// The first path on which a rule is broken.
pub fn explore(scope: &Scope, settings: &[Setting]) -> Result<Report, Box<Fault>> {
    let mut report = Report::default();
    let mut fault = None;
    let rig = |setting| Rig::new(setting, scope.nr_hctxs);
    let mut rigs: Vec<_> = settings.iter().map(rig).collect();
    let mut nth = 0;
    script::each(scope, &mut |script| {
        nth += 1;
        if fault.is_some() || nth % scope.one_of != 0 {
            return;
        }
        report.nr_scripts += 1;
        for (setting, rig) in settings.iter().zip(&mut rigs) {
            if !setting.concerns(script) {
                continue;
            }
            if let Err(found) = explore_script(script, scope, setting, rig, &mut report) {
                fault.get_or_insert(found);
            }
        }
    });
    fault.map_or(Ok(report), Err)
}

fn explore_script(
    script: &[Letter],
    scope: &Scope,
    setting: &Setting,
    rig: &mut Rig,
    report: &mut Report,
) -> Result<(), Box<Fault>> {
    let mut choices = Choices::default();
    loop {
        let verdict = rig.run(script, scope, &mut choices);
        report.nr_paths += 1;
        report.nr_crash_points += rig.nr_crash_points;
        report.hash = trace::mix(report.hash, rig.hash());
        if let Err(broken) = verdict {
            let (rule, what) = broken.into_parts();
            let path = rig.events.iter().map(ToString::to_string).collect();
            return Err(Box::new(Fault { rule, what, setting: *setting, path }));
        }
        if !choices.next_path() {
            return Ok(());
        }
    }
}
