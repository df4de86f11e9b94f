//! `hash(x, …)`: a number by which equal values are told to be equal, as people sample and share rows out. Which number that is may change with
//! the version.

use std::sync::Arc;

use datafusion::arrow::array::UInt64Array;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::hash_utils::{QualityRandomState, create_hashes};
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility};
use kelpie_datafusion::name_and_signature;

/// The function.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct HashFunction {
    signature: Signature,
}

impl HashFunction {
    pub(super) fn new() -> HashFunction {
        HashFunction { signature: Signature::variadic_any(Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for HashFunction {
    name_and_signature!("hash");

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [] => plan_err!("hash takes one value at least"),
            _ => Ok(DataType::UInt64),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = arguments.number_rows;
        let values = arguments.args.iter().map(|value| value.to_array(rows)).collect::<Result<Vec<_>>>()?;
        let mut hashes = vec![0; rows];
        // The same number in every process.
        create_hashes(&values, &QualityRandomState::with_seed(0), &mut hashes)?;
        Ok(ColumnarValue::Array(Arc::new(UInt64Array::from(hashes))))
    }
}
