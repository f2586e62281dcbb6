//! Files and folders of figures: checked before a run, written after it.

use std::fs;
use std::path::Path;

use super::Theme;
use super::chart::Chart;
use crate::failure::Failure;
use crate::output;

/// Creates or truncates the file of a later page or figure, so that a wrong path is an error before
/// the run.
pub(crate) fn prepare_file(option: &str, path: &Path) -> Result<(), Failure> {
    fs::File::create(path).map(drop).map_err(|error| cannot(option, path, &error))
}

/// Creates the folder of later figures, if it is missing.
pub(crate) fn prepare_folder(option: &str, path: &Path) -> Result<(), Failure> {
    fs::create_dir_all(path).map_err(|error| {
        Failure::Usage(format!("{option}={}: cannot create the folder: {error}", path.display()))
    })
}

/// Writes a file.
pub(crate) fn write(option: &str, path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| cannot(option, path, &error))
}

/// Writes each chart into a file of this folder, with its own name.
pub(crate) fn write_charts(folder: &Path, charts: &[Chart]) -> Result<(), Failure> {
    charts.iter().try_for_each(|chart| write_chart(folder, chart, "", Theme::Auto))
}

/// Writes each chart into two files, for light pages and for dark ones.
pub(crate) fn write_pairs(folder: &Path, charts: &[Chart]) -> Result<(), Failure> {
    charts.iter().try_for_each(|chart| {
        write_chart(folder, chart, "", Theme::Light)?;
        write_chart(folder, chart, "-dark", Theme::Dark)
    })
}

fn write_chart(folder: &Path, chart: &Chart, suffix: &str, theme: Theme) -> Result<(), Failure> {
    let path = folder.join(format!("{}{suffix}.svg", chart.file));
    write("--svg", &path, &chart.svg(theme))
}

fn cannot(option: &str, path: &Path, error: &std::io::Error) -> Failure {
    let why = output::cannot_create(path, error);
    Failure::Run(format!("{option}={}: cannot write: {why}", path.display()))
}
