//! Values with a syntax of their own: sizes by direction, ranges, splits, distributions.
//!
//! Source: fio's HOWTO. One value is for all directions; of two, the second is for writes and
//! trims; an empty one keeps the default.

use std::time::Duration;

use crate::errno;
use crate::errors::Short;
use crate::generator::files::Service;
use crate::generator::sizes::SizeRule;
use crate::generator::skew::{Distribution, Zone, ZoneLen};
use crate::generator::{Direction, Pattern};
use crate::iolog::Skip;
use crate::job::{ZoneMode, ZoneSkip};
use crate::priority::{Class, Priority, SizeShare};
use crate::units::{self, NumberError};

/// The words of `rw`.
const PATTERNS: &[&str] =
    &["read", "write", "randread", "randwrite", "rw", "readwrite", "randrw", "trim", "randtrim"];

/// The largest block, bytes.
const BLOCK_MAX: u64 = 1 << 30;

/// A value for each direction; `None` is "the default".
pub(super) type Each<T> = [Option<T>; 3];

/// Splits `read,write,trim`, and parses the parts.
pub(super) fn each<T: Clone>(
    text: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Each<T>, String> {
    let parts: Vec<_> = text.split(',').collect();
    let mut parsed = Vec::with_capacity(3);
    for part in &parts {
        parsed.push(if part.trim().is_empty() { None } else { Some(parse(part)?) });
    }
    match parsed.as_slice() {
        [Some(all)] => Ok([Some(all.clone()), Some(all.clone()), Some(all.clone())]),
        [read, write] => Ok([read.clone(), write.clone(), write.clone()]),
        [read, write, trim] => Ok([read.clone(), write.clone(), trim.clone()]),
        [] | [None] => Err("empty value".to_owned()),
        _ => Err("more than three values: there are reads, writes and trims".to_owned()),
    }
}

/// Splits `read,write`, and parses the parts. One value is for both directions.
pub(super) fn pair<T: Clone>(
    text: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<[Option<T>; 2], String> {
    if text.split(',').count() > 2 {
        return Err("expected at most two values: read,write".to_owned());
    }
    each(text, parse).map(|[read, write, _]| [read, write])
}

/// Parses a whole number from 0 to `max`.
pub(super) fn up_to(text: &str, max: u8) -> Result<u8, String> {
    super::within(number(text)?, 0, max.into()).map(|number| number as u8)
}

/// Bytes of a block.
pub(super) fn block(text: &str) -> Result<u32, String> {
    super::within(units::parse_bytes(text).map_err(say)?, 1, BLOCK_MAX).map(|bytes| bytes as u32)
}

/// Parses a whole number, perhaps with a suffix.
pub(super) fn number(text: &str) -> Result<u64, String> {
    units::parse_bytes(text).map_err(say)
}

/// Parses a time. A number without a suffix is in microseconds.
pub(super) fn micros(text: &str) -> Result<Duration, String> {
    match text.trim().parse() {
        Ok(micros) => Ok(Duration::from_micros(micros)),
        Err(_) if text.contains('.') && text.trim().parse::<f64>().is_ok() => {
            Err("not a whole number of microseconds".to_owned())
        }
        Err(_) => units::parse_time(text).map_err(say),
    }
}

/// Parses a time that is not zero.
pub(super) fn period(text: &str) -> Result<Option<Duration>, String> {
    Ok(Some(units::parse_time(text).map_err(say)?).filter(|time| !time.is_zero()))
}

/// Parses lists of errors with colons between them, for reads, writes and verification, with commas
/// between the lists.
pub(super) fn errors(text: &str) -> Result<[Vec<i32>; 3], String> {
    let lists: Vec<_> = text.split(',').collect();
    if lists.len() > 3 {
        return Err("expected at most three lists: read, write and verify".to_owned());
    }
    let mut errors: [Vec<i32>; 3] = Default::default();
    for (kind, list) in errors.iter_mut().zip(lists) {
        for name in list.split(':').map(str::trim).filter(|name| !name.is_empty()) {
            kind.push(error(name)?);
        }
    }
    match errors.iter().all(Vec::is_empty) {
        true => Err("the lists are empty".to_owned()),
        false => Ok(errors),
    }
}

/// Parses the name or the number of an error.
fn error(text: &str) -> Result<i32, String> {
    /// The kernel's largest error number.
    const MAX: i32 = 4095;
    match text.parse::<i32>() {
        Ok(number @ 1..=MAX) => Ok(number),
        Ok(_) => Err(format!("{} is not between 1 and {MAX}", Short(text))),
        Err(_) => errno::number_of(text).ok_or_else(|| {
            let nearest = super::nearest(text, errno::names());
            let hint = nearest.map(|name| format!("; did you mean {name}?"));
            let hint = hint.unwrap_or_else(|| "; use its number".to_owned());
            format!("unknown error '{}'{hint}", Short(text))
        }),
    }
}

/// Parses a percentage with a fraction.
pub(super) fn percentile(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        Ok(_) => Err(format!("{} is not between 0 and 100", Short(text))),
        Err(_) => Err(format!("'{}' is not a number", Short(text))),
    }
}

/// Parses a time in whole seconds.
pub(super) fn seconds(text: &str) -> Result<u32, String> {
    /// A day.
    const MAX: u64 = 86_400;
    let time = units::parse_time(text).map_err(say)?;
    if time.subsec_nanos() > 0 {
        return Err("not a whole number of seconds".to_owned());
    }
    super::within(time.as_secs(), 0, MAX).map(|seconds| seconds as u32)
}

/// Parses up to twenty percentiles, and sorts them in ascending order.
pub(super) fn percentiles(text: &str) -> Result<Vec<f64>, String> {
    /// As many as fio takes.
    const MAX: usize = 20;
    let mut list = Vec::new();
    for part in text.split(':') {
        list.push(percentile(part)?);
    }
    list.sort_by(f64::total_cmp);
    list.dedup();
    if list.len() <= MAX {
        Ok(list)
    } else {
        Err(format!("{} percentiles, more than {MAX}", list.len()))
    }
}

/// Parses a percentage, 0 to 100, with or without its sign.
pub(super) fn percent(text: &str) -> Result<u8, String> {
    let text = text.trim().trim_end_matches('%');
    super::within(units::parse_bytes(text).map_err(say)?, 0, 100).map(|percent| percent as u8)
}

/// Parses `min-max`.
pub(super) fn range(text: &str) -> Result<SizeRule, String> {
    let (min, max) = text.split_once('-').ok_or("not a range min-max")?;
    let (min, max) = (block(min)?, block(max)?);
    match min <= max {
        true => Ok(SizeRule::Range { min, max }),
        false => Err("the minimum is larger than the maximum".to_owned()),
    }
}

/// Parses `size/percentage:size/percentage...`. Sizes without a percentage share the remainder.
pub(super) fn split(text: &str) -> Result<SizeRule, String> {
    let mut parts = Vec::new();
    for part in text.split(':') {
        let (size, share) = part.split_once('/').unwrap_or((part, ""));
        let share = if share.is_empty() { None } else { Some(percent(share)?) };
        parts.push((block(size)?, share));
    }
    let given: u32 = parts.iter().filter_map(|part| part.1).map(u32::from).sum();
    if given > 100 {
        return Err(format!("the percentages add up to {given}, more than 100"));
    }
    let missing = parts.iter().filter(|part| part.1.is_none()).count().max(1) as u32;
    let rest = ((100 - given) / missing) as u8;
    Ok(SizeRule::Split(parts.into_iter().map(|(bs, share)| (bs, share.unwrap_or(rest))).collect()))
}

/// Parses the parts of `cmdprio_bssplit` for one direction: `size/percentage`, or
/// `size/percentage/class/level`.
pub(super) fn size_shares(text: &str) -> Result<Vec<SizeShare>, String> {
    let mut shares: Vec<SizeShare> = Vec::new();
    for part in text.split(':') {
        let fields: Vec<_> = part.split('/').collect();
        let (size, percentage, priority) = match fields[..] {
            [size, percentage] => (size, percentage, None),
            [size, percentage, class, level] => {
                let number = up_to(class, 3)?;
                let class = Class::of_number(number).ok_or("unknown class 0: use 1, 2 or 3")?;
                (size, percentage, Some(Priority { class, level: up_to(level, 7)? }))
            }
            _ => {
                let part = Short(part);
                return Err(format!("'{part}' has neither two nor four fields between slashes"));
            }
        };
        shares.push(SizeShare { bytes: block(size)?, percent: percent(percentage)?, priority });
    }
    for SizeShare { bytes, .. } in &shares {
        let of_size = shares.iter().filter(|share| share.bytes == *bytes);
        let sum: u32 = of_size.map(|share| u32::from(share.percent)).sum();
        if sum > 100 {
            return Err(format!("the percentages of {bytes} bytes add up to {sum}, more than 100"));
        }
    }
    Ok(shares)
}

/// Parses the value of `rw=`: a word, and after a colon a number of bytes or of I/Os.
pub(super) fn pattern(text: &str) -> Result<(Pattern, i64), String> {
    let (word, step) = text.split_once(':').unwrap_or((text, ""));
    let pattern = Pattern::from_word(super::one_of(word, PATTERNS)?).ok_or("unknown pattern")?;
    if step.is_empty() {
        return Ok((pattern, 0));
    }
    let (negative, digits) = match step.strip_prefix('-') {
        Some(digits) if !pattern.random => (true, digits),
        _ => (false, step),
    };
    let bytes = super::within(units::parse_bytes(digits).map_err(say)?, 0, i64::MAX as u64)? as i64;
    Ok((pattern, if negative { -bytes } else { bytes }))
}

/// Parses `random`, `zipf:theta`, `pareto:h`, `normal:deviation`, `zoned:...`, `zoned_abs:...`.
pub(super) fn distribution(text: &str) -> Result<Distribution, String> {
    let (word, value) = text.split_once(':').unwrap_or((text, ""));
    let number = |default: f64, holds: fn(f64) -> bool, rule: &str| match value {
        "" => Ok(default),
        text => match text.parse::<f64>() {
            Ok(number) if number.is_finite() && holds(number) => Ok(number),
            Ok(_) => Err(format!("{text} is out of range: {rule}")),
            Err(_) => Err(format!("'{text}' is not a number")),
        },
    };
    match word {
        "random" if value.is_empty() => Ok(Distribution::Random),
        "zipf" => number(1.1, |theta| theta > 0.0 && theta != 1.0, "theta is above 0, and not 1")
            .map(Distribution::Zipf),
        "pareto" => {
            number(0.2, |h| h > 0.0 && h < 1.0, "h is between 0 and 1").map(Distribution::Pareto)
        }
        "normal" | "gauss" => {
            number(0.0, |dev| (0.0..=100.0).contains(&dev), "the deviation is 0 to 100 percent")
                .map(Distribution::Normal)
        }
        "zoned" => zones(&with_lengths(value)?, |text| percent(text).map(ZoneLen::Percent)),
        "zoned_abs" => {
            zones(value, |text| units::parse_bytes(text).map(ZoneLen::Bytes).map_err(say))
        }
        _ => Err(format!("unknown distribution '{word}'")),
    }
}

/// Parses a difference of nice values.
pub(super) fn nice(text: &str) -> Result<i32, String> {
    match text.trim().parse() {
        Ok(nice @ -19..=18) => Ok(nice),
        Ok(_) => Err("not between -19 and 18".to_owned()),
        Err(_) => Err(format!("'{}' is not a whole number", Short(text))),
    }
}

/// Parses a size, or a range of sizes. No size is 0.
pub(super) fn filesize(text: &str) -> Result<Option<(u64, u64)>, String> {
    let one = |text: &str| super::within(number(text)?, 1, i64::MAX as u64);
    let (low, high) = match text.split_once('-') {
        Some((low, high)) => (one(low)?, one(high)?),
        None => (one(text)?, one(text)?),
    };
    match low <= high {
        true => Ok(Some((low, high))),
        false => Err("the range ends below its start".to_owned()),
    }
}

/// Parses `zonemode`.
pub(super) fn zone_mode(word: &str) -> Result<ZoneMode, String> {
    match word {
        "none" => Ok(ZoneMode::None),
        "strided" => Ok(ZoneMode::Strided),
        "zbd" => Ok(ZoneMode::Zbd),
        _ => Err(format!("unknown value '{}'", Short(word))),
    }
}

/// Parses a share from 0 to 1.
pub(super) fn share(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err(format!("'{}' is not a number from 0 to 1", Short(text))),
    }
}

/// Parses `zoneskip`: bytes, or a number of zones as in `2z`. No bytes are the default.
pub(super) fn zone_skip(text: &str) -> Result<Option<ZoneSkip>, String> {
    let skip = match text.trim().strip_suffix(['z', 'Z']) {
        Some(zones) => ZoneSkip::Zones(number(zones)?),
        None => ZoneSkip::Bytes(number(text)?),
    };
    Ok(Some(skip).filter(|skip| !matches!(skip, ZoneSkip::Bytes(0) | ZoneSkip::Zones(0))))
}

/// Parses a value of `file_service_type`.
pub(super) fn service(text: &str) -> Result<Service, String> {
    let (word, postfix) = match text.split_once(':') {
        Some((word, postfix)) => (word, Some(postfix)),
        None => (text, None),
    };
    let in_a_row = || match postfix {
        Some(nr) => super::within(number(nr)?, 1, u32::MAX.into()).map(|nr| nr as u32),
        None => Ok(1),
    };
    match word {
        "random" => Ok(Service::Random(in_a_row()?)),
        "roundrobin" => Ok(Service::RoundRobin(in_a_row()?)),
        "sequential" => in_a_row().map(|_| Service::Sequential),
        "zipf" | "pareto" | "normal" | "gauss" => distribution(text).map(Service::Skewed),
        _ => Err(format!("unknown value '{}'", Short(word))),
    }
}

/// Completes `accesses/length:...`: zones without a length divide the rest of the region, as in
/// fio.
fn with_lengths(text: &str) -> Result<String, String> {
    let parts = || text.split(':').map(|part| part.split_once('/').unwrap_or((part, "")));
    let nr_open = parts().filter(|(_, len)| len.is_empty()).count() as u64;
    if nr_open == 0 {
        return Ok(text.to_owned());
    }
    let mut given = 0;
    for (_, len) in parts().filter(|(_, len)| !len.is_empty()) {
        given += u64::from(percent(len)?);
    }
    let rest = 100_u64.saturating_sub(given) / nr_open;
    let part = |(access, len): (&str, &str)| match len {
        "" => format!("{access}/{rest}"),
        len => format!("{access}/{len}"),
    };
    Ok(parts().map(part).collect::<Vec<_>>().join(":"))
}

fn zones(
    text: &str,
    len: impl Fn(&str) -> Result<ZoneLen, String>,
) -> Result<Distribution, String> {
    let mut zones = Vec::new();
    for part in text.split(':') {
        let (access, rest) = part.split_once('/').ok_or("not a zone accesses/length")?;
        zones.push(Zone { access: percent(access)?, len: len(rest)? });
    }
    let access: u32 = zones.iter().map(|zone| u32::from(zone.access)).sum();
    let percents = zones.iter().map(|zone| match zone.len {
        ZoneLen::Percent(percent) => u32::from(percent),
        ZoneLen::Bytes(_) => 0,
    });
    match (access, percents.sum::<u32>()) {
        (100, 0..=100) => Ok(Distribution::Zoned(zones)),
        (100, len) => {
            Err(format!("the lengths of the zones add up to {len} percent, more than 100"))
        }
        (access, _) => Err(format!("the accesses add up to {access} percent, not to 100")),
    }
}

fn say(error: NumberError) -> String {
    error.to_string()
}

/// Parses `replay_align`.
pub(crate) fn power_of_two(text: &str) -> Result<u32, String> {
    let bytes = units::parse_bytes(text).map_err(|error| error.to_string())?;
    let align = u32::try_from(bytes).ok().filter(|&n| n == 0 || n.is_power_of_two());
    align.ok_or_else(|| format!("{bytes} is not a power of two below 4g"))
}

/// Parses `replay_skip`.
pub(crate) fn skip(text: &str) -> Result<Skip, String> {
    let mut skip = Skip::default();
    for word in text.split(',') {
        match word.trim() {
            "sync" => skip.syncs = true,
            word => match Direction::ALL.into_iter().find(|it| it.word() == word) {
                Some(direction) => skip.directions[direction.index()] = true,
                None => return Err(format!("unknown value '{}'", Short(word))),
            },
        }
    }
    Ok(skip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_errors_have_names_and_numbers() {
        assert_eq!(errors("EAGAIN,ENOSPC:122"), Ok([vec![11], vec![28, 122], vec![]]));
        assert_eq!(errors(",,EILSEQ"), Ok([vec![], vec![], vec![84]]));
        let refused = |text| errors(text).expect_err(text);
        assert_eq!(refused("EIOO"), "unknown error 'EIOO'; did you mean EIO?");
        assert_eq!(refused("nothing"), "unknown error 'nothing'; use its number");
        assert_eq!(refused("0"), "0 is not between 1 and 4095");
        assert_eq!(refused(",,"), "the lists are empty");
        assert_eq!(refused("1,2,3,4"), "expected at most three lists: read, write and verify");
    }

    #[test]
    fn directions_are_separated_by_commas() {
        let sizes = |text| each(text, block);
        assert_eq!(sizes("4k"), Ok([Some(4096); 3]));
        assert_eq!(sizes("2k,8k"), Ok([Some(2048), Some(8192), Some(8192)]));
        assert_eq!(sizes(",8k,"), Ok([None, Some(8192), None]));
        assert_eq!(sizes("8k,"), Ok([Some(8192), None, None]));
        assert!(sizes("1k,1k,1k,1k").is_err_and(|error| error.contains("more than three values")));
        assert!(sizes("").is_err() && sizes("0").is_err() && sizes("4z").is_err());
    }

    #[test]
    fn zone_modes_shares_and_skips() {
        assert_eq!(zone_mode("none"), Ok(ZoneMode::None));
        assert_eq!(zone_mode("strided"), Ok(ZoneMode::Strided));
        assert_eq!(zone_mode("zbd"), Ok(ZoneMode::Zbd));
        assert!(zone_mode("strides").is_err());
        assert_eq!((share("0"), share("0.25"), share("1")), (Ok(0.0), Ok(0.25), Ok(1.0)));
        assert!(["1.1", "-0.1", "nan", "", "x"].iter().all(|text| share(text).is_err()));
        assert_eq!(zone_skip("2z"), Ok(Some(ZoneSkip::Zones(2))));
        assert_eq!(zone_skip("8k"), Ok(Some(ZoneSkip::Bytes(8192))));
        assert_eq!((zone_skip("0"), zone_skip("0z")), (Ok(None), Ok(None)));
        assert!(zone_skip("z").is_err() && zone_skip("8q").is_err());
    }

    #[test]
    fn ranges_and_splits() {
        assert_eq!(range("1k-4k"), Ok(SizeRule::Range { min: 1024, max: 4096 }));
        assert!(range("4k").is_err() && range("4k-1k").is_err());
        let parts = |text| {
            split(text).map(|rule| match rule {
                SizeRule::Split(parts) => parts,
                _ => Vec::new(),
            })
        };
        assert_eq!(parts("4k/50:1k/:32k/"), Ok(vec![(4096, 50), (1024, 25), (32_768, 25)]));
        assert_eq!(parts("4k"), Ok(vec![(4096, 100)]));
        assert_eq!(parts("4k/20:64k/30"), Ok(vec![(4096, 20), (65_536, 30)]));
        assert!(parts("4k/60:8k/70").is_err_and(|error| error.contains("add up to 130")));
    }

    #[test]
    fn patterns_may_have_a_step() {
        let step = |text| pattern(text).map(|(pattern, step)| (pattern.word(), step));
        assert_eq!(step("read"), Ok(("read", 0)));
        assert_eq!(step("write:4k"), Ok(("write", 4096)));
        assert_eq!(step("read:-8k"), Ok(("read", -8192)));
        assert_eq!(step("randread:8"), Ok(("randread", 8)));
        assert!(step("randread:-8").is_err() && step("reed:8").is_err() && step("read:x").is_err());
    }

    #[test]
    fn distributions() {
        assert_eq!(distribution("random"), Ok(Distribution::Random));
        assert_eq!(distribution("zipf"), Ok(Distribution::Zipf(1.1)));
        assert_eq!(distribution("zipf:0.8"), Ok(Distribution::Zipf(0.8)));
        assert_eq!(distribution("pareto:0.3"), Ok(Distribution::Pareto(0.3)));
        assert_eq!(distribution("normal:20"), Ok(Distribution::Normal(20.0)));
        for wrong in ["zipf:1", "zipf:-1", "zipf:x", "pareto:1", "zoned:60/10", "zoned", "random:1"]
        {
            assert!(distribution(wrong).is_err(), "{wrong}");
        }
        let zone = |access, len| Zone { access, len };
        assert_eq!(
            distribution("zoned:60/10:40/90"),
            Ok(Distribution::Zoned(vec![
                zone(60, ZoneLen::Percent(10)),
                zone(40, ZoneLen::Percent(90))
            ]))
        );
        assert_eq!(distribution("zoned:50/5:50/"), distribution("zoned:50/5:50/95"));
        assert_eq!(
            distribution("zoned_abs:100/4k"),
            Ok(Distribution::Zoned(vec![zone(100, ZoneLen::Bytes(4096))]))
        );
    }
}
