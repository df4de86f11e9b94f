//! Types by the names that other engines give them.

use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, CharacterLength, DataType, ExactNumberInfo, ObjectNamePart, TimezoneInfo,
};

use crate::syntax::normal;

/// Digits of the widest decimal, which holds all but the greatest of HUGEINT.
const MOST_DIGITS: u64 = 38;

/// Writes a type as the one that DataFusion has for it; others stay as they are.
pub(super) fn convert(data_type: &mut DataType) {
    let huge = || DataType::Decimal(ExactNumberInfo::PrecisionAndScale(MOST_DIGITS, 0));
    let timestamp = |digits| DataType::Timestamp(digits, TimezoneInfo::None);
    let converted = match data_type {
        DataType::HugeInt | DataType::UHugeInt => huge(),
        DataType::Signed | DataType::SignedInteger => DataType::Integer(None),
        DataType::UTinyInt => DataType::TinyIntUnsigned(None),
        DataType::USmallInt => DataType::SmallIntUnsigned(None),
        DataType::UBigInt => DataType::BigIntUnsigned(None),
        DataType::Datetime(digits) => timestamp(*digits),
        DataType::Blob(_) | DataType::Binary(_) | DataType::Varbinary(_) => DataType::Bytea,
        DataType::JSON | DataType::JSONB => DataType::Varchar(None),
        DataType::Uuid => DataType::Varchar(None),
        DataType::Dec(info) => DataType::Decimal(*info),
        DataType::Character(length) => DataType::Char(*length),
        DataType::CharacterVarying(length) | DataType::CharVarying(length) | DataType::Nvarchar(length) => {
            DataType::Varchar(*length)
        }
        DataType::Custom(name, modifiers) if modifiers.is_empty() => {
            let [ObjectNamePart::Identifier(name)] = name.0.as_slice() else { return };
            match normal(name).as_str() {
                "hugeint" | "uhugeint" | "int128" => huge(),
                "int1" => DataType::TinyInt(None),
                "short" => DataType::SmallInt(None),
                "long" => DataType::BigInt(None),
                "utinyint" => DataType::TinyIntUnsigned(None),
                "usmallint" => DataType::SmallIntUnsigned(None),
                "uinteger" => DataType::IntegerUnsigned(None),
                "ubigint" => DataType::BigIntUnsigned(None),
                "logical" => DataType::Boolean,
                "bpchar" => DataType::Varchar(None::<CharacterLength>),
                "timestamp_s" => timestamp(Some(0)),
                "timestamp_ms" => timestamp(Some(3)),
                "timestamp_us" => timestamp(Some(6)),
                "timestamp_ns" => timestamp(Some(9)),
                _ => return,
            }
        }
        DataType::Array(
            ArrayElemTypeDef::AngleBracket(element)
            | ArrayElemTypeDef::SquareBracket(element, _)
            | ArrayElemTypeDef::Parenthesis(element),
        ) => return convert(element),
        DataType::Struct(fields, _) => {
            return fields.iter_mut().for_each(|field| convert(&mut field.field_type));
        }
        _ => return,
    };
    *data_type = converted;
}
