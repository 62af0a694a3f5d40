//! Instants, as people read them.

/// An instant in ms since the epoch as RFC 3339, in UTC and to the second, for example `2026-11-29T20:28:02Z`.
pub fn rfc3339(at_ms: i64) -> String {
    let s = at_ms.div_euclid(1_000);
    let (days, second) = (s.div_euclid(86_400), s.rem_euclid(86_400));
    let (year, month, day) = date(days);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3_600, second / 60 % 60, second % 60)
}

/// How long ago something was, in the largest unit of which there is one: `3 min`.
pub fn ago(ms: i64) -> String {
    let s = ms.max(0) / 1_000;
    match s {
        0..=59 => format!("{s} s"),
        60..=3_599 => format!("{} min", s / 60),
        3_600..=86_399 => format!("{} h", s / 3_600),
        _ => format!("{} d", s / 86_400),
    }
}

/// The Gregorian date that is so many days after 1970-01-01.
///
/// Counted in years that begin in March, so that a leap day is the last of its year: then the months before a day
/// of the year are 153 days in each five.
fn date(days: i64) -> (i64, i64, i64) {
    const DAYS_FROM_MARCH_0000: i64 = 719_468;
    const IN_400_YEARS: i64 = 146_097;
    let days = days + DAYS_FROM_MARCH_0000;
    let (era, of_era) = (days.div_euclid(IN_400_YEARS), days.rem_euclid(IN_400_YEARS));
    let of_era_year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * of_era_year + of_era_year / 4 - of_era_year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + of_era_year + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_of_every_kind_of_year() {
        for (s, words) in [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_796_070_482, "2026-11-30T20:28:02Z"),
            (1_835_481_599, "2028-02-29T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(s * 1_000), words);
        }
    }

    #[test]
    fn how_long_ago_is_told_in_one_unit() {
        for (ms, said) in
            [(-1, "0 s"), (59_999, "59 s"), (60_000, "1 min"), (7_199_999, "1 h"), (864_000_000, "10 d")]
        {
            assert_eq!(ago(ms), said);
        }
    }

    #[test]
    fn each_day_follows_the_one_before() {
        let mut last = date(-800_000);
        for days in -799_999..800_000 {
            let next = date(days);
            assert!(next > last && (1..=12).contains(&next.1) && (1..=31).contains(&next.2), "{next:?}");
            last = next;
        }
    }
}
