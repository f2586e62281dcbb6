//! Every option of `bench` changes a job, a disk or the run, or is refused, or causes a warning.

use forebay::Disk;
use forebay_fio::options::{Kind, OPTIONS, known};

use super::*;
use crate::option_examples::EXAMPLES;

/// Returns the result of a command line: the run, the jobs without the text of their options, their
/// disks, and warnings.
fn outcome(args: &str) -> Result<String, String> {
    let args = args.split_whitespace().map(OsString::from);
    let parsed = cmdline::parse(args).map_err(|errors| errors.to_string())?;
    let Parsed::Run(command) = parsed else { return Ok("help".to_owned()) };
    let targets = plan::plan(&command.jobs).map_err(|error| error.to_string())?;
    let notes = notes::notes(&command.jobs, &targets);
    let plain = |job: &Job| Job { options: Vec::new(), texts: Vec::new(), ..job.clone() };
    let jobs: Vec<_> = command.jobs.iter().map(plain).collect();
    let disks: Vec<_> = targets.iter().map(|target| target.spec.to_string()).collect();
    Ok(format!("{:?}\n{jobs:?}\n{disks:?}\n{notes:?}\n{:?}", command.run, command.warnings))
}

#[test]
fn every_option_has_an_effect() {
    for spec in OPTIONS {
        let (_, needs, value) = EXAMPLES
            .iter()
            .find(|(name, ..)| *name == spec.name)
            .unwrap_or_else(|| panic!("--{} has no example", spec.name));
        let needs: String = needs.split_whitespace().map(|need| format!(" --{need}")).collect();
        let without = format!("--name=a --filename=x{needs}");
        let with = match value.is_empty() {
            true => format!("{without} --{}", spec.name),
            false => format!("{without} --{}={value}", spec.name),
        };
        assert_ne!(outcome(&with).expect(&with), outcome(&without).expect(&without), "{with}");
    }
    assert_eq!(EXAMPLES.len(), OPTIONS.len(), "an example is of no option");
}

#[test]
fn other_options_of_fio_are_refused_or_come_with_a_warning() {
    let without = outcome("--name=a --filename=x").expect("a job");
    for foreign in known::all() {
        for name in foreign.names {
            let option = if foreign.is_flag { format!("--{name}") } else { format!("--{name}=7") };
            match outcome(&format!("--name=a --filename=x {option}")) {
                Ok(with) => assert_ne!(with, without, "{option} is accepted without a word"),
                Err(error) => assert!(error.contains(&format!("--{name}: ")), "{option}: {error}"),
            }
        }
    }
}

/// The help text of a setting lists its values, and each of them opens a disk.
#[test]
fn values_in_the_help_of_settings_are_those_of_specs() {
    let mut nr_values = 0;
    for option in OPTIONS {
        let Kind::Policy { accepts } = option.kind else { continue };
        if accepts.starts_with("a number") || accepts == "a name" {
            continue;
        }
        for value in accepts.split([',', ' ']).filter(|word| !word.is_empty() && *word != "or") {
            // Only a file can be opened exclusively.
            if option.name == "exclusive" {
                continue;
            }
            let spec = format!("ram:1M?{}={value}", option.name);
            assert!(Disk::open(&spec).is_ok(), "{spec}");
            nr_values += 1;
        }
        let wrong = format!("ram:1M?{}=nothing", option.name);
        let error = Disk::open(&wrong).expect_err(&wrong).to_string();
        assert!(error.contains(accepts), "{error} lists other values than {accepts}");
    }
    assert!(nr_values > 15, "{nr_values}");
}
