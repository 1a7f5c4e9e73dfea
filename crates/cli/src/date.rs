//! Moments and days, in UTC.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns a moment in UTC, as `2026-01-31 09:05`.
pub fn date(time: SystemTime) -> String {
    let minutes = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / 60);
    let (year, month, day) = civil(minutes / 1440);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", minutes / 60 % 24, minutes % 60)
}

/// Returns today as a number of eight digits, such as 20260131.
pub fn today_in_digits() -> u64 {
    let days = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / 86_400);
    let (year, month, day) = civil(days);
    year * 10_000 + month * 100 + day
}

/// Returns the date of a day counted from the first of 1970, counting years from March so that leap days come last.
fn civil(day: u64) -> (u64, u64, u64) {
    let day = day + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let (month, day) = (if month < 10 { month + 3 } else { month - 9 }, of_year - (153 * month + 2) / 5 + 1);
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates() {
        let known = [(0, (1970, 1, 1)), (59, (1970, 3, 1)), (11_016, (2000, 2, 29)), (20_777, (2026, 11, 20))];
        known.iter().for_each(|&(day, date)| assert_eq!(civil(day), date));
    }
}
