//! Dates and timestamps.

use kelpie_compile::context::Status::{CastOutOfRange, Overflow};
use kelpie_compile::expr::ArithmeticOp::{self, Add, Subtract};
use kelpie_compile::expr::{DatePart, Expr, Function, Granularity};
use kelpie_compile::types::TimeUnit::{self, Microsecond, Millisecond, Nanosecond, Second};
use kelpie_compile::types::{DataType, Interval, Literal};

use crate::build::*;
use crate::harness::{NULL, Value, check, check_one};

/// Year, month, day.
type Civil = (i64, i64, i64);

/// Days since 1970-01-01, counted year by year and month by month.
fn day(year: i64, month: i64, day: i64) -> i64 {
    let leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let lengths = |year| [31, if leap(year) { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let years: i64 = match year {
        1970.. => (1970..year).map(|year| lengths(year).iter().sum::<i64>()).sum(),
        _ => -(year..1970).map(|year| lengths(year).iter().sum::<i64>()).sum::<i64>(),
    };
    years + lengths(year)[..month as usize - 1].iter().sum::<i64>() + day - 1
}

fn interval(months: i32, days: i32, nanoseconds: i64) -> Expr {
    Expr::literal(Literal::Interval(Interval { months, days, nanoseconds }), DataType::Interval)
}

fn shifted(op: ArithmeticOp, ty: DataType, interval: Expr) -> Expr {
    arithmetic(op, col(0, ty.clone()), interval, ty)
}

#[test]
fn months_are_clamped() {
    let cases: [(i32, Civil, Civil); 12] = [
        (1, (2020, 1, 31), (2020, 2, 29)),
        (1, (2021, 1, 31), (2021, 2, 28)),
        (1, (1900, 1, 31), (1900, 2, 28)),
        (12, (2020, 2, 29), (2021, 2, 28)),
        (48, (2020, 2, 29), (2024, 2, 29)),
        (-1, (2020, 3, 31), (2020, 2, 29)),
        (-3, (1970, 1, 15), (1969, 10, 15)),
        (1, (1969, 12, 31), (1970, 1, 31)),
        (11, (1968, 12, 31), (1969, 11, 30)),
        (-840, (1970, 12, 31), (1900, 12, 31)),
        (13, (1899, 12, 31), (1901, 1, 31)),
        (-24000, (2000, 6, 30), (0, 6, 30)),
    ];
    for (months, from, to) in cases {
        let (from, to) = (day(from.0, from.1, from.2), day(to.0, to.1, to.2));
        check_one(
            &shifted(Add, Date32, interval(months, 0, 0)),
            vec![(from.into(), to.into()), (NULL, NULL)],
        );
        check_one(&shifted(Subtract, Date32, interval(-months, 0, 0)), vec![(from.into(), to.into())]);
        // The time of day stays.
        let tick = |days: i64| Value::from(days * 86_400_000 + 12_345);
        check_one(
            &shifted(Add, timestamp(Millisecond), interval(months, 0, 0)),
            vec![(tick(from), tick(to))],
        );
    }
}

#[test]
fn days_and_nanoseconds() {
    let days = shifted(Add, Date32, interval(0, 90, 0));
    check_one(
        &days,
        vec![
            (day(1998, 9, 2).into(), day(1998, 12, 1).into()),
            (i32::MAX.into(), Overflow.into()),
            (95_026_236.into(), Overflow.into()),
            (NULL, NULL),
        ],
    );
    let both = shifted(Subtract, Date32, interval(1, 1, 0));
    check_one(&both, vec![(day(2020, 3, 31).into(), day(2020, 2, 28).into())]);
    let flipped = arithmetic(Add, interval(0, 1, 0), col(0, Date32), Date32);
    check_one(&flipped, vec![(1.into(), 2.into())]);
    // A date counts whole days only.
    let hours = shifted(Subtract, Date32, interval(0, 0, 36 * 3_600_000_000_000));
    check_one(&hours, vec![(10.into(), 9.into())]);
    let nanosecond = shifted(Add, timestamp(Second), interval(0, 0, 1));
    check_one(&nanosecond, vec![(5.into(), 5.into()), ((-5).into(), (-5).into())]);
    let nanosecond = shifted(Subtract, timestamp(Second), interval(0, 0, 1));
    check_one(&nanosecond, vec![(5.into(), 4.into()), ((-5).into(), (-6).into())]);
    let day_later = shifted(Add, timestamp(Nanosecond), interval(0, 1, 5));
    check_one(&day_later, vec![(0.into(), 86_400_000_000_005i64.into()), (i64::MAX.into(), Overflow.into())]);
    let difference = arithmetic(Subtract, col(0, Date32), col(1, Date32), Int64);
    check(
        &difference,
        &[
            (vec![i32::MAX.into(), i32::MIN.into()], (i64::from(u32::MAX)).into()),
            (vec![5.into(), 7.into()], (-2).into()),
            (vec![5.into(), NULL], NULL),
        ],
    );
}

fn part(part: DatePart, input: DataType) -> Expr {
    let result = match part {
        DatePart::Epoch => Float64,
        DatePart::Nanosecond => Int64,
        _ => Int32,
    };
    call(Function::DatePart(part), vec![col(0, input)], result)
}

#[test]
fn parts_of_dates() {
    use DatePart::*;
    // Year, quarter, month, ISO week, day, day of the week, day of the year.
    let parts = [Year, Quarter, Month, Week, Day, DayOfWeek, DayOfYear];
    let cases: [(Civil, [i64; 7]); 14] = [
        ((1970, 1, 1), [1970, 1, 1, 1, 1, 4, 1]),
        ((1969, 12, 31), [1969, 4, 12, 1, 31, 3, 365]),
        ((1968, 12, 29), [1968, 4, 12, 52, 29, 0, 364]),
        ((2000, 2, 29), [2000, 1, 2, 9, 29, 2, 60]),
        ((2000, 12, 31), [2000, 4, 12, 52, 31, 0, 366]),
        ((2021, 1, 3), [2021, 1, 1, 53, 3, 0, 3]),
        ((2021, 1, 4), [2021, 1, 1, 1, 4, 1, 4]),
        ((2020, 12, 31), [2020, 4, 12, 53, 31, 4, 366]),
        ((2018, 12, 31), [2018, 4, 12, 1, 31, 1, 365]),
        ((1900, 3, 1), [1900, 1, 3, 9, 1, 4, 60]),
        ((1600, 2, 29), [1600, 1, 2, 9, 29, 2, 60]),
        ((1, 1, 1), [1, 1, 1, 1, 1, 1, 1]),
        ((0, 3, 1), [0, 1, 3, 9, 1, 3, 61]),
        ((9999, 12, 31), [9999, 4, 12, 52, 31, 5, 365]),
    ];
    for (index, which) in parts.into_iter().enumerate() {
        let days = |&((y, m, d), _): &(Civil, [i64; 7])| day(y, m, d);
        let mut rows: Vec<(Value, Value)> =
            cases.iter().map(|case| (days(case).into(), case.1[index].into())).collect();
        rows.extend([(NULL, NULL), (i32::MAX.into(), NULL), (i32::MIN.into(), NULL)]);
        check_one(&part(which, Date32), rows);
        // The last microsecond of the day.
        let tick = |case| Value::from((days(case) + 1) * 86_400_000_000 - 1);
        let rows = cases.iter().map(|case| (tick(case), case.1[index].into())).collect();
        check_one(&part(which, timestamp(TimeUnit::Microsecond)), rows);
    }
    check_one(
        &part(Year, Date32),
        vec![((-96_465_292).into(), (-262_143).into()), (95_026_236.into(), 262_142.into())],
    );
    check_one(&part(Epoch, Date32), vec![((-1).into(), (-86_400.0).into())]);
    check_one(&part(Hour, Date32), vec![(5.into(), 0.into()), (NULL, NULL)]);
    check_one(&part(Nanosecond, Date32), vec![(5.into(), 0.into())]);
}

#[test]
fn parts_of_times() {
    use DatePart::*;
    // 1969-12-31 23:59:58.123456789 and 1970-01-01 01:02:03.000000004
    let (before, after) = (-2_000_000_000i64 + 123_456_789, 3_723_000_000_004i64);
    for (which, first, second) in [
        (Hour, 23i64, 1i64),
        (Minute, 59, 2),
        (Second, 58, 3),
        (Millisecond, 58_123, 3_000),
        (Microsecond, 58_123_456, 3_000_000),
        (Nanosecond, 58_123_456_789i64, 3_000_000_004i64),
    ] {
        check_one(
            &part(which, timestamp(TimeUnit::Nanosecond)),
            vec![(before.into(), first.into()), (after.into(), second.into()), (NULL, NULL)],
        );
    }
    check_one(&part(Millisecond, timestamp(TimeUnit::Second)), vec![((-1).into(), 59_000.into())]);
    check_one(&part(Epoch, timestamp(TimeUnit::Millisecond)), vec![((-1500).into(), (-1.5).into())]);
    check_one(
        &part(Year, timestamp(TimeUnit::Second)),
        vec![(i64::MAX.into(), NULL), (0.into(), 1970.into())],
    );
}

#[test]
fn truncation() {
    use Granularity as G;
    let at = |y, m, d, seconds: i64| day(y, m, d) * 86_400 + seconds;
    let start = at(1969, 11, 19, 12 * 3600 + 34 * 60 + 56);
    for (granularity, expected) in [
        (G::Second, start),
        (G::Minute, start - 56),
        (G::Hour, start - 56 - 34 * 60),
        (G::Day, at(1969, 11, 19, 0)),
        (G::Week, at(1969, 11, 17, 0)),
        (G::Month, at(1969, 11, 1, 0)),
        (G::Quarter, at(1969, 10, 1, 0)),
        (G::Year, at(1969, 1, 1, 0)),
    ] {
        for unit in [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Nanosecond] {
            let ty = timestamp(unit);
            let expr = call(Function::DateTrunc(granularity), vec![col(0, ty.clone())], ty);
            let scale = unit.per_second();
            let rows = vec![((start * scale + scale / 2).into(), (expected * scale).into()), (NULL, NULL)];
            check_one(&expr, rows);
        }
    }
    let year = call(
        Function::DateTrunc(G::Year),
        vec![col(0, timestamp(TimeUnit::Second))],
        timestamp(TimeUnit::Second),
    );
    check_one(
        &year,
        vec![(10_000_000_000i64.into(), CastOutOfRange.into()), (i64::MIN.into(), CastOutOfRange.into())],
    );
}

#[test]
fn casts_of_dates() {
    let to_ns = cast(col(0, Date32), timestamp(Nanosecond));
    check_one(
        &to_ns,
        vec![(1.into(), 86_400_000_000_000i64.into()), (200_000.into(), CastOutOfRange.into()), (NULL, NULL)],
    );
    let to_ns = try_cast(col(0, Date32), timestamp(Nanosecond));
    check_one(&to_ns, vec![((-1).into(), (-86_400_000_000_000i64).into()), (200_000.into(), NULL)]);
    let to_date = cast(col(0, timestamp(Millisecond)), Date32);
    check_one(
        &to_date,
        vec![
            (86_399_999.into(), 0.into()),
            ((-1).into(), (-1).into()),
            (i64::MAX.into(), CastOutOfRange.into()),
        ],
    );
    let coarser = cast(col(0, timestamp(Millisecond)), timestamp(Second));
    check_one(&coarser, vec![((-1500).into(), (-1).into()), (1999.into(), 1.into())]);
    let finer = cast(col(0, timestamp(Second)), timestamp(Microsecond));
    check_one(&finer, vec![((-2).into(), (-2_000_000).into()), (i64::MAX.into(), CastOutOfRange.into())]);
    check_one(
        &cast(col(0, Int64), Date32),
        vec![(5.into(), 5.into()), ((1i64 << 31).into(), CastOutOfRange.into())],
    );
    check_one(&cast(col(0, Date32), Int64), vec![((-5).into(), (-5).into())]);
    check_one(
        &cast(col(0, timestamp(Second)), Int32),
        vec![(7.into(), 7.into()), (i64::MAX.into(), CastOutOfRange.into())],
    );
}
