//! The texts of estimates: what a rule was told of rows, groups and tables, beside its reason. They decide nothing.
//!
//! Milliseconds are those that follow from rates that were measured ([`Calibration::atomics_ms`]); where none was, there are none.

use std::fmt;

use crate::calibration::Calibration;

/// A number of bytes, in the units that caches are sized in: 1024 bytes are a kB.
pub(crate) fn bytes(bytes: u64) -> String {
    let unit = |shift: u32, name: &str| {
        // No more than one decimal place.
        let tenths = (u128::from(bytes) * 10) >> shift;
        match (tenths % 10, tenths >= 100) {
            (0, _) | (_, true) => format!("{} {name}", tenths / 10),
            (tenth, false) => format!("{}.{tenth} {name}", tenths / 10),
        }
    };
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..0x10_0000 => unit(10, "kB"),
        0x10_0000..0x4000_0000 => unit(20, "MB"),
        _ => unit(30, "GB"),
    }
}

/// How many rows there are.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rows {
    /// About so many are thought to come.
    About(u64),
    /// No more than so many can come.
    Most(u64),
}

impl fmt::Display for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rows::About(rows) => write!(f, "about {rows} rows"),
            Rows::Most(rows) => write!(f, "at most {rows} rows"),
        }
    }
}

/// `about 6000000 rows to 1500000 groups`; groups of an unknown number are that.
pub(crate) fn rows_to_groups(rows: Rows, groups: Option<u64>) -> String {
    match groups {
        Some(groups) => format!("{rows} to {groups} groups"),
        None => format!("{rows} to an unknown number of groups"),
    }
}

/// `table of 131072 slots in 512 kB`.
pub(crate) fn table(slots: u64, size: u64) -> String {
    format!("table of {slots} slots in {}", bytes(size))
}

/// `, 2.10 ms of atomics if added as they come`: what so many atomics of a table of so many bytes take; nothing where there are
/// none, or it was not measured.
pub(crate) fn atomics(calibration: &Calibration, (atomics, table_bytes): (u64, u64)) -> String {
    let time = calibration.atomics_ms(atomics, table_bytes).filter(|_| atomics > 0);
    time.map_or(String::new(), |time| format!(", {time:.2} ms of atomics if added as they come"))
}

/// A share as a percentage.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibration::AtomicRates;

    #[test]
    fn bytes_are_told_in_the_units_of_caches() {
        let told = [0, 1023, 1024, 1536, 512 << 10, (1 << 20) - 1, 1 << 20, 48 << 20, 5 << 29, u64::MAX];
        let expected =
            ["0 bytes", "1023 bytes", "1 kB", "1.5 kB", "512 kB", "1023 kB", "1 MB", "48 MB", "2.5 GB"];
        assert_eq!(told.map(bytes)[..9], expected);
        assert_eq!(bytes(u64::MAX), "17179869183 GB");
    }

    #[test]
    fn time_is_told_where_rates_were_measured() {
        let rates = AtomicRates { cached: 1_000_000_000, beyond: 500_000_000 };
        let measured = Calibration {
            core_cache: None,
            last_cache: Some(1 << 20),
            tlb_reach: None,
            atomics: Some(rates),
        };
        assert_eq!(atomics(&measured, (3_000_000, 1 << 20)), ", 3.00 ms of atomics if added as they come");
        assert_eq!(atomics(&measured, (3_000_000, 2 << 20)), ", 6.00 ms of atomics if added as they come");
        assert_eq!(atomics(&measured, (0, 1 << 20)), "");
        assert_eq!(atomics(&Calibration::default(), (3_000_000, 1 << 20)), "");
    }

    #[test]
    fn rows_slots_and_shares_stand_as_they_are() {
        assert_eq!(rows_to_groups(Rows::About(60), Some(7)), "about 60 rows to 7 groups");
        assert_eq!(rows_to_groups(Rows::Most(60), None), "at most 60 rows to an unknown number of groups");
        assert_eq!(table(131_072, 512 << 10), "table of 131072 slots in 512 kB");
        assert_eq!([0.0, 0.333, 1.0].map(percent), ["0 %", "33 %", "100 %"]);
    }
}
