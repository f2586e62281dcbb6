//! Report formats: fio's `output-format`.

/// The formats of a report. Several are printed one after another: terse lines, JSON, text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputFormat {
    normal: bool,
    terse: bool,
    json: bool,
    bins: bool,
}

impl OutputFormat {
    /// Text.
    pub const NORMAL: Self = Self { normal: true, terse: false, json: false, bins: false };
    /// One JSON value.
    pub const JSON: Self = Self { normal: false, terse: false, json: true, bins: false };
    /// One JSON value with latency histograms.
    pub const JSON_PLUS: Self = Self { normal: false, terse: false, json: true, bins: true };
    /// One line of figures per job.
    pub const TERSE: Self = Self { normal: false, terse: true, json: false, bins: false };

    /// Returns the formats of a list such as `normal,json`.
    ///
    /// # Errors
    ///
    /// A word of the list that is not a format, in words.
    pub fn from_words(words: &str) -> Result<Self, String> {
        let mut all = Self { normal: false, terse: false, json: false, bins: false };
        for word in words.split(',') {
            match word {
                "normal" => all.normal = true,
                "terse" => all.terse = true,
                "json" => all.json = true,
                "json+" => (all.json, all.bins) = (true, true),
                _ => return Err(format!("unknown format '{word}'")),
            }
        }
        Ok(all)
    }

    /// Returns these formats with terse lines in addition.
    #[must_use]
    pub fn and_terse(self) -> Self {
        Self { terse: true, ..self }
    }

    /// Returns whether there is text.
    pub fn is_normal(self) -> bool {
        self.normal
    }

    /// Returns whether there are terse lines.
    pub fn is_terse(self) -> bool {
        self.terse
    }

    /// Returns whether there is a JSON value.
    pub fn is_json(self) -> bool {
        self.json
    }

    /// Returns whether the JSON value has histograms.
    pub fn has_bins(self) -> bool {
        self.bins
    }
}

impl Default for OutputFormat {
    fn default() -> Self {
        Self::NORMAL
    }
}

/// The version of terse lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TerseVersion {
    /// Without the program's version and the disks. A description has a line of its own.
    V2,
    /// Without trims.
    #[default]
    V3,
    /// With trims.
    V4,
    /// With the number of bandwidth samples, and samples of IOPS.
    V5,
}

impl TerseVersion {
    /// Returns the version with a number from 2 to 5.
    pub fn of_number(number: &str) -> Option<Self> {
        match number {
            "2" => Some(Self::V2),
            "3" => Some(Self::V3),
            "4" => Some(Self::V4),
            "5" => Some(Self::V5),
            _ => None,
        }
    }

    /// Returns its number.
    pub fn number(self) -> u8 {
        match self {
            Self::V2 => 2,
            Self::V3 => 3,
            Self::V4 => 4,
            Self::V5 => 5,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_all_its_formats() {
        assert_eq!(OutputFormat::from_words("json+"), Ok(OutputFormat::JSON_PLUS));
        assert_eq!(OutputFormat::from_words("json,json+"), Ok(OutputFormat::JSON_PLUS));
        let two = OutputFormat::from_words("terse,json").expect("two formats");
        assert_eq!(two, OutputFormat::JSON.and_terse());
        assert!(two.is_terse() && two.is_json() && !two.is_normal() && !two.has_bins());
        assert!(OutputFormat::from_words("json,").is_err_and(|text| text == "unknown format ''"));
    }
}
