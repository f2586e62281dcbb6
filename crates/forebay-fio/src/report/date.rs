//! The date in reports, in the format of C's `ctime`, but always in UTC: a report does not depend
//! on the place.

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const SECONDS_PER_DAY: u64 = 86_400;
/// Days of 400 Gregorian years.
const DAYS_PER_ERA: u64 = 146_097;

/// Returns a date, such as `Sat Nov 21 02:03:06 2026`, from seconds since 1970.
pub fn ctime(seconds: u64) -> String {
    let (days, time) = (seconds / SECONDS_PER_DAY, seconds % SECONDS_PER_DAY);
    let (year, month, day) = civil(days);
    format!(
        "{} {} {day:>2} {:02}:{:02}:{:02} {year}",
        DAYS[(days % 7) as usize],
        MONTHS[month as usize],
        time / 3600,
        time / 60 % 60,
        time % 60
    )
}

/// Converts a number of days since 1970 to year, month (from 0) and day (from 1), in the Gregorian
/// calendar.
///
/// Years are counted from 1 March, so that the leap day is the last one; then every month but the
/// last begins at a day that a straight line through 153 days per five months gives.
fn civil(days: u64) -> (u64, u64, u64) {
    // From 1970-01-01 back to 0000-03-01.
    let days = days + 719_468;
    let (era, day_of_era) = (days / DAYS_PER_ERA, days % DAYS_PER_ERA);
    let leap_days = day_of_era / 1460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12;
    (era * 400 + year_of_era + u64::from(month < 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_dates() {
        for (seconds, text) in [
            (0, "Thu Jan  1 00:00:00 1970"),
            (951_782_400, "Tue Feb 29 00:00:00 2000"),
            (951_868_800, "Wed Mar  1 00:00:00 2000"),
            (1_795_226_586, "Sat Nov 21 02:03:06 2026"),
            (4_107_542_399, "Sun Feb 28 23:59:59 2100"),
            (4_107_542_400, "Mon Mar  1 00:00:00 2100"),
        ] {
            assert_eq!(ctime(seconds), text);
        }
    }

    #[test]
    fn days_follow_each_other() {
        let mut last = civil(0);
        for days in 1..200_000 {
            let this = civil(days);
            let next_day = (last.0, last.1, last.2 + 1);
            let next_month = this.2 == 1 && this > last;
            assert!(this == next_day || next_month, "{last:?} then {this:?}");
            last = this;
        }
    }
}
