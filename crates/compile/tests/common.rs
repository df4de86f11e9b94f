//! What these tests share.

use std::collections::BTreeSet;

use kelpie_backend::cuda;
use kelpie_compile::MicroModel;
use kelpie_compile::expr::Expr;
use kelpie_compile::pipeline::{self, Choices, Program, ScanInfo};
use kelpie_compile::plan::Plan;
use kelpie_compile::types::{DataType, Field};
use kelpie_compile::variant::Forced;
use kelpie_device::nvrtc;
use kelpie_kir::{Module, Target, validate};

/// A large GPU.
pub fn gpu() -> Target {
    Target::simt(32, 256, 227 << 10, 1056)
}

pub fn field(name: &str, data_type: DataType, nullable: bool) -> Field {
    Field { name: name.into(), data_type, nullable }
}

/// A column of a plan.
pub fn column(plan: &Plan, index: usize) -> Expr {
    let field = &plan.fields()[index];
    Expr::column(index, field.data_type.clone(), field.nullable)
}

/// Values of axes.
pub fn forced(values: &[(&str, &str)]) -> Forced {
    let mut forced = Forced::default();
    values.iter().for_each(|(axis, value)| forced.set(axis, value).expect("an axis and its value"));
    forced
}

/// A query of one table, compiled with values of axes.
pub fn compile(query: &(Plan, ScanInfo), target: &Target, values: &[(&str, &str)]) -> Program {
    compile_as(query, target, MicroModel::Resolution, values)
}

/// The same by some execution model.
pub fn compile_as(
    (plan, info): &(Plan, ScanInfo),
    target: &Target,
    model: MicroModel,
    values: &[(&str, &str)],
) -> Program {
    let (forced, duplicates) = (forced(values), BTreeSet::new());
    let choices = Choices { forced: &forced, ..Choices::new(model, &duplicates) };
    pipeline::compile_with(plan, std::slice::from_ref(info), target, &choices).expect("the plan compiles")
}

/// Every kernel validates, and NVRTC accepts those of an NVIDIA GPU.
pub fn accepts(program: Program, target: &Target) {
    for pipeline in program.pipelines {
        let name = pipeline.name.clone();
        for module in pipeline.into_modules() {
            if let Some(source) = cuda_of(&name, module, target) {
                compiles(&name, &source);
            }
        }
    }
}

/// The CUDA source of a kernel, which validates; none where it is not of an NVIDIA GPU.
pub fn cuda_of(name: &str, module: Module, target: &Target) -> Option<String> {
    let module = validate(module).unwrap_or_else(|error| panic!("{name}: {error}"));
    (target.lanes == 32).then(|| cuda::print(&module).unwrap_or_else(|error| panic!("{name}: {error}")))
}

/// NVRTC accepts a source, where there is one.
pub fn compiles(name: &str, source: &str) {
    match nvrtc::get() {
        Err(error) => kelpie_device::testing::skip("nvrtc", &error),
        Ok(nvrtc) => {
            let compiled = nvrtc.compile(source, "sm_90", "test");
            assert!(compiled.is_ok(), "{name}: {:?}: {source}", compiled.err());
        }
    }
}
