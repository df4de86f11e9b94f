//! Statements and control flow of random modules.

use super::{Context, Generator};
use crate::builder::V;
use crate::module::*;
use crate::types::Scalar;

/// Blocks nest at most this deep.
const MOST_DEPTH: usize = 3;

impl Generator {
    /// Statements until the budget is used, or by chance fewer within a block.
    pub(super) fn statements(&mut self, mut context: Context) {
        let (scope, vectors) = (self.pool.len(), self.vectors.pool.len());
        let most = if context.depth == 0 { usize::MAX } else { 1 + self.random.below(6) };
        for _ in 0..most {
            if self.budget == 0 {
                break;
            }
            self.budget -= 1;
            self.statement(&mut context);
        }
        // What nothing else used must reach the result too.
        let last = if context.depth == 0 { 6 } else { 1 };
        for value in self.pool[scope..].iter().rev().take(last).copied().collect::<Vec<_>>() {
            self.mix_value(value);
        }
        if context.depth == 0 {
            for (var, _) in self.vars.clone() {
                let value = self.builder.read(var);
                self.mix_value(value);
            }
        }
        self.pool.truncate(scope);
        self.vectors.pool.truncate(vectors);
    }

    fn statement(&mut self, context: &mut Context) {
        let nests = context.depth < MOST_DEPTH;
        match self.random.below(100) {
            0..30 => {
                let value = self.expression();
                self.pool.push(value);
            }
            30..40 => self.vector_statement(),
            40..55 => self.mix_in(),
            55..65 => self.assign(),
            65..75 if nests => self.conditional(*context),
            75..82 if nests => self.counted_loop(*context),
            82..85 if context.in_loop => self.leave_iteration(),
            85..87 if context.may_return => {
                self.leave_function();
                // Threads are missing from here on.
                context.uniform = false;
            }
            87..92 if context.uniform => self.together(),
            92..94 => self.builder.fence(),
            94..96 => {
                let number = self.random.below(4) as u32;
                self.builder.mark(number);
            }
            _ => self.memory_effect(),
        }
    }

    fn mix_in(&mut self) {
        let value = self.any_value();
        self.mix_value(value);
    }

    /// `mix = mix * 31 + value`
    pub(super) fn mix_value(&mut self, value: V) {
        let Some(mix) = self.mix else { return };
        let value = self.as_i64(value);
        let (old, factor) = (self.builder.read(mix), self.builder.i64(31));
        let product = self.builder.mul(old, factor);
        let sum = self.builder.add(product, value);
        self.builder.assign(mix, sum);
    }

    fn assign(&mut self) {
        if self.vars.is_empty() {
            return self.mix_in();
        }
        let (var, scalar) = self.random.pick(&self.vars);
        let value = self.value(scalar);
        self.builder.assign(var, value);
    }

    /// A condition that is the same in every thread.
    fn uniform_condition(&mut self) -> Option<V> {
        let (_, length) = self.input?;
        let bits = self.builder.u64(1 + self.random.below(7) as u64);
        let masked = self.builder.and(length, bits);
        let zero = self.builder.u64(0);
        Some(self.builder.eq(masked, zero))
    }

    fn conditional(&mut self, context: Context) {
        let uniform = if context.uniform && self.random.chance(50) { self.uniform_condition() } else { None };
        let condition = match uniform {
            Some(condition) => condition,
            None => self.value(Scalar::Bool),
        };
        // Where a barrier may follow, no thread may have left.
        let inside = Context {
            uniform: uniform.is_some(),
            may_return: context.may_return && uniform.is_none() && !context.uniform,
            depth: context.depth + 1,
            ..context
        };
        self.builder.begin_if(condition);
        self.statements(inside);
        if self.random.chance(50) {
            self.builder.begin_else();
            self.statements(inside);
        }
        self.builder.end();
    }

    /// A loop of at most 7 iterations. In a uniform context it is uniform, or apart.
    fn counted_loop(&mut self, context: Context) {
        let uniform = context.uniform && self.random.chance(60);
        let counter = self.builder.var("i", Scalar::U32);
        let bound = if uniform || self.random.chance(50) {
            self.builder.u32(self.random.below(8) as u32)
        } else {
            let (value, mask) = (self.value(Scalar::U32), self.builder.u32(7));
            self.builder.and(value, mask)
        };
        let zero = self.builder.u32(0);
        self.builder.assign(counter, zero);
        self.builder.begin_loop();
        let count = self.builder.read(counter);
        let done = self.builder.ge(count, bound);
        self.builder.break_if(done);
        let one = self.builder.u32(1);
        let next = self.builder.add(count, one);
        self.builder.assign(counter, next);
        let scope = self.pool.len();
        self.pool.push(count);
        self.open_loops += 1;
        self.statements(Context {
            uniform,
            in_loop: !uniform,
            may_return: context.may_return && !uniform && !context.uniform,
            depth: context.depth + 1,
        });
        self.open_loops -= 1;
        self.pool.truncate(scope);
        self.builder.end();
    }

    /// `if … { break }` or `if … { continue }`.
    fn leave_iteration(&mut self) {
        let condition = self.value(Scalar::Bool);
        self.builder.begin_if(condition);
        if self.random.chance(50) {
            self.builder.break_loop();
        } else {
            self.builder.continue_loop();
        }
        self.builder.end();
    }

    /// `if … { return }`, in a kernel after the output is written.
    fn leave_function(&mut self) {
        self.mix_in();
        let condition = self.value(Scalar::Bool);
        self.builder.begin_if(condition);
        let result = self.mixed();
        match &self.kernel {
            Some(parts) => {
                let output = parts.output;
                self.builder.store(output, result);
                self.builder.return_void();
            }
            None => self.builder.return_value(result),
        }
        self.builder.end();
    }

    /// What all threads do together.
    fn together(&mut self) {
        if !self.lane_operations {
            return self.builder.barrier();
        }
        if self.random.chance(10) {
            return self.builder.warp_barrier();
        }
        let value = match self.random.below(6) {
            0 => {
                let condition = self.value(Scalar::Bool);
                self.builder.value(Expr::Ballot(condition))
            }
            1 => {
                let condition = self.value(Scalar::Bool);
                self.builder.value(Expr::Any(condition))
            }
            2 => {
                let condition = self.value(Scalar::Bool);
                self.builder.value(Expr::All(condition))
            }
            3 => {
                let modes = [ShuffleMode::Index, ShuffleMode::Up, ShuffleMode::Down, ShuffleMode::Xor];
                let mode = self.random.pick(&modes);
                let value = self.any_value();
                let lane = self.small_lane();
                self.builder.value(Expr::Shuffle { mode, value, lane })
            }
            _ => match self.exchange() {
                Some(value) => value,
                None => return,
            },
        };
        self.pool.push(value);
    }

    /// Any `u32`, mostly a small one.
    pub(super) fn small_lane(&mut self) -> V {
        let lane = self.value(Scalar::U32);
        if self.random.chance(20) {
            return lane;
        }
        let mask = self.builder.u32(31);
        self.builder.and(lane, mask)
    }
}
