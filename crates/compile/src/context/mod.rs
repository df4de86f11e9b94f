//! What lowering works on: the builder, the kernel's arguments, the target, and the current row.

mod argument;
mod dictionary;
mod load;
mod origin;
mod scratch;

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use kelpie_kir::builder::V;
use kelpie_kir::{Builder, Scalar, Target, Type};

use crate::expr::{Expr, ExprKind, columns_read, facts, infer_range, lower};
use crate::layout::ColumnLayout;
use crate::shape::LaunchShape;
use crate::table::stored::StoredColumn;
use crate::types::{DataType, Range};

pub use self::argument::{Argument, ColumnPart, Constant, HeapPart, Status};

/// Why something cannot be compiled: shown to the user beside the operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unsupported(pub String);

impl Unsupported {
    /// What the reason of a broken invariant begins with.
    const INTERNAL: &'static str = "internal error: ";

    /// An invariant of the compiler is broken: a defect of Kelpie, whatever the query.
    pub fn internal(what: impl std::fmt::Display) -> Unsupported {
        Unsupported(format!("{}{what}", Unsupported::INTERNAL))
    }

    /// What is broken, if this is about a broken invariant and not about the query.
    pub fn broken_invariant(&self) -> Option<&str> {
        self.0.strip_prefix(Unsupported::INTERNAL)
    }
}

/// A lowered SQL value of the current row.
#[derive(Debug, Clone)]
pub struct Lowered {
    /// The value; unspecified (but computable without fault) where it is NULL.
    pub repr: Repr,
    /// `bool`: not NULL. `None`: never NULL.
    pub valid: Option<V>,
    /// Bounds of the value where it is an integer inside.
    pub range: Option<Range>,
}

/// Representation of a value in registers.
#[derive(Debug, Clone)]
pub enum Repr {
    /// `bool` of a Boolean; `f32`/`f64` of floats; else `i32`, `i64` or `i128` (also for `UInt64` beyond `i64`),
    /// the narrowest that the range proves safe.
    Scalar(V),
    /// Text.
    Text(Text),
}

/// Text in registers.
#[derive(Debug, Clone)]
pub struct Text {
    /// First byte, `ptr<global, u8>`.
    pub data: V,
    /// Length in bytes, `u32`.
    pub length: V,
    /// Case mapping that is to be applied to each (ASCII) byte when it is read.
    pub case: Case,
    /// The dictionary code where the value is an unchanged dictionary column.
    pub code: Option<DictionaryCode>,
}

/// A value of a dictionary column: its code, and where the dictionary is.
#[derive(Debug, Clone, Copy)]
pub struct DictionaryCode {
    /// Position of the entry, `u32`.
    pub value: V,
    /// Entries of the dictionary.
    pub entries: u32,
    /// The scan of the query that has the column.
    pub scan: usize,
    /// Position of the column in the scan.
    pub column: usize,
}

/// A case mapping on ASCII bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Case {
    /// As stored.
    Keep,
    /// To upper case.
    Upper,
    /// To lower case.
    Lower,
}

/// A layer of the current row: where a column comes from.
#[derive(Debug, Clone)]
enum Layer {
    /// A table's columns, loaded when first asked for.
    Scan { scan: usize, layouts: Vec<ColumnLayout>, types: Vec<DataType>, row: V },
    /// Columns that an operator has computed.
    Values(Vec<Lowered>),
    /// Expressions over the layer below, evaluated when first asked for.
    Project(Vec<Expr>),
    /// Columns from several places, loaded when first asked for.
    Joined(Vec<Joined>),
}

/// Where a column of a joined row comes from.
#[derive(Debug, Clone)]
pub enum Joined {
    /// A column of the layer below.
    Below(usize),
    /// A stored column.
    Stored {
        /// The column.
        column: Box<StoredColumn>,
        /// Its place, `i64`; always readable.
        place: V,
        /// `bool`: there is such a row; else the value is NULL.
        present: Option<V>,
    },
    /// A value.
    Value(Lowered),
}

impl Joined {
    /// A stored column at a place.
    pub fn stored(column: &StoredColumn, place: V, present: Option<V>) -> Joined {
        Joined::Stored { column: Box::new(column.clone()), place, present }
    }
}

/// State of code generation for one kernel.
pub struct Context<'a> {
    /// Builds the module.
    pub builder: &'a mut Builder,
    /// What the kernel runs on.
    pub target: &'a Target,
    /// How it is launched: what depends on threads, warps and blocks is generated from this.
    pub shape: LaunchShape,
    /// Nothing is kept of what is built: see `expr::facts`.
    pub dry_run: bool,
    /// What is lowered is the condition of a dictionary's entry: see `expr::dictionary`.
    pub(crate) in_memo: bool,
    /// Conditions on dictionary columns, by scan and position, that the kernel computes once an entry.
    memos: Vec<((usize, usize), Expr)>,
    arguments: Vec<Argument>,
    layers: Vec<Layer>,
    /// Bounds of columns that were asked for, by layer and position.
    ranges: RefCell<HashMap<(usize, usize), Option<Range>>>,
    /// Values computed so far: (layer, column, value), in nested scopes.
    scopes: Vec<Vec<(usize, usize, Lowered)>>,
    /// Layer that `column` addresses.
    current: usize,
    /// Parameters of the constants of a row that is emitted several times, in the order they were asked for.
    repeated: Vec<u32>,
    /// How many of them this repetition has used; `None` outside of repetitions.
    repetition: Option<usize>,
    /// Where text is made that is thrown away with the row.
    scratch: Option<scratch::Scratch>,
    /// The first impossible state that was met: the kernel is not to be used.
    impossible: Option<String>,
}

impl<'a> Context<'a> {
    /// A context for the kernel that `builder` has begun, with the shape that suits most kernels of the target.
    pub fn new(builder: &'a mut Builder, target: &'a Target) -> Context<'a> {
        Context::shaped(builder, target, LaunchShape::of(target))
    }

    /// As [`Context::new`], for launches of a shape.
    pub fn shaped(builder: &'a mut Builder, target: &'a Target, shape: LaunchShape) -> Context<'a> {
        Context {
            builder,
            target,
            shape,
            dry_run: false,
            in_memo: false,
            memos: Vec::new(),
            arguments: Vec::new(),
            layers: Vec::new(),
            ranges: RefCell::default(),
            scopes: vec![Vec::new()],
            current: 0,
            repeated: Vec::new(),
            repetition: None,
            scratch: None,
            impossible: None,
        }
    }

    /// Notes a state that cannot be. What is emitted from here on is never run: who generates the kernel gives an internal
    /// error instead of it.
    pub(crate) fn impossible(&mut self, what: &str) {
        self.impossible.get_or_insert_with(|| what.to_string());
    }

    /// An internal error where an impossible state was met.
    pub(crate) fn check_possible(&self) -> Result<(), Unsupported> {
        self.impossible.as_ref().map_or(Ok(()), |what| Err(Unsupported::internal(what)))
    }

    /// The kernel's arguments, one a parameter.
    pub fn into_arguments(self) -> Vec<Argument> {
        self.arguments
    }

    // ---- arguments

    /// Adds a parameter and gives its value.
    pub fn argument(&mut self, name: &str, ty: impl Into<Type>, argument: Argument) -> V {
        if let Some(known) =
            self.arguments.iter().position(|a| *a == argument && !matches!(a, Argument::Constant(_)))
        {
            return self.builder.param(known as u32);
        }
        let index = self.builder.add_param(&format!("{name}_{}", self.arguments.len()), ty.into());
        self.arguments.push(argument);
        self.builder.param(index)
    }

    /// A literal of the query as a kernel parameter, so that another constant reuses the kernel.
    pub fn constant(&mut self, constant: Constant) -> V {
        let scalar = match constant {
            Constant::Int(scalar, _) => scalar,
            Constant::F32(_) => Scalar::F32,
            Constant::F64(_) => Scalar::F64,
            Constant::Bool(_) => Scalar::Bool,
        };
        if let Some(used) = self.repetition {
            self.repetition = Some(used + 1);
            let known = self.repeated.get(used).copied();
            if let Some(index) = known
                && self.arguments.get(index as usize) == Some(&Argument::Constant(constant))
            {
                return self.builder.param(index);
            }
            self.repeated.push(self.arguments.len() as u32);
        }
        self.argument("literal", scalar, Argument::Constant(constant))
    }

    /// The row that follows is emitted again from here: its constants are those of the row before, one parameter each.
    pub fn begin_repetition(&mut self, first: bool) {
        if first {
            self.repeated.clear();
        }
        self.repetition = Some(0);
    }

    /// Constants are parameters of their own again.
    pub fn end_repetition(&mut self) {
        self.repetition = None;
    }

    /// Bytes in device memory, uploaded once.
    pub fn bytes(&mut self, bytes: &[u8]) -> V {
        self.argument("bytes", Type::global(Scalar::U8), Argument::Bytes(bytes.into()))
    }

    /// As [`Context::bytes`], of a table that many kernels are given.
    pub fn shared_bytes(&mut self, bytes: &Arc<[u8]>) -> V {
        self.argument("bytes", Type::global(Scalar::U8), Argument::Bytes(Arc::clone(bytes)))
    }

    /// Orders the bytes of text and its address: to be called between writing a text and publishing its address in a
    /// state, and between reading an address and its bytes. Nothing where the kernel makes no text.
    pub fn fence_text(&mut self) {
        if self.arguments.iter().any(|argument| matches!(argument, Argument::Heap(_))) {
            self.builder.fence();
        }
    }

    // ---- the row

    /// Starts a row of a table: its columns are those of a scan of the query, at row number `row` (`i64`).
    pub fn begin_scan(&mut self, scan: usize, layouts: Vec<ColumnLayout>, types: Vec<DataType>, row: V) {
        self.layers.push(Layer::Scan { scan, layouts, types, row });
        self.current = self.layers.len() - 1;
    }

    /// Starts a row whose columns are given.
    pub fn begin_values(&mut self, values: Vec<Lowered>) {
        self.layers.push(Layer::Values(values));
        self.current = self.layers.len() - 1;
    }

    /// Puts a projection on the row: columns are now those of `exprs`, evaluated when first asked for.
    pub fn push_projection(&mut self, exprs: &[Expr]) {
        self.layers.push(Layer::Project(exprs.to_vec()));
        self.current = self.layers.len() - 1;
    }

    /// Puts a join on the row, or starts one of stored columns and values: columns are now those of `columns`.
    pub fn push_joined(&mut self, columns: Vec<Joined>) {
        self.layers.push(Layer::Joined(columns));
        self.current = self.layers.len() - 1;
    }

    /// Takes the last layer off again. Its columns must have been asked for in blocks that are closed.
    pub fn pop_layer(&mut self) {
        self.layers.pop();
        self.ranges.borrow_mut().clear();
        self.current = self.layers.len().saturating_sub(1);
    }

    /// Forgets the row: the next one starts with `begin_scan` or `begin_values`.
    pub fn end_row(&mut self) {
        self.layers.clear();
        self.ranges.borrow_mut().clear();
        for scope in &mut self.scopes {
            scope.clear();
        }
    }

    /// Column `index` of the current row.
    pub fn column(&mut self, index: usize) -> Result<Lowered, Unsupported> {
        let layer = self.current;
        if let Some(known) = self
            .scopes
            .iter()
            .flatten()
            .find(|(l, c, _)| (*l, *c) == (layer, index))
            .map(|(_, _, value)| value.clone())
        {
            return Ok(known);
        }
        let missing = || Unsupported(format!("column {index} is out of range"));
        let value = match self.layers.get(layer).ok_or_else(missing)? {
            Layer::Values(values) => return values.get(index).cloned().ok_or_else(missing),
            Layer::Scan { scan, layouts, types, row } => {
                let (scan, layout, row) = (*scan, layouts.get(index).cloned().ok_or_else(missing)?, *row);
                let data_type = types.get(index).cloned().ok_or_else(missing)?;
                self.load_column((scan, index), &layout, &data_type, row)
            }
            Layer::Project(exprs) => {
                let expr = exprs.get(index).cloned().ok_or_else(missing)?;
                self.current = layer.checked_sub(1).ok_or_else(missing)?;
                let value = lower(self, &expr);
                self.current = layer;
                value?
            }
            Layer::Joined(columns) => match columns.get(index).cloned().ok_or_else(missing)? {
                Joined::Value(value) => return Ok(value),
                Joined::Stored { column, place, present } => column.load(self, place, present),
                Joined::Below(below) => {
                    self.current = layer.checked_sub(1).ok_or_else(missing)?;
                    let value = self.column(below);
                    self.current = layer;
                    return value;
                }
            },
        };
        if let Some(scope) = self.scopes.last_mut() {
            scope.push((layer, index, value.clone()));
        }
        Ok(value)
    }

    /// Bounds of column `index` of the current row, without evaluating it.
    pub fn column_range(&self, index: usize) -> Option<Range> {
        self.layer_range(self.current, index)
    }

    /// Remembered, as columns of many projections one above the other may be read on very many ways.
    fn layer_range(&self, layer: usize, index: usize) -> Option<Range> {
        if let Some(known) = self.ranges.borrow().get(&(layer, index)) {
            return *known;
        }
        let range = self.find_range(layer, index);
        self.ranges.borrow_mut().insert((layer, index), range);
        range
    }

    fn find_range(&self, layer: usize, index: usize) -> Option<Range> {
        match self.layers.get(layer)? {
            Layer::Values(values) => values.get(index)?.range,
            Layer::Scan { layouts, types, .. } => {
                layouts.get(index)?.range.or_else(|| types.get(index)?.full_range())
            }
            Layer::Project(exprs) => {
                infer_range(exprs.get(index)?, &|column| self.layer_range(layer.checked_sub(1)?, column))
            }
            Layer::Joined(columns) => match columns.get(index)? {
                Joined::Below(below) => self.layer_range(layer.checked_sub(1)?, *below),
                Joined::Stored { column, .. } => {
                    column.info().range.or_else(|| column.info().data_type.full_range())
                }
                Joined::Value(value) => value.range,
            },
        }
    }

    /// Whether an expression over the current row is to be evaluated only where its value is needed: it can fail, or
    /// is expensive, also through projections that are not evaluated yet.
    pub fn is_lazy(&self, expr: &Expr) -> bool {
        self.layer_is_lazy(self.current, expr, &mut HashSet::new())
    }

    /// `seen`: the columns by layer that were looked at and are not lazy.
    fn layer_is_lazy(&self, layer: usize, expr: &Expr, seen: &mut HashSet<(usize, usize)>) -> bool {
        let own = match expr.kind {
            ExprKind::Column(_) | ExprKind::Literal(_) => false,
            _ => facts(expr, &|column| self.layer_range(layer, column))
                .is_ok_and(|facts| facts.can_fail || !facts.cheap),
        };
        own || columns_read(expr).into_iter().any(|column| self.column_is_lazy(layer, column, seen))
    }

    fn column_is_lazy(&self, layer: usize, index: usize, seen: &mut HashSet<(usize, usize)>) -> bool {
        if !seen.insert((layer, index)) {
            return false;
        }
        if self.scopes.iter().flatten().any(|(l, c, _)| (*l, *c) == (layer, index)) {
            return false;
        }
        match (self.layers.get(layer), layer.checked_sub(1)) {
            (Some(Layer::Project(exprs)), Some(below)) => {
                exprs.get(index).is_some_and(|expr| self.layer_is_lazy(below, expr, seen))
            }
            (Some(Layer::Joined(columns)), Some(below)) => match columns.get(index) {
                Some(Joined::Below(column)) => self.column_is_lazy(below, *column, seen),
                _ => false,
            },
            _ => false,
        }
    }

    // ---- blocks: values computed inside are forgotten at the end

    /// Opens `if condition {`.
    pub fn begin_if(&mut self, condition: V) {
        self.builder.begin_if(condition);
        self.scopes.push(Vec::new());
    }

    /// `} else {`
    pub fn begin_else(&mut self) {
        self.builder.begin_else();
        if let Some(scope) = self.scopes.last_mut() {
            scope.clear();
        }
    }

    /// Opens `loop {`.
    pub fn begin_loop(&mut self) {
        self.builder.begin_loop();
        self.scopes.push(Vec::new());
    }

    /// Closes the innermost `if` or `loop` of this context.
    pub fn end(&mut self) {
        self.builder.end();
        self.scopes.pop();
    }
}

/// The register type of an integer with this range: `i32`, `i64` or `i128`.
pub fn register_of(range: Range) -> Scalar {
    let fits = |min: i128, max: i128| range.min >= min && range.max <= max;
    if fits(i32::MIN.into(), i32::MAX.into()) {
        Scalar::I32
    } else if fits(i64::MIN.into(), i64::MAX.into()) {
        Scalar::I64
    } else {
        Scalar::I128
    }
}
