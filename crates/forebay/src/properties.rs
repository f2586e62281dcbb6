//! Table of the properties of a disk by name, for reports and for other languages.
//!
//! [`SETTINGS`] has the settings. The other properties are here.

use crate::Disk;
use crate::info::DiskInfo;
use crate::settings::table::{SETTINGS, Setting};
use forebay_core::Values;
use std::fmt;

/// A property of a disk: see [`Disk::properties`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Property {
    /// The name: that of a setting is its key in specs, that of a limit its name in
    /// `/sys/block/X/queue`.
    pub name: &'static str,
    /// The group.
    pub group: PropertyGroup,
    /// The value.
    pub value: PropertyValue,
}

/// A group of properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PropertyGroup {
    /// The kind of the disk, and its state.
    Disk,
    /// The limits of its requests.
    Limit,
    /// A setting in force. It may have the name of a property of another group, and then has the
    /// same value.
    Setting,
}

/// The value of a property.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PropertyValue {
    /// Yes or no.
    Flag(bool),
    /// A number.
    Number(u64),
    /// A text.
    Text(String),
    /// The disk has no such value, such as the capacity of a file that grows.
    None,
}

impl From<bool> for PropertyValue {
    fn from(is_set: bool) -> PropertyValue {
        PropertyValue::Flag(is_set)
    }
}

impl From<u32> for PropertyValue {
    fn from(number: u32) -> PropertyValue {
        PropertyValue::Number(number.into())
    }
}

impl From<u64> for PropertyValue {
    fn from(number: u64) -> PropertyValue {
        PropertyValue::Number(number)
    }
}

impl From<&str> for PropertyValue {
    fn from(text: &str) -> PropertyValue {
        PropertyValue::Text(text.to_owned())
    }
}

impl<T: Into<PropertyValue>> From<Option<T>> for PropertyValue {
    fn from(value: Option<T>) -> PropertyValue {
        value.map_or(PropertyValue::None, T::into)
    }
}

impl fmt::Display for PropertyValue {
    /// Shows a flag as `true` or `false`, and a missing value as nothing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PropertyValue::Flag(is_set) => is_set.fmt(f),
            PropertyValue::Number(number) => number.fmt(f),
            PropertyValue::Text(text) => text.fmt(f),
            PropertyValue::None => Ok(()),
        }
    }
}

type Fixed = (&'static str, PropertyGroup, fn(&DiskInfo) -> PropertyValue);

use PropertyGroup::Limit;

/// The properties that do not change while the disk is open.
const FIXED: [Fixed; 27] = [
    ("spec", PropertyGroup::Disk, |info| info.spec.as_str().into()),
    ("driver", PropertyGroup::Disk, |info| info.driver.into()),
    ("notice", PropertyGroup::Disk, |info| info.notice.as_deref().into()),
    ("read_only", PropertyGroup::Disk, |info| info.limits.read_only.into()),
    ("volatile_cache", PropertyGroup::Disk, |info| info.limits.volatile_cache.into()),
    ("flush_queueable", PropertyGroup::Disk, |info| info.limits.flush_queueable.into()),
    ("write_zeroes", PropertyGroup::Disk, |info| (info.limits.max_write_zeroes_sectors > 0).into()),
    ("memory_alignment", PropertyGroup::Disk, |info| {
        (u64::from(info.limits.dma_alignment) + 1).into()
    }),
    ("max_transfer", PropertyGroup::Disk, |info| (u64::from(info.limits.max_sectors) * 512).into()),
    ("logical_block_size", Limit, |info| info.limits.logical_block_size.into()),
    ("physical_block_size", Limit, |info| info.limits.physical_block_size.into()),
    ("io_min", Limit, |info| info.limits.io_min.into()),
    ("io_opt", Limit, |info| info.limits.io_opt.into()),
    ("max_hw_sectors_kb", Limit, |info| (info.limits.max_hw_sectors / 2).into()),
    ("max_sectors_kb", Limit, |info| (info.limits.max_sectors / 2).into()),
    ("max_segments", Limit, |info| info.limits.max_segments.into()),
    ("max_segment_size", Limit, |info| info.limits.max_segment_size.into()),
    ("seg_boundary_mask", Limit, |info| info.limits.seg_boundary_mask.into()),
    ("virt_boundary_mask", Limit, |info| info.limits.virt_boundary_mask.into()),
    ("dma_alignment", Limit, |info| info.limits.dma_alignment.into()),
    ("chunk_sectors", Limit, |info| info.limits.chunk_sectors.into()),
    ("discard_granularity", Limit, |info| info.limits.discard_granularity.into()),
    ("max_discard_sectors", Limit, |info| info.limits.max_discard_sectors.into()),
    ("max_discard_segments", Limit, |info| info.limits.max_discard_segments.into()),
    ("max_write_zeroes_sectors", Limit, |info| info.limits.max_write_zeroes_sectors.into()),
    ("rotational", Limit, |info| info.limits.rotational.into()),
    // The largest bio whose parts can all get tags.
    ("max_nowait_bytes", Limit, |info| {
        let tags = u64::from(info.policy.queue_depth);
        (u64::from(info.limits.max_sectors) * 512 * tags).into()
    }),
];

type Current = (&'static str, fn(&Disk) -> PropertyValue);

/// The properties that belong to an open disk, and may change.
const CURRENT: [Current; 5] = [
    ("capacity", |disk| disk.capacity_bytes().into()),
    ("failed", |disk| disk.is_failed().into()),
    ("failure", |disk| disk.failure().as_deref().into()),
    ("current_scheduler", |disk| disk.scheduling().scheduler.name().into()),
    ("registers_memory", |disk| disk.can_register_memory().into()),
];

/// Returns the value of a setting: a switch is a flag. `None` if the disk cannot have the setting,
/// or has no value for it.
fn value_of(setting: &Setting, info: &DiskInfo) -> PropertyValue {
    let Some(text) = setting.get(info) else { return PropertyValue::None };
    match (setting.values, setting.values.number(&text)) {
        (Values::Number { .. }, Some(number)) => PropertyValue::Number(number),
        (Values::Switch, Some(on)) => PropertyValue::Flag(on == 1),
        _ => PropertyValue::Text(text),
    }
}

impl DiskInfo {
    /// Returns the properties that do not change while the disk is open: see [`Disk::properties`].
    pub fn properties(&self) -> impl Iterator<Item = Property> {
        let fixed = FIXED.iter().map(|&(name, group, get)| {
            let value = get(self);
            Property { name, group, value }
        });
        let settings = SETTINGS.iter().map(|setting| Property {
            name: setting.key,
            group: PropertyGroup::Setting,
            value: value_of(setting, self),
        });
        fixed.chain(settings)
    }
}

/// Returns the names of all properties, each once: those of [`Disk::property`]. They are the same
/// for every disk. A later version may add names.
///
/// ```
/// assert!(forebay::property_names().any(|name| name == "capacity"));
/// ```
pub fn property_names() -> impl Iterator<Item = &'static str> {
    let is_fixed = |key: &str| FIXED.iter().any(|(name, ..)| *name == key);
    let fixed = FIXED.iter().map(|&(name, ..)| name);
    let settings = SETTINGS.iter().map(|setting| setting.key).filter(move |key| !is_fixed(key));
    fixed.chain(settings).chain(CURRENT.iter().map(|&(name, _)| name))
}

impl Disk {
    /// Returns all properties of the disk by name: its kind, its state, its limits, and the
    /// settings in force. A later version may add properties. The features are in
    /// [`DiskInfo::features`].
    ///
    /// ```
    /// use forebay::{Disk, PropertyValue};
    ///
    /// let disk = Disk::open("ram:1M?nr_requests=8")?;
    /// for property in disk.properties() {
    ///     println!("{}: {}", property.name, property.value);
    /// }
    /// assert_eq!(disk.property("nr_requests"), Some(PropertyValue::Number(8)));
    /// assert_eq!(disk.property("capacity"), Some(PropertyValue::Number(1 << 20)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn properties(&self) -> impl Iterator<Item = Property> {
        let current = CURRENT.iter().map(|&(name, get)| {
            let value = get(self);
            Property { name, group: PropertyGroup::Disk, value }
        });
        self.info().properties().chain(current)
    }

    /// Returns the value of one property, or `None` if no property has this name.
    pub fn property(&self, name: &str) -> Option<PropertyValue> {
        if let Some((_, get)) = CURRENT.iter().find(|(known, _)| *known == name) {
            return Some(get(self));
        }
        let info = self.info();
        match FIXED.iter().find(|(known, ..)| *known == name) {
            Some((.., get)) => Some(get(info)),
            None => Setting::named(name).map(|setting| value_of(setting, info)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_one_value() {
        for spec in ["ram:1M", "null:1M?read_only=on&iostats=on", "ram:1M?tag_set=properties"] {
            let disk = Disk::open(spec).expect("it opens");
            for Property { name, value, .. } in disk.properties() {
                assert_eq!(disk.property(name), Some(value), "{spec}: {name}");
            }
            assert_eq!(disk.property("no_such_name"), None);
        }
    }

    #[test]
    fn each_property_has_its_name_in_the_list_once() {
        let disk = Disk::open("ram:1M").expect("it opens");
        let mut of_disk: Vec<_> = disk.properties().map(|property| property.name).collect();
        let mut listed: Vec<_> = property_names().collect();
        of_disk.sort_unstable();
        // A setting may have the name of another property.
        of_disk.dedup();
        listed.sort_unstable();
        assert_eq!(listed, of_disk);
    }

    #[test]
    fn values_have_the_types_of_their_settings() {
        let disk = Disk::open("ram:1M?iostats=off&tag_set=7&queue_depth=4").expect("it opens");
        for (name, value) in [
            ("iostats", PropertyValue::Flag(false)),
            ("service", PropertyValue::Flag(true)),
            ("tag_set", PropertyValue::Text("7".to_owned())),
            ("queue_depth", PropertyValue::Number(4)),
            ("lock", PropertyValue::None),
            ("failure", PropertyValue::None),
        ] {
            assert_eq!(disk.property(name), Some(value), "{name}");
        }
    }
}
