//! Random modules on the GPU give the interpreter's answer.

use kelpie_device::simt::SimtDevice;
use kelpie_kir::testing::{KERNEL, random_module};

use super::*;

const SEEDS: u64 = 40;
const BLOCKS: u32 = 2;

/// The status, and what each thread wrote.
fn outcome(device: &Arc<dyn Device>, tier: Tier, module: &ValidModule, input: &[u8]) -> (u32, Vec<u8>) {
    let bytes = (BLOCKS * device.target().block_threads) as usize * 8;
    let stream = Arc::clone(device).begin_query().unwrap();
    stream.set_tier(tier);
    let kernel = stream.compile_for(module, KERNEL, BlockShape::of(device.target())).unwrap();
    let source = device.allocate(input.len()).unwrap();
    device.upload(&source, 0, input).unwrap();
    let output = device.allocate(bytes).unwrap();
    device.upload(&output, 0, &vec![0; bytes]).unwrap();
    let arguments = [
        KernelArgument::Buffer(source, 0),
        KernelArgument::Scalar(Scalar::I64, (input.len() / 8) as i128),
        KernelArgument::Buffer(output.clone(), 0),
    ];
    let cancel = CancelToken::default();
    // SAFETY: the generator's kernels read within the input and write an element of the output a thread.
    let launch = unsafe { Launch::new(kernel.as_ref(), BLOCKS, &arguments, &cancel) };
    let status = device.launch(launch).unwrap().status;
    let mut content = vec![0; bytes];
    device.download(&output, 0, &mut content).unwrap();
    (status, content)
}

#[test]
fn random_modules_as_the_interpreter() {
    let Some(gpu) = gpu() else { return };
    let device: Arc<dyn Device> = gpu.device.clone();
    let interpreter: Arc<dyn Device> = SimtDevice::new(32, gpu.target().block_threads, BLOCKS);
    let edges = [0, 1, -1, i64::MIN, i64::MAX, 255, -128, 1 << 31, 1 << 32, 77, -9_999_999, 1 << 50];
    let input: Vec<u8> = edges.iter().flat_map(|word: &i64| word.to_le_bytes()).collect();
    for seed in 0..SEEDS {
        let module = validate(random_module(seed, seed % 2 == 0)).unwrap();
        let expected = outcome(&interpreter, Tier::Auto, &module, &input);
        for tier in [Tier::Quick, Tier::Best] {
            let on_gpu = outcome(&device, tier, &module, &input);
            assert!(on_gpu == expected, "seed {seed}, {tier:?}: status {} and {}", on_gpu.0, expected.0);
        }
    }
}
