//! Zones with gaps: I/O with any sizes, steps and patterns stays in its region, and in its zone
//! where fio's sequential I/O does not leave it.

use super::*;

/// Returns a workload on zones of `range` bytes with gaps of `skip` bytes.
fn strided(word: &str, len: u64, [range, skip]: [u64; 2], sizes: [SizeRule; 2]) -> Workload {
    let [reads, writes] = sizes;
    let zones = Some(Strided { size: range, range, skip });
    let sizes = [reads, writes.clone(), writes];
    let load = workload(word, len, Variety { sizes, zones, ..variety(SizeRule::Fixed(512)) });
    Workload { io_size: None, ..load }
}

/// Checks that I/Os are in the region. If `stay`, they are in the zones too.
fn check(load: &Workload, stay: bool, text: &str) {
    let zones = load.variety.as_ref().and_then(|variety| variety.zones).expect("zones");
    for op in Varied::new(load).take(500) {
        let inside = op.offset.checked_sub(load.region.offset);
        let inside = inside.unwrap_or_else(|| panic!("{text}: {op:?} is before the region"));
        assert!(inside + u64::from(op.len) <= load.region.len, "{text}: {op:?} is after it");
        let end_in_zone = inside % (zones.range + zones.skip) + u64::from(op.len);
        assert!(!stay || end_in_zone <= zones.range, "{text}: {op:?} is in a gap");
    }
}

#[test]
fn larger_io_of_the_other_direction_fits_into_the_last_zone() {
    // The last zone has room for a read, and not for a write.
    let sizes = || [SizeRule::Fixed(4096), SizeRule::Fixed(16_384)];
    for word in ["rw", "randrw"] {
        for norandommap in [false, true] {
            let load = strided(word, 1 << 20, [48 << 10, 12 << 10], sizes());
            let load = Workload { norandommap, ..load };
            check(&load, true, &format!("{word}, norandommap: {norandommap}"));
        }
    }
}

#[test]
fn backward_io_that_is_larger_than_its_step_stays_in_its_zone() {
    for sizes in [SizeRule::Fixed(4096), SizeRule::Range { min: 512, max: 4096 }] {
        let mut load = strided("write", 64 << 10, [8192, 4096], [sizes.clone(), sizes]);
        load.variety.as_mut().expect("a variety").step = -1024;
        check(&load, true, "step -1024");
    }
}

#[test]
fn io_of_any_sizes_stays_in_its_region_and_its_zone() {
    let mut draws = Xoshiro256::new(17, 0);
    for round in 0..2000 {
        let mut draw = |below: u64| draws.below(below);
        let mut sizes = || {
            let min = 512 << draw(4);
            match draw(3) {
                0 => SizeRule::Fixed(min),
                1 => SizeRule::Range { min, max: min << draw(3) },
                _ => SizeRule::Split(vec![(min, 50), (min << draw(3), 50)]),
            }
        };
        let sizes = [sizes(), sizes()];
        let smallest = u64::from(sizes.iter().map(SizeRule::min).max().unwrap_or(0));
        let word = ["read", "write", "rw", "randread", "randwrite", "randrw"][draw(6) as usize];
        let is_random = word.starts_with("rand");
        let zones = [smallest + draw(40) * 512, draw(16) * 512];
        let mut load = strided(word, smallest + draw(400) * 512, zones, sizes);
        load.norandommap = draw(2) == 0;
        let variety = load.variety.as_mut().expect("a variety");
        variety.step = (draw(41) as i64 - 20) * 512;
        if is_random {
            variety.step = variety.step.max(0);
            variety.percentage_random = [[100, 60][draw(2) as usize]; 3];
            variety.identical = draw(4) == 0;
            variety.align =
                [None, Some(512), Some(8192)].map(|align| align.filter(|_| draw(4) == 0));
        }
        let stay = is_random || variety.step < 0;
        check(&load, stay, &format!("{round}: {load:?}"));
    }
}
