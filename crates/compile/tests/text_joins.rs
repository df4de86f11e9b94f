//! Joins on texts that have dictionaries: what is chosen, which pipelines make the map of codes or look texts up, and that kernels
//! validate and NVRTC accepts those of a GPU.

use std::collections::BTreeSet;

use kelpie_compile::MicroModel;
use kelpie_compile::context::{Argument, ColumnPart};
use kelpie_compile::expr::{CompareOp, Expr, ExprKind};
use kelpie_compile::layout::{ColumnLayout, Storage};
use kelpie_compile::pipeline::{self, Choices, CompiledPipeline, Program, RowCount, ScanInfo};
use kelpie_compile::plan::{Join, JoinKind, Plan, Scan};
use kelpie_compile::types::{DataType, Field, Literal, Range};
use kelpie_kir::{Scalar, Target};

use crate::common::{self, compiles, cuda_of, gpu};

/// A table of a text with so many entries in its dictionary, if it has one, and a number.
fn table(source: usize, entries: Option<u32>) -> (Plan, ScanInfo) {
    let field = |name: &str, data_type, nullable| Field { name: name.into(), data_type, nullable };
    let fields = vec![field("t", DataType::Utf8, true), field("v", DataType::Int32, false)];
    let code = if entries.is_some_and(|entries| entries <= 256) { Scalar::U8 } else { Scalar::U16 };
    let storage = match entries {
        Some(entries) => Storage::Dictionary { code, entries },
        None => Storage::Text { offset: Scalar::U32 },
    };
    let number = ColumnLayout {
        storage: Storage::Fixed { scalar: Scalar::U16, has_base: false },
        has_nulls: false,
        range: Some(Range { min: 0, max: 999 }),
    };
    let layouts = vec![ColumnLayout { storage, has_nulls: true, range: None }, number];
    let scan = Scan { source, table: "t".into(), columns: vec![0, 1], fields };
    (Plan::Scan(scan), ScanInfo::new(10_000_000, layouts))
}

fn column(index: usize) -> Expr {
    match index % 2 {
        0 => Expr::column(index, DataType::Utf8, true),
        _ => Expr::column(index, DataType::Int32, false),
    }
}

/// A join by some columns; of the build side the rows with small numbers.
fn joined(kind: JoinKind, keys: &[usize], entries: [Option<u32>; 2]) -> (Plan, [ScanInfo; 2]) {
    let [(build, of_build), (probe, of_probe)] = [0, 1].map(|source: usize| table(source, entries[source]));
    let limit = Expr::literal(Literal::Int(10), DataType::Int32);
    let kind_of_filter = ExprKind::Compare(CompareOp::Lt, Box::new(column(1)), Box::new(limit));
    let predicate = Expr { kind: kind_of_filter, data_type: DataType::Boolean, nullable: false };
    let build = Plan::Filter { input: Box::new(build), predicate };
    let keys = keys.iter().map(|key| (column(*key), column(*key))).collect();
    let join = Join { build, probe, kind, keys, residual: None, null_equal: false, null_aware: false };
    (Plan::Join(Box::new(join)), [of_build, of_probe])
}

fn compile(query: &(Plan, [ScanInfo; 2]), target: &Target, forced: &[(&str, &str)]) -> Program {
    let set = common::forced(forced);
    let duplicates = BTreeSet::from([0]);
    let choices = Choices { forced: &set, ..Choices::new(MicroModel::Resolution, &duplicates) };
    pipeline::compile_with(&query.0, &query.1, target, &choices).expect("the plan compiles")
}

fn chosen(program: &Program, axis: &str) -> Option<(&'static str, String)> {
    let choice = program.genome.of("join0").find(|choice| choice.axis.name == axis)?;
    Some((choice.value, choice.reason.clone()))
}

/// Whether a pipeline looks at the bytes of a dictionary.
fn reads_entries(pipeline: &CompiledPipeline) -> bool {
    let is_entry =
        |argument: &&Argument| matches!(argument, Argument::Column { part: ColumnPart::DictionaryBytes, .. });
    pipeline.variant.all_arguments().any(|argument| is_entry(&argument))
}

#[test]
fn dictionaries_on_both_sides_are_told_by_codes() {
    for target in [gpu(), Target::cpu(2)] {
        let query = joined(JoinKind::ProbeSemi, &[0], [Some(300), Some(40)]);
        let program = compile(&query, &target, &[]);
        let reason = "few texts on both sides are looked up once, not for each row";
        assert_eq!(chosen(&program, "text_join"), Some(("codes", reason.into())));
        // The codes are slots.
        assert_eq!(chosen(&program, "join").map(|(form, _)| form), Some("direct"));
        let maps: Vec<_> =
            program.pipelines.iter().filter(|p| p.name.contains("dictionary entries")).collect();
        let [map] = maps.as_slice() else { panic!("{} maps", maps.len()) };
        assert_eq!(map.name, "dictionary entries → codes of the build side");
        let RowCount::Class(class) = map.rows else { panic!("{:?}", map.rows) };
        assert_eq!(program.classes[class].initial, 40);
        assert!(reads_entries(map));

        let program = compile(&query, &target, &[("text_join", "texts")]);
        assert_eq!(chosen(&program, "text_join"), Some(("texts", "forced".into())));
        assert_eq!(chosen(&program, "join").map(|(form, _)| form), Some("hash"));
        assert!(program.pipelines.iter().all(|p| !p.name.contains("dictionary entries")));
    }
}

#[test]
fn where_the_probe_side_has_no_dictionary_the_reason_says_so() {
    for (entries, reason) in [
        ([Some(9), None], "texts of the probe side have no dictionary"),
        ([None, None], "texts have no dictionaries"),
    ] {
        let program = compile(&joined(JoinKind::Inner, &[0], entries), &gpu(), &[]);
        assert_eq!(chosen(&program, "text_join"), Some(("texts", reason.into())));
    }
    let program = compile(&joined(JoinKind::Inner, &[1], [Some(9); 2]), &gpu(), &[]);
    assert_eq!(chosen(&program, "text_join"), None);
    // As a dictionary of the rows of an inner sort may have more entries than these are rows.
    let (plan, mut infos) = joined(JoinKind::Inner, &[0], [Some(300); 2]);
    infos.iter_mut().for_each(|info| info.rows = 100);
    let program = compile(&(plan, infos), &gpu(), &[]);
    let reason = "to look texts up in a dictionary takes longer than to compare those of so few rows";
    assert_eq!(chosen(&program, "text_join"), Some(("texts", reason.into())));
}

/// Texts without a dictionary are looked up where rows are stored.
#[test]
fn texts_of_the_build_side_alone_are_looked_up() {
    for target in [gpu(), Target::cpu(2)] {
        let (plan, mut infos) = joined(JoinKind::Inner, &[0], [None, Some(300)]);
        infos[0].rows = 1_000_000;
        let program = compile(&(plan, infos), &target, &[]);
        let reason = "texts of the build side are looked up in the other's dictionary";
        assert_eq!(chosen(&program, "text_join"), Some(("codes", reason.into())));
        assert_eq!(chosen(&program, "join").map(|(form, _)| form), Some("direct"));
        assert!(program.pipelines.iter().all(|p| !p.name.contains("dictionary entries")));
        assert!(reads_entries(&program.pipelines[0]), "{}", program.pipelines[0].name);
    }
}

/// Rows of the probe side are left out early by the bitmap of a filtered build side, as they are by numbers.
#[test]
fn codes_have_bits() {
    let query = joined(JoinKind::ProbeSemi, &[0], [Some(300), Some(300)]);
    for target in [gpu(), Target::cpu(2)] {
        let program = compile(&query, &target, &[]);
        let probe = program.pipelines.last().expect("a pipeline");
        assert!(probe.name.contains("runtime filter"), "{}", probe.name);
        assert_eq!(probe.prunes, []);
        let program = compile(&query, &target, &[("pruning", "off")]);
        let probe = program.pipelines.last().expect("a pipeline");
        assert!(!probe.name.contains("runtime filter"), "{}", probe.name);
    }
}

#[test]
fn kernels_are_accepted() {
    use JoinKind::*;
    let mut seen = BTreeSet::new();
    for kind in [Inner, FullOuter, BuildAnti, BuildMark, ProbeSemi, ProbeAnti, ProbeMark] {
        for keys in [&[0][..], &[1, 0]] {
            for (entries, forms) in [
                ([None, Some(300)], ["direct", "warp"]),
                ([None, Some(40)], ["hash", "packed"]),
                ([Some(300), Some(40)], ["direct", "lane"]),
                ([Some(40), Some(65_536)], ["hash", "packed"]),
                ([Some(256), Some(300)], ["hash", "warp"]),
            ] {
                let query = joined(kind, keys, entries);
                for target in [gpu(), Target::simt(4, 8, 200 << 10, 4), Target::cpu(2)] {
                    let [form, expansion] = forms;
                    let forced = [("text_join", "codes"), ("join", form), ("expansion", expansion)];
                    let program = compile(&query, &target, &forced);
                    assert_eq!(chosen(&program, "text_join").map(|(value, _)| value), Some("codes"));
                    accepts(program, &target, &mut seen);
                }
            }
        }
    }
}

/// Every kernel validates, and NVRTC accepts those of an NVIDIA GPU that it has not seen.
fn accepts(program: Program, target: &Target, seen: &mut BTreeSet<String>) {
    for pipeline in program.pipelines {
        let name = pipeline.name.clone();
        for source in pipeline.into_modules().filter_map(|module| cuda_of(&name, module, target)) {
            if seen.insert(source.clone()) {
                compiles(&name, &source);
            }
        }
    }
}
