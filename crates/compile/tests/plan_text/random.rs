//! Random plans and expressions, of every kind, with types that operands need not have it of: only the text form takes all of them.

use kelpie_compile::expr::*;
use kelpie_compile::plan::*;
use kelpie_compile::types::{DataType, Field, Interval, Literal, TimeUnit};

pub struct Random {
    pub state: u64,
}

impl Random {
    pub fn below(&mut self, limit: usize) -> usize {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) as usize % limit
    }

    fn flag(&mut self) -> bool {
        self.below(2) == 0
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    fn integer(&mut self) -> i128 {
        let few = self.below(200) as i128 - 100;
        self.pick(&[
            few,
            few,
            few,
            0,
            i64::MIN.into(),
            i64::MAX.into(),
            i128::MIN,
            i128::MAX,
            2_900_000,
            -719_529,
        ])
    }

    fn text(&mut self) -> String {
        self.pick(&["", "x", "zß", "it's", "a\"b", "two\nlines\t\\", "\u{0}\u{85}", "--", "%_\\%", "null"])
            .into()
    }

    pub fn data_type(&mut self) -> DataType {
        use DataType::*;
        let zone = self.flag().then(|| "+01:00".into());
        let unit = self.pick(&[
            TimeUnit::Second,
            TimeUnit::Millisecond,
            TimeUnit::Microsecond,
            TimeUnit::Nanosecond,
        ]);
        let (precision, scale) = self.pick(&[(38, 0), (15, 2), (5, -3), (38, 38)]);
        let decimal = Decimal128 { precision, scale };
        self.pick(&[
            Null,
            Boolean,
            Int8,
            Int16,
            Int32,
            Int64,
            Int64,
            UInt8,
            UInt16,
            UInt32,
            UInt64,
            Float32,
            Float64,
            Utf8,
            Date32,
            Interval,
            decimal,
            Timestamp { unit, timezone: zone },
        ])
    }

    fn literal(&mut self) -> Literal {
        match self.below(6) {
            0 => Literal::Null,
            1 => Literal::Boolean(self.flag()),
            2 => Literal::Int(self.integer()),
            3 => {
                let nan = f64::from_bits(0xfff8_0000_0000_0001);
                Literal::Float(self.pick(&[
                    0.0,
                    -0.0,
                    1.5,
                    1e300,
                    -2.5e-8,
                    f64::NAN,
                    -f64::NAN,
                    nan,
                    f64::NEG_INFINITY,
                ]))
            }
            4 => Literal::Utf8(self.text().into()),
            _ => {
                let (months, days) = (self.pick(&[0, 1, -13, i32::MIN]), self.pick(&[0, 5, i32::MAX]));
                Literal::Interval(Interval { months, days, nanoseconds: self.pick(&[0, -7, i64::MIN]) })
            }
        }
    }

    /// A constant that its type may have, or any other.
    fn constant(&mut self) -> Expr {
        let literal = self.literal();
        let fit = match &literal {
            Literal::Boolean(_) => DataType::Boolean,
            Literal::Float(_) => self.pick(&[DataType::Float32, DataType::Float64]),
            Literal::Utf8(_) => DataType::Utf8,
            Literal::Interval(_) => DataType::Interval,
            Literal::Null | Literal::Int(_) => self.data_type(),
        };
        let data_type = if self.below(5) == 0 { self.data_type() } else { fit };
        let nullable = (literal == Literal::Null) != (self.below(9) == 0);
        Expr { kind: ExprKind::Literal(literal), data_type, nullable }
    }

    fn column(&mut self, fields: &[Field]) -> Expr {
        let index = self.below(fields.len() + 1);
        match fields.get(index) {
            Some(field) if self.below(9) > 0 => Expr::column(index, field.data_type.clone(), field.nullable),
            _ => Expr::column(index, self.data_type(), self.flag()),
        }
    }

    fn exprs(&mut self, fields: &[Field], depth: usize, most: usize) -> Vec<Expr> {
        (0..self.below(most + 1)).map(|_| self.expr(fields, depth)).collect()
    }

    fn kind(&mut self, fields: &[Field], depth: usize) -> ExprKind {
        use ExprKind::*;
        let a = Box::new(self.expr(fields, depth));
        let b = Box::new(self.expr(fields, depth));
        let negated = self.flag();
        match self.below(16) {
            0 => Scalar(self.below(3)),
            1 => Arithmetic(self.pick(&ARITHMETIC), a, b),
            2 => Compare(self.pick(&COMPARES), a, b),
            3 => Distinct(negated, a, b),
            4 => And(a, b),
            5 => Or(a, b),
            6 => Not(a),
            7 => Negate(a),
            8 => IsNull(a),
            9 => IsNotNull(a),
            10 => {
                let branches =
                    (0..1 + self.below(3)).map(|_| (self.expr(fields, depth), self.expr(fields, depth)));
                Case { branches: branches.collect(), otherwise: negated.then_some(a) }
            }
            11 => Cast { input: a, safe: negated },
            12 => InList { input: a, list: self.exprs(fields, depth, 3), negated },
            13 => Like { input: a, pattern: b, negated, case_insensitive: self.flag() },
            14 => {
                let pattern = self.pick(&["a'b", "(?i)x+$", "\\d"]);
                let regex = kelpie_compile::expr::Regex::new(pattern, "").expect("a regular expression");
                Regex { input: a, regex, negated }
            }
            _ => Function(self.pick(&functions()), self.exprs(fields, depth, 3)),
        }
    }

    /// An expression over columns, of which operators are at most so many on top of each other.
    pub fn expr(&mut self, fields: &[Field], depth: usize) -> Expr {
        match self.below(if depth == 0 { 2 } else { 8 }) {
            0 => self.constant(),
            1 => self.column(fields),
            _ => {
                let kind = self.kind(fields, depth - 1);
                let (data_type, nullable) = match self.below(3) {
                    0 => (DataType::Boolean, self.flag()),
                    1 => (children_type(&kind).unwrap_or(DataType::Int64), self.flag()),
                    _ => (self.data_type(), self.flag()),
                };
                Expr { kind, data_type, nullable }
            }
        }
    }

    fn name(&mut self) -> String {
        let name = self.pick(&["k", "v", "", "sum(v)", "and", "zß", "build", "Int64", "a\"b", "k_1"]);
        name.into()
    }

    fn names(&mut self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.name()).collect()
    }

    fn field(&mut self) -> Field {
        Field { name: self.name(), data_type: self.data_type(), nullable: self.flag() }
    }

    fn order(&mut self, fields: &[Field]) -> Vec<SortKey> {
        let key = |random: &mut Random| SortKey {
            expr: random.expr(fields, 1),
            descending: random.flag(),
            nulls_first: random.flag(),
        };
        (0..self.below(3)).map(|_| key(self)).collect()
    }

    fn aggregates(&mut self, fields: &[Field]) -> Vec<Aggregate> {
        let aggregate = |random: &mut Random| Aggregate {
            function: random.pick(&AGGREGATES),
            argument: (random.below(4) > 0).then(|| random.expr(fields, 1)),
            distinct: random.flag(),
            field: random.field(),
        };
        (0..self.below(3)).map(|_| aggregate(self)).collect()
    }

    fn sets(&mut self, input: Plan) -> Plan {
        let fields = input.fields();
        let (keys, aggregates) = (self.exprs(&fields, 1, 3), self.aggregates(&fields));
        let set = |random: &mut Random| GroupingSet {
            has: keys.iter().map(|_| random.flag()).collect(),
            identifier: random.below(9) as i128 - 1,
        };
        let sets: Vec<GroupingSet> = (0..1 + self.below(3)).map(|_| set(self)).collect();
        let mut fields: Vec<Field> = (0..=keys.len()).map(|_| self.field()).collect();
        fields.extend(aggregates.iter().map(|aggregate| aggregate.field.clone()));
        Plan::GroupingSets(Box::new(GroupingSets { input, keys, sets, aggregates, fields }))
    }

    fn ranked(&mut self, input: Plan) -> Plan {
        let fields = input.fields();
        let keys = self.exprs(&fields, 1, 2);
        let value = |random: &mut Random| {
            let constant = random.constant();
            let rank = match random.below(6) {
                0 => Rank::FromFirst(constant),
                1 => Rank::FromLast(constant),
                2 => Rank::Median,
                3 => Rank::Percentile(constant),
                4 => Rank::Discrete(constant),
                _ => Rank::Texts { delimiter: constant, distinct: random.flag() },
            };
            let counted = random.flag().then(|| random.expr(&fields, 1));
            RankedValue { rank, argument: random.expr(&fields, 1), counted, field: random.field() }
        };
        let values = (0..self.below(3)).map(|_| value(self)).collect();
        let (order, aggregates) = (self.order(&fields), self.aggregates(&fields));
        let names = self.names(keys.len());
        Plan::Ranked(Box::new(Ranked { input, keys, order, aggregates, values, names }))
    }

    fn join(&mut self, build: Plan, probe: Plan) -> Plan {
        let (left, right) = (build.fields(), probe.fields());
        let keys = (0..self.below(3)).map(|_| (self.expr(&left, 1), self.expr(&right, 1))).collect();
        let both: Vec<Field> = left.into_iter().chain(right).collect();
        let residual = self.flag().then(|| self.expr(&both, 2));
        let (kind, null_equal, null_aware) = (self.pick(&JoinKind::ALL), self.flag(), self.flag());
        Plan::Join(Box::new(Join { build, probe, kind, keys, residual, null_equal, null_aware }))
    }

    fn scan(&mut self) -> Plan {
        let fields: Vec<Field> = (0..self.below(5)).map(|_| self.field()).collect();
        let columns =
            (0..fields.len()).map(|column| if self.flag() { column } else { self.below(9) }).collect();
        Plan::Scan(Scan { source: self.below(3), table: self.name(), columns, fields })
    }

    /// A plan of at most so many operators on top of each other.
    pub fn plan(&mut self, depth: usize) -> Plan {
        if depth == 0 {
            return self.scan();
        }
        let input = self.plan(depth - 1);
        let fields = input.fields();
        match self.below(10) {
            0 => Plan::Filter { predicate: self.expr(&fields, 3), input: Box::new(input) },
            1 => {
                let exprs = self.exprs(&fields, 2, 4);
                let names = self.names(exprs.len());
                Plan::Project { input: Box::new(input), exprs, names }
            }
            2 => {
                let (keys, aggregates) = (self.exprs(&fields, 1, 2), self.aggregates(&fields));
                let more = if self.flag() { aggregates.len() } else { 0 };
                let names = self.names(keys.len() + more);
                Plan::Aggregate { input: Box::new(input), keys, aggregates, names }
            }
            3 => self.sets(input),
            4 => self.ranked(input),
            5 => {
                let probe = self.plan(depth - 1);
                self.join(input, probe)
            }
            6 => {
                let fields = if self.flag() { fields } else { vec![self.field(), self.field()] };
                Plan::Union { inputs: vec![input, self.plan(depth - 1)], fields }
            }
            7 => Plan::Scalars { subqueries: vec![self.plan(depth - 1)], input: Box::new(input) },
            8 => {
                let fetch = self.flag().then(|| self.below(9));
                Plan::Sort { keys: self.order(&fields), input: Box::new(input), fetch }
            }
            _ => {
                let fetch = self.flag().then(|| self.below(9));
                Plan::Limit { input: Box::new(input), skip: self.below(3), fetch }
            }
        }
    }
}

/// The type of an operator's first operand.
fn children_type(kind: &ExprKind) -> Option<DataType> {
    let expr = Expr { kind: kind.clone(), data_type: DataType::Null, nullable: false };
    children(&expr).first().map(|first| first.data_type.clone())
}

const ARITHMETIC: [ArithmeticOp; 8] = [
    ArithmeticOp::AddExact,
    ArithmeticOp::SubtractExact,
    ArithmeticOp::MultiplyExact,
    ArithmeticOp::Add,
    ArithmeticOp::Subtract,
    ArithmeticOp::Multiply,
    ArithmeticOp::Divide,
    ArithmeticOp::Remainder,
];

const COMPARES: [CompareOp; 6] =
    [CompareOp::Eq, CompareOp::Ne, CompareOp::Lt, CompareOp::Le, CompareOp::Gt, CompareOp::Ge];

pub const AGGREGATES: [AggregateFunction; 21] = [
    AggregateFunction::Count,
    AggregateFunction::Sum,
    AggregateFunction::SumExact,
    AggregateFunction::Min,
    AggregateFunction::Max,
    AggregateFunction::Avg,
    AggregateFunction::BitAnd,
    AggregateFunction::BitOr,
    AggregateFunction::BitXor,
    AggregateFunction::VarSample,
    AggregateFunction::VarPopulation,
    AggregateFunction::StddevSample,
    AggregateFunction::StddevPopulation,
    AggregateFunction::LeastBound(Few::Two),
    AggregateFunction::LeastBound(Few::Four),
    AggregateFunction::LeastBound(Few::Eight),
    AggregateFunction::LeastBound(Few::Sixteen),
    AggregateFunction::GreatestBound(Few::Two),
    AggregateFunction::GreatestBound(Few::Four),
    AggregateFunction::GreatestBound(Few::Eight),
    AggregateFunction::GreatestBound(Few::Sixteen),
];

/// Every function.
pub fn functions() -> Vec<Function> {
    use Function::*;
    let mut all = vec![
        Part(3),
        Coalesce,
        NullIf,
        Substr,
        CharacterLength,
        OctetLength,
        Upper,
        Lower,
        InitialCapitals,
        Translate,
        ConcatOperator,
        Concat,
        ConcatWithSeparator,
        Left,
        Right,
        SplitPart,
        Replace,
        Repeat,
        Reverse,
        Abs,
        OneNan,
        Round,
        Floor,
        Ceil,
        Trunc,
        Greatest,
        Least,
    ];
    let sides = [Side::Left, Side::Right, Side::Both];
    all.extend(sides.into_iter().flat_map(|side| [Trim(side), Pad(side)]));
    use kelpie_compile::expr::Search as Question;
    let questions = [Question::StartsWith, Question::EndsWith, Question::Contains, Question::Position];
    all.extend(questions.map(Search));
    all.extend([BitOp::And, BitOp::Or, BitOp::Xor, BitOp::ShiftLeft, BitOp::ShiftRight].map(Bits));
    use kelpie_compile::expr::DatePart as DateField;
    let parts = [
        DateField::Year,
        DateField::Quarter,
        DateField::Month,
        DateField::Week,
        DateField::Day,
        DateField::DayOfWeek,
        DateField::DayOfYear,
        DateField::IsoYear,
        DateField::IsoDayOfWeek,
        DateField::Hour,
        DateField::Minute,
        DateField::Second,
        DateField::Millisecond,
        DateField::Microsecond,
        DateField::Nanosecond,
        DateField::Epoch,
    ];
    all.extend(parts.map(DatePart));
    let units = [
        Granularity::Year,
        Granularity::Quarter,
        Granularity::Month,
        Granularity::Week,
        Granularity::Day,
        Granularity::Hour,
        Granularity::Minute,
        Granularity::Second,
        Granularity::Millisecond,
        Granularity::Microsecond,
    ];
    all.extend(units.map(DateTrunc));
    all
}
