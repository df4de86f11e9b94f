//! The experiments of DogQC (Funke, Teubner, “Data-Parallel Query Processing on Non-Uniform Data”, VLDB 2020, section 5): joins
//! and filters that leave lanes of a warp idle, with what balances them and without. Each is a figure of the paper.
//!
//! Joins of keys are of tables in memory, of which the scale factor 1 has the paper's 10 million rows; the others are of the Star
//! Schema Benchmark and of TPC-H. Where the paper shows a pipeline, that pipeline is measured, not the ones that build its tables.

mod data;
mod texts;

pub use self::data::{TABLES, rows, tables};
pub use self::texts::{TABLES as TEXT_TABLES, rows as text_rows, tables as text_tables};
use super::figures::figures;
use super::model::{Case, Data, Model, TEXT_BYTES};
use super::{Experiment, Measure};
use crate::{Workload, ssb};

figures! {
    /// A figure of the paper.
    {
        Joins: "dogqc-8", "Joins: who takes the matches of a row, by the distribution of foreign keys",
            "DogQC, section 5.1, figure 8";
        Matches: "dogqc-9", "TPC-H 10, orders join lineitem: who takes the matches of a row",
            "DogQC, sections 3.1 and 5.1, figures 2 and 9";
        Filters: "dogqc-10", "A filter before a join: lane refill with one warp a multiprocessor",
            "DogQC, section 5.2, figure 10";
        FiltersWarps: "dogqc-11", "A filter before a join: lane refill with 8 and 16 warps a multiprocessor",
            "DogQC, section 5.2, figure 11";
        Sparse: "dogqc-12", "TPC-H 10, lineitem joins orders: lane refill",
            "DogQC, sections 4.1 and 5.2, figures 5 and 12";
        MatchesWarps: "dogqc-13", "A join of Zipf's keys: push-down parallelism and lane refill",
            "DogQC, section 5.3, figure 13";
        Tpch: "dogqc-14", "TPC-H: kernels with and without balanced lanes and dictionaries, transfers apart",
            "DogQC, section 5.4, figure 14";
        EndToEnd: "dogqc-15", "TPC-H from SQL to rows", "DogQC, section 5.4, figure 15";
        Texts: "dogqc-text", "Texts of which a few are long: which lanes match, compare and hash them",
            "no figure of DogQC, sections 3.4, 4 and 5.3";
    }
}

/// Axes and values.
type Values = &'static [(&'static str, &'static str)];

/// What balances nothing: a lane goes on with its own rows, and takes all of their matches.
const NAIVE: Values = &[("expansion", "lane"), ("lane_refill", "off")];
/// Lanes take the matches of a warp's rows, row by row (push-down parallelism, section 3).
const LEADERS: Values = &[("expansion", "warp"), ("lane_refill", "off")];
/// Lanes take the matches of all of a warp's rows.
const PACKED: Values = &[("expansion", "packed"), ("lane_refill", "off")];
/// What does not fill the warp waits for the matches of later rows.
const STAGED: Values = &[("expansion", "staged"), ("lane_refill", "off")];
/// Each lane takes the matches of rows of its own, and goes on with another row while others are not done (section 5.3).
const WALKED: Values = &[("expansion", "refill"), ("lane_refill", "off")];
/// Columns are loaded at the scan, or at the match, and change lanes (full scan); else they are loaded where they are read.
const FULL_SCAN: (&str, &str) = ("live_columns", "values");
/// And wait until there are enough of them.
const REFILLED: Values = &[("expansion", "packed"), ("lane_refill", "all")];
/// The rows of a key lie side by side in the bucket of their index, as the paper's hash table has them; else their numbers do.
const IN_BUCKETS: (&str, &str) = ("bucket_entries", "rows");
/// A lane looks at the texts of its own rows, or lanes share those of a warp's rows.
const OWN_TEXTS: Values = &[("text_lanes", "lane"), ("key_text_lanes", "lane")];
const SHARED_TEXTS: Values = &[("text_lanes", "run"), ("key_text_lanes", "warp")];
/// The side that a join builds is the one that the query has there, whatever is known of the rows.
const BUILT_AS_WRITTEN: (&str, &str) = ("build_side", "written");
/// The paper has no runtime filters, and a thread has one row at a time: all rows of a scan come to the steps. Its joins build the side that
/// they are about.
const ALL_ROWS: Values = &[("pruning", "off"), ("row_loop", "single"), BUILT_AS_WRITTEN];
/// Joins stay in the order of the query: the left side is built, the right side probes.
const AS_WRITTEN: [(&str, &str); 2] =
    [("kelpie.join_order", "false"), ("datafusion.optimizer.join_reordering", "false")];
/// Foreign keys of a distribution, by the paper's name: their column, and the table of their primary keys.
const DISTRIBUTIONS: [(&str, &str, &str); 4] = [
    ("pk-fk", "each", "pk"),
    ("pk-32-fk", "each32", "pk32"),
    ("pk-zipf-fk", "zipf", "pk"),
    ("pk-4zipf-fk", "zipf4", "pk"),
];
/// Shares of the rows that filters keep.
const SELECTIVITIES: [f64; 10] = [0.0, 0.01, 0.04, 0.09, 0.17, 0.24, 0.4, 0.6, 0.8, 1.0];
/// Warps a multiprocessor, and the value of the axis `blocks` that makes so many of blocks of one warp, where 64 fill it.
const WARPS: [(u32, &str); 6] =
    [(1, "sixty_fourth"), (4, "sixteenth"), (8, "eighth"), (16, "quarter"), (32, "half"), (64, "fill")];

/// Poster case 1: the pipeline of orders, which join lineitem as the build side (figure 2). DataFusion puts joins that stand one
/// directly in the other from left to right, and leaves those of subqueries where they are.
const CASE_1: &str = "nation join (
    select * from customer join (
      select o_custkey, l_extendedprice, l_discount from lineitem join orders on l_orderkey = o_orderkey
      where o_orderdate >= date '1993-10-01' and o_orderdate < date '1994-01-01' and l_returnflag = 'R'
    ) on c_custkey = o_custkey
  ) on n_nationkey = c_nationkey";
/// Poster case 2: the pipeline of lineitem, which joins the orders of customers (figure 5).
const CASE_2: &str = "nation join customer on n_nationkey = c_nationkey
    join orders on c_custkey = o_custkey join lineitem on o_orderkey = l_orderkey
  where o_orderdate >= date '1993-10-01' and o_orderdate < date '1994-01-01' and l_returnflag = 'R'";

impl Figure {
    /// What the positions of its points are.
    pub(super) fn positions(self) -> &'static str {
        match self {
            Figure::Joins => "foreign keys",
            Figure::Filters | Figure::FiltersWarps => "selectivity",
            Figure::MatchesWarps => "warps a multiprocessor",
            Figure::Texts => TEXT_BYTES,
            Figure::Matches | Figure::Sparse | Figure::Tpch | Figure::EndToEnd => "query",
        }
    }

    /// What is measured.
    pub(super) fn measure(self) -> Measure {
        match self {
            Figure::Tpch => Measure::Kernels,
            Figure::EndToEnd => Measure::Total,
            _ => Measure::Pipeline,
        }
    }

    /// What it runs on.
    pub(super) fn data(self) -> &'static [Data] {
        match self {
            Figure::Joins | Figure::MatchesWarps => &[Data::Joins],
            Figure::Texts => &[Data::Texts],
            Figure::Filters | Figure::FiltersWarps => &[Data::Workload(Workload::Ssb)],
            _ => &[Data::Workload(Workload::Tpch)],
        }
    }

    /// Whether the lanes that have rows at each step are looked at.
    pub(super) fn profiles_lanes(self) -> bool {
        matches!(self, Figure::Matches | Figure::Sparse | Figure::MatchesWarps | Figure::Texts)
    }

    /// What it compares at each position.
    pub(super) fn models(self) -> Vec<Model> {
        let rules = || Model::variants("rules", &[]);
        let with = |name: &str, values: &[(&str, &str)]| Model::variants(name, &[ALL_ROWS, values].concat());
        let matches = [
            with("naive", NAIVE),
            with("push-down", LEADERS),
            with("packed", PACKED),
            with("packed, refilled", REFILLED),
            with("staged", STAGED),
            with("refill of matches", WALKED),
        ];
        let scanned = [("push-down, full scan", LEADERS), ("packed, full scan", PACKED)];
        let scanned = scanned.map(|(name, values)| with(name, &[values, &[FULL_SCAN]].concat()));
        match self {
            Figure::Joins => {
                let in_buckets = [
                    ("push-down, buckets of rows", LEADERS),
                    ("packed, buckets of rows", PACKED),
                    ("staged, buckets of rows", STAGED),
                ]
                .map(|(name, values)| with(name, &[values, &[IN_BUCKETS]].concat()));
                // The rules build the primary keys, of which they know that they are unique.
                let as_written = Model::variants("rules, as written", &[BUILT_AS_WRITTEN]);
                matches.into_iter().chain(scanned).chain(in_buckets).chain([rules(), as_written]).collect()
            }
            Figure::Matches => matches.into_iter().chain([rules()]).collect(),
            Figure::MatchesWarps => matches.into(),
            Figure::Filters | Figure::FiltersWarps => vec![
                with("naive", NAIVE),
                with("refill", &[("expansion", "lane"), ("lane_refill", "filters")]),
            ],
            Figure::Sparse => vec![
                with("naive", NAIVE),
                with("refill behind the last", &[("expansion", "lane"), ("lane_refill", "last")]),
                with("refill behind each", &[("expansion", "lane"), ("lane_refill", "all")]),
                rules(),
            ],
            Figure::Tpch => {
                let naive = || Model::variants("naive", &[NAIVE, OWN_TEXTS].concat());
                let forced = || Model::variants("forced", REFILLED);
                let of_texts =
                    Model::variants("forced, lanes share texts", &[REFILLED, SHARED_TEXTS].concat());
                vec![
                    naive(),
                    rules().with_transfers(),
                    forced(),
                    naive().without_dictionaries(),
                    rules().with_transfers().without_dictionaries(),
                    forced().without_dictionaries(),
                    of_texts.without_dictionaries(),
                ]
            }
            // Each case has its own.
            Figure::Texts => Vec::new(),
            Figure::EndToEnd => Experiment::EndToEnd.models(),
        }
    }
}

/// The cases of a figure.
pub fn cases(figure: Figure) -> Vec<Case> {
    match figure {
        Figure::Joins => DISTRIBUTIONS
            .iter()
            .flat_map(|distribution| [("narrow", 1), ("wide", data::ATTRIBUTES)].map(|w| (distribution, w)))
            .map(|(distribution, (width, columns))| Case {
                series: Some(width.into()),
                ..join(distribution, columns)
            })
            .collect(),
        Figure::Matches => vec![poster(CASE_1, "scan orders")],
        Figure::Sparse => vec![poster(CASE_2, "scan lineitem")],
        Figure::Filters => filters(&WARPS[..1]),
        Figure::FiltersWarps => filters(&WARPS[2..4]),
        Figure::MatchesWarps => WARPS
            .iter()
            .map(|(warps, blocks)| {
                let case = join(&DISTRIBUTIONS[2], 1);
                Case { label: warps.to_string(), position: Some((*warps).into()), ..in_blocks(case, blocks) }
            })
            .collect(),
        Figure::Texts => texts::cases(),
        Figure::Tpch | Figure::EndToEnd => Vec::new(),
    }
}

fn as_written(case: Case, pipeline: &'static str) -> Case {
    let settings = AS_WRITTEN.map(|(name, value)| (name.into(), value.into())).to_vec();
    Case { settings, pipeline: Some(pipeline), ..case }
}

/// With a case's kernels in blocks of one warp, of which there are as many as a value of `blocks` says.
fn in_blocks(case: Case, blocks: &str) -> Case {
    with_variants(case, &[("block_threads", "32"), ("blocks", blocks)])
}

/// With values of axes for every series of a case.
fn with_variants(mut case: Case, values: &[(&str, &str)]) -> Case {
    let values = values.iter().map(|(axis, value)| (format!("kelpie.variant.{axis}"), value.to_string()));
    case.settings.extend(values);
    case
}

/// TPC-H 10 over its tables, joined in an order. Its groups are counted instead of sorted: each is looked at, and one row comes to
/// the host.
fn poster(joined: &str, pipeline: &'static str) -> Case {
    let sql = format!(
        "select count(*), sum(revenue) from (\n  select sum(l_extendedprice * (1 - l_discount)) as revenue\n  from {joined}\n  \
         group by c_custkey, c_name, c_acctbal, c_phone, n_name, c_address, c_comment\n)"
    );
    with_variants(as_written(Case::new("10", None, sql), pipeline), &[BUILT_AS_WRITTEN])
}

/// Sums of so many columns of each side, over a join whose build side has the foreign keys, but where the rules change that.
fn join((name, key, primary): &(&str, &str, &str), columns: u64) -> Case {
    let sums: Vec<String> = (1..=columns).map(|column| format!("sum(v{column}), sum(a{column})")).collect();
    let sql = format!("select {}\nfrom fk join {primary} on {key} = k", sums.join(", "));
    as_written(Case::new(name, None, sql), " join ")
}

/// Lines of the orders of the first days, joined with their parts.
fn filters(warps: &[(u32, &str)]) -> Vec<Case> {
    let mut cases = Vec::new();
    for (number, blocks) in warps {
        for share in SELECTIVITIES {
            let sql = format!(
                "select count(*), sum(lo_revenue), sum(p_size)\nfrom part join lineorder on p_partkey = lo_partkey\n\
                 where lo_orderdate < {}",
                ssb::first_date_beyond(share)
            );
            let case = as_written(Case::new(share, Some(share), sql), "scan lineorder");
            let series = (warps.len() > 1).then(|| format!("{number} warps"));
            cases.push(Case { series, ..in_blocks(case, blocks) });
        }
    }
    cases
}

#[cfg(test)]
mod tests;
