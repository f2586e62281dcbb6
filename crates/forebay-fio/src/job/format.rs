//! How the report is printed: fio's `output-format`.

/// How the report is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutputFormat {
    /// For people.
    #[default]
    Normal,
    /// One JSON value.
    Json,
    /// The same with the buckets of the latencies.
    JsonPlus,
    /// One JSON value, then what people read.
    NormalJson,
    /// The same with the buckets.
    NormalJsonPlus,
}

impl OutputFormat {
    /// The format of a list such as `normal,json`.
    pub fn from_words(words: &str) -> Option<Self> {
        let (mut normal, mut json, mut plus) = (false, false, false);
        for word in words.split(',') {
            match word {
                "normal" => normal = true,
                "json" => json = true,
                "json+" => plus = true,
                _ => return None,
            }
        }
        Some(match (normal, json, plus) {
            (false, _, true) => Self::JsonPlus,
            (false, _, false) => Self::Json,
            (true, _, true) => Self::NormalJsonPlus,
            (true, true, false) => Self::NormalJson,
            (true, false, false) => Self::Normal,
        })
    }

    /// Whether there is something for people.
    pub fn is_normal(self) -> bool {
        matches!(self, Self::Normal | Self::NormalJson | Self::NormalJsonPlus)
    }

    /// Whether there is a JSON value.
    pub fn is_json(self) -> bool {
        self != Self::Normal
    }

    /// Whether the value has buckets.
    pub fn has_bins(self) -> bool {
        matches!(self, Self::JsonPlus | Self::NormalJsonPlus)
    }
}
