//! Filters by a LIKE pattern whose needle is looked for in all texts of a CPU worker's batch at once (`lower/text/needle`). A search leaves a mark
//! at each row that matches, and the selection vector is made of the marks and of what else of the filters has a form for wide rows.
//!
//! Row by row a search begins anew some 20 to 80 bytes further on, so that words are compared where vectors could be, and each text is a
//! call and some branches that are foretold badly. What a batch costs is that texts are searched, too, which another condition leaves
//! out. Where a text matches, both go on with the next one.

use kelpie_kir::builder::V;
use kelpie_kir::{Pointee, Scalar, Target};

use crate::context::{Context, RawTexts, TEXT_MARGIN};
use crate::expr::{Expr, share_kept};
use crate::layout::ColumnInfo;
use crate::lower::{Finder, MORE_MARKS, NeedleCondition};
use crate::pipeline::Pipeline;
use crate::shape::LaunchShape;
use crate::types::DataType;

/// The share of rows that other conditions leave, at least, by rule. Rows here and there wait for memory at each text, which those of a
/// batch do not, so that a batch is no slower even where one row of five is searched (docs/log/decisions.md, "Row loops").
const LEAST_SHARE: f64 = 0.2;

/// A condition on the texts of a table's column that a search of batches decides.
#[derive(Debug)]
pub(super) struct Search {
    texts: RawTexts,
    condition: NeedleCondition,
    /// The share of rows that is thought to pass.
    pub share: f64,
}

impl Search {
    /// The search that decides a condition on columns behind some steps, or why there is none; `None` where it is no LIKE.
    pub(super) fn of(
        pipeline: &Pipeline,
        columns: &[ColumnInfo],
        condition: &Expr,
        (target, shape): (&Target, &LaunchShape),
    ) -> Option<Result<Search, String>> {
        let needle = NeedleCondition::of(condition)?;
        let search = needle.and_then(|needle| {
            let info = columns.get(needle.column).filter(|info| info.data_type == DataType::Utf8);
            let (_, column) = info.and_then(|info| info.origin).ok_or("the text is computed")?;
            let texts = pipeline.source.raw_texts(column);
            let texts = texts.ok_or("the texts do not lie one behind the other, or have a dictionary")?;
            if !shape.is_serial() || !target.has_vectors() {
                return Err("only a CPU's worker goes through texts of many rows, by vectors");
            }
            if target.margin_bytes < TEXT_MARGIN {
                return Err("bytes behind a text may not be read");
            }
            let share = share_kept(condition, &|_| None);
            Ok(Search { texts, condition: needle, share })
        });
        Some(search.map_err(String::from))
    }

    /// Why texts are searched together by rule where other conditions leave a share of the rows, or why not.
    pub(super) fn why(&self, share: f64) -> Result<&'static str, &'static str> {
        match share < LEAST_SHARE {
            true => Err("other conditions leave few rows to search"),
            false => Ok("vectors do not stop at the end of each text"),
        }
    }

    /// Makes ready to search batches of so many rows: before the loop over them.
    pub(super) fn begin<'s>(&'s self, cx: &mut Context<'_>, rows: u32) -> Searching<'s> {
        let marks = cx.builder.shared("marks", Pointee::Scalar(Scalar::U8), rows + MORE_MARKS);
        Searching { search: self, finder: self.condition.needle.begin(cx, &self.texts), marks }
    }
}

/// A search in a kernel.
pub(super) struct Searching<'s> {
    search: &'s Search,
    finder: Finder,
    /// One byte a row of the batch: 1 where its text matches.
    marks: V,
}

impl Searching<'_> {
    /// Searches the texts of a batch of rows. Whether a row of it may pass, `bool`.
    pub(super) fn batch(&self, cx: &mut Context<'_>, rows: (V, V)) -> V {
        let is_found = self.finder.mark(cx, rows, self.marks);
        match self.search.condition.negated {
            true => cx.builder.bool(true),
            false => is_found,
        }
    }

    /// Whether a row of the batch passes that begins with row `from`, as a `bool`, or as a mask for the rows of a wide row.
    pub(super) fn passes(&self, cx: &mut Context<'_>, row: V, from: V) -> V {
        let place = cx.builder.sub(row, from);
        let mark = cx.builder.offset(self.marks, place);
        let mark = match cx.wide() {
            Some(rows) => cx.builder.load_vector(mark, rows),
            None => cx.builder.load(mark),
        };
        let none = cx.builder.int(Scalar::U8, 0);
        let passes = match self.search.condition.negated {
            true => cx.builder.eq(mark, none),
            false => cx.builder.ne(mark, none),
        };
        match cx.raw_text_validity(&self.search.texts, row) {
            Some(valid) => cx.builder.and(passes, valid),
            None => passes,
        }
    }
}
