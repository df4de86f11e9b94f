//! Memory instructions of a warp: checked lane by lane.

use kelpie_kir::{AtomicOp, Scalar, Scope, Space};

use super::Fault;
use super::memory::Range;
use super::program::{Access, Op, Slot};
use super::races::{Actor, Conflict, Event, Kind};
use super::turn::Turn;
use super::values::{atomic_add, less};
use super::wide::WideRow;

/// The numbers of the bits that are set.
pub(super) fn lanes_of(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lane = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (lane < 32).then_some(lane as usize)
    })
}

/// What an atomic leaves in memory; `None` where it leaves what is there.
fn updated(op: AtomicOp, scalar: Scalar, old: u64, value: u64, expected: u64) -> Option<u64> {
    match op {
        AtomicOp::Add => Some(atomic_add(scalar, old, value)),
        AtomicOp::Min => Some(if less(scalar, value, old) { value } else { old }),
        AtomicOp::Max => Some(if less(scalar, old, value) { value } else { old }),
        AtomicOp::Or => Some(old | value),
        AtomicOp::Xor => Some(old ^ value),
        AtomicOp::Exchange => Some(value),
        AtomicOp::CompareExchange(_) => (old == expected).then_some(value),
    }
}

impl<'a> Turn<'a> {
    /// Executes an instruction that accesses memory.
    pub(super) fn access_memory(&mut self, op: &Op) -> Result<(), Fault> {
        match *op {
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
                self.count_atomics(access);
                self.atomic(op, access, scope, to, [pointer, value, expected])
            }
            Op::AtomicLoad { access, scope, to, pointer } => self.atomic_load(access, scope, to, pointer),
            Op::Tally { counters } => self.tally(counters),
            Op::UniformLoad { access, to, pointer } => self.uniform_load(access, to, pointer),
            _ => Ok(()),
        }
    }

    #[inline(always)]
    fn locate(&mut self, access: Access, address: u64) -> Result<Range, Fault> {
        let bytes = access.scalar.bytes();
        // Sizes of scalars are powers of two.
        if address & u64::from(bytes - 1) != 0 {
            return Err(self.misaligned(address, bytes));
        }
        match self.memories.of(access.space).find(address, bytes) {
            Some(range) => Ok(range),
            None => Err(self.out_of_bounds(access, address)),
        }
    }

    #[cold]
    fn misaligned(&self, address: u64, bytes: u32) -> Fault {
        Fault::Misaligned { place: self.place(), address, bytes }
    }

    #[cold]
    fn out_of_bounds(&mut self, access: Access, address: u64) -> Fault {
        let nearest = self.memories.of(access.space).nearest(address);
        Fault::OutOfBounds { place: self.place(), address, bytes: access.scalar.bytes(), nearest }
    }

    /// "write by thread 3 of block 0 at kernel k, statement 7".
    fn describe(&self, event: &Event) -> String {
        let (block, warp) =
            (event.actor.warp / self.warps_per_block, event.actor.warp % self.warps_per_block);
        let thread = warp * self.config.lanes + event.actor.lane;
        let place = self.program.place(event.actor.pc as usize);
        format!("{} by thread {thread} of block {block} at {place}", event.kind.name())
    }

    fn actor(&self, lane: usize) -> Actor {
        Actor { warp: self.warp, lane: lane as u32, pc: self.flow.pc as u32 }
    }

    #[inline(always)]
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
        let allocation = self.memories.of(access.space).at(range);
        let size = allocation.data.len();
        let bytes = (range.offset, access.scalar.bytes());
        let noted = if read_only {
            races.note_read_only(&mut allocation.shadow, size, bytes, actor)
        } else {
            races.note(&mut allocation.shadow, size, bytes, kind, actor)
        };
        match noted {
            Ok(()) => Ok(()),
            Err(conflict) => {
                let address = allocation.address + range.offset as u64;
                Err(self.conflict(conflict, address, Event { actor, kind, clock: 0 }))
            }
        }
    }

    #[cold]
    fn conflict(&self, conflict: Conflict, address: u64, second: Event) -> Fault {
        match conflict {
            Conflict::ReadOnly(other) => {
                Fault::WrittenReadOnly { place: self.place(), address, other: self.describe(&other) }
            }
            Conflict::Race(first) => {
                let (first, second) = (self.describe(&first), self.describe(&second));
                Fault::DataRace { address, first, second }
            }
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
        let (pointers, to) = (self.row(pointer), self.rows(to, access.scalar));
        for lane in lanes_of(self.flow.active) {
            let range = self.locate(access, pointers[lane].get().wrapping_add(u64::from(field)))?;
            self.note(access, range, lane, Kind::Read, read_only)?;
            self.copy_to(to, lane, access, range);
        }
        Ok(())
    }

    /// Memory to a lane of a slot, or of two slots.
    #[inline(always)]
    fn copy_to(&mut self, rows: WideRow<'_>, lane: usize, access: Access, range: Range) {
        let memory = self.memories.of(access.space);
        rows[0][lane].set(memory.load(range, access.scalar));
        if access.scalar == Scalar::I128 {
            rows[1][lane].set(memory.load(range.high_half(), Scalar::U64));
        }
    }

    /// The slots of a scalar: the same twice where it has only one.
    fn rows(&self, slot: Slot, scalar: Scalar) -> WideRow<'a> {
        let high = if scalar == Scalar::I128 { slot + 1 } else { slot };
        [self.row(slot), self.row(high)]
    }

    /// Eight loads of a byte, in one step.
    fn load_bytes(&mut self, to: Slot, pointer: Slot) -> Result<(), Fault> {
        let access = Access { scalar: Scalar::U8, space: Space::Global };
        let (pointers, to) = (self.row(pointer), self.row(to));
        for lane in lanes_of(self.flow.active) {
            let mut word = 0;
            for byte in 0..8 {
                let range = self.locate(access, pointers[lane].get().wrapping_add(byte))?;
                self.note(access, range, lane, Kind::Read, false)?;
                word |= self.memories.global.load(range, access.scalar) << (8 * byte);
            }
            to[lane].set(word);
        }
        Ok(())
    }

    /// Eight stores of a byte, in one step.
    fn store_bytes(&mut self, pointer: Slot, value: Slot) -> Result<(), Fault> {
        let access = Access { scalar: Scalar::U8, space: Space::Global };
        let (pointers, values) = (self.row(pointer), self.row(value));
        for lane in lanes_of(self.flow.active) {
            for byte in 0..8 {
                let range = self.locate(access, pointers[lane].get().wrapping_add(byte))?;
                self.note(access, range, lane, Kind::Write, false)?;
                self.memories.global.store(range, access.scalar, values[lane].get() >> (8 * byte));
            }
        }
        Ok(())
    }

    /// What an access promises beyond the alignment of its elements: to a power of two.
    fn check_alignment(&self, pointer: Slot, bytes: u32) -> Result<(), Fault> {
        let pointers = self.row(pointer);
        let mut addresses = lanes_of(self.flow.active).map(|lane| pointers[lane].get());
        match addresses.find(|address| address & u64::from(bytes - 1) != 0) {
            Some(address) => Err(self.misaligned(address, bytes)),
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
        for lane in lanes_of(self.flow.active) {
            let registers = self.registers;
            let at = |slot: Slot, element: u32| registers.row(slot + element)[lane].get();
            let chosen = (0..elements).filter(|element| at(mask, *element) != 0);
            let values = chosen.clone().map(|element| at(value, element));
            let junk = std::iter::repeat(!at(value, 0) ^ 0x5a);
            let mut address = pointers[lane].get();
            for bits in values.chain(junk).take(elements as usize) {
                let range = self.locate(access, address)?;
                self.note(access, range, lane, Kind::Write, false)?;
                self.memories.of(access.space).store(range, access.scalar, bits);
                address = address.wrapping_add(u64::from(access.scalar.bytes()));
            }
            if let Some(to) = to {
                self.row(to)[lane].set(chosen.count() as u64);
            }
        }
        Ok(())
    }

    fn store(&mut self, access: Access, pointer: Slot, value: Slot, offset: u32) -> Result<(), Fault> {
        let (pointers, [low, high]) = (self.row(pointer), self.rows(value, access.scalar));
        let publishes = self.races.as_deref_mut().is_some_and(|races| races.take_publishes(self.warp));
        let kind = if publishes { Kind::AtomicWrite(Scope::Device) } else { Kind::Write };
        for lane in lanes_of(self.flow.active) {
            let address = pointers[lane].get().wrapping_add(u64::from(offset));
            let range = self.locate(access, address)?;
            self.note(access, range, lane, kind, false)?;
            if publishes {
                self.release(access.space, range);
            }
            let memory = self.memories.of(access.space);
            memory.store(range, access.scalar, low[lane].get());
            if access.scalar == Scalar::I128 {
                memory.store(range.high_half(), Scalar::U64, high[lane].get());
            }
        }
        Ok(())
    }

    fn acquire(&mut self, space: Space, range: Range) {
        if let Some(races) = self.races.as_deref_mut() {
            races.acquire(self.warp, &self.memories.of(space).at(range).shadow, range.offset);
        }
    }

    fn release(&mut self, space: Space, range: Range) {
        if let Some(races) = self.races.as_deref() {
            races.release(self.warp, space, &mut self.memories.of(space).at(range).shadow, range.offset);
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
        let (scalar, active) = (access.scalar, self.flow.active);
        if let Some(races) = self.races.as_deref_mut() {
            races.take_publishes(self.warp);
        }
        // The order of the lanes is not specified: it begins anywhere.
        let before = active & ((1 << self.first_lane) - 1);
        for lane in lanes_of(active & !before).chain(lanes_of(before)) {
            let range = self.locate(access, pointers[lane].get())?;
            self.acquire(access.space, range);
            let old = self.memories.of(access.space).load(range, scalar);
            match updated(op, scalar, old, values[lane].get(), expected[lane].get()) {
                Some(new) => {
                    self.note(access, range, lane, Kind::AtomicWrite(scope), false)?;
                    self.release(access.space, range);
                    self.memories.of(access.space).store(range, scalar, new);
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
        let (pointers, to) = (self.row(pointer), self.rows(to, access.scalar));
        for lane in lanes_of(self.flow.active) {
            let range = self.locate(access, pointers[lane].get())?;
            self.acquire(access.space, range);
            self.note(access, range, lane, Kind::AtomicRead(scope), false)?;
            self.copy_to(to, lane, access, range);
        }
        Ok(())
    }

    /// One lane adds for all that are active.
    fn tally(&mut self, counters: Slot) -> Result<(), Fault> {
        let access = Access { scalar: Scalar::U64, space: Space::Global };
        let (pointers, active) = (self.row(counters), self.flow.active);
        let Some(lane) = lanes_of(active).next() else { return Ok(()) };
        let counters = pointers[lane].get();
        if lanes_of(active).any(|lane| pointers[lane].get() != counters) {
            return Err(Fault::DivergentAddress { place: self.place() });
        }
        let others = u64::from(active.count_ones() - 1);
        let address = counters.wrapping_add(others * u64::from(Scalar::U64.bytes()));
        let range = self.locate(access, address)?;
        self.note(access, range, lane, Kind::AtomicWrite(Scope::Device), false)?;
        let old = self.memories.global.load(range, access.scalar);
        self.memories.global.store(range, access.scalar, old.wrapping_add(1));
        Ok(())
    }

    fn uniform_load(&mut self, access: Access, to: Slot, pointer: Slot) -> Result<(), Fault> {
        self.check_together("a uniform load")?;
        let pointers = self.row(pointer);
        let mut addresses = lanes_of(self.flow.active).map(|lane| pointers[lane].get());
        let first = addresses.next();
        if addresses.any(|address| Some(address) != first) {
            return Err(Fault::DivergentAddress { place: self.place() });
        }
        self.load(access, false, to, pointer, 0)
    }
}
