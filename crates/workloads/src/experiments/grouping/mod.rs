//! The experiments of Karnagel et al. (“Optimizing GPU-accelerated Group-By and Aggregation”, ADMS 2015): one grouping under
//! different variants, over numbers of groups. Each is a figure of the paper, but the last.
//!
//! The scale factor 1 is the paper's 335 million rows. A grouping is wrapped into a count of its groups and a sum of their rows, so
//! that up to 200 million groups need not come to the host: every group is looked at all the same.

mod data;

pub use self::data::{TABLE, rows, table};
use super::figures::figures;
use super::model::{Case, Model};

figures! {
    /// A figure of the paper.
    {
        Columns: "groupby-4", "One hash table: columns that are accessed",
            "Karnagel et al., section 3, figure 4";
        Regions: "groupby-5", "One hash table: regions of behaviour", "Karnagel et al., section 3, figure 5";
        Hashes: "groupby-6", "One hash table: how keys are hashed", "Karnagel et al., section 3, figure 6";
        Fill: "groupby-7", "One hash table: how full it is", "Karnagel et al., section 4, figure 7";
        Grids: "groupby-8", "One hash table: threads of a block and blocks",
            "Karnagel et al., section 4, figure 8";
        BestGrids: "groupby-9", "One hash table: three grids", "Karnagel et al., section 4, figure 9";
        Rules: "groupby-10", "Each way to group, and what the rules choose",
            "Karnagel et al., section 4, figure 10";
        Placement: "groupby-11", "Few groups: whose memory their table is in",
            "Karnagel et al., section 5.1, figure 11";
        Orders: "groupby-13", "Tables and sorts", "Karnagel et al., section 5.2, figure 13";
        Keys: "groupby-keys", "Sum, count and maximum by keys of different distributions", "not in the paper";
    }
}

/// Axes and values.
type Values = &'static [(&'static str, &'static str)];

/// One table in the device's memory, into which rows come as they are, an atomic for each (section 2).
const ONE_TABLE: Values =
    &[("group_table", "hash"), ("group_parts", "1"), ("local_preaggregation", "0"), ("segments", "off")];
/// As the paper goes on with it: with MurmurHash3, half full, in as many blocks of 1,024 threads as there are multiprocessors.
const INITIAL: Values = &[("hash_function", "murmur3"), ("slot_fill", "50")];
/// As the paper begins with it (section 3).
const FIRST: Values = &[("hash_function", "fnv1a"), ("hash_mapping", "modulo"), ("slot_fill", "50")];
/// Groups of most figures.
const COARSE: [u32; 12] =
    [1, 8, 64, 512, 4096, 32_768, 262_144, 1_000_000, 4_000_000, 16_000_000, 64_000_000, 200_000_000];
/// Groups of figure 7: beside those of most figures such that it depends on the fill whether a table has room in a cache: some 65,536 that of
/// a CPU's core, and some 2 million the last one of a GPU.
const FILLS: [u32; 17] = [
    1, 8, 64, 512, 4096, 32_768, 65_536, 131_072, 262_144, 1_000_000, 1_400_000, 2_000_000, 2_800_000,
    4_000_000, 16_000_000, 64_000_000, 200_000_000,
];
/// Groups of figure 11.
const FEW: [u32; 13] = [1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 128, 1024, 8192];
/// Groups of figure 8: one of each kind of behaviour that the paper found.
const GRID_GROUPS: [(&str, u32); 3] = [("1K", 1000), ("1M", 1_000_000), ("200M", 200_000_000)];
/// Threads of a block in figure 8.
const GRID_THREADS: [u32; 8] = [1024, 512, 256, 128, 64, 32, 16, 8];
/// Blocks of a multiprocessor in figure 8.
const GRID_BLOCKS: [u32; 6] = [1, 2, 4, 8, 16, 32];
/// Threads that fill a multiprocessor.
const MOST_THREADS: u32 = 2048;
/// Shares of the blocks that fill the device.
const SHARES: [(u32, &str); 7] = [
    (1, "fill"),
    (2, "half"),
    (4, "quarter"),
    (8, "eighth"),
    (16, "sixteenth"),
    (32, "thirty_second"),
    (64, "sixty_fourth"),
];
/// Groups of the distributions of keys.
const KEY_GROUPS: [u32; 6] = [1000, 10_000, 100_000, 1_000_000, 10_000_000, 50_000_000];

impl Figure {
    /// What the positions of its points are.
    pub(super) fn positions(self) -> &'static str {
        match self {
            Figure::Grids => "blocks of a multiprocessor",
            _ => "groups",
        }
    }

    /// What it compares at each position.
    pub(super) fn models(self) -> Vec<Model> {
        let rules = || Model::variants("rules", &[]);
        let one = |name: &str, values: &[Values]| {
            Model::variants(
                name,
                &[ONE_TABLE].into_iter().chain(values.iter().copied()).collect::<Vec<_>>().concat(),
            )
        };
        let and = |name: &str, values: Values| one(name, &[INITIAL, values]);
        let hashed = |name: &str, values: Values| one(name, &[values, &[("slot_fill", "50")]]);
        match self {
            Figure::Columns | Figure::Regions => vec![one("one hash table", &[FIRST]).with_transfers()],
            Figure::Hashes => vec![
                one("FNV-1a, modulo", &[FIRST]),
                hashed("Murmur3, modulo", &[("hash_function", "murmur3"), ("hash_mapping", "modulo")]),
                hashed("Murmur3, multiply-high", &[("hash_function", "murmur3")]),
            ],
            Figure::Fill => [("25 %", "25"), ("50 %", "50"), ("83 %", "83"), ("the cache's size", "cache")]
                .map(|(name, fill)| {
                    let values = [("hash_function", "murmur3"), ("slot_fill", fill)];
                    Model::variants(name, &[ONE_TABLE, &values].concat())
                })
                .to_vec(),
            // Each of its cases has its own.
            Figure::Grids => Vec::new(),
            Figure::BestGrids => [(1024, 1), (64, 8), (8, 8)]
                .into_iter()
                .filter_map(|(threads, blocks)| grid(&format!("{blocks} x {threads}"), threads, blocks))
                .collect(),
            Figure::Rules => {
                let direct = |name: &str, placement| {
                    let of_all =
                        [("group_table", "direct"), ("group_parts", "1"), ("local_preaggregation", "0")];
                    Model::variants(name, &[&of_all[..], &[("accumulator_memory", placement)]].concat())
                };
                let parts = |parts| Model::variants(&format!("{parts} parts"), &[("group_parts", parts)]);
                vec![
                    and("one hash table", &[]).with_transfers(),
                    direct("direct, device", "global"),
                    direct("direct, block", "block"),
                    parts("64"),
                    parts("1024"),
                    Model::variants("sort", &[("group_order", "sorted")]),
                    rules(),
                ]
            }
            Figure::Placement => vec![
                and("hash, device", &[]),
                Model::variants(
                    "hash, block",
                    &[("group_table", "hash"), ("group_parts", "1"), ("local_preaggregation", "1024")],
                ),
                Model::variants(
                    "direct, device",
                    &[("accumulator_memory", "global"), ("group_parts", "1"), ("local_preaggregation", "0")],
                ),
                Model::variants("direct, block", &[("accumulator_memory", "block")]),
                Model::variants("direct, thread", &[("accumulator_memory", "thread")]),
                Model::variants(
                    "direct, thread in the device's memory",
                    &[
                        ("accumulator_memory", "thread_global"),
                        ("group_parts", "1"),
                        ("local_preaggregation", "0"),
                    ],
                ),
                rules(),
            ],
            Figure::Orders => vec![
                and("one hash table", &[]).with_transfers(),
                Model::variants("sort", &[("group_order", "sorted")]),
                Model::variants("a strided sort", &[("group_order", "strided")]),
                Model::variants(
                    "direct",
                    &[("group_table", "direct"), ("group_parts", "1"), ("local_preaggregation", "0")],
                ),
                rules(),
            ],
            Figure::Keys => vec![rules(), Model::variants("hash", &[("group_table", "hash")])],
        }
    }
}

/// The cases of a figure at a scale.
pub fn cases(figure: Figure, scale: f64) -> Vec<Case> {
    // The paper has up to 200 million groups of 335 million rows. With a group a row there would be little to group.
    let most = rows(scale) * 3 / 5;
    let possible = |groups: &u32| u64::from(*groups) <= most;
    let over = |groups: &[u32], columns| -> Vec<Case> {
        groups.iter().copied().filter(possible).map(|groups| count(groups, columns)).collect()
    };
    match figure {
        Figure::Columns => (1..=4)
            .flat_map(|columns| {
                let series = Some(format!("{columns} columns"));
                let of = |case| Case { series: series.clone(), ..case };
                over(&COARSE, columns).into_iter().map(of).collect::<Vec<_>>()
            })
            .collect(),
        Figure::Grids => GRID_GROUPS
            .iter()
            .filter(|(_, groups)| possible(groups))
            .flat_map(|(name, groups)| {
                GRID_BLOCKS.map(|blocks| {
                    let row = |threads: u32| grid(&format!("{threads} threads a block"), threads, blocks);
                    Case {
                        label: blocks.to_string(),
                        position: None,
                        series: Some(format!("{name} groups")),
                        models: GRID_THREADS.into_iter().filter_map(row).collect(),
                        ..count(*groups, 1)
                    }
                })
            })
            .collect(),
        Figure::Placement => over(&FEW, 1),
        Figure::Hashes => {
            // So fine that a number of groups at which many keys meet in a slot is hit.
            let steps: Vec<u32> = (0..200).map(|step| (100.0 * 1.05f64.powi(step)) as u32).collect();
            over(&steps, 1)
        }
        Figure::Regions | Figure::Rules | Figure::Orders => {
            let powers: Vec<u32> = (0..=27).map(|power| 1 << power).chain([200_000_000]).collect();
            over(&powers, 1)
        }
        Figure::Keys => KEY_GROUPS
            .iter()
            .filter(|groups| possible(groups))
            .flat_map(|groups| ["uniform", "sorted", "zipf", "heavy"].map(|keys| sums(keys, *groups)))
            .collect(),
        Figure::Fill => over(&FILLS, 1),
        Figure::BestGrids => over(&COARSE, 1),
    }
}

/// One hash table, filled by so many blocks of a multiprocessor with so many threads each; `None` where no share of the blocks that
/// fill the device is as many.
fn grid(name: &str, threads: u32, blocks: u32) -> Option<Model> {
    let (_, share) = SHARES.into_iter().find(|(share, _)| threads * blocks * share == MOST_THREADS)?;
    let threads = threads.to_string();
    let values = [("block_threads", threads.as_str()), ("blocks", share)];
    Some(Model::variants(name, &[ONE_TABLE, INITIAL, &values].concat()))
}

/// Query B: rows of each group, and sums of further columns.
fn count(groups: u32, columns: usize) -> Case {
    let sums: String = (2..=columns).map(|column| format!(", sum(col{column}) as s{column}")).collect();
    let outer: String = (2..=columns).map(|column| format!(", sum(s{column})")).collect();
    let sql = format!(
        "select count(*), sum(c){outer}\nfrom (select count(*) as c{sums} from {TABLE} group by col1 % {groups})"
    );
    Case::new(groups, Some(groups.into()), sql)
}

/// Sum, count and maximum by a key of a distribution with so many groups.
fn sums(keys: &str, groups: u32) -> Case {
    let key = match keys {
        "sorted" => format!("ascending / {}", data::KEYS / groups),
        "zipf" => format!("zipf % {groups}"),
        // One group has a quarter of the rows.
        "heavy" => format!("case when col4 % 4 = 0 then 77 else col1 % {groups} end"),
        _ => format!("col1 % {groups}"),
    };
    let sql = format!(
        "select count(*), sum(s), sum(c), max(m)\n\
         from (select sum(col2) as s, count(*) as c, max(col3) as m from {TABLE} group by {key})"
    );
    Case { series: Some(keys.into()), ..Case::new(groups, Some(groups.into()), sql) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_cases_at_every_scale_and_each_has_a_name_of_its_own() {
        for figure in Figure::ALL {
            for scale in [1.0, 0.1, 0.0001] {
                let cases = cases(figure, scale);
                assert!(!cases.is_empty(), "{figure:?} at {scale}");
                let mut labels: Vec<_> = cases.iter().map(|case| (&case.label, &case.series)).collect();
                labels.sort();
                labels.dedup();
                assert_eq!(labels.len(), cases.len(), "{figure:?} at {scale}");
            }
        }
        // No more than fill a multiprocessor.
        let grids = cases(Figure::Grids, 1.0);
        let of = |blocks: &str| grids.iter().find(|case| case.label == blocks).map(|case| case.models.len());
        assert_eq!(GRID_BLOCKS.map(|blocks| of(&blocks.to_string())), [6, 7, 7, 6, 5, 4].map(Some));
        assert_eq!(cases(Figure::Regions, 1.0).len(), 29);
        assert!(cases(Figure::Columns, 1.0)[47].sql.contains("sum(s2), sum(s3), sum(s4)"));
    }
}
