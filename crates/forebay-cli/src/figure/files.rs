//! Files and folders of figures: checked before a run, written after it.

use std::fs;
use std::path::Path;

use super::Theme;
use super::chart::Chart;
use crate::failure::Failure;
use crate::output;

/// Refuses a path that is not the file of a figure: it must end in `.svg`, so that no folder is
/// mistaken for it.
pub(crate) fn check_figure(option: &str, path: &Path) -> Result<(), Failure> {
    let why = match (is_svg(path), path.is_dir()) {
        (_, true) => "it is a folder",
        (false, _) => "the name does not end in .svg",
        (true, false) => return Ok(()),
    };
    let path = path.display();
    Err(Failure::Usage(format!(
        "{option}={path}: {why}; this run has one figure: expected a file such as {}",
        format!("{path}.svg").replace("/.svg", "/figure.svg")
    )))
}

fn is_svg(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "svg")
}

/// Creates or truncates the file of a later page or figure, so that a wrong path is an error before
/// the run.
pub(crate) fn prepare_file(option: &str, path: &Path) -> Result<(), Failure> {
    fs::File::create(path).map(drop).map_err(|error| cannot(option, path, &error))
}

/// Creates the folder of later figures, if it is missing.
pub(crate) fn prepare_folder(option: &str, path: &Path) -> Result<(), Failure> {
    if is_svg(path) && !path.is_dir() {
        let why = "the name ends in .svg; this run has several figures: expected a folder";
        return Err(Failure::Usage(format!("{option}={}: {why}", path.display())));
    }
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
