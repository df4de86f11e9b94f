//! The kernels of expressions are accepted by NVRTC, which needs no GPU. Skipped, with a message, where it is not installed.

use kelpie_backend::cuda;
use kelpie_compile::context::{Argument, Context, Repr};
use kelpie_compile::expr::{BitOp, DatePart, Expr, ExprKind, Function, Search, Side};
use kelpie_compile::layout::{ColumnLayout, Storage};
use kelpie_compile::lower::lower;
use kelpie_compile::types::DataType;
use kelpie_device::nvrtc;
use kelpie_kir::{Builder, Scalar, Target, Type, validate};

use crate::build::*;

/// The columns that the expressions read: a text, an integer, a float, a decimal, an unsigned integer, a date.
fn columns() -> Vec<DataType> {
    vec![Utf8, Int64, Float64, decimal(38, 4), UInt8, Date32]
}

fn layout(data_type: &DataType) -> ColumnLayout {
    let fixed = |scalar| Storage::Fixed { scalar, has_base: false };
    let storage = match data_type {
        Utf8 => Storage::Text { offset: Scalar::U32 },
        Float64 => fixed(Scalar::F64),
        UInt8 => fixed(Scalar::U8),
        Date32 => fixed(Scalar::I32),
        Decimal128 { .. } => fixed(Scalar::I128),
        _ => fixed(Scalar::I64),
    };
    ColumnLayout { storage, has_nulls: true, range: data_type.full_range() }
}

fn expressions() -> Vec<Expr> {
    let of = |index: usize| col(index, columns()[index].clone());
    let text = || of(0);
    let list =
        |input: Expr, list| make(ExprKind::InList { input: Box::new(input), list, negated: false }, Boolean);
    let mut all = Vec::new();
    for op in [BitOp::And, BitOp::Or, BitOp::Xor, BitOp::ShiftLeft, BitOp::ShiftRight] {
        for index in [1, 4] {
            let data_type = columns()[index].clone();
            all.push(call(Function::Bits(op), vec![of(index), of(index)], data_type));
        }
    }
    for index in 0..columns().len() {
        let data_type = columns()[index].clone();
        for function in [Function::Greatest, Function::Least] {
            all.push(call(function, vec![of(index), of(index)], data_type.clone()));
        }
    }
    all.push(call(Function::OneNan, vec![of(2)], Float64));
    for (index, digits) in [(2, None), (2, Some(3)), (3, Some(1)), (3, None)] {
        let data_type = columns()[index].clone();
        let arguments = [of(index)].into_iter().chain(digits.map(|digits| int(digits, Int64)));
        all.push(call(Function::Trunc, arguments.collect(), data_type));
    }
    for part in [DatePart::IsoYear, DatePart::IsoDayOfWeek, DatePart::Week] {
        all.push(call(Function::DatePart(part), vec![of(5)], Int32));
    }
    all.push(list(of(1), (0..100).map(|i| int(i << 40, Int64)).collect()));
    all.push(list(of(3), (0..100).map(|i| int(i << 100, decimal(38, 4))).collect()));
    all.push(list(of(2), (0..100).map(|i| number(f64::from(i))).collect()));
    all.push(list(text(), (0..100).map(|i| string(&i.to_string())).collect()));
    for function in [Function::Upper, Function::Lower, Function::InitialCapitals, Function::Reverse] {
        all.push(call(function, vec![text()], Utf8));
    }
    all.push(call(Function::Translate, vec![text(), string("ab"), string("x")], Utf8));
    all.push(call(Function::SplitPart, vec![text(), string("."), of(1)], Utf8));
    all.push(call(Function::Pad(Side::Left), vec![text(), of(1), text()], Utf8));
    all.push(call(Function::Search(Search::Position), vec![text(), text()], Int32));
    for data_type in [Float64, Float32] {
        all.push(cast(text(), data_type.clone()));
        all.push(try_cast(text(), data_type));
    }
    all
}

#[test]
fn kernels_of_expressions_are_accepted() {
    let mut builder = Builder::new();
    let target = Target::simt(32, 256, 48 << 10, 1000);
    for (number, expr) in expressions().iter().enumerate() {
        builder.begin_kernel(&format!("expression_{number}"));
        let mut cx = Context::new(&mut builder, &target);
        let row = cx.argument("row", Type::I64, Argument::RowCount);
        cx.begin_scan(0, (columns().iter().map(layout).collect(), Vec::new()), columns(), row);
        let value = lower(&mut cx, expr).unwrap_or_else(|error| panic!("{error} in {:?}", expr.kind));
        let result = match value.repr {
            Repr::Scalar(value) => value,
            Repr::Text(text) => cx.builder.load(text.data),
        };
        let scalar = cx.builder.scalar(result);
        let output = cx.argument("output", Type::global(scalar), Argument::State(0));
        cx.builder.store(output, result);
        builder.end_kernel();
    }
    let module = validate(builder.finish().unwrap_or_else(|error| panic!("{error}")));
    let module = module.unwrap_or_else(|error| panic!("{error}"));
    let source = cuda::print(&module).unwrap_or_else(|error| panic!("{error}"));
    match nvrtc::get() {
        Err(error) => eprintln!("skipped: {error}"),
        Ok(nvrtc) => {
            let compiled = nvrtc.compile(&source, "sm_90", "expressions");
            assert!(compiled.is_ok(), "{:?}", compiled.err());
        }
    }
}
