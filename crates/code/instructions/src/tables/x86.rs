//! Jump tables of x86.

use iced_x86::{
    Code, ConditionCode, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};

use super::super::function::FunctionCode;
use super::super::instruction::InstructionKind;
use super::super::x86;
use super::{
    BYTE_VALUES, FAR, FAR_FOR_PLACE, FindShape, MOST_ENTRIES, MOST_STEPS, TableLayout,
    jumps_by_target, jumps_to,
};
use dioptra_symbols::CodeMachine;

/// A table of which all but the number of entries is known.
struct Unbounded {
    place: u64,
    base: Option<u64>,
    index: Register,
    /// The instruction that reads the index.
    at: usize,
}

/// The operand that is compared before the jump: a register, or memory at the same address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Watched {
    Register(Register),
    Memory {
        base: Register,
        index: Register,
        displacement: u64,
    },
}

/// Finds the tables of one function.
pub(super) struct Finder<'a> {
    code: &'a FunctionCode,
    info: InstructionInfoFactory,
    /// Direct jumps by the instruction they lead to.
    jumps: Vec<(u32, u32)>,
    steps: usize,
}

impl FindShape for Finder<'_> {
    fn shape(&mut self, jump: usize) -> Option<TableLayout> {
        let found = self.unbounded(jump)?;
        let count = self.bound(found.at, found.index)?;
        Some(TableLayout {
            place: found.place,
            base: found.base,
            size: match found.base {
                Some(_) => 4,
                None => self.code.machine().address_size(),
            },
            is_signed: found.base.is_some(),
            shift: 0,
            count,
        })
    }
}

impl<'a> Finder<'a> {
    pub(super) fn new(code: &'a FunctionCode) -> Self {
        Self {
            code,
            info: InstructionInfoFactory::new(),
            jumps: jumps_by_target(code),
            steps: 0,
        }
    }

    fn decode(&mut self, index: usize) -> Instruction {
        self.steps += 1;
        let bits = if self.code.machine() == CodeMachine::I386 {
            32
        } else {
            64
        };
        let Some(raw) = self.code.get(index) else {
            return Instruction::default();
        };
        x86::decoder(bits, raw.bytes, raw.virtual_address).decode()
    }

    /// Reads the jump and the instructions that make its operand.
    fn unbounded(&mut self, jump: usize) -> Option<Unbounded> {
        let instruction = self.decode(jump);
        if !matches!(
            instruction.code(),
            Code::Jmp_rm32 | Code::Jmp_rm64 | Code::Jmp_rm16
        ) {
            return None;
        }
        match instruction.op0_kind() {
            // jmp *table(,%rax,8)
            OpKind::Memory => self.absolute(jump, &instruction),
            OpKind::Register => {
                let register = instruction.op0_register().full_register();
                let (at, made) = self.definition(jump, register, FAR)?;
                match made.mnemonic() {
                    Mnemonic::Mov if made.op1_kind() == OpKind::Memory => self.absolute(at, &made),
                    // add %rdx,%rax
                    Mnemonic::Add if made.op1_kind() == OpKind::Register => {
                        let other = made.op1_register().full_register();
                        self.relative(at, register, other)
                            .or_else(|| self.relative(at, other, register))
                    }
                    Mnemonic::Lea if made.memory_index_scale() == 1 => {
                        let (one, other) = (made.memory_base(), made.memory_index());
                        if made.memory_displacement64() != 0 {
                            return None;
                        }
                        self.relative(at, one, other)
                            .or_else(|| self.relative(at, other, one))
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// A table of addresses, from an instruction that reads its entry.
    fn absolute(&mut self, at: usize, load: &Instruction) -> Option<Unbounded> {
        if load.memory_index() == Register::None && load.memory_displacement64() == 0 {
            return self.unoptimised(at, load.memory_base());
        }
        if load.memory_index_scale() as usize != self.code.machine().address_size()
            || load.memory_index() == Register::None
        {
            return None;
        }
        Some(Unbounded {
            place: self.place(at, load)?,
            base: None,
            index: load.memory_index().full_register(),
            at,
        })
    }

    /// Without optimisation: `shl $3,%rax; add $table,%rax; mov (%rax),%rax`.
    fn unoptimised(&mut self, at: usize, entry: Register) -> Option<Unbounded> {
        let entry = entry.full_register();
        let (at, made) = self.definition(at, entry, FAR)?;
        if made.mnemonic() != Mnemonic::Add || !is_immediate(made.op1_kind()) {
            return None;
        }
        let place = made.immediate(1) & width_mask(&made);
        let (at, made) = self.definition(at, entry, FAR)?;
        let scale = self.code.machine().address_size().trailing_zeros();
        let is_scaled = made.mnemonic() == Mnemonic::Shl
            && made.op1_kind() == OpKind::Immediate8
            && u32::from(made.immediate8()) == scale;
        is_scaled.then_some(Unbounded {
            place,
            base: None,
            index: entry,
            at,
        })
    }

    /// A table of distances: `entry` was loaded from it, `base` is what they are added to.
    fn relative(&mut self, at: usize, entry: Register, base: Register) -> Option<Unbounded> {
        let (mut from, mut load) = self.definition(at, entry.full_register(), FAR)?;
        if load.mnemonic() == Mnemonic::Cdqe {
            (from, load) = self.definition(from, Register::RAX, FAR)?;
        }
        let is_load = match load.mnemonic() {
            Mnemonic::Movsxd => true,
            Mnemonic::Mov => load.op0_register().size() == 4,
            _ => false,
        };
        if !is_load || load.op1_kind() != OpKind::Memory {
            return None;
        }
        let (place, index, read_at);
        if load.memory_index_scale() == 4 {
            place = self.place(from, &load)?;
            index = load.memory_index().full_register();
            read_at = from;
        } else {
            // Without optimisation: lea 0(,%rax,4),%rdx; lea table(%rip),%rax; mov (%rdx,%rax,1),%eax
            let (one, other) = (
                load.memory_base().full_register(),
                load.memory_index().full_register(),
            );
            (place, index, read_at) = self
                .scaled(from, &load, one, other)
                .or_else(|| self.scaled(from, &load, other, one))?;
        }
        let base = self.constant(at, base.full_register())?;
        Some(Unbounded {
            place,
            base: Some(base),
            index,
            at: read_at,
        })
    }

    /// A place and an index that was multiplied by four beforehand.
    fn scaled(
        &mut self,
        at: usize,
        load: &Instruction,
        place: Register,
        product: Register,
    ) -> Option<(u64, Register, usize)> {
        if load.memory_displacement64() != 0 || load.memory_index_scale() != 1 {
            return None;
        }
        let (made_at, made) = self.definition(at, product, FAR)?;
        let is_product = made.mnemonic() == Mnemonic::Lea
            && made.memory_base() == Register::None
            && made.memory_index_scale() == 4
            && made.memory_displacement64() == 0;
        if !is_product {
            return None;
        }
        let place = self.constant(at, place)?;
        Some((place, made.memory_index().full_register(), made_at))
    }

    /// The address of a memory operand, its index left out.
    fn place(&mut self, at: usize, load: &Instruction) -> Option<u64> {
        let displacement = load.memory_displacement64();
        match load.memory_base() {
            Register::None => Some(displacement),
            base => {
                let base = self.constant(at, base.full_register())?;
                Some(base.wrapping_add(displacement))
            }
        }
    }

    /// Returns a register's value before an instruction, if the value was put there as a constant.
    fn constant(&mut self, before: usize, register: Register) -> Option<u64> {
        let (at, made) = self.definition(before, register, FAR_FOR_PLACE)?;
        match made.mnemonic() {
            Mnemonic::Lea => x86::fixed_memory(&made),
            Mnemonic::Mov => match made.op1_kind() {
                OpKind::Immediate32 | OpKind::Immediate64 | OpKind::Immediate32to64
                    if made.op0_kind() == OpKind::Register =>
                {
                    Some(made.immediate(1))
                }
                OpKind::Register if made.op1_register().size() == register.size() => {
                    self.constant(at, made.op1_register())
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// The closest instruction before another, in the order of addresses, that writes a register.
    fn definition(
        &mut self,
        before: usize,
        register: Register,
        far: usize,
    ) -> Option<(usize, Instruction)> {
        if register == Register::None {
            return None;
        }
        for at in (before.saturating_sub(far)..before).rev() {
            if self.steps >= MOST_STEPS {
                return None;
            }
            let instruction = self.decode(at);
            if self.writes(&instruction, register) {
                return Some((at, instruction));
            }
        }
        None
    }

    fn writes(&mut self, instruction: &Instruction, register: Register) -> bool {
        let used = self.info.info(instruction).used_registers();
        used.iter().any(|used| {
            used.register().full_register() == register
                && matches!(
                    used.access(),
                    OpAccess::Write
                        | OpAccess::CondWrite
                        | OpAccess::ReadWrite
                        | OpAccess::ReadCondWrite
                )
        })
    }

    /// Returns the number of values that the index can have, on the ways to the instruction that reads it.
    fn bound(&mut self, read_at: usize, index: Register) -> Option<u64> {
        let mut ways = vec![Way::to(read_at, Watched::Register(index))];
        let mut seen: Vec<usize> = Vec::new();
        while let Some(way) = ways.pop() {
            match self.follow(way, &mut ways, &mut seen) {
                Some(count) if count <= MOST_ENTRIES => return Some(count),
                _ => {}
            }
        }
        None
    }

    /// Goes back on one way until the bound is found or the way ends; where others join it from further
    /// away, they are added.
    fn follow(&mut self, mut way: Way, ways: &mut Vec<Way>, seen: &mut Vec<usize>) -> Option<u64> {
        loop {
            if way.left == 0 || self.steps >= MOST_STEPS {
                return way.natural;
            }
            way.left -= 1;
            let above = way.at.checked_sub(1);
            let falls = above.filter(|&above| self.code.packed()[above].kind.continues());
            let Some(above) = falls else {
                // Only jumps lead here.
                if seen.contains(&way.at) || seen.len() >= 8 {
                    return way.natural;
                }
                seen.push(way.at);
                for source in jumps_to(&self.jumps, way.at).take(8) {
                    let mut next = way.clone();
                    next.at = source;
                    next.take(self.code, source, true);
                    ways.push(next);
                }
                return way.natural;
            };
            way.at = above;
            if self.code.packed()[above].kind == InstructionKind::ConditionalJump {
                way.take(self.code, above, false);
                continue;
            }
            let instruction = self.decode(above);
            if let Some(count) = way.compared(&instruction) {
                return Some(count);
            }
            if instruction.rflags_modified() != 0 {
                way.conditions.clear();
            }
            self.carry_limits(&mut way, &instruction);
            match way.watched {
                Watched::Register(register) => {
                    if self.writes(&instruction, register)
                        && let End::Here(count) = way.came_from(&instruction, register)
                    {
                        return count.or(way.natural);
                    }
                }
                Watched::Memory { base, index, .. } => {
                    let moved = [base, index].into_iter().any(|register| {
                        register != Register::None
                            && self.writes(&instruction, register.full_register())
                    });
                    if instruction.mnemonic() == Mnemonic::Mov
                        && instruction.op0_kind() == OpKind::Memory
                        && memory_of(&instruction) == way.watched
                    {
                        if instruction.op1_kind() != OpKind::Register {
                            return way.natural;
                        }
                        way.watched = Watched::Register(instruction.op1_register().full_register());
                    } else if moved || instruction.mnemonic() == Mnemonic::Call {
                        return way.natural;
                    }
                }
            }
            if let Some(count) = way.limit_of_index() {
                return Some(count);
            }
        }
    }

    /// Limits of other registers: where a register was copied, they hold for the original as well.
    fn carry_limits(&mut self, way: &mut Way, instruction: &Instruction) {
        let limits = std::mem::take(&mut way.limits);
        for (register, count) in limits {
            if !self.writes(instruction, register) {
                way.limits.push((register, count));
            } else if matches!(instruction.mnemonic(), Mnemonic::Mov | Mnemonic::Movzx)
                && instruction.op0_kind() == OpKind::Register
                && instruction.op1_kind() == OpKind::Register
                && instruction.op0_register().full_register() == register
            {
                let original = instruction.op1_register().full_register();
                way.limits.push((original, count));
            }
        }
        // These limits hold for a register before something is subtracted from it.
        way.limits.append(&mut way.new_limits);
    }
}

/// A way back from a jump.
#[derive(Debug, Clone)]
struct Way {
    /// The instruction before which it goes on.
    at: usize,
    watched: Watched,
    /// Conditions that hold on this way, of the flags as they are here.
    conditions: Vec<ConditionCode>,
    /// Registers other than the index, and how many values they can have.
    limits: Vec<(Register, u64)>,
    /// The limits that hold before the instruction that was passed last.
    new_limits: Vec<(Register, u64)>,
    /// The number of values that the index has because of its width.
    natural: Option<u64>,
    left: usize,
}

/// Whether a way goes on past an instruction that writes the index.
enum End {
    No,
    Here(Option<u64>),
}

impl Way {
    fn to(jump: usize, watched: Watched) -> Self {
        Self {
            at: jump,
            watched,
            conditions: Vec::new(),
            limits: Vec::new(),
            new_limits: Vec::new(),
            natural: None,
            left: FAR,
        }
    }

    /// Notes what a conditional jump says that was passed.
    fn take(&mut self, code: &FunctionCode, jump: usize, is_taken: bool) {
        let Some(raw) = code.get(jump) else { return };
        if raw.kind != InstructionKind::ConditionalJump {
            return;
        }
        let bits = if code.machine() == CodeMachine::I386 {
            32
        } else {
            64
        };
        let condition = x86::decoder(bits, raw.bytes, raw.virtual_address)
            .decode()
            .condition_code();
        let holds = match (condition, is_taken) {
            (ConditionCode::a, false) | (ConditionCode::be, true) => ConditionCode::be,
            (ConditionCode::ae, false) | (ConditionCode::b, true) => ConditionCode::b,
            _ => return,
        };
        self.conditions.push(holds);
    }

    /// The bound, if an instruction compares the index; if it compares something else, that is noted.
    fn compared(&mut self, instruction: &Instruction) -> Option<u64> {
        let is_comparison = matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Sub);
        if !is_comparison || !is_immediate(instruction.op1_kind()) {
            return None;
        }
        let limit = instruction.immediate(1) & width_mask(instruction);
        let count = self
            .conditions
            .iter()
            .map(|condition| match condition {
                ConditionCode::be => limit.saturating_add(1),
                _ => limit,
            })
            .min()?;
        match instruction.op0_kind() {
            OpKind::Register => {
                let register = instruction.op0_register().full_register();
                if instruction.mnemonic() == Mnemonic::Cmp
                    && self.watched == Watched::Register(register)
                {
                    return Some(count);
                }
                self.new_limits.push((register, count));
                None
            }
            OpKind::Memory if instruction.mnemonic() == Mnemonic::Cmp => {
                (memory_of(instruction) == self.watched).then_some(count)
            }
            _ => None,
        }
    }

    /// The limit of what is the index here.
    fn limit_of_index(&self) -> Option<u64> {
        let mut limits = self.limits.iter();
        limits
            .find(|(register, _)| self.watched == Watched::Register(*register))
            .map(|(_, count)| *count)
    }

    /// Goes on with what the index was made from.
    fn came_from(&mut self, instruction: &Instruction, register: Register) -> End {
        if instruction.op0_kind() != OpKind::Register
            || instruction.op0_register().full_register() != register
        {
            return End::Here(None);
        }
        match instruction.mnemonic() {
            Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsxd | Mnemonic::Movsx => {
                if instruction.mnemonic() == Mnemonic::Movzx {
                    let is_byte = match instruction.op1_kind() {
                        OpKind::Register => instruction.op1_register().size() == 1,
                        _ => instruction.memory_size().size() == 1,
                    };
                    if is_byte && self.natural.is_none() {
                        self.natural = Some(BYTE_VALUES);
                    }
                }
                self.watched = match instruction.op1_kind() {
                    OpKind::Register => {
                        Watched::Register(instruction.op1_register().full_register())
                    }
                    OpKind::Memory => memory_of(instruction),
                    _ => return End::Here(None),
                };
                End::No
            }
            // Widens what it holds; the comparison comes before.
            Mnemonic::Cdqe | Mnemonic::Cwde => End::No,
            Mnemonic::And if is_immediate(instruction.op1_kind()) => {
                let mask = instruction.immediate(1) & width_mask(instruction);
                End::Here(mask.checked_add(1))
            }
            Mnemonic::Shr if instruction.op1_kind() == OpKind::Immediate8 => {
                let bits = instruction.op0_register().size() * 8;
                let left = bits.saturating_sub(usize::from(instruction.immediate8()));
                End::Here((left < 17).then(|| 1 << left))
            }
            _ => End::Here(None),
        }
    }
}

fn memory_of(instruction: &Instruction) -> Watched {
    Watched::Memory {
        base: instruction.memory_base(),
        index: instruction.memory_index(),
        displacement: instruction.memory_displacement64(),
    }
}

/// The bits that an instruction's first operand has.
fn width_mask(instruction: &Instruction) -> u64 {
    let size = match instruction.op0_kind() {
        OpKind::Register => instruction.op0_register().size(),
        _ => instruction.memory_size().size(),
    };
    match size {
        1..8 => (1 << (size * 8)) - 1,
        _ => u64::MAX,
    }
}

fn is_immediate(kind: OpKind) -> bool {
    matches!(
        kind,
        OpKind::Immediate8
            | OpKind::Immediate8to16
            | OpKind::Immediate8to32
            | OpKind::Immediate8to64
            | OpKind::Immediate16
            | OpKind::Immediate32
            | OpKind::Immediate32to64
            | OpKind::Immediate64
    )
}
