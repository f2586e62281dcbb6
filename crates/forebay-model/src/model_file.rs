//! Model files: a family of models and its constants as text.
//!
//! `forebay calibrate` writes such a file, and the simulator and the driver `model` read it:
//!
//! ```text
//! # Fitted to a disk.
//! family=nvme
//! latency_ns=71000 # 70200 to 71900
//! ```
//!
//! A line is empty or `key=value`, and `#` begins a comment. The first key is `family`. Every error
//! names its line.

use crate::machines::{self, Preset};
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use forebay_core::parse_size;

/// The key of the first entry.
const FAMILY: &str = "family";

/// A model file whose syntax was checked. Its constants are not checked yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelFile {
    family: ModelFileEntry,
    constants: Vec<ModelFileEntry>,
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelFileEntry {
    /// The line of the file, from 1.
    pub line: usize,
    /// The key.
    pub key: String,
    /// The value as text.
    pub value: String,
}

/// An error in a model file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelFileError {
    /// The line, from 1.
    pub line: usize,
    /// The reason.
    pub reason: String,
}

impl fmt::Display for ModelFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

impl core::error::Error for ModelFileError {}

/// A machine with the constants of a file.
#[derive(Clone, Debug)]
pub struct ConfiguredMachine {
    /// The machine.
    pub preset: &'static Preset,
    /// The constants, in the order of the preset's parameters.
    pub values: Vec<u64>,
    /// The size in bytes: a positive multiple of 4096.
    pub capacity_bytes: u64,
}

impl ModelFileEntry {
    /// Returns an error about this entry.
    pub fn error(&self, reason: impl fmt::Display) -> ModelFileError {
        ModelFileError { line: self.line, reason: format!("{reason}") }
    }

    /// Returns the value as a whole number.
    ///
    /// # Errors
    /// The value is no number.
    pub fn number(&self) -> Result<u64, ModelFileError> {
        let ModelFileEntry { key, value, .. } = self;
        let expected = "expected a whole number, such as 4000, or 4k for 4096";
        parse_size(value).ok_or_else(|| self.error(format!("{key}={value}: {expected}")))
    }
}

impl ModelFile {
    /// Returns whether the name of a device is the path of a model file: it contains a slash, or
    /// ends with `.model`. No other device has such a name.
    pub fn is_path(name: &str) -> bool {
        name.contains('/') || name.ends_with(".model")
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    /// A line is neither empty nor a `key=value`, a key is repeated, or the first key is not
    /// `family`.
    pub fn parse(text: &str) -> Result<ModelFile, ModelFileError> {
        let mut entries: Vec<ModelFileEntry> = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let line_nr = at + 1;
            let content = line.split('#').next().unwrap_or_default().trim();
            if content.is_empty() {
                continue;
            }
            let Some((key, value)) = content.split_once('=') else {
                let reason = format!("missing = in '{content}'; expected KEY=VALUE");
                return Err(ModelFileError { line: line_nr, reason });
            };
            let (key, value) = (key.trim().to_owned(), value.trim().to_owned());
            let entry = ModelFileEntry { line: line_nr, key, value };
            if let Some(first) = entries.iter().find(|other| other.key == entry.key) {
                let (key, line) = (&entry.key, first.line);
                return Err(entry.error(format!("{key} is given twice, first in line {line}")));
            }
            if entries.is_empty() && entry.key != FAMILY {
                let reason = format!("expected {FAMILY}=NAME before {}", entry.key);
                return Err(entry.error(reason));
            }
            entries.push(entry);
        }
        if entries.is_empty() {
            let reason = format!("the file has no {FAMILY}=NAME");
            return Err(ModelFileError { line: text.lines().count().max(1), reason });
        }
        let family = entries.remove(0);
        Ok(ModelFile { family, constants: entries })
    }

    /// Returns the entry of the family.
    pub fn family(&self) -> &ModelFileEntry {
        &self.family
    }

    /// Returns the entries after the family, in order.
    pub fn constants(&self) -> &[ModelFileEntry] {
        &self.constants
    }

    /// Returns the machine that the file describes; `None` if the family is none of
    /// [`machines::ALL`].
    ///
    /// # Errors
    /// A key is unknown, or its value is out of range.
    pub fn machine(&self) -> Result<Option<ConfiguredMachine>, ModelFileError> {
        let Some(preset) = machines::named(&self.family.value) else { return Ok(None) };
        let (mut values, mut capacity_bytes) = (preset.defaults(), preset.capacity_bytes);
        for entry in &self.constants {
            let ModelFileEntry { key, value, .. } = entry;
            if key == "size" {
                capacity_bytes = entry.number()?;
                if capacity_bytes == 0 || !capacity_bytes.is_multiple_of(4096) {
                    let expected = "expected a positive multiple of 4096";
                    return Err(entry.error(format!("size={value}: {expected}")));
                }
                continue;
            }
            let Some(place) = preset.place_of(key) else {
                let names: Vec<_> = preset.parameters.iter().map(|it| it.name).collect();
                let (name, names) = (preset.name, names.join(", "));
                let reason = format!("unknown constant {key}; {name} has size, {names}");
                return Err(entry.error(reason));
            };
            let parameter = &preset.parameters[place];
            values[place] = entry.number()?;
            if !(parameter.min..=parameter.max).contains(&values[place]) {
                let expected = parameter.expected;
                return Err(entry.error(format!("{key}={value}: expected {expected}")));
            }
        }
        Ok(Some(ConfiguredMachine { preset, values, capacity_bytes }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn file_names_the_constants_that_differ_from_the_family() {
        let text =
            "# a disk\n\nfamily = nvme  # best fit\nlatency_ns=71000 # 70 to 72 us\nsize=2g\n";
        let file = ModelFile::parse(text).expect("a file");
        assert_eq!((file.family().value.as_str(), file.constants().len()), ("nvme", 2));
        let machine = file.machine().expect("good constants").expect("a machine");
        assert_eq!(machine.values, [3_165_000_000, 71_000, 128]);
        assert_eq!((machine.preset.name, machine.capacity_bytes), ("nvme", 2 << 30));
        let file = ModelFile::parse("family=fixed\nlatency_ns=1").expect("a file");
        assert!(file.machine().expect("nothing to check").is_none());
    }

    #[test]
    fn errors_name_the_key_and_the_line() {
        let refused = |text: &str| {
            let file = ModelFile::parse(text).and_then(|file| file.machine().map(|_| ()));
            file.expect_err(text).to_string()
        };
        for (text, expected) in [
            ("", "line 1: the file has no family=NAME"),
            ("# only\n# comments\n", "line 2: the file has no family=NAME"),
            ("latency_ns=1\nfamily=nvme", "line 1: expected family=NAME before latency_ns"),
            ("family=nvme\n\nlatency_ns", "line 3: missing = in 'latency_ns'; expected KEY=VALUE"),
            ("family=nvme\nsize=4k\nsize=8k", "line 3: size is given twice, first in line 2"),
            ("family=nvme\nsize=1000", "line 2: size=1000: expected a positive multiple of 4096"),
            ("family=nvme\nlatency_ns=fast", "line 2: latency_ns=fast: expected a whole number"),
            ("family=nvme\n#\nnr_channels=0", "line 3: nr_channels=0: expected a number from 1"),
            ("family=nvme\nseek_ns=1", "line 2: unknown constant seek_ns; nvme has size, bytes_"),
        ] {
            assert!(refused(text).starts_with(expected), "{text}: {}", refused(text));
        }
    }
}
