//! What tables say of their rows, where statements of one session are not enough to see it: in a database, in several sessions at once, by
//! other ways into a table, and in time.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use kelpie_session::{Access, Database, KelpieSession, SessionOptions};

use crate::people::{error, rows};

fn options() -> SessionOptions {
    SessionOptions::default().with("kelpie.device", "cpu")
}

async fn in_database(folder: &Path) -> KelpieSession {
    let opened = KelpieSession::in_database(options(), &Database::open(folder).unwrap()).await.unwrap();
    assert_eq!(opened.problems, Vec::<String>::new());
    opened.session
}

async fn run(session: &KelpieSession, statements: &[&str]) {
    for sql in statements {
        session.sql(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

async fn fails(session: &KelpieSession, sql: &str, words: &str) {
    let error = error(session, sql).await;
    assert!(error.contains(words), "{sql}: no `{words}` in {error}");
}

const MAKE: [&str; 7] = [
    "create type mood as enum ('sad', 'ok')",
    "create sequence s",
    "create table p (id int primary key default nextval('s'), \"Code x\" varchar unique, n int default 5 check (n > 1), m mood)",
    "create table c (id int references p, constraint named unique (id))",
    "insert into p (\"Code x\", m) values ('a', 'ok'), ('b', null)",
    "insert into c values (1), (null)",
    "comment on table p is 'said'",
];

/// What is refused of the tables above.
async fn all_is_enforced(session: &KelpieSession) {
    fails(session, "insert into p (id) values (1)", "PRIMARY KEY (id) of p: there is a row with id = 1")
        .await;
    fails(session, "insert into p values (8, 'a', 3, null)", "UNIQUE (\"Code x\") of p").await;
    fails(session, "insert into p (n) values (0)", "CHECK (n > 1) of p").await;
    fails(session, "insert into p (m) values ('none')", "the type mood").await;
    fails(session, "insert into p (id) values (null)", "constraint violated: NOT NULL").await;
    fails(session, "insert overwrite p values (1, 'z', 3, null), (1, 'y', 3, null)", "id = 1 comes twice")
        .await;
    fails(session, "update p set id = 1 where id = 2", "PRIMARY KEY (id) of p").await;
    fails(session, "insert into c values (77)", "there is no row of p for id = 77").await;
    fails(session, "insert into c values (1)", "named, UNIQUE (id) of c").await;
    fails(session, "delete from p where id = 1", "no such row any more").await;
    fails(session, "drop table p", "p has to stay as it is").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_keeps_what_its_tables_say() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("d");
    {
        let session = in_database(&path).await;
        run(&session, &MAKE).await;
        all_is_enforced(&session).await;
    }
    {
        let session = in_database(&path).await;
        all_is_enforced(&session).await;
        assert_eq!(rows(&session, "select id, n, m from p order by id").await, ["1 5 ok", "2 5"]);
        assert_eq!(
            rows(&session, "select comment from duckdb_tables() where table_name = 'p'").await,
            ["said"]
        );
        // What failed has taken numbers of the sequence, and rows none.
        let next = rows(&session, "select nextval('s')").await;
        run(&session, &["insert into p (\"Code x\") values ('c')", "create unique index i on p (n, id)"])
            .await;
        let last = rows(&session, "select max(id) from p").await;
        assert_eq!(last[0].parse::<i64>().unwrap(), next[0].parse::<i64>().unwrap() + 1, "{next:?} {last:?}");
        run(
            &session,
            &[
                "insert into p (id, n) values (1, 9) on conflict (id) do update set n = excluded.n",
                "insert into p (id, n) values (1, 7), (100, 8) on conflict do nothing",
                "alter table c rename to kept",
            ],
        )
        .await;
        assert_eq!(rows(&session, "select n from p where id in (1, 100) order by id").await, ["9", "8"]);
    }
    let session = in_database(&path).await;
    fails(&session, "insert into kept values (1)", "named, UNIQUE (id) of kept").await;
    run(&session, &["drop index i", "drop table kept", "delete from p where id = 1", "drop type mood"]).await;
    run(&session, &["insert into p (id) values (1)", "drop sequence s"]).await;
    fails(&session, "insert into p (n) values (3)", "there is no sequence s").await;
    run(&session, &["drop table p", "create table p (id int)", "insert into p values (1), (1)"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_rows_that_come_at_once_one_wins() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(&folder.path().join("d")).unwrap();
    let mut sessions = Vec::new();
    for _ in 0..3 {
        sessions.push(Arc::new(KelpieSession::in_database(options(), &database).await.unwrap().session));
    }
    let alone = Arc::new(KelpieSession::new(options()).unwrap());
    for sessions in [sessions, vec![Arc::clone(&alone), Arc::clone(&alone), alone]] {
        run(&sessions[0], &["create table t (id int primary key)", "create sequence s"]).await;
        for round in 0..5 {
            let sql = format!("insert into t select i from range({round}, {round} + 1) as r(i)");
            let all = sessions.iter().map(|session| {
                let (session, sql) = (Arc::clone(session), sql.clone());
                tokio::spawn(async move { session.sql(&sql).await.is_ok() })
            });
            let mut done = 0;
            for one in all.collect::<Vec<_>>() {
                done += usize::from(one.await.unwrap());
            }
            assert_eq!(done, 1, "round {round}");
        }
        assert_eq!(rows(&sessions[1], "select count(*), count(distinct id) from t").await, ["5 5"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_way_leads_around_a_key() {
    let folder = crate::people::folder(&[("a.csv", "id,n\n1,10\n2,20\n"), ("b.csv", "id,n\n3,30\n2,40\n")]);
    let session = KelpieSession::new(options()).unwrap();
    run(&session, &["create table t (id int primary key, n int)"]).await;
    let copy = |name: &str| format!("copy t from '{}/{name}'", folder.path().display());
    run(&session, &[&copy("a.csv")]).await;
    fails(&session, &copy("b.csv"), "PRIMARY KEY (id) of t: there is a row with id = 2 already").await;
    // What is prepared before a key is there is held against it all the same.
    run(&session, &["prepare p as insert into t values ($1, $2)", "create unique index i on t (n)"]).await;
    fails(&session, "execute p(5, 20)", "UNIQUE INDEX (n) of t: there is a row with n = 20 already").await;
    let plain = session.context().sql("insert into t values (1, 99)").await.unwrap().collect().await;
    assert!(plain.unwrap_err().to_string().contains("PRIMARY KEY (id) of t"));
    assert_eq!(rows(&session, "select * from t order by id").await, ["1 10", "2 20"]);
    // The optimizer knows no keys.
    let grouped = error(&session, "select id, n from t group by id").await;
    assert!(grouped.contains('n'), "{grouped}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_without_effect_is_noted() {
    let session = KelpieSession::new(options()).unwrap();
    run(&session, &["create table t (id int)", "create index i on t (id)"]).await;
    let notes = session.take_notes();
    assert!(matches!(notes.as_slice(), [note] if note.contains("the index i has no effect")), "{notes:?}");
    assert_eq!(session.take_notes(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_only_reads_makes_nothing() {
    let access = Access { only_reads: true, ..Access::default() };
    let session = KelpieSession::new(options().with_access(access)).unwrap();
    for sql in [
        "create sequence s",
        "drop sequence s",
        "create type m as enum ('a')",
        "create unique index i on t (a)",
        "comment on table t is 'x'",
        "create table t (a int primary key)",
    ] {
        fails(&session, sql, "only reads").await;
    }
}

/// A key costs no more than the rows themselves; the bound is wide, as tests share the machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_many_rows_are_compared_by_queries() {
    let session = KelpieSession::new(options()).unwrap();
    run(
        &session,
        &[
            "create table t (id bigint primary key, n bigint)",
            "insert into t select i, i % 7 from range(300000) as r(i)",
        ],
    )
    .await;
    let start = Instant::now();
    fails(
        &session,
        "insert into t select 900000 - i * 3, 1 from range(200002) as r(i)",
        "id = 299997 already",
    )
    .await;
    run(&session, &["insert into t select 900000 - i, 1 from range(300000) as r(i)"]).await;
    fails(
        &session,
        "insert into t select 1000000 + i * 7919 % 99991, 1 from range(100000) as r(i)",
        "comes twice",
    )
    .await;
    assert_eq!(rows(&session, "select count(*), count(distinct id) from t").await, ["600000 600000"]);
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
}
