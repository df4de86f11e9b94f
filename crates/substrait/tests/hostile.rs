//! What is no plan, or one that somebody has damaged or made to do harm, is an error: nothing panics, hangs or takes all memory.

use std::fs;
use std::path::Path;
use std::time::Duration;

use kelpie_session::KelpieSession;
use kelpie_substrait::Form;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::common::{answer, error, file, text, with_tables};

/// What reading a file says, which names the file.
async fn refusal(session: &KelpieSession, path: &Path) -> String {
    let answered = timeout(Duration::from_secs(60), answer(session, path)).await.unwrap();
    let said = error(answered);
    assert!(said.contains(path.to_str().unwrap()), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    assert!(said.len() < 2000, "{said}");
    said
}

async fn refusal_of(session: &KelpieSession, bytes: &[u8]) -> String {
    refusal(session, &file("plan", bytes).path).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_file_of_a_plan_is_told() {
    let session = with_tables().await;
    let folder = tempfile::tempdir().unwrap();
    assert!(refusal(&session, folder.path()).await.contains("folder"));
    assert!(refusal(&session, &folder.path().join("missing")).await.contains("cannot be read"));
    #[cfg(unix)]
    {
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert!(refusal(&session, &pipe).await.contains("a pipe or a device"));
        assert!(refusal(&session, Path::new("/dev/zero")).await.contains("a pipe or a device"));
    }
    let large = folder.path().join("large");
    fs::File::create(&large).unwrap().set_len(1 << 40).unwrap();
    assert!(refusal(&session, &large).await.contains("1099511627776 bytes, and a plan has at most 16777216"));
    for (bytes, says) in [
        (&b""[..], "it is empty"),
        (b"{}", "it has no relation"),
        (b"  {\"relations\": [}", "line 1"),
        (b"{\"relations\": [{\"root\": {}}]}", "no relation"),
        (b"SELECT 1", "it is no plan of Substrait"),
        (b"\x00\x01\x02", "it is no plan of Substrait"),
        (b"\xff\xfe{", "it is no plan of Substrait"),
        (b"PAR1", "it is no plan of Substrait"),
        (&[0; 1000], "it is no plan of Substrait"),
    ] {
        let said = refusal_of(&session, bytes).await;
        assert!(said.contains(says), "{bytes:?}: {said}");
    }
}

fn nested(count: usize, before: &str, inside: &str, after: &str) -> Vec<u8> {
    let relation = format!("{}{inside}{}", before.repeat(count), after.repeat(count));
    format!("{{\"relations\": [{{\"rel\": {relation}}}]}}").into_bytes()
}

#[tokio::test(flavor = "multi_thread")]
async fn deep_plans_are_errors() {
    let session = with_tables().await;
    for count in [70, 1000, 100_000] {
        let said = refusal_of(&session, &nested(count, "{\"filter\": {\"input\": ", "{}", "}}")).await;
        assert!(said.contains("recursion limit"), "{said}");
    }
    // The same in Protobuf: messages that have nothing but a message in them.
    for count in [60, 1000, 20_000] {
        // A filter as a relation, and a relation as the input of a filter, are field 2; a plan's relations are 3, and one's tree 1.
        let filters = (0..2 * count).fold(Vec::new(), |inside, _| field(2, &inside));
        let plan = field(3, &field(1, &filters));
        assert!(refusal_of(&session, &plan).await.contains("recursion limit"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_that_are_as_deep_as_may_be_are_answered() {
    let session = with_tables().await;
    let read = json!({"read": {
        "baseSchema": {"names": ["k"], "struct": {"types": [{"i64": {"nullability": "NULLABILITY_NULLABLE"}}]}},
        "namedTable": {"names": ["t"]},
    }});
    let always = json!({"literal": {"boolean": true}});
    let filters =
        (0..40).fold(read.clone(), |input, _| json!({"filter": {"input": input, "condition": always}}));
    let union = json!({"set": {"op": "SET_OP_UNION_ALL", "inputs": vec![read; 300]}});
    for (relation, rows) in [(filters, 5), (union, 1500)] {
        let plan = json!({"relations": [{"rel": relation}]});
        let added =
            kelpie_substrait::add_file(&session, &file("plan", plan.to_string().as_bytes()).path).await;
        let sql = added.unwrap().statement().replace("SELECT *", "SELECT count(*)");
        assert!(text(&session.sql(&sql).await.unwrap()).contains(&format!(" {rows} ")), "{sql}");
    }
}

/// A field of a message in Protobuf, which is a message.
fn field(number: u8, message: &[u8]) -> Vec<u8> {
    let (mut bytes, mut length) = (vec![number << 3 | 2], message.len());
    while length >= 0x80 {
        bytes.push(length as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    bytes.extend(message);
    bytes
}

/// A plan of a statement as JSON, changed.
async fn changed(session: &KelpieSession, sql: &str, change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let plan = kelpie_substrait::write(session, sql, Form::Json).await.unwrap();
    let mut plan: Value = serde_json::from_slice(&plan).unwrap();
    change(&mut plan);
    serde_json::to_vec(&plan).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_plan_names_and_is_not_there_is_told() {
    let session = with_tables().await;
    let sql = "SELECT k, upper(name) AS n FROM t WHERE x > 1 ORDER BY k";
    let written = kelpie_substrait::write(&session, sql, Form::Json).await.unwrap();
    let written = String::from_utf8(written).unwrap();
    for (from, to, says) in [
        ("\"t\"", "\"nowhere\"", "nowhere"),
        ("\"upper\"", "\"nothing\"", "nothing"),
        ("\"gt\"", "\"nothing\"", "nothing"),
        ("\"name\"", "\"missing\"", "missing"),
        ("\"fp64\"", "\"string\"", "type"),
        ("\"sort\":", "\"hashJoin\":", "hash join"),
        ("\"direction\": \"SORT_DIRECTION_ASC_NULLS_LAST\"", "\"direction\": 0", "direction"),
        ("\"outputMapping\": [", "\"outputMapping\": [99,", "column 99 of"),
        ("\"outputMapping\": [", "\"outputMapping\": [-1,", "column -1 of"),
    ] {
        assert!(written.contains(from), "{from}: {written}");
        let said = refusal_of(&session, written.replace(from, to).as_bytes()).await;
        assert!(said.contains(says), "{from}: {said}");
    }
    let twice = changed(&session, sql, |plan| {
        let relation = plan["relations"][0].clone();
        plan["relations"].as_array_mut().unwrap().push(relation);
    });
    assert!(refusal_of(&session, &twice.await).await.contains("2 relations"));
}

#[tokio::test(flavor = "multi_thread")]
async fn small_plans_do_not_become_large() {
    let session = with_tables().await;
    let column = |place: usize| json!({"selection": {"directReference": {"structField": {"field": place}}, "rootReference": {}}});
    let call = |function: usize, arguments: [&Value; 2]| {
        let arguments = arguments.map(|argument| json!({"value": argument}));
        json!({"scalarFunction": {"functionReference": function, "arguments": arguments}})
    };
    let functions = json!([
        {"extensionFunction": {"functionAnchor": 0, "name": "add"}},
        {"extensionFunction": {"functionAnchor": 1, "name": "xor"}},
    ]);
    let plan = |relation: &Value| {
        serde_json::to_vec(&json!({"extensions": functions, "relations": [{"rel": relation}]})).unwrap()
    };
    let nullable = json!({"nullability": "NULLABILITY_NULLABLE"});
    let read = json!({"read": {
        "baseSchema": {"names": ["k"], "struct": {"types": [{"i64": nullable}]}},
        "namedTable": {"names": ["t"]},
    }});
    // Each is the one before added to itself.
    let mut doubled = read.clone();
    for _ in 0..20 {
        let sum = call(0, [&column(0), &column(0)]);
        doubled = json!({"project": {
            "common": {"emit": {"outputMapping": [1]}}, "input": doubled, "expressions": [sum],
        }});
    }
    let found = timeout(Duration::from_secs(60), answer(&session, &file("plan", &plan(&doubled)).path)).await;
    assert!(found.unwrap().unwrap().contains(&(3u64 << 20).to_string()));
    // Each is of the one before in both of its arguments, as DataFusion reads it.
    let mut odd = json!({"literal": {"boolean": true}});
    for _ in 0..18 {
        odd = call(1, [&odd, &json!({"literal": {"boolean": true}})]);
    }
    let odd = json!({"project": {
        "common": {"emit": {"outputMapping": [1]}}, "input": read, "expressions": [odd],
    }});
    let found = timeout(Duration::from_secs(60), answer(&session, &file("plan", &plan(&odd)).path)).await;
    assert!(found.unwrap().unwrap().contains("true"));
    // Columns and relations without end.
    let many = json!({"project": {
        "common": {"emit": {"outputMapping": vec![0; 100_000]}}, "input": read, "expressions": [column(0)],
    }});
    assert!(refusal_of(&session, &plan(&many)).await.contains("at most 4096"));
    let union = json!({"set": {"op": "SET_OP_UNION_ALL", "inputs": vec![read.clone(); 5000]}});
    assert!(refusal_of(&session, &plan(&union)).await.contains("at most 1024"));
    let exchange = json!({"exchange": {"input": read, "partitionCount": -1, "roundRobin": {"exact": true}}});
    assert!(answer(&session, &file("plan", &plan(&exchange)).path).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_plans_are_errors_or_other_plans() {
    let session = with_tables().await;
    let sql = "SELECT label, sum(x) AS s, count(*) AS n FROM t JOIN d ON t.k = d.k \
               WHERE name IN ('ä', 'b') OR EXISTS (SELECT 1 FROM d e WHERE e.k = t.k + 1) \
               GROUP BY label HAVING sum(x) > 1 ORDER BY s DESC LIMIT 5";
    let mut random = fastrand::Rng::with_seed(7);
    for form in [Form::Binary, Form::Json] {
        let whole = kelpie_substrait::write(&session, sql, form).await.unwrap();
        let cuts = (0..40).map(|_| whole[..random.usize(..whole.len())].to_vec()).collect::<Vec<_>>();
        let flips = (0..150).map(|_| {
            let mut bytes = whole.clone();
            for _ in 0..=random.usize(..3) {
                let place = random.usize(..bytes.len());
                bytes[place] =
                    if random.bool() { bytes[place] ^ (1 << random.u8(..8)) } else { random.u8(..) };
            }
            bytes
        });
        for bytes in cuts.into_iter().chain(flips.collect::<Vec<_>>()) {
            let file = file("plan", &bytes);
            let answered = timeout(Duration::from_secs(60), answer(&session, &file.path)).await.unwrap();
            if let Err(error) = answered {
                let said = kelpie_session::message(&error);
                assert!(!said.contains("panicked"), "{said}\n{}", String::from_utf8_lossy(&bytes));
            }
        }
    }
    for length in [1, 10, 100, 1000, 10_000] {
        let bytes: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
        refusal_of(&session, &bytes).await;
    }
}
