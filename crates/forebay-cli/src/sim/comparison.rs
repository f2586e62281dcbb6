//! The runs of a load on one or several disks (`--compare`, `--sweep`), and their common reports.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use forebay_sim::{DeviceSpec, Summary, Violation};

use super::rows::Row;
use super::run::{LoadOf, Run};
use super::seeds::Seeds;
use super::svg::{self, About};
use super::variants::Variant;
use super::{Args, front, json, notes, settings, table, threads};
use crate::failure::Failure;
use crate::figure::Theme;
use crate::figure::files::check_figure;
use crate::file_id::FileId;
use crate::output;

/// A load, the disks on which to run it, and the form of the report.
#[derive(Debug)]
pub(super) struct Comparison {
    /// The job file, the scenario or the recording.
    pub(super) path: PathBuf,
    /// The disks, at least one.
    pub(super) variants: Vec<Variant>,
    /// Whether the report is JSON.
    pub(super) is_json: bool,
    /// The file of the figure.
    pub(super) svg: Option<PathBuf>,
}

/// The runs on each disk, one for each seed; none if the report needs none.
pub(super) type Runs<'a> = Vec<(&'a Variant, Vec<Summary>)>;

impl Comparison {
    /// Returns the comparison that the arguments ask for. `files` are the files of the load.
    ///
    /// # Errors
    /// A figure is to be written, but there is nothing to compare, or it would overwrite a file
    /// that the run reads.
    pub(super) fn new(
        path: &Path,
        files: &[PathBuf],
        variants: Vec<Variant>,
        args: &Args,
    ) -> Result<Comparison, Failure> {
        let (is_json, svg) = (args.json, args.svg.clone());
        let comparison = Comparison { path: path.to_owned(), variants, is_json, svg };
        if let Some(figure) = &args.svg {
            refuse_input(figure, files, &comparison.variants)?;
            check_figure("--svg", figure)?;
        }
        match &args.svg {
            Some(figure) if !comparison.is_compared(args) => {
                let why = "a figure compares several runs; give --compare or --sweep too";
                Err(Failure::Usage(format!("--svg={}: {why}", figure.display())))
            }
            _ => Ok(comparison),
        }
    }

    /// Returns whether the user compares disks; a sweep may have a single value.
    pub(super) fn is_compared(&self, args: &Args) -> bool {
        self.variants.len() > 1 || !args.sweep.is_empty()
    }

    /// Runs the load on each disk with each seed. `add` gets each run as it ends.
    ///
    /// # Errors
    /// The first failure. That of a disk that differs from the base names the setting.
    pub(super) fn run(
        &self,
        args: &Args,
        seeds: Seeds,
        run: impl Fn(&Variant, u64) -> Result<Result<Summary, Box<Violation>>, Failure>,
        mut add: impl FnMut(&Variant, &Summary) -> Result<(), Failure>,
    ) -> Result<Runs<'_>, Failure> {
        let is_kept = self.is_json || self.is_compared(args);
        let mut runs = Vec::new();
        for variant in &self.variants {
            let mut of_variant = Vec::new();
            let outcome = seeds.for_each(
                args,
                |seed| run(variant, seed),
                |summary| {
                    add(variant, &summary)?;
                    // Each has large histograms.
                    of_variant.extend(is_kept.then_some(summary));
                    Ok(())
                },
            );
            outcome.map_err(|failure| match &variant.name {
                Some(name) => failure.with_context(&format!("{name}: ")),
                None => failure,
            })?;
            runs.push((variant, of_variant));
        }
        Ok(runs)
    }

    /// Prints the JSON or the table of the runs, if the user asks for one, and writes the figure.
    pub(super) fn report(
        &self,
        args: &Args,
        seeds: Seeds,
        runs: &Runs<'_>,
        load: LoadOf<'_>,
    ) -> Result<(), Failure> {
        let rows = runs.iter().map(|(variant, summaries)| {
            let runs = summaries.iter().map(|summary| Run::new(variant, summary, load));
            Row { runs: runs.collect() }
        });
        let rows: Vec<_> = rows.collect();
        if self.is_json {
            output::stdout(&match self.is_compared(args) {
                true => json::of_rows(load, &rows),
                false => json::of_runs(load, &rows[0].runs),
            })?;
        } else if self.is_compared(args) {
            let mut text = table::render(load, &rows);
            let notes: Vec<_> = rows.iter().map(|row| (row.label(), row.notes())).collect();
            let notes = notes::merged(&notes);
            for note in notes.into_iter().chain(threads::note_of_long_waits(&rows)) {
                // Writing into a String does not fail.
                let _ = writeln!(text, "note: {note}");
            }
            output::stdout(&format!("{text}replay with: {}\n", seeds.replay(args)))?;
        }
        // After the results, which a failure must not lose.
        let Some(path) = &self.svg else { return Ok(()) };
        let picture = match load {
            LoadOf::Recorded(_) => front::chart(&self.path, seeds.nr(), &rows).svg(Theme::Auto),
            LoadOf::Jobs(_) | LoadOf::Scenario => svg::render(
                &About {
                    load: self.path.display().to_string(),
                    nr_seeds: seeds.nr(),
                    key: match &args.sweep[..] {
                        [text] => settings::pair(text).ok().map(|(key, _)| key),
                        _ => None,
                    },
                },
                &rows,
            ),
        };
        std::fs::write(path, picture).map_err(|error| {
            let why = output::cannot_create(path, &error);
            Failure::Run(format!("--svg={}: cannot write the figure: {why}", path.display()))
        })
    }
}

/// Refuses a figure that would overwrite a file of the load, a file in a folder of it, or the model
/// file of a device.
fn refuse_input(figure: &Path, load: &[PathBuf], variants: &[Variant]) -> Result<(), Failure> {
    let load = load.iter().flat_map(|path| {
        let files = std::fs::read_dir(path).into_iter().flatten().flatten();
        files.map(|file| file.path()).chain([path.clone()])
    });
    let models = variants.iter().map(|variant| variant.device.as_str());
    let models = models.filter(|device| DeviceSpec::is_model_file(device)).map(PathBuf::from);
    let id = FileId::of(figure);
    match load.chain(models).any(|input| FileId::of(&input) == id) {
        true => Err(Failure::Usage(format!(
            "--svg={0}: it would overwrite {0}, and the run reads this file; choose another file",
            figure.display()
        ))),
        false => Ok(()),
    }
}
