//! Report formats: fio's `output-format`.

/// The format of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutputFormat {
    /// Text.
    #[default]
    Normal,
    /// One JSON value.
    Json,
    /// One JSON value with latency histograms.
    JsonPlus,
    /// One JSON value, then text.
    NormalJson,
    /// One JSON value with latency histograms, then text.
    NormalJsonPlus,
}

impl OutputFormat {
    /// Returns the format of a list such as `normal,json`.
    ///
    /// # Errors
    ///
    /// A word of the list that is not a format, in words.
    pub fn from_words(words: &str) -> Result<Self, String> {
        let (mut normal, mut json, mut plus) = (false, false, false);
        for word in words.split(',') {
            match word {
                "normal" => normal = true,
                "json" => json = true,
                "json+" => plus = true,
                _ => return Err(format!("unknown format '{word}'")),
            }
        }
        Ok(match (normal, json, plus) {
            (false, _, true) => Self::JsonPlus,
            (false, _, false) => Self::Json,
            (true, _, true) => Self::NormalJsonPlus,
            (true, true, false) => Self::NormalJson,
            (true, false, false) => Self::Normal,
        })
    }

    /// Returns whether it contains text.
    pub fn is_normal(self) -> bool {
        matches!(self, Self::Normal | Self::NormalJson | Self::NormalJsonPlus)
    }

    /// Returns whether it contains a JSON value.
    pub fn is_json(self) -> bool {
        self != Self::Normal
    }

    /// Returns whether the JSON value has histograms.
    pub fn has_bins(self) -> bool {
        matches!(self, Self::JsonPlus | Self::NormalJsonPlus)
    }
}
