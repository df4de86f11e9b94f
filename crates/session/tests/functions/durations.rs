//! What is between two points in time.

use datafusion::arrow::datatypes::Int64Type;

use super::*;

/// Times of all units with their extremes and NULLs, and durations of them.
fn moments(plain: &SessionContext, kelpie: &KelpieSession) {
    let seconds = [0, 1, -1, 59, 86_400, -86_401, 1_700_000_000, -2_000_000_000, 3_600, 253_402_300_799];
    let ticks = |step: usize, scale: i64| -> Vec<Option<i64>> {
        let of = move |row: usize| seconds[row * step % seconds.len()] * scale + (row as i64 * 37) % scale;
        (0..40).map(|row| (row % 7 != 5).then(|| of(row))).collect()
    };
    register(
        plain,
        kelpie,
        "m",
        vec![
            ("id", Arc::new(Int64Array::from_iter_values(0..40))),
            ("k", Arc::new(Int64Array::from_iter_values((0..40).map(|row| row % 3)))),
            ("s", Arc::new(TimestampSecondArray::from(ticks(1, 1)))),
            ("t", Arc::new(TimestampSecondArray::from(ticks(3, 1)))),
            ("ms", Arc::new(TimestampMillisecondArray::from(ticks(1, 1_000)))),
            ("us", Arc::new(TimestampMicrosecondArray::from(ticks(1, 1_000_000)))),
            ("vs", Arc::new(TimestampMicrosecondArray::from(ticks(7, 1_000_000)))),
            (
                "z",
                Arc::new(TimestampMicrosecondArray::from(ticks(9, 1_000_000)).with_timezone("Europe/Paris")),
            ),
            ("ds", Arc::new(DurationSecondArray::from(ticks(3, 1)))),
            ("dms", Arc::new(DurationMillisecondArray::from(ticks(3, 1_000)))),
            ("dus", Arc::new(DurationMicrosecondArray::from(ticks(7, 1_000_000)))),
        ],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn points_in_time_and_durations_are_added_and_subtracted() {
    let expressions = [
        "us - vs",
        "s - t",
        "ms - s",
        "us - arrow_cast('2000-01-01T12:00:00', 'Timestamp(Microsecond, None)')",
        "z - z",
        "us + dus",
        "us - dus",
        "dus + vs",
        "z + dus",
        "s + ds",
        "ds - ds",
        "dus + (us - vs)",
        "(us - vs) - (vs - us)",
        "arrow_cast(us - vs, 'Int64')",
        "arrow_cast(id, 'Duration(Millisecond)')",
        "us - vs > vs - us",
        "us - vs IS NULL",
        "CASE WHEN us > vs THEN us - vs ELSE vs - us END",
        "coalesce(us - vs, dus)",
        "nullif(us - vs, dus)",
        "us - vs IN (dus, vs - us)",
        "us - vs BETWEEN dus AND vs - us",
        "us - vs IS DISTINCT FROM dus",
    ];
    agree("m", &expressions, moments).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn durations_are_grouped_joined_sorted_and_aggregated() {
    for device in DEVICES {
        let (plain, kelpie) = pair(device);
        moments(&plain, &kelpie);
        for sql in [
            "SELECT min(us - vs), max(us - vs), count(us - vs), count(distinct us - vs) FROM m",
            "SELECT k, min(us - vs), max(s - t), sum(s - t), avg(us - vs), avg(dms) FROM m GROUP BY k",
            "SELECT avg(us - vs), sum(dms) FROM m WHERE id < 0",
            "SELECT us - vs, count(*), min(id) FROM m GROUP BY us - vs",
            "SELECT distinct ds FROM m",
            "SELECT a.id, b.id FROM m a JOIN m b ON a.us - a.vs = b.dus",
            "SELECT id, us - vs FROM m ORDER BY us - vs DESC NULLS LAST, id LIMIT 9",
            "SELECT id, us - lag(us) OVER (PARTITION BY k ORDER BY id) FROM m",
            "SELECT id, max(us - vs) OVER (PARTITION BY k ORDER BY id ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) FROM m",
            "SELECT id, first_value(dus) OVER (PARTITION BY k ORDER BY us - vs, id ROWS UNBOUNDED PRECEDING) FROM m",
            "SELECT id FROM m WHERE us - vs > dus",
            "SELECT k FROM m GROUP BY k HAVING max(us) - min(us) > max(dus)",
        ] {
            match compare(&plain, &kelpie, &Generated { sql: sql.into(), ordered: false }).await {
                Outcome::Equal { compiled: true, .. } => {}
                other => panic!("{device:?} {sql}: {other:?}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_distance_that_its_type_does_not_hold_is_an_error() {
    for device in DEVICES {
        let (plain, kelpie) = pair(device);
        let ends = [i64::MIN, i64::MAX, 0, -1];
        let other = [i64::MAX, -5, 5, i64::MIN];
        register(
            &plain,
            &kelpie,
            "far",
            vec![
                ("id", Arc::new(Int64Array::from_iter_values(0..4))),
                ("a", Arc::new(TimestampMicrosecondArray::from(ends.to_vec()))),
                ("b", Arc::new(TimestampMicrosecondArray::from(other.to_vec()))),
                ("d", Arc::new(DurationMicrosecondArray::from(other.to_vec()))),
            ],
        );
        for expression in ["a - b", "a + d", "a - d", "d + d", "d - (d + d)"] {
            for row in 0..4 {
                same(&plain, &kelpie, &format!("SELECT {expression} FROM far WHERE id = {row}")).await;
            }
            same(&plain, &kelpie, &format!("SELECT {expression} FROM far")).await;
        }
    }
}

/// Under corrections, the seconds of a duration are a number, however many they are.
#[tokio::test(flavor = "multi_thread")]
async fn durations_have_seconds() {
    for settings in [&[("kelpie.enabled", "false")][..], DEVICES[0], DEVICES[1]] {
        let options = SessionOptions::default().with("kelpie.min_rows", "0");
        let options = settings.iter().fold(options, |options, (name, value)| options.with(*name, *value));
        let kelpie = KelpieSession::new(options).unwrap();
        moments(&SessionContext::new(), &kelpie);
        let sql = "select count(*) from m where extract(epoch from us - vs) \
                   <> cast(arrow_cast(us - vs, 'Int64') as double) / 1e6 or (us - vs is null) <> (epoch(us - vs) is null)";
        let result = kelpie.sql(sql).await.unwrap();
        assert_eq!(result.batches[0].column(0).as_primitive::<Int64Type>().value(0), 0, "{settings:?}");
        let result = kelpie.sql("select max(epoch(us - vs)) > 2.5e11 from m").await.unwrap();
        assert!(result.batches[0].column(0).as_boolean().value(0), "{settings:?}");
    }
}

/// Under corrections, durations are compared with intervals by their length: of constants, as ticks.
#[tokio::test(flavor = "multi_thread")]
async fn durations_are_compared_with_intervals() {
    let cases = [
        "us - vs > interval '1 day'",
        "us - vs <= interval '30 minutes'",
        "interval '1 month' < us - vs",
        "us - vs between interval '-1 hour' and interval '2 days'",
        "us - vs in (interval '0 seconds', interval '1 day 1 second')",
        "us - vs >= interval '1 second' and us - vs <> interval '2 hours'",
    ];
    // No whole numbers of ticks.
    let between_ticks = [
        "s - t < interval '0.5 seconds'",
        "ms - arrow_cast(t, 'Timestamp(Millisecond, None)') >= interval '1 microsecond'",
    ];
    let plain = SessionContext::new();
    let kelpie = |settings: &[(&str, &str)]| {
        let options = SessionOptions::default().with("kelpie.min_rows", "0");
        let options = settings.iter().fold(options, |options, (name, value)| options.with(*name, *value));
        let kelpie = KelpieSession::new(options).unwrap();
        moments(&plain, &kelpie);
        plain.deregister_table("m").unwrap();
        kelpie
    };
    let uncompiled = kelpie(&[("kelpie.enabled", "false")]);
    for device in DEVICES {
        let compiled = kelpie(device);
        for condition in cases.iter().chain(&between_ticks) {
            let sql = format!("select id from m where {condition} order by id");
            let (here, there) = (compiled.sql(&sql).await.unwrap(), uncompiled.sql(&sql).await.unwrap());
            assert_eq!(here.batches, there.batches, "{sql}");
            let whole = here.timing.compiled && here.timing.reasons.is_empty();
            assert!(whole || between_ticks.contains(condition), "{sql}: {:?}", here.timing);
        }
    }
}
