//! Every variant of a space gives what a plain loop gives, on the CPU and on interpreters of several shapes: a sample of variants, over
//! columns of several types with and without NULLs, of any number of rows. `kelpie experiment variants-all` does all of them.

use std::sync::Arc;

use kelpie_device::Device;
use kelpie_device::cpu::CpuDevice;
use kelpie_device::simt::SimtDevice;
use kelpie_engine::spaces::{
    AggregationSpace, CompareOp, Comparison, Genome, Scalar, SelectionSpace, Space, Variants,
};
use kelpie_kir::testing::sample::covering;

use crate::common::Random;

/// Rows of the largest column.
const MOST_ROWS: u32 = 140_000;

fn devices() -> Vec<(Arc<dyn Device>, usize)> {
    let mut devices: Vec<(Arc<dyn Device>, usize)> = vec![
        (CpuDevice::new(Some(3)).unwrap(), 500),
        (SimtDevice::new(32, 64, 2), 60),
        (SimtDevice::new(8, 16, 3), 40),
    ];
    let gpu = kelpie_device::cuda::CudaDevice::open(0).ok();
    devices.extend(gpu.map(|device| (device as Arc<dyn Device>, 100)));
    devices
}

/// A column in memory: small numbers, whose sums are exact in every type.
struct Values {
    scalar: Scalar,
    values: Vec<i64>,
    valid: Option<Vec<bool>>,
}

impl Values {
    fn new(scalar: Scalar, rows: u32, nullable: bool, random: &mut Random) -> Values {
        let values = (0..rows).map(|_| random.below(1000) as i64 - 500).collect();
        let valid = nullable.then(|| (0..rows).map(|_| random.below(4) > 0).collect());
        Values { scalar, values, valid }
    }

    fn bits_of(&self, value: i64) -> i128 {
        match self.scalar {
            Scalar::F64 => i128::from((value as f64).to_bits()),
            Scalar::F32 => i128::from((value as f32).to_bits()),
            _ => value.into(),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let width = self.scalar.bytes() as usize;
        self.values.iter().flat_map(|value| self.bits_of(*value).to_le_bytes()[..width].to_vec()).collect()
    }

    fn is_valid(&self, row: usize) -> bool {
        self.valid.as_ref().is_none_or(|valid| valid[row])
    }

    fn validity(&self) -> Option<Vec<u8>> {
        self.valid.as_ref().map(|valid| packed(valid.iter().copied()))
    }

    fn selected(&self, op: CompareOp, bound: i64) -> Vec<u8> {
        let holds = |value: i64| match op {
            CompareOp::Lt => value < bound,
            CompareOp::Ge => value >= bound,
            CompareOp::Eq => value == bound,
            _ => value != bound,
        };
        packed((0..self.values.len()).map(|row| holds(self.values[row]) && self.is_valid(row)))
    }

    fn sum(&self) -> u64 {
        let sum: i64 =
            (0..self.values.len()).filter(|row| self.is_valid(*row)).map(|row| self.values[row]).sum();
        if self.scalar == Scalar::F64 { (sum as f64).to_bits() } else { sum as u64 }
    }
}

/// A bit each, the first one lowest.
fn packed(bits: impl Iterator<Item = bool>) -> Vec<u8> {
    let bits: Vec<bool> = bits.collect();
    let byte = |bits: &[bool]| bits.iter().rev().fold(0, |byte, bit| byte << 1 | u8::from(*bit));
    bits.chunks(8).map(byte).collect()
}

/// A number of rows for a variant whose rounds have so many: none, one, some that end anywhere, and those that fill rounds or nearly.
fn rows(round: u32, random: &mut Random) -> u32 {
    let round = round.min(MOST_ROWS / 2);
    match random.below(8) {
        0 => 0,
        1 => 1,
        2 => round,
        3 => random.below(300) as u32,
        4 => round + 1 + random.below(70) as u32,
        _ => 2 * round + random.below(200) as u32,
    }
}

const SCALARS: [Scalar; 4] = [Scalar::I32, Scalar::I64, Scalar::F64, Scalar::I16];
const OPS: [CompareOp; 4] = [CompareOp::Lt, CompareOp::Ge, CompareOp::Eq, CompareOp::Ne];

fn facets(genome: &Genome) -> Vec<(usize, Vec<u16>)> {
    vec![(0, genome[..3].to_vec()), (1, vec![genome[0], genome[4]]), (2, vec![genome[0], genome[5]])]
}

#[test]
fn selections_give_what_a_loop_gives() {
    let mut random = Random(39);
    for (device, count) in devices() {
        let (variants, space) = (Variants::on(&device).unwrap(), SelectionSpace::new(device.target()));
        for genome in covering(&format!("selections on {}", device.name()), space.genomes(), count, facets) {
            let variant = space.variant(&genome).unwrap();
            let scalar = SCALARS[random.below(4)];
            let nullable = random.below(2) == 0;
            let values = Values::new(scalar, rows(variant.round_rows(), &mut random), nullable, &mut random);
            let (op, bound) = (OPS[random.below(4)], random.below(1000) as i64 - 500);
            let column = variants.upload(scalar, &values.bytes(), values.validity().as_deref()).unwrap();
            let kernel = variants.selection(&variant, Comparison { scalar, op }, nullable).unwrap();
            let bitmap = variants.bitmap(&column).unwrap();
            variants.spoil(&bitmap).unwrap();
            variants.select(&kernel, (&column, 0..column.rows()), values.bits_of(bound), &bitmap).unwrap();
            let bits = variants.bits(&bitmap, column.rows()).unwrap();
            let what = || format!("{variant:?} on {device:?}, {} rows of {scalar:?}", column.rows());
            assert_eq!(bits, values.selected(op, bound), "{}", what());
        }
    }
}

#[test]
fn sums_are_those_of_a_loop() {
    let mut random = Random(40);
    for (device, count) in devices() {
        let (variants, space) = (Variants::on(&device).unwrap(), AggregationSpace::new(device.target()));
        let short = |genome: &Genome| count == 500 || genome[1] + genome[3] <= 6;
        let genomes = space.genomes().into_iter().filter(short);
        for genome in covering(&format!("sums on {}", device.name()), genomes, count / 2, facets) {
            let variant = space.variant(&genome).unwrap();
            let scalar = SCALARS[random.below(4)];
            let nullable = random.below(2) == 0;
            let turn = variant.unroll * variant.vector * variant.threads;
            let values = Values::new(scalar, rows(turn, &mut random), nullable, &mut random);
            let column = variants.upload(scalar, &values.bytes(), values.validity().as_deref()).unwrap();
            let kernel = variants.aggregation(&variant, scalar, nullable).unwrap();
            let (sum, _) = variants.sum(&kernel, &column, 0..column.rows()).unwrap();
            let what = || format!("{variant:?} on {device:?}, {} rows of {scalar:?}", column.rows());
            assert_eq!(sum, values.sum(), "{}", what());
        }
    }
}

/// Parts of a column, one behind the other, make the same bitmap; wrong parts and columns are refused.
#[test]
fn parts_make_the_same_bitmap_and_what_does_not_fit_is_refused() {
    let device: Arc<dyn Device> = CpuDevice::new(Some(2)).unwrap();
    let (variants, space) = (Variants::on(&device).unwrap(), SelectionSpace::new(device.target()));
    let values = Values::new(Scalar::I32, 1000, true, &mut Random(41));
    let (bytes, validity) = (values.bytes(), values.validity().unwrap());
    let column = variants.upload(Scalar::I32, &bytes, Some(&validity)).unwrap();
    let comparison = Comparison { scalar: Scalar::I32, op: CompareOp::Lt };
    let bitmap = variants.bitmap(&column).unwrap();
    variants.spoil(&bitmap).unwrap();
    let genomes = space.genomes();
    for (number, first) in (0..1000).step_by(256).enumerate() {
        let variant = space.variant(&genomes[number * 997]).unwrap();
        let kernel = variants.selection(&variant, comparison, true).unwrap();
        variants.select(&kernel, (&column, first..1000.min(first + 256)), 17, &bitmap).unwrap();
    }
    assert_eq!(variants.bits(&bitmap, 1000).unwrap(), values.selected(CompareOp::Lt, 17));
    let kernel = variants.selection(&space.variant(&genomes[0]).unwrap(), comparison, true).unwrap();
    let why = |rows| variants.select(&kernel, (&column, rows), 0, &bitmap).unwrap_err().to_string();
    assert!(why(1..5).contains("rows 1..5") && why(0..1001).contains("of a column of 1000"));
    let other = variants.upload(Scalar::I32, &bytes, None).unwrap();
    assert!(variants.select(&kernel, (&other, 0..1000), 0, &bitmap).is_err());
    assert!(variants.upload(Scalar::I32, &bytes[1..], None).is_err());
    assert!(variants.upload(Scalar::I32, &bytes, Some(&validity[1..])).is_err());
    assert!(variants.upload(Scalar::I128, &bytes, None).is_err());
}
