//! The shell: its arguments, its commands, its tables, its errors.

use std::fs;

use crate::program::{file, kelpie, program, shell, tpch};

#[test]
fn arguments_are_tables_files_of_statements_and_statements() {
    let folder = tempfile::tempdir().unwrap();
    let people = file(&folder, "people.csv", "name,age\nAnn,31\nBob,\n");
    let script = file(&folder, "two words.sql", "select 2 as b;\n.print done\nselect 3 as c");
    assert_eq!(kelpie(&["--format", "csv", "select 1 as a"]).ok(), "a\n1\n");
    assert_eq!(kelpie(&["--format", "csv", &script, "select 4 as d"]).ok(), "b\n2\ndone\nc\n3\nd\n4\n");
    let count = "select count(*) as n, sum(age) as s from people";
    assert_eq!(kelpie(&[&people, count, "--format", "csv"]).ok(), "n,s\n2,31\n");
    assert_eq!(shell(&[&people, "--format", "csv"], format!("{count};").as_bytes()).ok(), "n,s\n2,31\n");
    // A table alone: its rows.
    assert_eq!(kelpie(&[&people, "--format", "csv"]).ok(), "name,age\nAnn,31\nBob,\n");
    file(&folder, "a1.csv", "x\n1\n");
    file(&folder, "a2.csv", "x\n2\n");
    let pattern = format!("{}/a{{1,2}}.csv", folder.path().display());
    let sum = format!("select sum(x) as s from '{pattern}'");
    assert_eq!(kelpie(&["--format", "csv", &sum]).ok(), "s\n3\n");
    assert_eq!(kelpie(&[&pattern, "-c", ".tables"]).ok(), "a1\na2\n");
    let wrong = kelpie(&["bnech"]);
    assert!(wrong.code == Some(2) && wrong.err.contains("`kelpie bench`"), "{}", wrong.err);
    kelpie(&["missing.parquet", "select 1"]).fails_with(&["missing.parquet", "No such file"]);
    kelpie(&["missing.sql"]).fails_with(&["missing.sql", "No such file"]);
}

#[test]
fn every_command_does_what_its_help_says() {
    let folder = tempfile::tempdir().unwrap();
    let inner = file(&folder, "inner file.sql", "select 5 as e;");
    let out = folder.path().join("out.tsv");
    let input = format!(
        ".mode csv\nselect null as n, '' as t;\n.nullvalue -\nselect null as n;\n\\x\nselect 1 as a;\n.mode markdown\n\
         select 'x|y' as p, 2 as q;\n.mode tabs\nselect 1 as a, 2 as b;\n.mode\n.read '{inner}'\n\\i \"{inner}\"\n\
         .print hello  world\n.timer off\n.bail off\n.pager off\n.maxwidth 30\n.help mode\n\\dt na\n\\d region\n.version\nexit\n\
         select 9 as z;\n"
    );
    let run = shell(&["--data", tpch()], input.as_bytes());
    let expected = "n,t\n,\"\"\nn\n-\na = 1\n| p | q |\n| --- | --: |\n| x\\|y | 2 |\na\tb\n1\t2\n\
                    results are shown as tsv; there are table, line, csv, tsv, json, markdown, parquet, arrow\ne\n5\ne\n5\n\
                    hello world\ntiming is off\nbail is off\npager is off\ntables are at most 30 places wide\n\
                    .mode [format]: how results are shown: table, line, csv, tsv, json, markdown (also .format)\nnation\n\
                    region\n  r_regionkey ";
    assert!(run.out.starts_with(expected), "{}\n{}", run.out, run.err);
    assert!(
        run.out.contains("\nkelpie 0.") && run.out.contains("\ncpu: ") && !run.out.contains('z'),
        "{}",
        run.out
    );
    run.ok();
    let input = format!(
        ".output '{}'\nselect 1 as a, 'x' as b;\nselect 2 as a;\n.output\n.mode csv\nselect 3 as c;\n",
        out.display()
    );
    assert_eq!(shell(&[], input.as_bytes()).ok(), "c\n3\n");
    assert_eq!(fs::read_to_string(&out).unwrap(), "a\tb\n1\tx\na\n2\n");
}

#[test]
fn a_command_that_is_none_names_the_one_that_is_meant() {
    let run = shell(
        &["--data", tpch()],
        b".tabels\n.modes\n\\l\n.source x\n.zzz\n.mode jsn\n.schema natoin\n.schema ./missing.csv\n.timing maybe\n.read\n.quit now\n.read 'x\n",
    );
    assert_eq!(run.code, Some(1));
    for (line, part) in run.err.lines().zip([
        "stdin:1: unknown command `.tabels`; did you mean `.tables`?",
        "stdin:2: unknown command `.modes`; did you mean `.mode`?",
        "stdin:3: unknown command `\\l`; did you mean .tables?",
        "stdin:4: unknown command `.source`; did you mean .read?",
        "stdin:5: unknown command `.zzz`: .help lists the commands",
        "stdin:6: there is no format `jsn`; did you mean json?",
        "stdin:7: there is no table `natoin`; did you mean `nation`?",
        "stdin:8: there is no table `./missing.csv`: .tables lists",
        "stdin:9: `.timing maybe`: on or off",
        "stdin:10: .read needs the name of a file",
        "stdin:11: .quit takes no argument",
        "stdin:12: `.read 'x`: a quote has no end",
    ]) {
        assert!(line.contains(part), "`{part}` is not in: {line}");
    }
    assert_eq!(run.err.lines().count(), 12, "{}", run.err);
}

#[test]
fn files_and_the_standard_input_are_read_alike_and_errors_say_where() {
    let folder = tempfile::tempdir().unwrap();
    let text = "select 1 as a;\n-- note\n\n.print two\nselect 2 as b,\n  nope\nfrom (values (1)) t(x);\nselect 3 as c;\n";
    let script = file(&folder, "report.sql", text);
    let from_file = kelpie(&["--format", "csv", "-f", &script]);
    assert_eq!((from_file.code, from_file.out.as_str()), (Some(1), "a\n1\ntwo\n"));
    let shown = "LINE 6:   nope\n          ^\n";
    assert!(
        from_file.err.starts_with("error: ") && from_file.err.contains("report.sql:6: "),
        "{}",
        from_file.err
    );
    assert!(from_file.err.ends_with(shown) && from_file.err.contains("`nope`"), "{}", from_file.err);
    let from_input = shell(&["--format", "csv"], text.as_bytes());
    assert_eq!((from_input.code, from_input.out.as_str()), (Some(1), "a\n1\ntwo\nc\n3\n"));
    assert!(
        from_input.err.starts_with("error: stdin:6: ") && from_input.err.ends_with(shown),
        "{}",
        from_input.err
    );
    let bails = shell(&["--format", "csv", "--bail"], text.as_bytes());
    assert_eq!((bails.code, bails.out.as_str()), (Some(1), "a\n1\ntwo\n"));
    // What another file reads is that file's.
    let outer = file(&folder, "outer.sql", format!("\n.read '{script}'\nselect 9 as z"));
    let nested = kelpie(&["--format", "csv", "-f", &outer]);
    assert!(nested.err.contains("report.sql:6: ") && nested.err.contains("outer.sql:2: "), "{}", nested.err);
    assert_eq!((nested.code, nested.out.as_str()), (Some(1), "a\n1\ntwo\n"));
    let own = folder.path().join("self.sql");
    fs::write(&own, format!(".read '{}'\n", own.display())).unwrap();
    kelpie(&["-f", own.to_str().unwrap()]).fails_with(&["files that read each other"]);
}

#[test]
fn a_table_fits_where_a_width_is_given_and_is_whole_elsewhere() {
    let lineitem = "select * from lineitem order by l_orderkey, l_linenumber limit 3";
    for width in [40, 80, 100] {
        let limit = width.to_string();
        let table = kelpie(&["--data", tpch(), "--maxwidth", &limit, "-c", lineitem]).ok();
        assert!(table.lines().all(|line| line.chars().count() <= width), "{table}");
        let last = table.lines().last().unwrap();
        assert!(last.starts_with("3 rows; 16 columns, ") && last.ends_with(" shown"), "{table}");
        assert!(
            table.contains("| l_orderkey |") && table.contains("…") && table.contains("bigint"),
            "{table}"
        );
    }
    let whole = kelpie(&["--data", tpch(), "-c", lineitem]).ok();
    assert!(whole.lines().next().unwrap().len() > 200 && !whole.contains('…') && whole.ends_with("3 rows\n"));
    assert_eq!(kelpie(&["--data", tpch(), "--maxwidth", "0", "-c", lineitem]).ok(), whole);
    let sql = "select 1.5 as n, 'NULL' as t, null as z, '' as e";
    let expected = "+--------------+---------+------+---------+\n";
    let table = kelpie(&["--maxwidth", "80", "-c", sql]).ok();
    assert!(table.contains("| NULL    | NULL |         |") && !table.contains('\u{1b}'), "{expected}{table}");
}

#[test]
fn the_program_describes_itself() {
    let version = kelpie(&["--version"]).ok();
    assert!(
        version.starts_with("kelpie 0.") && version.contains(" build of ") && version.contains("\ncpu: "),
        "{version}"
    );
    assert_eq!(kelpie(&["-V"]).ok(), version);
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = kelpie(&["completions", shell]).ok();
        assert!(script.contains("kelpie") && script.contains("maxwidth"), "{shell}");
    }
    let page = kelpie(&["man"]).ok();
    assert!(page.contains(".TH kelpie 1") && page.contains("maxwidth"), "{page}");
    let folder = tempfile::tempdir().unwrap();
    kelpie(&["man", "--output", folder.path().to_str().unwrap()]).ok();
    let pages = crate::program::names(folder.path());
    assert!(
        pages.contains(&"kelpie.1".to_string()) && pages.contains(&"kelpie-bench.1".to_string()),
        "{pages:?}"
    );
    // One line for a device that is not there; what was looked for is for who asks.
    let devices = kelpie(&["devices"]).ok();
    let cuda = |text: &str| text.lines().find(|line| line.starts_with("cuda: ")).unwrap().to_string();
    if cuda(&devices).contains("not usable") {
        assert!(!devices.contains("looked for") && cuda(&devices).len() < 120, "{devices}");
        assert!(kelpie(&["devices", "-v"]).ok().contains("not usable"));
    }
}

#[test]
fn a_file_may_be_run_first() {
    let folder = tempfile::tempdir().unwrap();
    let init = file(&folder, "init.sql", ".mode csv\ncreate view v as select 7 as x;\n");
    assert_eq!(kelpie(&["--init", &init, "-c", "select x from v"]).ok(), "x\n7\n");
    let broken = file(&folder, "broken.sql", "select nope;");
    kelpie(&["--init", &broken, "-c", "select 1"]).fails_with(&["broken.sql:1: ", "nope"]);
    // The start-up file is the terminal's: no script changes with it.
    let configuration = folder.path().join("kelpie");
    fs::create_dir(&configuration).unwrap();
    fs::write(configuration.join("init.sql"), ".mode json\n").unwrap();
    let run = program(&["-c", "select 1 as a"]).env("XDG_CONFIG_HOME", folder.path()).output().unwrap();
    assert!(String::from_utf8_lossy(&run.stdout).starts_with("+"), "{run:?}");
}

#[test]
fn the_page_of_the_shell_has_every_command() {
    let page =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/book/src/shell.md")).unwrap();
    let help = kelpie(&["-c", ".help"]).ok();
    let commands: Vec<&str> = help
        .lines()
        .filter_map(|line| line.strip_prefix("  ."))
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert!(commands.len() > 10, "{help}");
    for command in commands {
        assert!(page.contains(&format!("| `.{command}")), "docs/book/src/shell.md has no .{command}");
    }
}

#[test]
fn tables_are_those_of_users() {
    let folder = tempfile::tempdir().unwrap();
    let people = file(&folder, "people.csv", "name,age\nAnn,31\n");
    let show = ["--format", "csv", "-c", "show tables"];
    let header = "table_catalog,table_schema,table_name,table_type\n";
    assert_eq!(kelpie(&show).ok(), header);
    let of_file = format!("{header}datafusion,public,people,BASE TABLE\n");
    assert_eq!(kelpie(&[&[people.as_str()][..], &show[..]].concat()).ok(), of_file);
    let made = ["--format", "csv", "-c", "create view v as select 1 as a", "-c", "show tables"];
    assert_eq!(kelpie(&made).ok(), format!("{header}datafusion,public,v,VIEW\n"));
    let all =
        "select count(*) > 3 as b from information_schema.tables where table_schema = 'information_schema'";
    assert_eq!(kelpie(&["--format", "csv", "-c", all]).ok(), "b\ntrue\n");
}
