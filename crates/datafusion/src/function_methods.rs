//! What functions say of themselves.

/// Methods of a function that has a field `signature`, and a name: the one that is given, or its field `name`; likewise `aliases`.
#[macro_export]
macro_rules! name_and_signature {
    () => {
        fn name(&self) -> &str {
            self.name
        }

        $crate::name_and_signature!(@signature);
    };
    (with aliases) => {
        $crate::name_and_signature!();

        fn aliases(&self) -> &[String] {
            &self.aliases
        }
    };
    (@signature) => {
        fn signature(&self) -> &datafusion::logical_expr::Signature {
            &self.signature
        }
    };
    ($name:expr) => {
        fn name(&self) -> &str {
            $name
        }

        $crate::name_and_signature!(@signature);
    };
}

/// Methods of a function that are those of the function within it, its field `inner`.
macro_rules! of_inner {
    ($($method:ident),+) => {
        $(crate::function_methods::of_inner!(@$method);)+
    };
    (@name) => {
        fn name(&self) -> &str {
            self.inner.name()
        }
    };
    (@aliases) => {
        fn aliases(&self) -> &[String] {
            self.inner.aliases()
        }
    };
    (@signature) => {
        fn signature(&self) -> &datafusion::logical_expr::Signature {
            self.inner.signature()
        }
    };
    (@documentation) => {
        fn documentation(&self) -> Option<&datafusion::logical_expr::Documentation> {
            self.inner.documentation()
        }
    };
    (@coerce_types) => {
        fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
            self.inner.coerce_types(arguments)
        }
    };
    (@return_type) => {
        fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
            self.inner.return_type(arguments)
        }
    };
    (@return_field) => {
        fn return_field(&self, arguments: &[FieldRef]) -> Result<FieldRef> {
            self.inner.return_field(arguments)
        }
    };
    (@accumulator) => {
        fn accumulator(&self, arguments: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
            self.inner.accumulator(arguments)
        }
    };
    (@create_sliding_accumulator) => {
        fn create_sliding_accumulator(&self, arguments: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
            self.inner.create_sliding_accumulator(arguments)
        }
    };
    (@groups_accumulator_supported) => {
        fn groups_accumulator_supported(&self, arguments: AccumulatorArgs<'_>) -> bool {
            self.inner.groups_accumulator_supported(arguments)
        }
    };
    (@state_fields) => {
        fn state_fields(
            &self,
            arguments: datafusion::logical_expr::function::StateFieldsArgs<'_>,
        ) -> Result<Vec<FieldRef>> {
            self.inner.state_fields(arguments)
        }
    };
    (@order_sensitivity) => {
        fn order_sensitivity(&self) -> datafusion::logical_expr::utils::AggregateOrderSensitivity {
            self.inner.order_sensitivity()
        }
    };
    (@supports_null_handling_clause) => {
        fn supports_null_handling_clause(&self) -> bool {
            self.inner.supports_null_handling_clause()
        }
    };
    (@expressions) => {
        fn expressions(
            &self,
            arguments: datafusion::logical_expr::function::ExpressionArgs<'_>,
        ) -> Vec<Arc<dyn PhysicalExpr>> {
            self.inner.expressions(arguments)
        }
    };
}

pub(crate) use {name_and_signature, of_inner};
