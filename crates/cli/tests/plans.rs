//! `kelpie plan` and `--plan`.

#[cfg(not(feature = "substrait"))]
use crate::program::kelpie;

#[cfg(not(feature = "substrait"))]
#[test]
fn a_program_without_plans_says_how_to_get_them() {
    let says = ["built without Substrait", "--features substrait"];
    kelpie(&["plan", "-c", "SELECT 1"]).fails_with(&says);
    kelpie(&["--plan", "x"]).fails_with(&says);
    kelpie(&["explain", "--plan", "x"]).fails_with(&says);
}

#[cfg(feature = "substrait")]
mod with_substrait {
    use std::fs;
    use std::path::Path;

    use tempfile::TempDir;

    use crate::program::kelpie;

    fn text(path: &Path) -> &str {
        path.to_str().unwrap()
    }

    /// A folder with the table `t`.
    fn folder() -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("t.csv"), "k,x\n1,1.5\n2,2.5\n1,4\n").unwrap();
        folder
    }

    #[test]
    fn plans_are_written_run_and_explained() {
        let (data, made) = (folder(), tempfile::tempdir().unwrap());
        let (data, sql) = (data.path(), "SELECT k, sum(x) AS s FROM t GROUP BY k ORDER BY k");
        let expected = kelpie(&["--data", text(data), "--format", "csv", "-c", sql]).ok();
        for name in ["plan.json", "plan.bin"] {
            let path = made.path().join(name);
            kelpie(&["plan", "--data", text(data), "-c", sql, "--output", text(&path)]).ok();
            assert_eq!(fs::read(&path).unwrap().starts_with(b"{"), name.ends_with("json"));
            let found = kelpie(&["--data", text(data), "--format", "csv", "--plan", text(&path)]).ok();
            assert_eq!(found, expected);
            let explained = kelpie(&["explain", "--data", text(data), "--plan", text(&path)]).ok();
            assert!(explained.contains("KelpieExec"), "{explained}");
            let code = ["explain", "--data", text(data), "--plan", text(&path), "--stage", "kir"];
            assert!(kelpie(&code).ok().contains("kernel"));
            let analyzed =
                kelpie(&["explain", "--analyze", "--data", text(data), "--plan", text(&path)]).ok();
            assert!(analyzed.contains("p0"), "{analyzed}");
        }
        let shown = kelpie(&["plan", "--data", text(data), "-c", sql]).ok();
        assert_eq!(shown, fs::read_to_string(made.path().join("plan.json")).unwrap());
        // In the order of the command line, more than once.
        let path = made.path().join("plan.bin");
        let (mark, path) = ("SELECT 'mark' AS m", text(&path));
        let all = ["--data", text(data), "--format", "csv", "--plan", path, "-c", mark, "--plan", path];
        assert_eq!(kelpie(&all).ok(), format!("{expected}m\nmark\n{expected}"));
    }

    #[test]
    fn what_is_no_plan_is_told() {
        let data = folder();
        let file = data.path().join("t.csv");
        for run in [kelpie(&["--plan", text(&file)]), kelpie(&["explain", "--plan", text(&file)])] {
            run.fails_with(&[text(&file), "no plan of Substrait"]);
        }
        kelpie(&["--plan", text(data.path())]).fails_with(&["folder"]);
        let made = data.path().join("made.json");
        let written = ["plan", "--data", text(data.path()), "-c", "SELECT * FROM t", "--output", text(&made)];
        kelpie(&written).ok();
        kelpie(&["--plan", text(&made)]).fails_with(&[text(&made), "t"]);
        let other = ["plan", "-c", "CREATE TABLE x AS SELECT 1", "--output", text(&made)];
        kelpie(&other).fails_with(&["only a query"]);
        // What was there stays.
        assert!(fs::read_to_string(&made).unwrap().starts_with('{'));
    }
}
