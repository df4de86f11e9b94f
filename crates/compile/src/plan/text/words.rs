//! The words of the text form, each stated once for the printer and the parser.

use super::super::{AggregateFunction, Few, JoinKind, PairStatistic};
use crate::expr::{ArithmeticOp, BitOp, CompareOp, DatePart, Function, Granularity, Search, Side};
use crate::types::{DataType, TimeUnit};

macro_rules! words {
    ($($ty:ident $name:ident $from:ident { $($($variant:ident)::+ $(($inner:expr))? => $word:literal,)* })*) => { $(
        /// The word of a value.
        pub(super) fn $name(value: $ty) -> Option<&'static str> {
            [$(($ty::$($variant)::+ $(($inner))?, $word)),*].into_iter().find(|(known, _)| *known == value).map(|(_, word)| word)
        }
        /// The value of a word.
        pub(super) fn $from(word: &str) -> Option<$ty> {
            [$(($ty::$($variant)::+ $(($inner))?, $word)),*].into_iter().find(|(_, known)| *known == word).map(|(value, _)| value)
        }
    )* };
}

words! {
    ArithmeticOp arithmetic arithmetic_of {
        Add => "+", Subtract => "-", Multiply => "*", Divide => "/", Remainder => "%",
        AddExact => "+!", SubtractExact => "-!", MultiplyExact => "*!",
    }
    CompareOp compare compare_of {
        Eq => "=", Ne => "<>", Lt => "<", Le => "<=", Gt => ">", Ge => ">=",
    }
    JoinKind join_kind join_kind_of {
        Inner => "inner", BuildOuter => "build_outer", ProbeOuter => "probe_outer", FullOuter => "full_outer",
        BuildSemi => "build_semi", BuildAnti => "build_anti", BuildMark => "build_mark",
        ProbeSemi => "probe_semi", ProbeAnti => "probe_anti", ProbeMark => "probe_mark",
    }
    AggregateFunction aggregate aggregate_of {
        Count => "count", Sum => "sum", SumExact => "sum_exact", Min => "min", Max => "max", Avg => "avg",
        BitAnd => "bit_and", BitOr => "bit_or", BitXor => "bit_xor",
        VarSample => "var_samp", VarPopulation => "var_pop",
        StddevSample => "stddev_samp", StddevPopulation => "stddev_pop",
        LeastBound(Few::Two) => "least_2", LeastBound(Few::Four) => "least_4",
        LeastBound(Few::Eight) => "least_8", LeastBound(Few::Sixteen) => "least_16",
        GreatestBound(Few::Two) => "greatest_2", GreatestBound(Few::Four) => "greatest_4",
        GreatestBound(Few::Eight) => "greatest_8", GreatestBound(Few::Sixteen) => "greatest_16",
        OfPairs(PairStatistic::CovarianceSample) => "covar_samp", OfPairs(PairStatistic::CovariancePopulation) => "covar_pop",
        OfPairs(PairStatistic::Correlation) => "corr", OfPairs(PairStatistic::Slope) => "regr_slope",
        OfPairs(PairStatistic::Intercept) => "regr_intercept", OfPairs(PairStatistic::Determination) => "regr_r2",
        OfPairs(PairStatistic::MeanX) => "regr_avgx", OfPairs(PairStatistic::MeanY) => "regr_avgy",
        OfPairs(PairStatistic::SquaresX) => "regr_sxx", OfPairs(PairStatistic::SquaresY) => "regr_syy",
        OfPairs(PairStatistic::Products) => "regr_sxy",
    }
    DatePart date_part date_part_of {
        Year => "year", Quarter => "quarter", Month => "month", Week => "week", Day => "day", DayOfWeek => "dow",
        DayOfYear => "doy", IsoYear => "isoyear", IsoDayOfWeek => "isodow", Hour => "hour", Minute => "minute",
        Second => "second", Millisecond => "millisecond", Microsecond => "microsecond", Nanosecond => "nanosecond",
        Epoch => "epoch",
    }
    Granularity granularity granularity_of {
        Year => "year", Quarter => "quarter", Month => "month", Week => "week", Day => "day", Hour => "hour",
        Minute => "minute", Second => "second", Millisecond => "millisecond", Microsecond => "microsecond",
    }
    TimeUnit time_unit time_unit_of {
        Second => "Second", Millisecond => "Millisecond", Microsecond => "Microsecond", Nanosecond => "Nanosecond",
    }
    DataType simple_type simple_type_of {
        Null => "Null", Boolean => "Boolean", Int8 => "Int8", Int16 => "Int16", Int32 => "Int32", Int64 => "Int64",
        UInt8 => "UInt8", UInt16 => "UInt16", UInt32 => "UInt32", UInt64 => "UInt64", Float32 => "Float32",
        Float64 => "Float64", Date32 => "Date32", Utf8 => "Utf8", Interval => "Interval",
    }
    Function function function_of {
        Coalesce => "coalesce", NullIf => "nullif", Substr => "substr", CharacterLength => "character_length",
        OctetLength => "octet_length", Upper => "upper", Lower => "lower", InitialCapitals => "initcap",
        Translate => "translate", ConcatOperator => "concat_operator", Concat => "concat",
        ConcatWithSeparator => "concat_ws", Trim(Side::Both) => "btrim", Trim(Side::Left) => "ltrim",
        Trim(Side::Right) => "rtrim", Left => "left", Right => "right",
        Search(Search::StartsWith) => "starts_with", Search(Search::EndsWith) => "ends_with",
        Search(Search::Contains) => "contains", Search(Search::Position) => "strpos",
        Pad(Side::Left) => "lpad", Pad(Side::Right) => "rpad", Pad(Side::Both) => "pad",
        SplitPart => "split_part", Replace => "replace", Repeat => "repeat", Reverse => "reverse", Abs => "abs", OneNan => "one_nan",
        Round => "round", Floor => "floor", Ceil => "ceil", Trunc => "trunc",
        Bits(BitOp::And) => "bit_and", Bits(BitOp::Or) => "bit_or", Bits(BitOp::Xor) => "bit_xor",
        Bits(BitOp::ShiftLeft) => "shift_left", Bits(BitOp::ShiftRight) => "shift_right",
        Greatest => "greatest", Least => "least", Pair => "pair",
    }
}

/// What a name must not be without quotes: it has a meaning where a column may stand, or behind one.
const RESERVED: [&str; 45] = [
    "and", "or", "not", "is", "null", "in", "like", "ilike", "case", "when", "then", "else", "end", "true",
    "false", "distinct", "NaN", "inf", "as", "asc", "desc", "nulls", "on", "residual", "null_equal",
    "null_aware", "by", "order", "sets", "names", "columns", "counted", "fetch", "skip", "source", "at",
    "from", "cast", "try_cast", "Decimal128", "Timestamp", "Duration", "scalar", "build", "probe",
];

/// Whether a word cannot be a name without quotes.
pub(super) fn is_reserved(word: &str) -> bool {
    RESERVED.contains(&word) || simple_type_of(word).is_some()
}
