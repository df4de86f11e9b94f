//! Numbers for people: times, sizes, counts and shares.

/// `12.3us`, `4.56ms`, `1.234s`.
pub fn time(time_ns: u64) -> String {
    match time_ns {
        0 => "0".into(),
        1..1_000_000 => format!("{:.1}us", time_ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2}ms", time_ns as f64 / 1e6),
        _ => format!("{:.3}s", time_ns as f64 / 1e9),
    }
}

/// `512 B`, `1.5 kB`, `96.0 MB`, `1.50 GB`: a kB are 1000 bytes.
pub fn bytes(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}

/// `6,001,215`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// `45.2 %`; nothing of nothing is 0.
pub fn share(part: u64, whole: u64) -> String {
    format!("{:.1} %", part as f64 / whole.max(1) as f64 * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [0, 999, 1_000, 1_234_567, 2_500_000_000].map(bytes),
            ["0 B", "999 B", "1.0 kB", "1.2 MB", "2.50 GB"]
        );
        assert_eq!([0, 12_300, 4_560_000, 1_234_000_000].map(time), ["0", "12.3us", "4.56ms", "1.234s"]);
        assert_eq!(
            [0, 999, 1_000, 6_001_215, u64::MAX].map(count),
            ["0", "999", "1,000", "6,001,215", "18,446,744,073,709,551,615"]
        );
        assert_eq!([share(1, 8), share(0, 0)], ["12.5 %", "0.0 %"]);
    }
}
