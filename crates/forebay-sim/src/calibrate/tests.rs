//! Calibration of modelled devices, in virtual time and from made-up figures.

use super::*;
use crate::{DeviceSpec, JobDisk};
use forebay_model::Random;

const NVME: &str = "nvme:nr_channels=24,latency_ns=60000,bytes_per_s=2000000000";
const VIRTIO: &str = "virtio-ram:req_ns=5000,page_ns=900,latency_ns=30000";

fn disk(device: &str) -> JobDisk {
    JobDisk::new(device.parse().unwrap_or_else(|error| panic!("{device}: {error}")))
}

fn loads(queue_depth: u32, writes: bool) -> Vec<Probe> {
    plan(&Limits { block_bytes: 512, request_bytes: 256 << 10, queue_depth, writes })
}

/// Measures loads of a device, in three repetitions.
fn figures(device: &str, probes: &[Probe]) -> Vec<Vec<Figures>> {
    let disk = disk(device);
    let repetition = |seed| {
        let figures = probes.iter().map(|probe| measure(probe, &disk, seed));
        figures.collect::<Result<Vec<_>, _>>().expect("loads that a device permits")
    };
    (1..=3).map(repetition).collect()
}

fn calibrated(device: &str, family: Option<Family>, writes: bool) -> Fit {
    let probes = loads(256, writes);
    fit(family, &probes, &figures(device, &probes)).expect("a fit")
}

#[track_caller]
fn assert_near(figure: &str, found: f64, expected: f64, share: f64) {
    let error = found / expected - 1.0;
    assert!(error.abs() <= share, "{figure}: {found}, not {expected}: {:+.1} %", error * 100.0);
}

/// Asserts that the fit determines these constants, within 5 %.
#[track_caller]
fn assert_found(fit: &Fit, expected: &[(&str, u64)]) {
    for &(name, value) in expected {
        let constant = fit.constants.iter().find(|it| it.name == name).expect(name);
        let is_determined = matches!(constant.estimate, Estimate::Interval { low, high }
            if (low..=high).contains(&constant.value));
        assert!(is_determined, "{constant:?}");
        assert_near(name, constant.value as f64, value as f64, 0.05);
    }
}

/// Asserts that the fitted model predicts loads that no fit has seen, within 10 %.
#[track_caller]
fn assert_predicts(fit: &Fit, device: &str) {
    let constants = fit.constants.iter().map(|it| format!("{}={}\n", it.name, it.value));
    let text = format!("family={}\n{}", fit.family.name(), constants.collect::<String>());
    let model = JobDisk::new(DeviceSpec::from_model_file(&text).expect("a model file"));
    for (block_bytes, depth) in [(8 << 10, 2), (8 << 10, 32), (128 << 10, 6), (4 << 10, 100)] {
        let access = Access::RandomRead;
        let load = Probe { access, block_bytes, depth, sync_every: 0, is_check: false };
        let [found, expected] = [&model, &disk(device)]
            .map(|disk| measure(&load, disk, 77).expect("loads that a device permits"));
        assert_near(&format!("{load}: IOPS"), found.iops, expected.iops, 0.1);
        assert_near(&format!("{load}: p99"), found.p99_ns, expected.p99_ns, 0.1);
    }
}

#[test]
fn channels_and_byte_rate_are_found_and_predict_other_loads() {
    let fit = calibrated(NVME, None, false);
    assert_eq!(fit.family, Family::Nvme);
    let rate = ("bytes_per_s", 2_000_000_000);
    assert_found(&fit, &[("nr_channels", 24), ("latency_ns", 60_000), rate]);
    assert_predicts(&fit, NVME);
}

#[test]
fn device_with_one_latency_is_recognized() {
    let device = "fixed:latency_ns=70000,channels=12";
    let fit = calibrated(device, None, false);
    assert_eq!(fit.family, Family::Fixed);
    assert_found(&fit, &[("latency_ns", 70_000), ("channels", 12)]);
    assert_predicts(&fit, device);
}

#[test]
fn costs_of_requests_and_pages_are_found_apart() {
    let fit = calibrated(VIRTIO, None, false);
    assert_eq!(fit.family, Family::VirtioRam);
    assert_found(&fit, &[("req_ns", 5000), ("page_ns", 900), ("latency_ns", 30_000)]);
    assert_predicts(&fit, VIRTIO);
}

#[test]
fn byte_rate_and_command_rate_are_found_apart() {
    let device = "ssd-sas:commands_per_s=50000,latency_ns=20000";
    let fit = calibrated(device, Some(Family::SsdSas), false);
    let rates = [("bytes_per_s", 1_129_000_000), ("commands_per_s", 50_000)];
    assert_found(&fit, &rates);
    assert_found(&fit, &[("latency_ns", 20_000)]);
    assert_predicts(&fit, device);
}

#[test]
fn rotating_disk_is_recognized_with_the_number_that_it_sorts() {
    for device in ["hdd:seek_ns=4000000", "hdd:nr_sorted=12,bytes_per_s=200000000"] {
        let fit = calibrated(device, None, false);
        assert_eq!(fit.family, Family::Hdd);
        let is_first = device.contains("seek");
        assert_found(&fit, &[("seek_ns", if is_first { 4_000_000 } else { 1_900_000 })]);
        assert_found(&fit, &[("bytes_per_s", if is_first { 163_000_000 } else { 200_000_000 })]);
        let sorted = fit.constants[2].value as f64;
        assert_near("nr_sorted", sorted, if is_first { 32.0 } else { 12.0 }, 0.05);
        assert!(matches!(fit.constants[2].estimate, Estimate::Interval { .. }), "{fit:?}");
        assert_predicts(&fit, device);
    }
}

#[test]
fn writes_determine_the_costs_of_a_flush() {
    let fit = calibrated("sata", None, true);
    assert_eq!(fit.family, Family::Sata);
    let costs = [("flush_ns", 350_000), ("position_ns", 940_000), ("seek_ns", 12_700_000)];
    assert_found(&fit, &costs);
    assert_found(&fit, &[("command_ns", 20_000), ("bytes_per_s", 100_000_000)]);
    // No load fills the cache or the queue.
    for (at, name) in [(5, "cache_bytes"), (7, "ncq_depth")] {
        let FittedConstant { name: found, value, estimate } = fit.constants[at];
        assert_eq!((found, value), (name, Family::Sata.constants()[at].default));
        let nothing = Estimate::NotDetermined { at_least: None, at_most: None };
        assert_eq!(estimate, nothing, "{name}");
    }
}

#[test]
fn constant_that_limits_no_load_is_not_determined_and_limits_none_in_the_model() {
    // The byte rate limits every deep load.
    let fit = calibrated("nvme", Some(Family::Nvme), false);
    assert_found(&fit, &[("bytes_per_s", 3_165_000_000), ("latency_ns", 80_000)]);
    let Estimate::NotDetermined { at_least: Some(low), at_most: None } = fit.constants[2].estimate
    else {
        panic!("{:?}", fit.constants[2]);
    };
    // 63 channels suffice for 773k I/Os per second of 81.3 us each.
    assert!((50..=64).contains(&low), "{low}");
    assert_eq!(fit.constants[2].value, 128, "the default");
    // Only single I/Os: nothing shows the number of channels.
    let probes = loads(1, false);
    let fit = fit::fit(Some(Family::Fixed), &probes, &figures("fixed", &probes)).expect("a fit");
    assert_found(&fit, &[("latency_ns", 80_000)]);
    let nothing = Estimate::NotDetermined { at_least: None, at_most: None };
    assert_eq!((fit.constants[1].value, fit.constants[1].estimate), (8, nothing));
}

#[test]
fn sum_of_two_constants_determines_neither() {
    // At depth 1 a request and the latency cost the same.
    let probes = loads(1, false);
    let fit = fit(Some(Family::VirtioRam), &probes, &figures(VIRTIO, &probes)).expect("a fit");
    assert_found(&fit, &[("page_ns", 900)]);
    for (at, name) in [(0, "req_ns"), (2, "latency_ns")] {
        let FittedConstant { name: found, estimate, .. } = fit.constants[at];
        assert_eq!(found, name);
        assert!(matches!(estimate, Estimate::NotDetermined { .. }), "{name}: {estimate:?}");
    }
    let sum = fit.constants[0].value + fit.constants[2].value;
    assert_near("the sum", sum as f64, 35_000.0, 0.05);
}

#[test]
fn loads_that_a_processor_limits_only_bound_the_constants() {
    let probes = loads(256, false);
    let mut figures = figures("fixed:latency_ns=70000,channels=12", &probes);
    let is_limited = |probe: &Probe| probe.depth > 4;
    for repetition in &mut figures {
        for (figures, _) in repetition.iter_mut().zip(&probes).filter(|(_, it)| is_limited(it)) {
            // A device without a limit would reach more.
            (figures.iops, figures.busy) = (100_000.0, 1.0);
        }
    }
    let fit = fit(Some(Family::Fixed), &probes, &figures).expect("a fit");
    assert_found(&fit, &[("latency_ns", 70_000)]);
    let Estimate::NotDetermined { at_least: Some(low), at_most: None } = fit.constants[1].estimate
    else {
        panic!("{:?}", fit.constants[1]);
    };
    // 7 channels of 70 us make 100k I/Os per second.
    assert!((6..=7).contains(&low), "{low}");
    assert!(fit.error < 0.02, "{}", fit.error);
}

#[test]
fn repetitions_that_differ_widen_the_intervals_and_one_disturbed_load_does_not_count() {
    let probes = loads(256, false);
    let mut random = Random::new(5, 0);
    let mut figures = figures(NVME, &probes);
    for repetition in &mut figures {
        for figures in repetition {
            // Up to 4 % more or less.
            figures.iops *= random.between(960, 1040) as f64 / 1000.0;
        }
    }
    // One repetition of one load was interrupted.
    figures[1][3].iops /= 3.0;
    let fit = fit(None, &probes, &figures).expect("a fit");
    assert_eq!(fit.family, Family::Nvme);
    let rate = ("bytes_per_s", 2_000_000_000);
    assert_found(&fit, &[("nr_channels", 24), ("latency_ns", 60_000), rate]);
    let Estimate::Interval { low, high } = fit.constants[1].estimate else { unreachable!() };
    let width = high as f64 / low as f64 - 1.0;
    assert!((0.005..0.2).contains(&width), "{low} to {high}");
}

#[test]
fn family_with_as_many_constants_as_loads_is_not_chosen() {
    let probes: Vec<_> = loads(256, false).into_iter().take(4).collect();
    let figures = figures("ssd-sas", &probes);
    let chosen = fit(None, &probes, &figures).expect("a fit");
    assert!(chosen.errors.iter().all(|(family, _)| *family != Family::SsdSas), "{chosen:?}");
    let given = fit(Some(Family::SsdSas), &probes, &figures).expect("a fit");
    assert_eq!(given.family, Family::SsdSas);
    let one =
        fit(None, &probes[..1], &figures.iter().map(|it| it[..1].to_vec()).collect::<Vec<_>>());
    assert_eq!(one.expect("a fit").family, Family::Fixed);
}

#[test]
fn single_channel_is_determined() {
    let fit = calibrated("fixed:latency_ns=50000,channels=1", Some(Family::Fixed), false);
    assert_found(&fit, &[("latency_ns", 50_000), ("channels", 1)]);
}

#[test]
fn check_load_takes_no_part_in_the_fit() {
    let probes = loads(256, false);
    let check = probes.iter().position(|probe| probe.is_check).expect("a check");
    let mut figures = figures(NVME, &probes);
    let before = fit(None, &probes, &figures).expect("a fit");
    figures.iter_mut().for_each(|repetition| repetition[check].iops *= 7.0);
    assert_eq!(fit(None, &probes, &figures).expect("a fit").constants, before.constants);
}

#[test]
fn fit_without_figures_is_refused() {
    let probes = loads(4, false);
    let mut figures = figures("fixed", &probes);
    let refused = fit(Some(Family::Sata), &probes, &figures).expect_err("no writes");
    assert_eq!(refused, FitError::NeedsWrites(Family::Sata));
    figures[2][1].iops = 0.0;
    let refused = fit(None, &probes, &figures).expect_err("no I/O").to_string();
    assert!(refused.starts_with("no I/O of the load 'randread 4k depth=4' completed"), "{refused}");
}

/// The closed forms that the fit uses agree with the models that the simulator runs.
#[test]
fn prediction_agrees_with_the_simulated_model() {
    for (device, values) in [
        ("fixed", vec![80_000.0, 8.0]),
        (NVME, vec![2e9, 60_000.0, 24.0]),
        (VIRTIO, vec![5000.0, 900.0, 30_000.0]),
        ("ssd-sas", vec![1.129e9, 198_000.0, 90_000.0, 64.0]),
        ("hdd", vec![1.9e6, 1.63e8, 32.0]),
        ("sata", vec![20_000.0, 3e8, 350_000.0, 940_000.0, 1e8, 3.3e7, 1.27e7, 32.0]),
    ] {
        let name = device.split(':').next().expect("a name");
        let family = Family::named(name).expect(name);
        let writes = family.needs_writes();
        for probe in loads(256, writes) {
            let measured = measure(&probe, &disk(device), 1).expect("a load");
            let predicted = 1e9 / family.interval_ns(&values, &probe, measured.cpu_ns);
            assert_near(&format!("{device}: {probe}"), predicted, measured.iops, 0.05);
        }
    }
}
