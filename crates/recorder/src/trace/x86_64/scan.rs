//! Finds a module's functions, and where and how their calls can be traced.
//!
//! Addresses here are those of the ELF file (virtual addresses), before it is loaded.

use super::displace::{JUMP, Prologue, Refused, prologue};
use dioptra_tracelayout::message::{Method, Observed};
use gimli::{
    BaseAddresses, CfaRule, EhFrame, LittleEndian, Register, RegisterRule, UnwindContext,
    UnwindSection,
};
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, OpKind};
use object::elf::{FileHeader64, PT_LOAD, R_X86_64_RELATIVE};
use object::read::elf::{ElfFile, ProgramHeader};
use object::{
    Endianness, Object, ObjectSection, ObjectSymbol, ObjectSymbolTable, RelocationFlags,
    RelocationTarget, SymbolKind,
};
use std::collections::{BTreeMap, HashMap, HashSet};

type Elf<'a> = ElfFile<'a, FileHeader64<Endianness>>;

/// What is looked for.
#[derive(Clone, Copy, Debug)]
pub struct ScanOptions {
    /// Functions without instrumentation, too.
    pub plain: bool,
    /// Stubs for library calls, too.
    pub library_calls: bool,
}

/// A function whose calls can be traced.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Its first byte.
    pub start: u64,
    /// Its size in bytes; 0 if it is not known.
    pub size: u64,
    /// How.
    pub method: Method,
    /// Where the jump to its thunk goes.
    pub site: u64,
    /// What the thunk calls.
    pub body: CandidateBody,
    /// What takes the place of a hook that is not wanted, and how many bytes of it, at the site: calls that cost nothing.
    pub neutral: Option<&'static [u8]>,
    /// The name of a library call.
    pub name: Option<String>,
}

/// What a thunk calls.
#[derive(Clone, Debug)]
pub enum CandidateBody {
    /// This address.
    At(u64),
    /// These instructions.
    Displaced(Prologue),
    /// Nothing: the function calls the runtime itself.
    Itself,
}

/// What was found in a module.
#[derive(Debug, Default)]
pub struct ModuleCode {
    /// In the order of their addresses.
    pub candidates: Vec<Candidate>,
    /// What can't be traced, and why.
    pub refused: Vec<(u64, Refused)>,
    /// Loadable segments.
    pub segments: Vec<Segment>,
}

/// A loadable segment.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// Where it begins in the file.
    pub offset: u64,
    /// Where it is loaded.
    pub address: u64,
    /// How much of the file it maps.
    pub file_size: u64,
}

impl ModuleCode {
    /// The file offset of a virtual address.
    pub fn file_offset(&self, address: u64) -> Option<u64> {
        self.segments
            .iter()
            .find(|segment| address.wrapping_sub(segment.address) < segment.file_size)
            .map(|segment| address - segment.address + segment.offset)
    }
}

/// Functions that return twice, or do what their caller's address says, or are entered in no ordinary way.
const SPECIAL: &[&str] = &[
    "setjmp",
    "_setjmp",
    "sigsetjmp",
    "__sigsetjmp",
    "savectx",
    "vfork",
    "__vfork",
    "getcontext",
    "setcontext",
    "swapcontext",
    "__getcontext",
    "__setcontext",
    "__swapcontext",
    "__start_context",
    "clone",
    "__clone",
    "clone3",
    "__clone3",
    "dlopen",
    "dlmopen",
    "dlsym",
    "dlvsym",
    "__libc_start_main",
    "__tls_get_addr",
    "__gmon_start__",
    "mcount",
    "_mcount",
    "__fentry__",
    "__cyg_profile_func_enter",
    "__cyg_profile_func_exit",
    "__xray_CustomEvent",
    "_start",
    "_init",
    "_fini",
    "__libc_csu_init",
    "__restore_rt",
    "rust_eh_personality",
    "_dl_runtime_resolve",
];

/// Whether a function's name says that it must be left alone.
pub fn is_special(name: &str) -> bool {
    let name = name.split('@').next().unwrap_or(name);
    SPECIAL.contains(&name)
        || name.starts_with("_Unwind_")
        || name.starts_with("uw_")
        || name.starts_with("__gcc_personality")
        || name.starts_with("_dl_tlsdesc")
        || name.starts_with("_dl_runtime_")
}

/// A function, as the unwind tables describe it.
#[derive(Clone, Copy, Debug)]
struct Described {
    start: u64,
    size: u64,
    entry: bool,
    special: bool,
}

struct Scanner<'a> {
    elf: Elf<'a>,
    segments: Vec<Segment>,
    data: &'a [u8],
    /// Addresses of pointers that the dynamic linker fills with functions, and their names.
    slots: HashMap<u64, String>,
    /// Addresses that the linker makes of load-relative words: where, what.
    relative: BTreeMap<u64, u64>,
    /// Stubs that jump through slots.
    stubs: BTreeMap<u64, Stub>,
    /// Whether functions may say themselves when they begin.
    cyg: bool,
}

#[derive(Clone, Debug)]
struct Stub {
    name: String,
    jump: Instruction,
}

/// A function of the C library or the dynamic linker that the runtime has to know of.
#[derive(Clone, Debug)]
pub struct FunctionHook {
    /// Where the jump goes.
    pub site: u64,
    /// What is moved away for it.
    pub prologue: Prologue,
    /// What happens there.
    pub work: HookWork,
}

/// What happens at a [`FunctionHook`].
#[derive(Clone, Copy, Debug)]
pub enum HookWork {
    /// The runtime is told.
    Observe(Observed),
    /// The runtime does it instead.
    Execve,
}

/// The functions that the runtime has to know of, if this is the C library or the dynamic linker.
pub fn hooks(data: &[u8]) -> Vec<FunctionHook> {
    let Ok(elf) = Elf::parse(data) else {
        return Vec::new();
    };
    let is_theirs = elf.dynamic_symbols().any(|symbol| {
        matches!(symbol.name(), Ok("__libc_start_main" | "_dl_debug_state"))
            && !symbol.is_undefined()
    });
    if !is_theirs {
        return Vec::new();
    }
    let scanner = Scanner {
        segments: segments_of(&elf),
        elf,
        data,
        slots: HashMap::new(),
        relative: BTreeMap::new(),
        stubs: BTreeMap::new(),
        cyg: false,
    };
    let hook = |name: &str, work| {
        let symbol = scanner
            .elf
            .dynamic_symbols()
            .find(|symbol| symbol.name() == Ok(name) && !symbol.is_undefined())?;
        let bytes = scanner.bytes(symbol.address(), symbol.size().max(16))?;
        let skip = if bytes.starts_with(ENDBR) {
            ENDBR.len()
        } else {
            0
        };
        let site = symbol.address() + skip as u64;
        let size = (symbol.size() as usize).saturating_sub(skip);
        // A function that does nothing is shorter than a jump.
        let room = size + padding(bytes.get(skip + size..)?, u64::MAX);
        let code = bytes.get(skip..)?;
        let code = code
            .get(..size.max(1))
            .filter(|_| size < JUMP)
            .unwrap_or(code);
        let prologue = prologue(code, site, 0, room >= JUMP, |_| false).ok()?;
        Some(FunctionHook {
            site,
            prologue,
            work,
        })
    };
    [
        ("swapcontext", HookWork::Observe(Observed::SwapContext)),
        ("setcontext", HookWork::Observe(Observed::SetContext)),
        // `_longjmp` and `siglongjmp` are other names of it.
        ("longjmp", HookWork::Observe(Observed::Jump)),
        ("__longjmp_chk", HookWork::Observe(Observed::Jump)),
        ("execve", HookWork::Execve),
        (
            "_dl_debug_state",
            HookWork::Observe(Observed::ModulesChange),
        ),
    ]
    .into_iter()
    .filter_map(|(name, work)| hook(name, work))
    .collect()
}

/// How a sled of XRay's begins: `jmp` over nine bytes, which are a `nop`.
const XRAY_SLED: &[u8] = &[0xeb, 0x09, 0x66, 0x0f, 0x1f, 0x84];
const XRAY_SLED_SIZE: u64 = 11;

/// What marks the targets of indirect branches.
const ENDBR: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];

/// The loadable segments of an ELF file, if it is one.
pub fn segments(data: &[u8]) -> Option<Vec<Segment>> {
    Some(segments_of(&Elf::parse(data).ok()?))
}

fn segments_of(elf: &Elf<'_>) -> Vec<Segment> {
    let endian = elf.endian();
    elf.elf_program_headers()
        .iter()
        .filter(|header| header.p_type(endian) == PT_LOAD)
        .map(|header| Segment {
            offset: header.p_offset(endian),
            address: header.p_vaddr(endian),
            file_size: header.p_filesz(endian),
        })
        .collect()
}

/// Finds the functions of an ELF file.
///
/// # Errors
/// If the bytes are no ELF file for this machine.
pub fn scan(data: &[u8], options: ScanOptions) -> Result<ModuleCode, object::Error> {
    let elf = Elf::parse(data)?;
    let segments = segments_of(&elf);
    let mut scanner = Scanner {
        elf,
        segments,
        data,
        slots: HashMap::new(),
        relative: BTreeMap::new(),
        stubs: BTreeMap::new(),
        cyg: false,
    };
    scanner.relocations();
    scanner.cyg = scanner
        .slots
        .values()
        .any(|name| name == "__cyg_profile_func_enter");
    scanner.stubs();
    Ok(scanner.functions(options))
}

impl<'a> Scanner<'a> {
    fn relocations(&mut self) {
        let Some(relocations) = self.elf.dynamic_relocations() else {
            return;
        };
        let symbols = self.elf.dynamic_symbol_table();
        for (address, relocation) in relocations {
            match relocation.target() {
                RelocationTarget::Symbol(index) => {
                    let name = symbols
                        .as_ref()
                        .and_then(|table| table.symbol_by_index(index).ok())
                        .and_then(|symbol| symbol.name().ok().map(str::to_owned));
                    if let Some(name) = name {
                        self.slots.insert(address, name);
                    }
                }
                _ => {
                    if matches!(relocation.flags(), RelocationFlags::Elf { r_type } if r_type == R_X86_64_RELATIVE)
                    {
                        self.relative.insert(address, relocation.addend() as u64);
                    }
                }
            }
        }
    }

    fn bytes(&self, address: u64, size: u64) -> Option<&'a [u8]> {
        let segment = self
            .segments
            .iter()
            .find(|segment| address.wrapping_sub(segment.address) < segment.file_size)?;
        let inside = address - segment.address;
        let size = size.min(segment.file_size - inside);
        let start = usize::try_from(segment.offset.checked_add(inside)?).ok()?;
        self.data.get(start..start.checked_add(size as usize)?)
    }

    fn stubs(&mut self) {
        for section in self.elf.sections() {
            let Ok(".plt" | ".plt.sec" | ".plt.got") = section.name() else {
                continue;
            };
            let Ok(bytes) = section.data() else { continue };
            let mut decoder = Decoder::with_ip(64, bytes, section.address(), DecoderOptions::NONE);
            let mut start = section.address();
            while decoder.can_decode() {
                let instruction = decoder.decode();
                if instruction.code() == Code::Endbr64 {
                    start = instruction.ip();
                    continue;
                }
                if instruction.code() == Code::Jmp_rm64
                    && instruction.is_ip_rel_memory_operand()
                    && let Some(name) = self.slots.get(&instruction.ip_rel_memory_address())
                {
                    let stub = Stub {
                        name: name.clone(),
                        jump: instruction,
                    };
                    self.stubs.insert(start.min(instruction.ip()), stub);
                }
                start = instruction.next_ip();
            }
        }
    }

    /// The name of the function of another module that an instruction calls.
    fn called(&self, instruction: &Instruction) -> Option<&str> {
        if instruction.op0_kind() == OpKind::NearBranch64 {
            let stub = self.stubs.get(&instruction.near_branch_target())?;
            return Some(&stub.name);
        }
        if instruction.is_ip_rel_memory_operand() {
            return self
                .slots
                .get(&instruction.ip_rel_memory_address())
                .map(String::as_str);
        }
        None
    }

    fn functions(&self, options: ScanOptions) -> ModuleCode {
        let mut code = ModuleCode {
            segments: self.segments.clone(),
            ..ModuleCode::default()
        };
        let described = self.described();
        let special = self.special_symbols();
        let patchable = self.listed("__patchable_function_entries");
        let nop_sites: HashSet<u64> = self.listed("__mcount_loc").into_iter().collect();
        let branches = Branches::default();
        let mut branches = Lazy {
            scanner: self,
            described: &described,
            found: None,
            empty: branches,
        };
        for (at, function) in described.iter().enumerate() {
            let next = described.get(at + 1).map(|next| next.start);
            if special.contains(&function.start) {
                if options.plain {
                    code.refused.push((function.start, Refused::Special));
                }
                continue;
            }
            match self.candidate(
                function,
                next,
                &patchable,
                &nop_sites,
                options,
                &mut branches,
            ) {
                Some(Ok(candidate)) => code.candidates.push(candidate),
                Some(Err(refused)) => code.refused.push((function.start, refused)),
                None => {}
            }
        }
        if options.library_calls {
            for (start, stub) in &self.stubs {
                if is_special(&stub.name) {
                    continue;
                }
                let site = stub.jump.ip();
                let Some(bytes) = self.bytes(site, 16) else {
                    continue;
                };
                if let Ok(prologue) = prologue(bytes, site, 0, false, |_| false) {
                    code.candidates.push(Candidate {
                        start: *start,
                        size: 0,
                        method: Method::Plt,
                        site,
                        body: CandidateBody::Displaced(prologue),
                        neutral: None,
                        name: Some(stub.name.clone()),
                    });
                }
            }
        }
        code.candidates.sort_by_key(|candidate| candidate.site);
        code.candidates.dedup_by_key(|candidate| candidate.site);
        code
    }

    /// The functions of the unwind tables, by address.
    fn described(&self) -> Vec<Described> {
        let Some(section) = self.elf.section_by_name(".eh_frame") else {
            return Vec::new();
        };
        let Ok(data) = section.data() else {
            return Vec::new();
        };
        let frames = EhFrame::new(data, LittleEndian);
        let mut bases = BaseAddresses::default().set_eh_frame(section.address());
        if let Some(text) = self.elf.section_by_name(".text") {
            bases = bases.set_text(text.address());
        }
        let mut context = UnwindContext::new();
        let mut cies = HashMap::new();
        let mut entries = frames.entries(&bases);
        let mut all = Vec::new();
        while let Ok(Some(entry)) = entries.next() {
            let gimli::CieOrFde::Fde(partial) = entry else {
                continue;
            };
            let parsed = partial.parse(|section, bases, offset| {
                if let Some(cie) = cies.get(&offset.0) {
                    return Ok(gimli::CommonInformationEntry::clone(cie));
                }
                let cie = section.cie_from_offset(bases, offset)?;
                cies.insert(offset.0, cie.clone());
                Ok(cie)
            });
            let Ok(fde) = parsed else { continue };
            let mut entry = false;
            let mut special = fde.is_signal_trampoline();
            if let Ok(mut rows) = fde.rows(&frames, &bases, &mut context) {
                let mut first = true;
                while let Ok(Some(row)) = rows.next_row() {
                    if first {
                        first = false;
                        let cfa = matches!(
                            row.cfa(),
                            CfaRule::RegisterAndOffset {
                                register: Register(7),
                                offset: 8
                            }
                        );
                        entry =
                            cfa && row.registers().all(|(register, rule)| {
                                *register == Register(16) && *rule == RegisterRule::Offset(-8)
                            }) && row.register(Register(16)) == Some(RegisterRule::Offset(-8));
                    }
                    // Only functions that resume after exceptions save the registers that results are returned in.
                    special |= row
                        .registers()
                        .any(|(register, _)| matches!(register, Register(0 | 1)));
                }
            }
            all.push(Described {
                start: fde.initial_address(),
                size: fde.len(),
                entry,
                special,
            });
        }
        all.retain(|function| function.size > 0);
        all.sort_by_key(|function| function.start);
        all.dedup_by_key(|function| function.start);
        all
    }

    fn special_symbols(&self) -> HashSet<u64> {
        self.elf
            .symbols()
            .chain(self.elf.dynamic_symbols())
            .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.address() != 0)
            .filter(|symbol| symbol.name().is_ok_and(is_special))
            .map(|symbol| symbol.address())
            .collect()
    }

    /// Whether a function says that it begins. The call is behind its prologue, not far from its start.
    fn calls_cyg(&self, code: &[u8], site: u64) -> bool {
        Decoder::with_ip(64, code, site, DecoderOptions::NONE)
            .into_iter()
            .take(200)
            .any(|instruction| self.called(&instruction) == Some("__cyg_profile_func_enter"))
    }

    /// The addresses that a section lists.
    fn listed(&self, name: &str) -> Vec<u64> {
        let mut all = Vec::new();
        for section in self.elf.sections() {
            if section.name() != Ok(name) {
                continue;
            }
            let Ok(data) = section.data() else { continue };
            for (at, word) in data.chunks_exact(8).enumerate() {
                let stored = word.try_into().map_or(0, u64::from_le_bytes);
                let place = section.address() + 8 * at as u64;
                let address = self.relative.get(&place).copied().unwrap_or(stored);
                if address != 0 {
                    all.push(address);
                }
            }
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    fn candidate(
        &self,
        function: &Described,
        next: Option<u64>,
        patchable: &[u64],
        nop_sites: &HashSet<u64>,
        options: ScanOptions,
        branches: &mut Lazy<'_, 'a>,
    ) -> Option<Result<Candidate, Refused>> {
        let bytes = self.bytes(function.start, function.size)?;
        let skip = if bytes.starts_with(ENDBR) { 4 } else { 0 };
        let site = function.start + skip as u64;
        let code = bytes.get(skip..)?;
        let made = |method, site, body, neutral| {
            Some(Ok(Candidate {
                start: function.start,
                size: function.size,
                method,
                site,
                body,
                neutral,
                name: None,
            }))
        };

        // Space for a hook: listed, and made of nops.
        let from = patchable.partition_point(|&address| address + 64 < function.start);
        let is_listed = patchable
            .get(from..)
            .unwrap_or_default()
            .iter()
            .take_while(|&&address| address <= site)
            .any(|&address| address <= site);
        if is_listed && let Some(nops) = nops(code) {
            return made(
                Method::Patchable,
                site,
                CandidateBody::At(site + nops),
                None,
            );
        }
        if nop_sites.contains(&site)
            && let Some(nops) = nops(code)
        {
            return made(Method::Fentry, site, CandidateBody::At(site + nops), None);
        }

        // A sled of XRay's: a jump over nine bytes. Those at returns are left alone.
        if code.starts_with(XRAY_SLED) {
            let body = CandidateBody::At(site + XRAY_SLED_SIZE);
            return made(Method::Xray, site, body, None);
        }

        // A call of a hook: the first instruction, or behind the prologue.
        let mut decoder = Decoder::with_ip(64, code, site, DecoderOptions::NONE);
        let first = decoder.decode();
        let is_call = |instruction: &Instruction| {
            matches!(
                instruction.flow_control(),
                FlowControl::Call | FlowControl::IndirectCall
            )
        };
        if is_call(&first) && self.called(&first) == Some("__fentry__") {
            let neutral: &'static [u8] = if first.len() == 5 {
                &[0x0f, 0x1f, 0x44, 0, 0]
            } else {
                &[0x66, 0x0f, 0x1f, 0x44, 0, 0]
            };
            let body = CandidateBody::At(first.next_ip());
            return made(Method::Fentry, site, body, Some(neutral));
        }
        let is_mcount = |instruction: &Instruction| {
            is_call(instruction) && matches!(self.called(instruction), Some("mcount" | "_mcount"))
        };
        if self.cyg && self.calls_cyg(code, site) {
            return made(Method::Cygprof, site, CandidateBody::Itself, None);
        }
        let mut instruction = first;
        let mut mcount = None;
        for _ in 0..24 {
            if is_mcount(&instruction) {
                mcount = Some(instruction);
                break;
            }
            if instruction.is_invalid()
                || instruction.flow_control() != FlowControl::Next
                || !decoder.can_decode()
            {
                break;
            }
            instruction = decoder.decode();
        }
        if !function.entry || function.special {
            if !options.plain && mcount.is_none() {
                return None;
            }
            let why = if function.special {
                Refused::Special
            } else {
                Refused::NoEntry
            };
            // Parts of functions that were split off are no functions.
            return (function.special || mcount.is_some()).then_some(Err(why));
        }
        if mcount.is_none() && !options.plain {
            return None;
        }
        let found = branches.get();
        if found.enters(site + 1, site + JUMP as u64) {
            return Some(Err(Refused::Entered));
        }
        if found.loops.contains(&function.start) {
            return Some(Err(Refused::Loop));
        }
        let end = function.start + function.size;
        let padding = self.bytes(end, 16).map_or(0, |bytes| {
            padding(
                bytes,
                next.map_or(u64::MAX, |next| next.saturating_sub(end)),
            )
        });
        let padded = code.len() + padding >= JUMP;
        let until = mcount
            .map(|call| (call.next_ip() - site) as usize)
            .filter(|&until| until <= 48)
            .unwrap_or(0);
        let method = if mcount.is_some() {
            Method::Mcount
        } else {
            Method::Plain
        };
        Some(
            prologue(code, site, until, padded, is_mcount).map(|prologue| Candidate {
                start: function.start,
                size: function.size,
                method,
                site,
                body: CandidateBody::Displaced(prologue),
                neutral: None,
                name: None,
            }),
        )
    }
}

/// How many bytes of nops, at least a jump's.
fn nops(code: &[u8]) -> Option<u64> {
    let window = code.get(..code.len().min(64))?;
    let mut decoder = Decoder::new(64, window, DecoderOptions::NONE);
    let mut size = 0;
    while decoder.can_decode() {
        let instruction = decoder.decode();
        let is_nop = matches!(
            instruction.code(),
            Code::Nopw | Code::Nopd | Code::Nopq | Code::Nop_rm16 | Code::Nop_rm32 | Code::Nop_rm64
        );
        if !is_nop || size >= JUMP {
            break;
        }
        size += instruction.len();
    }
    (size >= JUMP).then_some(size as u64)
}

/// How many of the bytes pad.
fn padding(bytes: &[u8], most: u64) -> usize {
    let most = usize::try_from(most).unwrap_or(usize::MAX).min(bytes.len());
    let mut decoder = Decoder::new(64, &bytes[..most], DecoderOptions::NONE);
    let mut size = 0;
    while decoder.can_decode() {
        let instruction = decoder.decode();
        let is_padding = matches!(
            instruction.code(),
            Code::Nopw
                | Code::Nopd
                | Code::Nopq
                | Code::Nop_rm16
                | Code::Nop_rm32
                | Code::Nop_rm64
                | Code::Int3
        );
        if !is_padding {
            break;
        }
        size += instruction.len();
    }
    size
}

/// Where the module's code branches to.
#[derive(Debug, Default)]
struct Branches {
    /// Targets inside functions, sorted.
    targets: Vec<u64>,
    /// Functions with a branch to their own first instruction.
    loops: HashSet<u64>,
}

impl Branches {
    fn enters(&self, from: u64, to: u64) -> bool {
        let at = self.targets.partition_point(|&target| target < from);
        self.targets.get(at).is_some_and(|&target| target < to)
    }
}

/// Found when it is first asked for: all code has to be decoded.
struct Lazy<'s, 'a> {
    scanner: &'s Scanner<'a>,
    described: &'s [Described],
    found: Option<Branches>,
    empty: Branches,
}

impl Lazy<'_, '_> {
    fn get(&mut self) -> &Branches {
        if self.found.is_none() {
            self.found = Some(self.find());
        }
        self.found.as_ref().unwrap_or(&self.empty)
    }

    fn find(&self) -> Branches {
        let mut branches = Branches::default();
        let mut instruction = Instruction::default();
        for function in self.described {
            let Some(bytes) = self.scanner.bytes(function.start, function.size) else {
                continue;
            };
            let first = if bytes.starts_with(ENDBR) {
                function.start + 4
            } else {
                function.start
            };
            let mut decoder = Decoder::with_ip(64, bytes, function.start, DecoderOptions::NONE);
            while decoder.can_decode() {
                decoder.decode_out(&mut instruction);
                if !matches!(
                    instruction.op0_kind(),
                    OpKind::NearBranch64 | OpKind::NearBranch32 | OpKind::NearBranch16
                ) {
                    continue;
                }
                let target = instruction.near_branch_target();
                let is_call = instruction.flow_control() == FlowControl::Call;
                if (target == first || target == function.start) && !is_call {
                    branches.loops.insert(function.start);
                } else {
                    branches.targets.push(target);
                }
            }
        }
        // Pointers that the linker makes count, too.
        branches.targets.extend(self.scanner.relative.values());
        branches.targets.sort_unstable();
        branches.targets.dedup();
        branches
    }
}
