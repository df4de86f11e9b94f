//! What was looked up for several rows of a thread before they go on one by one.

use kelpie_kir::UnaryOp;
use kelpie_kir::builder::{V, Var};

use super::{Context, Lowered, Repr};

/// What the first look-up of a row has found.
#[derive(Debug, Clone)]
pub(crate) struct LookedUp {
    /// What the search has found (`u32`): the place of the match + 1 or its position in a bucket + 1; 0 for nothing; or that it goes on.
    pub number: V,
    /// Columns of the joined row that were loaded of it: numbers.
    pub columns: Vec<(usize, Lowered)>,
}

impl LookedUp {
    /// The registers that it is in.
    pub(crate) fn registers(&self) -> Vec<V> {
        let columns = self.columns.iter().flat_map(|(_, value)| value.registers());
        [self.number].into_iter().chain(columns).collect()
    }

    /// Variables that it is in: it may become another in a branch.
    pub(crate) fn keep(&self, cx: &mut Context<'_>) -> Vec<Var> {
        self.registers().into_iter().map(|register| cx.builder.var_of("looked_up", register)).collect()
    }

    /// What stands in variables ([`LookedUp::keep`]).
    pub(crate) fn kept_in(&self, cx: &mut Context<'_>, vars: &[Var]) -> LookedUp {
        let registers: Vec<V> = vars.iter().map(|var| cx.builder.read(*var)).collect();
        self.in_registers(&registers)
    }

    /// The same in other registers, as many as [`LookedUp::registers`] gives.
    pub(crate) fn in_registers(&self, registers: &[V]) -> LookedUp {
        let mut registers = registers.iter().copied();
        let number = registers.next().unwrap_or(self.number);
        let mut moved = |(column, value): &(usize, Lowered)| {
            let repr = match (&value.repr, registers.next()) {
                (Repr::Scalar(_), Some(register)) => Repr::Scalar(register),
                (repr, _) => repr.clone(),
            };
            let valid = value.valid.and_then(|_| registers.next());
            (*column, Lowered { repr, valid, range: value.range })
        };
        LookedUp { number, columns: self.columns.iter().map(&mut moved).collect() }
    }

    /// What was found of the row of a number (`u32`) among several.
    pub(crate) fn of_row(cx: &mut Context<'_>, rows: &[LookedUp], number: V) -> Option<LookedUp> {
        let first = rows.first()?;
        let of_rows: Vec<Vec<V>> = rows.iter().map(LookedUp::registers).collect();
        let mut chosen = Vec::new();
        for register in 0..first.registers().len() {
            let values = of_rows.iter().filter_map(|row| row.get(register).copied()).collect();
            chosen.push(choose(cx, values, number)?);
        }
        Some(first.in_registers(&chosen))
    }
}

/// The value of a number (`u32`) among several, bit by bit of the number: registers have no index.
fn choose(cx: &mut Context<'_>, mut values: Vec<V>, number: V) -> Option<V> {
    let mut bit = 1;
    while values.len() > 1 {
        let (mask, zero) = (cx.builder.u32(bit), cx.builder.u32(0));
        let set = cx.builder.and(number, mask);
        let is_set = cx.builder.ne(set, zero);
        let mut halved = Vec::new();
        for pair in values.chunks(2) {
            halved.push(match pair {
                [even, odd] => cx.builder.select(is_set, *odd, *even),
                rest => *rest.first()?,
            });
        }
        (values, bit) = (halved, bit << 1);
    }
    values.first().copied()
}

impl Context<'_> {
    /// The row that is begun next was looked up by the step of a number.
    pub(crate) fn take_looked_up(&mut self, found: Option<(usize, LookedUp)>) {
        self.looked_up = found;
    }

    /// What the step of a number has found for the current row before.
    pub(crate) fn looked_up(&self, step: usize) -> Option<LookedUp> {
        let found = self.looked_up.as_ref().filter(|(of, _)| *of == step);
        found.map(|(_, found)| found.clone())
    }

    /// Column `index` of the current row has been loaded before.
    pub(crate) fn remember(&mut self, index: usize, value: &Lowered) {
        let layer = self.current;
        if let Some(scope) = self.scopes.last_mut() {
            scope.push((layer, index, value.clone()));
        }
    }

    /// The position of the lowest bit that is set (`u32`).
    pub(crate) fn lowest_bit(&mut self, bits: V) -> V {
        let b = &mut *self.builder;
        let (number, one) = (b.unary(UnaryOp::Ffs, bits), b.u32(1));
        b.sub(number, one)
    }
}
