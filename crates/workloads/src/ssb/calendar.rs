//! The table `date`: every day from 1992-01-01 to 1998-12-31.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use crate::output::{Batches, Part, Table};

/// Days of the calendar.
pub(super) const DAYS: u32 = 2557;

/// Days on which orders are placed: 1992-01-01 to 1998-08-02.
pub(super) const ORDER_DAYS: u32 = 2406;

const MONTHS: [&str; 12] = [
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
    "November", "December",
];

/// 1992-01-01 was a Wednesday.
const WEEKDAYS: [&str; 7] = ["Wednesday", "Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday"];

/// Month and day of the holidays.
const HOLIDAYS: [(i32, i32); 10] =
    [(1, 1), (2, 14), (3, 17), (5, 1), (7, 4), (9, 1), (10, 31), (11, 11), (12, 25), (12, 31)];

/// A day of the calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Day {
    pub year: i32,
    /// 1 to 12.
    pub month: i32,
    /// 1 to 31.
    pub day: i32,
    /// From 1.
    pub day_of_year: i32,
    /// Days since 1992-01-01.
    number: u32,
}

impl Day {
    /// yyyymmdd.
    pub fn key(self) -> i32 {
        self.year * 10_000 + self.month * 100 + self.day
    }

    /// Week of the year from 1 to 53: the first seven days are week 1.
    pub fn week(self) -> i32 {
        (self.day_of_year - 1) / 7 + 1
    }

    fn month_name(self) -> &'static str {
        MONTHS[self.month as usize - 1]
    }

    fn weekday(self) -> &'static str {
        WEEKDAYS[self.number as usize % 7]
    }

    fn is_last_of_month(self) -> bool {
        self.day == month_length(self.year, self.month)
    }

    fn season(self) -> &'static str {
        match self.month {
            1..=3 => "Winter",
            4 => "Spring",
            5..=8 => "Summer",
            9 | 10 => "Fall",
            _ => "Christmas",
        }
    }
}

fn month_length(year: i32, month: i32) -> i32 {
    match month {
        2 if year % 4 == 0 => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// All days, in order.
pub(super) fn days() -> Vec<Day> {
    let mut days = Vec::with_capacity(DAYS as usize);
    for year in 1992..=1998 {
        let mut day_of_year = 1;
        for month in 1..=12 {
            for day in 1..=month_length(year, month) {
                days.push(Day { year, month, day, day_of_year, number: days.len() as u32 });
                day_of_year += 1;
            }
        }
    }
    days
}

/// The table.
pub(super) fn table() -> Table {
    let batches =
        || -> Batches { Box::new(std::iter::once_with(|| RecordBatch::try_new(schema(), columns(&days())))) };
    Table {
        name: "date",
        schema: schema(),
        parts: vec![Part { rows: u64::from(DAYS), batches: Box::new(batches) }],
    }
}

fn schema() -> SchemaRef {
    use DataType::{Int32, Utf8};
    let fields = [
        ("d_datekey", Int32),
        ("d_date", Utf8),
        ("d_dayofweek", Utf8),
        ("d_month", Utf8),
        ("d_year", Int32),
        ("d_yearmonthnum", Int32),
        ("d_yearmonth", Utf8),
        ("d_daynuminweek", Int32),
        ("d_daynuminmonth", Int32),
        ("d_daynuminyear", Int32),
        ("d_monthnuminyear", Int32),
        ("d_weeknuminyear", Int32),
        ("d_sellingseason", Utf8),
        ("d_lastdayinweekfl", Int32),
        ("d_lastdayinmonthfl", Int32),
        ("d_holidayfl", Int32),
        ("d_weekdayfl", Int32),
    ];
    Arc::new(Schema::new(fields.map(|(name, data_type)| Field::new(name, data_type, false)).to_vec()))
}

fn columns(days: &[Day]) -> Vec<ArrayRef> {
    let int = |value: fn(&Day) -> i32| -> ArrayRef {
        Arc::new(Int32Array::from_iter_values(days.iter().map(value)))
    };
    let flag = |value: fn(&Day) -> bool| -> ArrayRef {
        Arc::new(Int32Array::from_iter_values(days.iter().map(|d| i32::from(value(d)))))
    };
    let text = |value: fn(&Day) -> String| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(days.iter().map(value)))
    };
    vec![
        int(|d| d.key()),
        text(|d| format!("{} {}, {}", d.month_name(), d.day, d.year)),
        text(|d| d.weekday().to_string()),
        text(|d| d.month_name().to_string()),
        int(|d| d.year),
        int(|d| d.year * 100 + d.month),
        text(|d| format!("{}{}", &d.month_name()[..3], d.year)),
        // Sunday is the first day of the week.
        int(|d| (d.number as i32 + 3) % 7 + 1),
        int(|d| d.day),
        int(|d| d.day_of_year),
        int(|d| d.month),
        int(|d| d.week()),
        text(|d| d.season().to_string()),
        flag(|d| d.weekday() == "Saturday"),
        flag(|d| d.is_last_of_month()),
        flag(|d| HOLIDAYS.contains(&(d.month, d.day))),
        flag(|d| !matches!(d.weekday(), "Saturday" | "Sunday")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calendar_is_right() {
        let days = days();
        assert_eq!(days.len(), DAYS as usize);
        assert_eq!(days[0].key(), 19920101);
        assert_eq!(days[59].key(), 19920229);
        assert_eq!(days[ORDER_DAYS as usize - 1].key(), 19980802);
        let last = days[days.len() - 1];
        assert_eq!(
            (last.key(), last.day_of_year, last.week(), last.weekday()),
            (19981231, 365, 53, "Thursday")
        );
        let sunday = days.iter().find(|d| d.weekday() == "Sunday").unwrap();
        assert_eq!((sunday.key(), (sunday.number as i32 + 3) % 7 + 1), (19920105, 1));
    }
}
