//! Counts at each `mark` of a kernel the threads that come by together: the lanes of a warp that have work there (DogQC: Funke
//! and Teubner, VLDB 2020, section 2.1, “lane activity”).
//!
//! [`profiled`] turns a module into one that computes the same and counts. Each kernel gets one parameter more, the last: an array of
//! `u64`, zero before the launch, of [`MOST_LANES`] words for each number up to the greatest of its marks. In those of number `n`
//! stands how often 1, 2, … threads of a warp came by the marks of that number together. Marks of device functions stay
//! what they are: nothing.

use std::collections::HashSet;

use crate::module::*;
use crate::types::{Scalar, Type};

/// Words of a mark: one for each number of threads of the widest warp.
pub const MOST_LANES: usize = 32;

/// How many numbers marks of a kernel have: one more than the greatest; 0 where there is none.
pub fn marks(kernel: &Function) -> u32 {
    of_block(&kernel.body)
}

fn of_block(block: &Block) -> u32 {
    let of = |stmt: &Stmt| match stmt {
        Stmt::Mark(number) => number.saturating_add(1),
        Stmt::If { accept, reject, .. } => of_block(accept).max(of_block(reject)),
        Stmt::Loop(body) => of_block(body),
        _ => 0,
    };
    block.iter().map(of).max().unwrap_or(0)
}

/// The module with tallies in place of its kernels' marks.
pub fn profiled(module: &Module) -> Module {
    let mut done = module.clone();
    done.kernels = Default::default();
    for (_, kernel) in module.kernels.iter() {
        done.kernels.push(with_tallies(kernel));
    }
    done
}

fn with_tallies(source: &Function) -> Function {
    let mut function = source.clone();
    let mut names: HashSet<&str> = source.params.iter().map(|param| param.name.as_str()).collect();
    names.extend(source.vars.iter().map(|(_, var)| var.name.as_str()));
    names.extend(source.shared.iter().map(|(_, array)| array.name.as_str()));
    let mut name = "profile".to_string();
    while names.contains(name.as_str()) {
        name.push('_');
    }
    let param = function.params.len() as u32;
    function.params.push(Param { name, ty: Type::global(Scalar::U64) });
    function.body = tallied(&source.body, &mut function, param);
    function
}

/// A block with tallies.
fn tallied(block: &Block, function: &mut Function, param: u32) -> Block {
    let mut out = Block::with_capacity(block.len());
    for stmt in block {
        let stmt = match stmt {
            Stmt::Mark(number) => {
                let mut value = |ty, expr| {
                    let value = function.values.push(Value { ty, expr });
                    out.push(Stmt::Let(value));
                    value
                };
                let words = Type::global(Scalar::U64);
                let pointer = value(words, Expr::Param(param));
                let first = u128::from(*number) * MOST_LANES as u128;
                let literal = Expr::Literal(Literal::Int(Scalar::U64, first as i128));
                let index = value(Type::Scalar(Scalar::U64), literal);
                Stmt::Tally { counters: value(words, Expr::Offset { pointer, index }) }
            }
            Stmt::If { condition, accept, reject } => Stmt::If {
                condition: *condition,
                accept: tallied(accept, function, param),
                reject: tallied(reject, function, param),
            },
            Stmt::Loop(body) => Stmt::Loop(tallied(body, function, param)),
            other => other.clone(),
        };
        out.push(stmt);
    }
    out
}
