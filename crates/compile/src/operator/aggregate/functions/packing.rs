//! Several narrow cells in one word, which a row adds to by one atomic.
//!
//! Counts and sums of integers of which it is known what all rows come to at most, by the number of the rows and the bounds of a value,
//! are fields of one sum: a row adds each value times a power of two of its own. So a word is a sum like any other, wherever it is
//! added up (registers, blocks, copies, tables), and its fields are told apart only where somebody reads them.
//!
//! A field is as wide as the sum of any of the rows. A field below zero borrows from those above it, which is given back when it is taken
//! out: from the lowest field on, each has the remainder modulo its power of two, within its bounds. So a word is zero only where all
//! of its fields are.

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Scalar};

use super::aggregate_cells::Cells;
use super::cell::{Cell, CellPlace, Contribution, ContributionForm, Field};
use super::cells::{CellOp, read_cell};
use crate::context::{Context, Unsupported};
use crate::types::Range;

/// Bits of a word that fields have: what it holds, with its sign, is an `i64`.
const WORD_BITS: u32 = 63;

/// Bits of a field for totals within bounds, and whether these have a sign.
fn width(total: Range) -> (u32, bool) {
    let bits = |value: i128| i128::BITS - value.leading_zeros();
    match total.min < 0 {
        true => (1 + bits((!total.min).max(total.max)), true),
        false => (bits(total.max).max(1), false),
    }
}

/// Groups up to which a block's memory may have them all, by the rule: there cells of 4 bytes are added to sooner than words of 8.
pub(crate) const BESIDE_BLOCKS: u64 = 1 << 20;

impl Cells {
    /// The cells that share a word where so many rows come at most: of each word, their numbers.
    pub fn packable(&self, rows: u64) -> Vec<Vec<usize>> {
        let mut words: Vec<(u32, Vec<usize>)> = Vec::new();
        for (index, cell) in self.cells.iter().enumerate() {
            let is_plain = matches!(
                cell.contribution.form,
                ContributionForm::Row | ContributionForm::Valid | ContributionForm::Value
            );
            let total = cell.total(rows).filter(|_| cell.op == CellOp::Add && cell.distinct.is_none());
            let Some(total) = total.filter(|_| is_plain) else { continue };
            let (bits, _) = width(total);
            match words.iter_mut().find(|(used, _)| used + bits <= WORD_BITS) {
                Some((used, cells)) => {
                    *used += bits;
                    cells.push(index);
                }
                None if bits <= WORD_BITS => words.push((bits, vec![index])),
                None => {}
            }
        }
        words.into_iter().map(|(_, cells)| cells).filter(|cells| cells.len() > 1).collect()
    }

    /// Packs the cells of each word.
    pub fn pack(&mut self, rows: u64, words: &[Vec<usize>]) -> Result<(), Unsupported> {
        let known = std::mem::take(&mut self.cells);
        let mut starts: Vec<Option<usize>> = vec![None; words.len()];
        for (index, cell) in known.iter().enumerate() {
            let word = words.iter().position(|cells| cells.contains(&index));
            let Some(word) = word else {
                self.places.push(CellPlace::Whole(self.cells.len()));
                self.cells.push(cell.clone());
                continue;
            };
            let own = match starts[word] {
                Some(own) => own,
                None => {
                    let cells: Vec<&Cell> =
                        words[word].iter().filter_map(|index| known.get(*index)).collect();
                    self.cells.push(packed(&cells, rows)?);
                    *starts[word].insert(self.cells.len() - 1)
                }
            };
            let field = words[word].iter().take_while(|other| **other != index).count();
            self.places.push(CellPlace::Field { cell: own, field });
        }
        let mut word = 0;
        for cell in &mut self.cells {
            cell.word = word;
            word += cell.op.words();
        }
        Ok(())
    }

    /// The cells that aggregates are read from, before some were packed: how they are updated, and where they are.
    pub(crate) fn unpacked(&self) -> Vec<(CellOp, CellPlace)> {
        let op = |place: &CellPlace| match place {
            CellPlace::Whole(index) => self.cells.get(*index).map_or(CellOp::Add, |cell| cell.op),
            CellPlace::Field { .. } => CellOp::Add,
        };
        let whole = (0..self.cells.len()).map(CellPlace::Whole);
        let places = if self.places.is_empty() { whole.collect() } else { self.places.clone() };
        places.iter().map(|place| (op(place), *place)).collect()
    }

    /// The parts of what is at a place; `words` gives the address (`ptr<u64>`) of a word of the group.
    pub(crate) fn read(
        &self,
        cx: &mut Context<'_>,
        place: CellPlace,
        words: &mut dyn FnMut(&mut Context<'_>, u32) -> V,
    ) -> (CellOp, Vec<V>) {
        let (CellPlace::Whole(index) | CellPlace::Field { cell: index, .. }) = place;
        let Some(cell) = self.cells.get(index) else {
            cx.impossible("a cell that is not there");
            return (CellOp::Add, CellOp::Add.nothing(cx));
        };
        let pointer = words(cx, cell.word);
        let parts = read_cell(cx, cell.op, pointer);
        match (place, &cell.contribution.form, parts.as_slice()) {
            (CellPlace::Field { field, .. }, ContributionForm::Packed { fields }, &[word]) => {
                (CellOp::Add, vec![take_out(cx, fields, field, word)])
            }
            _ => (cell.op, parts),
        }
    }
}

/// The cell that has several others as its fields.
fn packed(cells: &[&Cell], rows: u64) -> Result<Cell, Unsupported> {
    let (mut fields, mut arguments, mut shift) = (Vec::new(), Vec::new(), 0);
    let mut bounds = Range { min: 0, max: 0 };
    for cell in cells {
        let argument = cell.contribution.arguments.first().map(|argument| {
            let known = arguments.iter().position(|known| known == argument);
            known.unwrap_or_else(|| {
                arguments.push(argument.clone());
                arguments.len() - 1
            })
        });
        let form = cell.contribution.form.clone();
        let (Some(total), Some(own)) = (cell.total(rows), cell.bounds) else {
            return Err(Unsupported::internal("a field without bounds"));
        };
        let (bits, is_signed) = width(total);
        fields.push(Field { form, argument, shift, bits, is_signed });
        bounds.min += own.min.min(0) << shift;
        bounds.max += own.max.max(0) << shift;
        shift += bits;
    }
    Ok(Cell {
        op: CellOp::Add,
        contribution: Contribution { form: ContributionForm::Packed { fields }, arguments },
        distinct: None,
        word: 0,
        bounds: Some(bounds),
        is_sparse: cells.iter().all(|cell| cell.is_sparse),
    })
}

/// Whether a field counts the rows.
pub(crate) fn counts_rows(fields: &[Field]) -> bool {
    fields.iter().any(|field| field.form == ContributionForm::Row)
}

/// What a field of a word (`u64`) holds, as `u64`.
fn take_out(cx: &mut Context<'_>, fields: &[Field], field: usize, word: V) -> V {
    let b = &mut *cx.builder;
    let mut rest = b.bitcast(word, Scalar::I64);
    for (index, Field { bits, is_signed, .. }) in fields.iter().enumerate() {
        if index + 1 == fields.len() {
            break;
        }
        let own = match is_signed {
            true => {
                let above = b.i64((i64::BITS - bits).into());
                let shifted = b.binary(BinaryOp::Shl, rest, above);
                b.binary(BinaryOp::Shr, shifted, above)
            }
            false => {
                let mask = b.i64((1 << bits) - 1);
                b.and(rest, mask)
            }
        };
        if index == field {
            return b.bitcast(own, Scalar::U64);
        }
        let (above, bits) = (b.sub(rest, own), b.i64((*bits).into()));
        rest = b.binary(BinaryOp::Shr, above, bits);
    }
    b.bitcast(rest, Scalar::U64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::Expr;

    #[test]
    fn fields_are_as_wide_as_any_sum_of_the_rows() {
        let range = |min: i128, max: i128| Range { min, max };
        for (total, expected) in [
            (range(0, 0), (1, false)),
            (range(0, 1), (1, false)),
            (range(0, 255), (8, false)),
            (range(0, 256), (9, false)),
            (range(-1, 0), (1, true)),
            (range(-128, 127), (8, true)),
            (range(-129, 127), (9, true)),
            (range(-1, 128), (9, true)),
            (range(0, i64::MAX.into()), (63, false)),
            (range(i64::MIN.into(), 0), (64, true)),
        ] {
            assert_eq!(width(total), expected, "{total:?}");
        }
    }

    #[test]
    fn cells_share_a_word_where_all_rows_fit() {
        let cell = |contribution, bounds| Cell {
            op: CellOp::Add,
            contribution,
            distinct: None,
            word: 0,
            bounds: Some(bounds),
            is_sparse: false,
        };
        let argument = |column| Expr::column(column, crate::types::DataType::Int64, false);
        let value = |column| Contribution::of(ContributionForm::Value, &argument(column));
        let mut cells = Cells::default();
        cells.cells = vec![
            cell(Contribution::ROW, Range::new(0, 1)),
            cell(value(0), Range::new(-100, 100)),
            cell(value(1), Range::new(i64::MIN, i64::MAX)),
            cell(value(2), Range::new(0, 1 << 30)),
        ];
        // 10, 18 and 40 bits; with the last they are too many.
        assert_eq!(cells.packable(1000), [vec![0, 1]]);
        assert_eq!(cells.packable(4), [vec![0, 1, 3]]);
        assert!(cells.packable(1 << 40).is_empty());
    }
}
