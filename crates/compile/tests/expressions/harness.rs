//! Evaluates one expression over rows of literal values on the SIMT interpreter.

use kelpie_backend::simt::{self, Config, Memory};
use kelpie_compile::context::{
    Argument, Case, ColumnPart, Constant, Context, HeapPart, Lowered, Repr, Status,
};
use kelpie_compile::expr::{Expr, ExprKind, children};
use kelpie_compile::layout::{ColumnLayout, Storage};
use kelpie_compile::lower::{facts, lower};
use kelpie_compile::types::{DataType, Range};
use kelpie_kir::builder::V;
use kelpie_kir::{Builder, Scalar, Target, Type, ValidModule, validate};

/// A value of a row, or a result.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
    Error(Status),
}

impl From<i64> for Value {
    fn from(value: i64) -> Value {
        Value::Int(value.into())
    }
}
impl From<i128> for Value {
    fn from(value: i128) -> Value {
        Value::Int(value)
    }
}
impl From<i32> for Value {
    fn from(value: i32) -> Value {
        Value::Int(value.into())
    }
}
impl From<bool> for Value {
    fn from(value: bool) -> Value {
        Value::Bool(value)
    }
}
impl From<f64> for Value {
    fn from(value: f64) -> Value {
        Value::Float(value)
    }
}
impl From<&str> for Value {
    fn from(value: &str) -> Value {
        Value::Text(value.into())
    }
}
impl From<Status> for Value {
    fn from(status: Status) -> Value {
        Value::Error(status)
    }
}
impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::Null, Into::into)
    }
}

/// `None` in tables of expectations.
pub const NULL: Value = Value::Null;

/// Checks an expression: each row is the columns' values and the expected result. Every table runs with the columns'
/// ranges known (and text in dictionaries) and unknown, and with a margin behind buffers and without.
#[track_caller]
pub fn check(expr: &Expr, rows: &[(Vec<Value>, Value)]) {
    check_over(None, expr, rows);
}

/// As [`check`], over a projection of the columns.
#[track_caller]
pub fn check_over(projection: Option<&[Expr]>, expr: &Expr, rows: &[(Vec<Value>, Value)]) {
    for (known, has_margin) in [(false, false), (true, false), (false, true), (true, true)] {
        let evaluated = Evaluation::new(projection, expr, rows, known, has_margin);
        for (row, (input, expected)) in rows.iter().enumerate() {
            let actual = evaluated.run(row);
            assert!(
                same(&actual, expected),
                "{input:?} gives {actual:?} instead of {expected:?} (ranges known: {known}, margin: {has_margin}) in {:?}\n{}",
                expr.kind,
                kelpie_kir::text::print(&evaluated.module)
            );
        }
    }
}

/// As [`check`] for expressions over one column.
#[track_caller]
pub fn check_one(expr: &Expr, rows: Vec<(Value, Value)>) {
    let rows: Vec<(Vec<Value>, Value)> =
        rows.into_iter().map(|(input, expected)| (vec![input], expected)).collect();
    check(expr, &rows);
}

fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Float(a), Value::Float(b)) => a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()),
        _ => a == b,
    }
}

struct Evaluation {
    module: ValidModule,
    arguments: Vec<Argument>,
    columns: Vec<(DataType, Vec<Value>)>,
    result: DataType,
    /// What lowering says of the value.
    range: Option<Range>,
    case: Case,
    /// Text columns are dictionaries.
    dictionaries: bool,
    /// Bytes behind each buffer that may be read.
    margin: usize,
}

const TEXT_LIMIT: usize = 256;
/// Room for new text: more than any test makes, but for the one that asks for more.
const HEAP_BYTES: usize = 1 << 14;
/// What stands where nothing was written yet, and behind buffers.
const JUNK: u8 = 0xA5;

fn stored(data_type: &DataType) -> Storage {
    let scalar = match data_type {
        DataType::Boolean | DataType::Null | DataType::UInt8 => Scalar::U8,
        DataType::Int8 => Scalar::I8,
        DataType::Int16 => Scalar::I16,
        DataType::UInt16 => Scalar::U16,
        DataType::Int32 | DataType::Date32 => Scalar::I32,
        DataType::UInt32 => Scalar::U32,
        DataType::UInt64 => Scalar::U64,
        DataType::Float32 => Scalar::F32,
        DataType::Float64 => Scalar::F64,
        DataType::Decimal128 { .. } => Scalar::I128,
        DataType::Utf8 => return Storage::Text { offset: Scalar::U32 },
        _ => Scalar::I64,
    };
    Storage::Fixed { scalar, has_base: false }
}

fn column_types(expr: &Expr, types: &mut Vec<DataType>) {
    if let ExprKind::Column(index) = expr.kind {
        if types.len() <= index {
            types.resize(index + 1, DataType::Int64);
        }
        types[index] = expr.data_type.clone();
    }
    children(expr).into_iter().for_each(|child| column_types(child, types));
}

fn range_of(values: &[Value]) -> Option<Range> {
    let mut range: Option<Range> = None;
    for value in values {
        let value = match value {
            Value::Int(value) => *value,
            Value::Bool(value) => i128::from(*value),
            _ => continue,
        };
        let point = Range { min: value, max: value };
        range = Some(range.map_or(point, |range| range.union(point)));
    }
    range
}

impl Evaluation {
    fn new(
        projection: Option<&[Expr]>,
        expr: &Expr,
        rows: &[(Vec<Value>, Value)],
        known: bool,
        has_margin: bool,
    ) -> Evaluation {
        let mut types = Vec::new();
        for read in projection.unwrap_or(std::slice::from_ref(expr)) {
            column_types(read, &mut types);
        }
        let columns: Vec<(DataType, Vec<Value>)> = types
            .iter()
            .enumerate()
            .map(|(index, ty)| (ty.clone(), rows.iter().map(|(row, _)| row[index].clone()).collect()))
            .collect();
        let layouts: Vec<ColumnLayout> = columns
            .iter()
            .map(|(ty, values)| ColumnLayout {
                storage: match ty {
                    DataType::Utf8 if known => Storage::Dictionary {
                        code: Scalar::U8,
                        entries: distinct(values).len().max(1) as u32,
                    },
                    _ => stored(ty),
                },
                has_nulls: values.contains(&Value::Null),
                range: range_of(values).filter(|_| known).or_else(|| ty.full_range()),
            })
            .collect();
        let ranges: Vec<Option<Range>> = layouts.iter().map(|layout| layout.range).collect();
        let mut builder = Builder::new();
        builder.begin_kernel("expression");
        let margin_bytes = if has_margin { kelpie_kir::MARGIN_BYTES } else { 0 };
        let target = Target { margin_bytes, ..Target::simt(1, 1, 1 << 16, 1) };
        let mut cx = Context::new(&mut builder, &target);
        let row = cx.argument("row", Type::I64, Argument::RowCount);
        cx.begin_scan(0, (layouts, Vec::new()), types, row);
        if let Some(projection) = projection {
            cx.push_projection(projection);
        }
        let value = lower(&mut cx, expr).unwrap_or_else(|error| panic!("{error} in {:?}", expr.kind));
        let (case, range) = (store(&mut cx, &value), value.range);
        let known_columns = projection.is_none();
        let found = facts(expr, &|column| ranges.get(column).copied().flatten())
            .unwrap_or_else(|error| panic!("{error}"));
        assert!(!known_columns || found.range == value.range, "range of {:?}", expr.kind);
        let arguments = cx.into_arguments();
        builder.end_kernel();
        let module = builder.finish().unwrap_or_else(|error| panic!("{error} in {:?}", expr.kind));
        let fails = kelpie_kir::text::print(&module).contains("report");
        assert!(!known_columns || found.can_fail == fails, "can_fail of {:?}", expr.kind);
        let module = validate(module).unwrap_or_else(|error| panic!("{error} in {:?}", expr.kind));
        Evaluation {
            module,
            arguments,
            columns,
            result: expr.data_type.clone(),
            range,
            case,
            dictionaries: known,
            margin: margin_bytes as usize,
        }
    }

    fn run(&self, row: usize) -> Value {
        let mut memory = Memory::new();
        let upload = |memory: &mut Memory, bytes: &[u8]| {
            let id = memory.allocate(bytes.len().max(1) + self.margin);
            if let Some(data) = memory.data_mut(id) {
                data.fill(JUNK);
                data[..bytes.len()].copy_from_slice(bytes);
            }
            simt::Argument::Pointer(memory.address(id))
        };
        let outputs = [32, TEXT_LIMIT].map(|bytes| memory.allocate(bytes));
        let arguments: Vec<simt::Argument> = self
            .arguments
            .iter()
            .map(|argument| match argument {
                Argument::Column { column, part, .. } => {
                    let bytes = self.buffer(*column, *part);
                    upload(&mut memory, &bytes)
                }
                Argument::RowCount => simt::Argument::Scalar(row as i128),
                Argument::Constant(Constant::Int(_, value)) => simt::Argument::Scalar(*value),
                Argument::Constant(Constant::Bool(value)) => simt::Argument::Scalar((*value).into()),
                Argument::Constant(Constant::F32(value)) => simt::Argument::Scalar(value.to_bits().into()),
                Argument::Constant(Constant::F64(value)) => simt::Argument::Scalar(value.to_bits().into()),
                Argument::Bytes(bytes) => upload(&mut memory, bytes),
                Argument::State(index) => simt::Argument::Pointer(memory.address(outputs[*index])),
                Argument::Heap(HeapPart::Capacity) => simt::Argument::Scalar(HEAP_BYTES as i128),
                Argument::Heap(HeapPart::Bytes) => upload(&mut memory, &[JUNK; HEAP_BYTES]),
                Argument::Heap(HeapPart::Cursor) => upload(&mut memory, &[0; 8]),
                Argument::Scratch { words, .. } => upload(&mut memory, &vec![0; *words as usize * 4]),
                other => panic!("argument {other:?}"),
            })
            .collect();
        let config = Config { lanes: 1, block_threads: 1, step_limit: 1_000_000, ..Config::default() };
        let report = simt::Program::new(&self.module, "expression")
            .and_then(|program| program.run(&arguments, &mut memory, &config, &|| false))
            .unwrap_or_else(|fault| panic!("{fault}\n{}", kelpie_kir::text::print(&self.module)));
        self.stays_in_range(memory.data(outputs[0]).unwrap_or_default());
        if report.status != 0 {
            let status = Status::from_code(report.status);
            return Value::Error(status.unwrap_or_else(|| panic!("status {}", report.status)));
        }
        let data = |index: usize| memory.data(outputs[index]).unwrap_or_default();
        self.result_value(data(0), data(1))
    }

    /// A value is within its range also where the expression fails: what it indexes is only as large as that.
    fn stays_in_range(&self, head: &[u8]) {
        let word = head[..16].iter().rev().fold(0, |word: i128, byte| word << 8 | i128::from(*byte));
        if let Some(Range { min, max }) = self.range.filter(|_| head[16] != 0) {
            let module = kelpie_kir::text::print(&self.module);
            assert!(min <= word && word <= max, "{word} is not in {min}..={max}\n{module}");
        }
    }

    fn result_value(&self, head: &[u8], text: &[u8]) -> Value {
        if head[16] == 0 {
            return Value::Null;
        }
        let word = head[..16].iter().rev().fold(0, |word: i128, byte| word << 8 | i128::from(*byte));
        match self.result {
            DataType::Boolean => Value::Bool(word != 0),
            DataType::Float32 => Value::Float(f64::from(f32::from_bits(word as u32))),
            DataType::Float64 => Value::Float(f64::from_bits(word as u64)),
            DataType::Utf8 => {
                let text = String::from_utf8_lossy(&text[..word as usize]).into_owned();
                Value::Text(match self.case {
                    Case::Keep => text,
                    Case::Upper => text.to_ascii_uppercase(),
                    Case::Lower => text.to_ascii_lowercase(),
                })
            }
            _ => Value::Int(word),
        }
    }

    fn buffer(&self, column: usize, part: ColumnPart) -> Vec<u8> {
        let (ty, values) = &self.columns[column];
        match part {
            ColumnPart::DictionaryOffsets => offsets(&distinct(values)),
            ColumnPart::DictionaryBytes => distinct(values).concat().into_bytes(),
            ColumnPart::Data if self.dictionaries && *ty == DataType::Utf8 => {
                let entries = distinct(values);
                let code = |value: &Value| match value {
                    Value::Text(text) => {
                        entries.iter().position(|entry| entry == text).unwrap_or_default() as u8
                    }
                    _ => 0,
                };
                values.iter().map(code).collect()
            }
            ColumnPart::Validity => {
                let mut bitmap = vec![0u8; values.len().div_ceil(8)];
                for (row, value) in values.iter().enumerate() {
                    bitmap[row / 8] |= u8::from(*value != Value::Null) << (row % 8);
                }
                bitmap
            }
            ColumnPart::Offsets => offsets(&values.iter().map(text_of).collect::<Vec<_>>()),
            _ => {
                let size = match stored(ty) {
                    Storage::Fixed { scalar, .. } => scalar.bytes() as usize,
                    _ => 0,
                };
                values.iter().flat_map(|value| bytes_of(ty, value, size)).collect()
            }
        }
    }
}

fn text_of(value: &Value) -> &str {
    match value {
        Value::Text(text) => text,
        _ => "",
    }
}

/// The distinct texts of a column; one at least.
fn distinct(values: &[Value]) -> Vec<&str> {
    let mut entries: Vec<&str> = Vec::new();
    for text in values.iter().filter(|value| matches!(value, Value::Text(_))).map(text_of) {
        if !entries.contains(&text) {
            entries.push(text);
        }
    }
    if entries.is_empty() {
        entries.push("");
    }
    entries
}

/// Where the texts start and end, one after the other.
fn offsets(texts: &[&str]) -> Vec<u8> {
    let mut end = 0u32;
    let mut bytes = end.to_le_bytes().to_vec();
    for text in texts {
        end += text.len() as u32;
        bytes.extend(end.to_le_bytes());
    }
    bytes
}

fn bytes_of(ty: &DataType, value: &Value, size: usize) -> Vec<u8> {
    match (ty, value) {
        (DataType::Float32, Value::Float(value)) => (*value as f32).to_le_bytes().to_vec(),
        (_, Value::Float(value)) => value.to_le_bytes().to_vec(),
        (_, Value::Int(value)) => value.to_le_bytes()[..size].to_vec(),
        (_, Value::Bool(value)) => vec![u8::from(*value)],
        (_, Value::Text(text)) => text.as_bytes().to_vec(),
        _ => vec![0; size],
    }
}

/// Writes the value as 16 bytes (text: its length), then whether it is valid; the text's bytes apart.
fn store(cx: &mut Context<'_>, value: &Lowered) -> Case {
    let head = cx.argument("head", Type::global(Scalar::U8), Argument::State(0));
    let wide = cx.builder.bitcast(head, Type::global(Scalar::I128));
    let (word, case) = match &value.repr {
        Repr::Scalar(scalar) => (as_word(cx, *scalar), Case::Keep),
        Repr::Text(text) => {
            let output = cx.argument("text", Type::global(Scalar::U8), Argument::State(1));
            copy(cx.builder, text.data, text.length, output);
            (cx.builder.convert(text.length, Scalar::I128), text.case)
        }
    };
    cx.builder.store(wide, word);
    let valid = value.valid.unwrap_or_else(|| cx.builder.bool(true));
    let valid = cx.builder.convert(valid, Scalar::U8);
    let index = cx.builder.u32(16);
    let place = cx.builder.offset(head, index);
    cx.builder.store(place, valid);
    case
}

fn as_word(cx: &mut Context<'_>, scalar: V) -> V {
    let bits = match cx.builder.scalar(scalar) {
        Scalar::F32 => cx.builder.bitcast(scalar, Scalar::U32),
        Scalar::F64 => cx.builder.bitcast(scalar, Scalar::U64),
        _ => scalar,
    };
    cx.builder.convert(bits, Scalar::I128)
}

fn copy(b: &mut Builder, data: V, length: V, output: V) {
    let zero = b.u32(0);
    let counter = b.var_of("copied", zero);
    b.begin_loop();
    let index = b.read(counter);
    let end = b.ge(index, length);
    b.break_if(end);
    let byte = b.offset(data, index);
    let byte = b.load(byte);
    let place = b.offset(output, index);
    b.store(place, byte);
    let one = b.u32(1);
    let next = b.add(index, one);
    b.assign(counter, next);
    b.end();
}
