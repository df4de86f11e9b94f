//! Memory instructions of a warp: checked lane by lane.

use std::cell::Cell;

use kelpie_kir::{AtomicOp, Scalar, Scope, Space};

use super::memory::Range;
use super::program::{Access, Op, Program, Slot};
use super::races::{Actor, Conflict, Event, Kind, Races};
use super::values::{atomic_add, canonical, less};
use super::warp::Registers;
use super::{Fault, Memory};

/// What a memory instruction works on.
pub(super) struct Accessor<'a> {
    pub(super) program: &'a Program,
    pub(super) global: &'a mut Memory,
    pub(super) shared: &'a mut Memory,
    /// Absent where races are not looked for.
    pub(super) races: Option<&'a mut Races>,
    pub(super) registers: &'a Registers,
    /// Lanes of a warp, and warps of a block.
    pub(super) lanes: u32,
    pub(super) warps_per_block: u32,
    /// Warp in the grid.
    pub(super) warp: u32,
    pub(super) pc: u32,
    pub(super) active: u32,
    /// The lane at which atomics of a warp begin.
    pub(super) first_lane: u32,
}

/// The numbers of the bits that are set.
pub(super) fn lanes_of(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lane = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (lane < 32).then_some(lane as usize)
    })
}

impl<'a> Accessor<'a> {
    pub(super) fn execute(&mut self, op: Op) -> Result<(), Fault> {
        match op {
            Op::Load { access, read_only, to, pointer } => self.load(access, read_only, to, pointer, 0),
            Op::LoadBytes { to, pointer } => self.load_bytes(to, pointer),
            Op::LoadField { access, to, pointer, bytes } => self.load(access, true, to, pointer, bytes),
            Op::StoreBytes { pointer, value } => self.store_bytes(pointer, value),
            Op::Store { access, pointer, value } => self.store(access, pointer, value, 0),
            Op::LoadVector { access, read_only, to, pointer, lanes, align } => {
                self.check_alignment(pointer, align)?;
                (0..u32::from(lanes)).try_for_each(|lane| {
                    self.load(access, read_only, to + lane, pointer, lane * access.scalar.bytes())
                })
            }
            Op::StoreVector { access, pointer, value, lanes, align } => {
                self.check_alignment(pointer, align)?;
                (0..u32::from(lanes)).try_for_each(|lane| {
                    self.store(access, pointer, value + lane, lane * access.scalar.bytes())
                })
            }
            Op::Compress { access, to, pointer, value, mask, lanes } => {
                self.compress(access, to, [pointer, value, mask], u32::from(lanes))
            }
            Op::Atomic { op, access, scope, to, pointer, value, expected } => {
                self.atomic(op, access, scope, to, [pointer, value, expected])
            }
            Op::AtomicLoad { access, scope, to, pointer } => self.atomic_load(access, scope, to, pointer),
            Op::Tally { counters } => self.tally(counters),
            Op::UniformLoad { access, to, pointer } => self.uniform_load(access, to, pointer),
            _ => Ok(()),
        }
    }

    fn row(&self, slot: Slot) -> &'a [Cell<u64>] {
        self.registers.row(slot)
    }

    fn memory(&mut self, space: Space) -> &mut Memory {
        match space {
            Space::Global => self.global,
            Space::Shared => self.shared,
        }
    }

    fn place(&self) -> String {
        self.program.place(self.pc as usize)
    }

    fn locate(&mut self, access: Access, address: u64) -> Result<Range, Fault> {
        let bytes = access.scalar.bytes();
        if !address.is_multiple_of(u64::from(bytes)) {
            return Err(Fault::Misaligned { place: self.place(), address, bytes });
        }
        match self.memory(access.space).find(address, bytes) {
            Some(range) => Ok(range),
            None => {
                let nearest = self.memory(access.space).nearest(address);
                Err(Fault::OutOfBounds { place: self.place(), address, bytes, nearest })
            }
        }
    }

    /// "write by thread 3 of block 0 at kernel k, statement 7".
    fn describe(&self, event: &Event) -> String {
        let (block, warp) =
            (event.actor.warp / self.warps_per_block, event.actor.warp % self.warps_per_block);
        let thread = warp * self.lanes + event.actor.lane;
        let place = self.program.place(event.actor.pc as usize);
        format!("{} by thread {thread} of block {block} at {place}", event.kind.name())
    }

    fn actor(&self, lane: usize) -> Actor {
        Actor { warp: self.warp, lane: lane as u32, pc: self.pc }
    }

    fn note(
        &mut self,
        access: Access,
        range: Range,
        lane: usize,
        kind: Kind,
        read_only: bool,
    ) -> Result<(), Fault> {
        let actor = self.actor(lane);
        let Some(races) = self.races.as_deref() else { return Ok(()) };
        let memory = match access.space {
            Space::Global => &mut *self.global,
            Space::Shared => &mut *self.shared,
        };
        let allocation = memory.at(range);
        let (address, size) = (allocation.address + range.offset as u64, allocation.data.len());
        let bytes = (range.offset, access.scalar.bytes());
        let noted = if read_only {
            races.note_read_only(&mut allocation.shadow, size, bytes, actor)
        } else {
            races.note(&mut allocation.shadow, size, bytes, kind, actor)
        };
        let place = || self.place();
        match noted {
            Ok(()) => Ok(()),
            Err(Conflict::ReadOnly(other)) => {
                Err(Fault::WrittenReadOnly { place: place(), address, other: self.describe(&other) })
            }
            Err(Conflict::Race(first)) => {
                let second = Event { actor, kind, clock: 0 };
                let (first, second) = (self.describe(&first), self.describe(&second));
                Err(Fault::DataRace { address, first, second })
            }
        }
    }

    /// Writes the bits of a scalar to a lane of a slot, or two slots.
    fn set(&self, slot: Slot, lane: usize, scalar: Scalar, bits: u128) {
        self.row(slot)[lane].set(canonical(scalar, bits as u64));
        if scalar == Scalar::I128 {
            self.row(slot + 1)[lane].set((bits >> 64) as u64);
        }
    }

    fn load(
        &mut self,
        access: Access,
        read_only: bool,
        to: Slot,
        pointer: Slot,
        field: u32,
    ) -> Result<(), Fault> {
        let pointers = self.row(pointer);
        for lane in lanes_of(self.active) {
            let range = self.locate(access, pointers[lane].get().wrapping_add(u64::from(field)))?;
            self.note(access, range, lane, Kind::Read, read_only)?;
            let bits = self.memory(access.space).load(range, access.scalar.bytes());
            self.set(to, lane, access.scalar, bits);
        }
        Ok(())
    }

    /// Eight loads of a byte, in one step.
    fn load_bytes(&mut self, to: Slot, pointer: Slot) -> Result<(), Fault> {
        let access = Access { scalar: Scalar::U8, space: Space::Global };
        let pointers = self.row(pointer);
        for lane in lanes_of(self.active) {
            let mut word = 0;
            for byte in 0..8 {
                let range = self.locate(access, pointers[lane].get().wrapping_add(byte))?;
                self.note(access, range, lane, Kind::Read, false)?;
                word |= self.global.load(range, 1) << (8 * byte);
            }
            self.set(to, lane, Scalar::U64, word);
        }
        Ok(())
    }

    /// Eight stores of a byte, in one step.
    fn store_bytes(&mut self, pointer: Slot, value: Slot) -> Result<(), Fault> {
        let access = Access { scalar: Scalar::U8, space: Space::Global };
        let (pointers, values) = (self.row(pointer), self.row(value));
        for lane in lanes_of(self.active) {
            for byte in 0..8 {
                let range = self.locate(access, pointers[lane].get().wrapping_add(byte))?;
                self.note(access, range, lane, Kind::Write, false)?;
                self.global.store(range, 1, u128::from(values[lane].get() >> (8 * byte)) & 0xff);
            }
        }
        Ok(())
    }

    /// What an access promises beyond the alignment of its elements.
    fn check_alignment(&self, pointer: Slot, bytes: u32) -> Result<(), Fault> {
        let pointers = self.row(pointer);
        let mut addresses = lanes_of(self.active).map(|lane| pointers[lane].get());
        match addresses.find(|address| !address.is_multiple_of(u64::from(bytes))) {
            Some(address) => Err(Fault::Misaligned { place: self.place(), address, bytes }),
            None => Ok(()),
        }
    }

    /// Writes all elements of which there must be memory: those that are chosen, and then something that is not what any
    /// of them was.
    fn compress(
        &mut self,
        access: Access,
        to: Option<Slot>,
        [pointer, value, mask]: [Slot; 3],
        elements: u32,
    ) -> Result<(), Fault> {
        let pointers = self.row(pointer);
        for lane in lanes_of(self.active) {
            let at = |slot: Slot, element: u32| self.row(slot + element)[lane].get();
            let chosen = |element: &u32| at(mask, *element) != 0;
            let values: Vec<u64> = (0..elements).filter(chosen).map(|element| at(value, element)).collect();
            let count = values.len() as u64;
            let junk = std::iter::repeat(!at(value, 0) ^ 0x5a);
            let mut address = pointers[lane].get();
            for bits in values.into_iter().chain(junk).take(elements as usize) {
                let range = self.locate(access, address)?;
                self.note(access, range, lane, Kind::Write, false)?;
                self.memory(access.space).store(range, access.scalar.bytes(), u128::from(bits));
                address = address.wrapping_add(u64::from(access.scalar.bytes()));
            }
            if let Some(to) = to {
                self.row(to)[lane].set(count);
            }
        }
        Ok(())
    }

    fn store(&mut self, access: Access, pointer: Slot, value: Slot, offset: u32) -> Result<(), Fault> {
        let (pointers, values) = (self.row(pointer), self.row(value));
        let high = if access.scalar == Scalar::I128 { self.row(value + 1) } else { values };
        let publishes = self.races.as_deref_mut().is_some_and(|races| races.take_publishes(self.warp));
        let kind = if publishes { Kind::AtomicWrite(Scope::Device) } else { Kind::Write };
        for lane in lanes_of(self.active) {
            let address = pointers[lane].get().wrapping_add(u64::from(offset));
            let range = self.locate(access, address)?;
            self.note(access, range, lane, kind, false)?;
            if publishes {
                self.release(access.space, address);
            }
            let bits = u128::from(high[lane].get()) << 64 | u128::from(values[lane].get());
            self.memory(access.space).store(range, access.scalar.bytes(), bits);
        }
        Ok(())
    }

    fn location(&self, space: Space, address: u64) -> (Option<u32>, u64) {
        ((space == Space::Shared).then(|| self.warp / self.warps_per_block), address)
    }

    fn acquire(&mut self, space: Space, address: u64) {
        let location = self.location(space, address);
        if let Some(races) = self.races.as_deref_mut() {
            races.acquire(self.warp, location);
        }
    }

    fn release(&mut self, space: Space, address: u64) {
        let location = self.location(space, address);
        if let Some(races) = self.races.as_deref_mut() {
            races.release(self.warp, location);
        }
    }

    fn atomic(
        &mut self,
        op: AtomicOp,
        access: Access,
        scope: Scope,
        to: Option<Slot>,
        [pointer, value, expected]: [Slot; 3],
    ) -> Result<(), Fault> {
        let (pointers, values, expected) = (self.row(pointer), self.row(value), self.row(expected));
        let scalar = access.scalar;
        if let Some(races) = self.races.as_deref_mut() {
            races.take_publishes(self.warp);
        }
        // The order of the lanes is not specified: it begins anywhere.
        let before = self.active & ((1 << self.first_lane) - 1);
        for lane in lanes_of(self.active & !before).chain(lanes_of(before)) {
            let address = pointers[lane].get();
            let range = self.locate(access, address)?;
            self.acquire(access.space, address);
            let old = canonical(scalar, self.memory(access.space).load(range, scalar.bytes()) as u64);
            let value = values[lane].get();
            let new = match op {
                AtomicOp::Add => Some(atomic_add(scalar, old, value)),
                AtomicOp::Min => Some(if less(scalar, value, old) { value } else { old }),
                AtomicOp::Max => Some(if less(scalar, old, value) { value } else { old }),
                AtomicOp::Or => Some(old | value),
                AtomicOp::Xor => Some(old ^ value),
                AtomicOp::Exchange => Some(value),
                AtomicOp::CompareExchange(_) => (old == expected[lane].get()).then_some(value),
            };
            match new {
                Some(new) => {
                    self.note(access, range, lane, Kind::AtomicWrite(scope), false)?;
                    self.release(access.space, address);
                    self.memory(access.space).store(range, scalar.bytes(), u128::from(new));
                }
                None => self.note(access, range, lane, Kind::AtomicRead(scope), false)?,
            }
            if let Some(to) = to {
                self.row(to)[lane].set(old);
            }
        }
        Ok(())
    }

    fn atomic_load(&mut self, access: Access, scope: Scope, to: Slot, pointer: Slot) -> Result<(), Fault> {
        let pointers = self.row(pointer);
        for lane in lanes_of(self.active) {
            let address = pointers[lane].get();
            let range = self.locate(access, address)?;
            self.acquire(access.space, address);
            self.note(access, range, lane, Kind::AtomicRead(scope), false)?;
            let bits = self.memory(access.space).load(range, access.scalar.bytes());
            self.set(to, lane, access.scalar, bits);
        }
        Ok(())
    }

    /// One lane adds for all that are active.
    fn tally(&mut self, counters: Slot) -> Result<(), Fault> {
        let access = Access { scalar: Scalar::U64, space: Space::Global };
        let pointers = self.row(counters);
        let Some(lane) = lanes_of(self.active).next() else { return Ok(()) };
        let counters = pointers[lane].get();
        if lanes_of(self.active).any(|lane| pointers[lane].get() != counters) {
            return Err(Fault::DivergentAddress { place: self.place() });
        }
        let others = u64::from(self.active.count_ones() - 1);
        let address = counters.wrapping_add(others * u64::from(Scalar::U64.bytes()));
        let range = self.locate(access, address)?;
        self.note(access, range, lane, Kind::AtomicWrite(Scope::Device), false)?;
        let old = self.global.load(range, Scalar::U64.bytes());
        self.global.store(range, Scalar::U64.bytes(), old + 1);
        Ok(())
    }

    fn uniform_load(&mut self, access: Access, to: Slot, pointer: Slot) -> Result<(), Fault> {
        let pointers = self.row(pointer);
        let mut addresses = lanes_of(self.active).map(|lane| pointers[lane].get());
        let first = addresses.next();
        if addresses.any(|address| Some(address) != first) {
            return Err(Fault::DivergentAddress { place: self.place() });
        }
        self.load(access, false, to, pointer, 0)
    }
}
