//! Deep and long statements in the shell: an answer or an error, and the shell goes on.

use std::io::Write;
use std::process::{Command, Stdio};

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
    let mut child = Command::new(env!("CARGO_BIN_EXE_kelpie"))
        .args(["--format", "csv"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(input.concat().as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{out}{err}");
    assert_eq!(out.lines().collect::<Vec<_>>(), ["x", "400", "x", "1", "n", "300", "x", "42"], "{err}");
    assert!(
        err.contains("levels of operators") && err.contains("1000 subqueries inside each other"),
        "{err}"
    );
}
