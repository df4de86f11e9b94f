//! Groups by one text or one float: keys that a slot of a table has in one word.

use kelpie_session::{KelpieSession, SessionOptions};

use crate::row_groups::text;

const TEXTS: &str = "create table t as select n, \
    case when n % 10 = 0 then null when n % 10 = 1 then '' \
         when n % 10 = 2 then substr('abcdefgh', 1, cast(n / 10 % 9 as int)) \
         when n % 10 = 3 then concat(chr(1), cast(n / 10 % 300 as varchar)) \
         when n % 10 = 4 then substr('größeéñ', 1, cast(n / 10 % 8 as int)) \
         when n % 10 = 5 then repeat('a', cast(n / 10 % 20 as int)) \
         when n % 10 = 6 then upper(substr('abcdefgh', 1, cast(n / 10 % 9 as int))) \
         else concat('k', cast(n * 7919 % 5003 as varchar)) end as s \
    from (select unnest(generate_series(0, 5999)) as n)";

const FLOATS: &str = "create table f as select n, \
    case when n % 12 = 0 then null when n % 12 = 1 then 'nan'::double when n % 12 = 2 then -0.0 when n % 12 = 3 then 0.0 \
         when n % 12 = 4 then 'inf'::double when n % 12 = 5 then '-inf'::double when n % 12 = 6 then 5e-324 \
         when n % 12 = 7 then -1.5 else cast(n % 700 as double) / 7 end as x, \
    cast(n % 300 as float) / 3 as y from (select unnest(generate_series(0, 5999)) as n)";

async fn session(device: &str, settings: &[(&str, &str)]) -> KelpieSession {
    let options = SessionOptions::default().with("kelpie.min_rows", "0").with("kelpie.device", device);
    let options = settings.iter().fold(options, |options, (name, value)| options.with(*name, *value));
    let session = KelpieSession::new(options).unwrap();
    for table in [TEXTS, FLOATS] {
        session.sql(table).await.unwrap();
    }
    session
}

#[tokio::test(flavor = "multi_thread")]
async fn short_keys_are_told_apart() {
    let operators = session("cpu", &[("kelpie.enabled", "false")]).await;
    let queries = [
        "select s, count(*), sum(n), min(n) from t group by s order by s nulls first",
        "select lower(s), count(*) from t group by lower(s) order by 1 nulls first",
        "select substr(s, 1, 3), count(*), max(n) from t group by 1 order by 1 nulls first",
        "select reverse(s), sum(n) from t where s is not null group by 1 order by 1",
        "select count(distinct s), count(distinct substr(s, 2, 4)) from t",
        "select n % 3, count(distinct s) from t group by 1 order by 1",
        "select distinct left(s, 7) from t order by 1 nulls last",
        "select a.s, count(*) from t a join t b on a.s = b.s where a.n < 600 and b.n < 900 group by a.s order by a.s",
        "select x, count(*), sum(n), min(n) from f group by x order by x nulls first",
        "select x from f where x is not null group by x having count(*) > 3 order by x",
        "select round(x * 3), count(*) from f group by 1 order by 1 nulls last",
        "select y, count(*), sum(n) from f group by y order by y",
        "select count(distinct x), count(distinct round(x)) from f",
        "select n % 5, count(distinct x) from f group by 1 order by 1",
        "select distinct x from f order by 1 nulls last",
    ];
    for device in ["cpu", "simt"] {
        for settings in [
            &[][..],
            &[("kelpie.dictionaries", "off")],
            &[("kelpie.dictionaries", "off"), ("kelpie.variant.group_parts", "64")],
            &[("kelpie.dictionaries", "off"), ("kelpie.variant.local_preaggregation", "0")],
            &[("kelpie.dictionaries", "off"), ("kelpie.variant.batch_rows", "256")],
            &[("kelpie.dictionaries", "off"), ("kelpie.variant.slot_layout", "beside")],
            &[("kelpie.dictionaries", "off"), ("kelpie.variant.key_text_lanes", "warp")],
            &[("kelpie.dictionaries", "off"), ("kelpie.variant.hash_function", "fnv1a")],
        ] {
            // The interpreter takes long, and has no batches.
            if device == "simt"
                && settings.get(1).is_some_and(|(_, value)| *value != "warp" && *value != "64")
            {
                continue;
            }
            let compiled = session(device, settings).await;
            for sql in queries {
                assert_eq!(
                    text(&compiled, sql).await,
                    text(&operators, sql).await,
                    "{sql} on {device} with {settings:?}"
                );
            }
        }
    }
}

/// Rows that ask whether their group meets a condition: the groups are the side that is built.
#[tokio::test(flavor = "multi_thread")]
async fn rows_ask_for_their_one_match() {
    let operators = session("cpu", &[("kelpie.enabled", "false")]).await;
    let queries = [
        "select count(*), sum(n) from t where n > (select avg(b.n) from t b where b.s = t.s)",
        "select count(*) from t where not exists \
         (select 1 from (select s, avg(n) as m from t group by s) b where b.s = t.s and b.m < t.n)",
        "select count(*), min(n) from t where exists \
         (select 1 from (select n % 77 as k, max(n) as m from t group by 1) b where b.k = t.n % 77 and b.m - 400 < t.n)",
        "select count(*) from f where x is null or exists \
         (select 1 from (select x as k, count(*) as c from f group by x) b where b.k = f.x and b.c > f.n % 700)",
        "select count(*) from t where n > (select 2 * avg(b.n) from t b where b.n % 5 = t.n % 5 and b.n < 0)",
    ];
    for device in ["cpu", "simt"] {
        for built in ["auto", "written", "other"] {
            let compiled = match built {
                "auto" => session(device, &[]).await,
                built => session(device, &[("kelpie.variant.build_side", built)]).await,
            };
            for sql in queries {
                assert_eq!(
                    text(&compiled, sql).await,
                    text(&operators, sql).await,
                    "{sql} on {device}, {built}"
                );
            }
        }
    }
}
