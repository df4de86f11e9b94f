//! Deep and long statements in the shell: an answer or an error, and the shell goes on.

use crate::program::shell;

#[test]
fn the_shell_survives_deep_statements() {
    let sum = |terms: usize| format!("select {} as x;\n", vec!["1"; terms].join("+"));
    let input = [
        sum(400),
        sum(50_000),
        format!("select {}1{} as x;\n", "(".repeat(5000), ")".repeat(5000)),
        format!("select {}1{};\n", "(select ".repeat(1000), ")".repeat(1000)),
        format!("select count(*) as n from ({});\n", vec!["select 1 as x"; 300].join(" union all ")),
        "select 6 * 7 as x;\n".into(),
    ];
    let run = shell(&["--format", "csv"], input.concat().as_bytes());
    let (out, err) = (run.out, run.err);
    assert_eq!(run.code, Some(1), "{out}{err}");
    assert_eq!(out.lines().collect::<Vec<_>>(), ["x", "400", "x", "1", "n", "300", "x", "42"], "{err}");
    assert!(
        err.contains("levels of operators") && err.contains("1000 subqueries inside each other"),
        "{err}"
    );
}
