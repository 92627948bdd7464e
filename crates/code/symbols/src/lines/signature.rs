//! The parameters of a function and its return value, with their types, as the debug information declares them.

use super::LineReader;
use crate::address::RelativeAddress;
use crate::dwarf_sections::Slice;
use gimli::{AttributeValue, DebuggingInformationEntry, UnitOffset, UnitRef};

/// More steps from an entry to its declaration, or from a type to what it stands for, than compilers make.
const MOST_STEPS: usize = 16;
/// The deepest nesting of members that is described.
const MOST_LEVELS: usize = 3;
/// The most members of a struct and names of an enumeration that are described.
const MOST_MEMBERS: usize = 64;

/// A function's parameters and its return value.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct FunctionSignature {
    /// The parameters in their order, `this` included.
    pub parameters: Vec<Parameter>,
    /// The type of the return value; `None` if the function returns nothing.
    pub returned: Option<ValueType>,
    /// Whether the function follows Rust's calling convention, which differs from C's for structs.
    pub is_rust: bool,
}

/// A parameter of a function.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Parameter {
    /// The name; empty if it has none.
    pub name: String,
    /// The type.
    pub value: ValueType,
}

/// The type of a value, as far as it matters for reading and showing it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ValueType {
    /// A signed integer of so many bytes.
    Signed(u8),
    /// An unsigned integer of so many bytes.
    Unsigned(u8),
    /// A truth value of one byte.
    Boolean,
    /// A character of one byte.
    Character,
    /// A floating-point number of so many bytes.
    Float(u8),
    /// A pointer or a reference.
    Pointer,
    /// A pointer to characters: a text that ends with a zero byte, if the program follows the custom.
    Text,
    /// A pointer or a reference to a `std::string` of libstdc++.
    StringReference,
    /// A `std::string` of libstdc++.
    String,
    /// A pointer and a number of elements: `&str`, `&[T]`, `std::string_view`.
    View {
        /// The elements.
        element: Box<ValueType>,
        /// The size of an element in bytes.
        size: u16,
        /// Whether the number comes before the pointer.
        is_number_first: bool,
    },
    /// An enumeration.
    Enumeration {
        /// The number of bytes.
        size: u8,
        /// The names of the values.
        names: Vec<(String, i64)>,
    },
    /// A struct, class or union.
    Struct(StructType),
    /// Something else, of so many bytes; `None` if the number is not known.
    Other(Option<u64>),
}

/// A struct, class or union.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct StructType {
    /// The name; empty if it has none.
    pub name: String,
    /// The size in bytes.
    pub size: u64,
    /// The members' names, offsets in bytes and types, without bit fields.
    pub members: Vec<(String, u64, ValueType)>,
    /// Whether all members are among `members`, without overlaps.
    pub is_whole: bool,
    /// Whether callers pass the address of a copy, because C++ forbids to copy the bytes.
    pub is_passed_by_address: bool,
}

impl ValueType {
    /// Returns the size in bytes in memory.
    #[must_use]
    pub fn size(&self) -> Option<u64> {
        Some(match self {
            Self::Signed(size) | Self::Unsigned(size) | Self::Float(size) => u64::from(*size),
            Self::Boolean | Self::Character => 1,
            Self::Pointer | Self::Text | Self::StringReference => 8,
            Self::String => 32,
            Self::View { .. } => 16,
            Self::Enumeration { size, .. } => u64::from(*size),
            Self::Struct(of) => of.size,
            Self::Other(size) => return *size,
        })
    }
}

type Unit<'r, 'a> = UnitRef<'r, Slice<'a>>;
type Entry<'a> = DebuggingInformationEntry<Slice<'a>>;

impl<'a> LineReader<'a> {
    /// Returns the signature of the function whose code begins at an address; `None` if the debug information does
    /// not tell, says that the compiler has changed how the function is called, or lies in split files.
    #[must_use]
    pub fn signature(&self, address: RelativeAddress) -> Option<FunctionSignature> {
        let context = self.context.as_ref()?;
        let probe = self.lines.address_of(address)?;
        let mut found = self.loaded(context.find_frames(probe)).ok()?;
        let mut entry = None;
        // The outermost frame: what is inlined there is not the function.
        while let Ok(Some(frame)) = found.next() {
            entry = frame.dw_die_offset;
        }
        let unit = self.loaded(context.find_dwarf_and_unit(probe))?;
        if unit.dwo_name().is_ok_and(|name| name.is_some()) {
            return None;
        }
        signature(unit, entry?)
    }
}

fn signature<'a>(unit: Unit<'_, 'a>, offset: UnitOffset) -> Option<FunctionSignature> {
    let language = language(unit);
    let mut signature = FunctionSignature {
        is_rust: language == Some(gimli::DW_LANG_Rust),
        ..FunctionSignature::default()
    };
    let mut at = offset;
    let mut has_parameters = false;
    for _ in 0..MOST_STEPS {
        let entry = unit.entry(at).ok()?;
        if let Some(AttributeValue::CallingConvention(gimli::DW_CC_nocall)) =
            entry.attr_value(gimli::DW_AT_calling_convention)
        {
            return None;
        }
        if !has_parameters {
            signature.parameters = parameters(unit, at);
            has_parameters = !signature.parameters.is_empty();
        }
        if signature.returned.is_none()
            && let Some(of) = reference(&entry, gimli::DW_AT_type)
        {
            signature.returned = Some(value_type(unit, of, MOST_LEVELS));
        }
        match origin(&entry) {
            Some(next) => at = next,
            None => return Some(signature),
        }
    }
    None
}

/// Returns the language of a unit.
fn language(unit: Unit<'_, '_>) -> Option<gimli::DwLang> {
    let mut entries = unit.entries();
    let root = entries.next_dfs().ok()??;
    match root.attr_value(gimli::DW_AT_language)? {
        AttributeValue::Language(language) => Some(language),
        _ => None,
    }
}

/// Returns the parameters that an entry's children are.
fn parameters(unit: Unit<'_, '_>, offset: UnitOffset) -> Vec<Parameter> {
    let mut found = Vec::new();
    each_child(unit, offset, |child| match child.tag() {
        gimli::DW_TAG_formal_parameter => found.push(parameter(unit, child)),
        // A template's parameters of any number.
        gimli::DW_TAG_GNU_formal_parameter_pack => each_child(unit, child.offset(), |child| {
            if child.tag() == gimli::DW_TAG_formal_parameter {
                found.push(parameter(unit, child));
            }
        }),
        _ => {}
    });
    found
}

fn parameter<'a>(unit: Unit<'_, 'a>, entry: &Entry<'a>) -> Parameter {
    let mut found = Parameter {
        name: String::new(),
        value: ValueType::Other(None),
    };
    let mut look = |entry: &Entry<'a>| {
        if found.name.is_empty() {
            found.name = name(unit, entry);
        }
        if found.value == ValueType::Other(None)
            && let Some(of) = reference(entry, gimli::DW_AT_type)
        {
            found.value = value_type(unit, of, MOST_LEVELS);
        }
        origin(entry)
    };
    let mut next = look(entry);
    for _ in 0..MOST_STEPS {
        let Some(entry) = next.and_then(|at| unit.entry(at).ok()) else {
            break;
        };
        next = look(&entry);
    }
    found
}

/// Returns the entry of which another one is an instance or the definition.
fn origin(entry: &Entry<'_>) -> Option<UnitOffset> {
    let others = [gimli::DW_AT_abstract_origin, gimli::DW_AT_specification];
    others.into_iter().find_map(|name| reference(entry, name))
}

/// Returns the entry of the same unit to which an attribute refers.
fn reference(entry: &Entry<'_>, name: gimli::DwAt) -> Option<UnitOffset> {
    match entry.attr_value(name)? {
        AttributeValue::UnitRef(offset) => Some(offset),
        _ => None,
    }
}

fn name<'a>(unit: Unit<'_, 'a>, entry: &Entry<'a>) -> String {
    let value = entry.attr_value(gimli::DW_AT_name);
    let text = value.and_then(|value| unit.attr_string(value).ok());
    text.map_or_else(String::new, |text| {
        String::from_utf8_lossy(text.slice()).into_owned()
    })
}

fn number(entry: &Entry<'_>, name: gimli::DwAt) -> Option<u64> {
    entry.attr_value(name)?.udata_value()
}

/// Calls `visit` with the children of an entry.
fn each_child<'a>(unit: Unit<'_, 'a>, offset: UnitOffset, mut visit: impl FnMut(&Entry<'a>)) {
    let Ok(mut tree) = unit.entries_tree(Some(offset)) else {
        return;
    };
    let Ok(root) = tree.root() else {
        return;
    };
    let mut children = root.children();
    while let Ok(Some(child)) = children.next() {
        visit(child.entry());
    }
}

/// Returns the type of an entry. Members of structs are described down to `levels` levels.
fn value_type(unit: Unit<'_, '_>, offset: UnitOffset, levels: usize) -> ValueType {
    let Some((at, entry)) = plain(unit, offset) else {
        return ValueType::Other(None);
    };
    let size = number(&entry, gimli::DW_AT_byte_size);
    match entry.tag() {
        gimli::DW_TAG_base_type => base(unit, &entry, size),
        gimli::DW_TAG_pointer_type
        | gimli::DW_TAG_reference_type
        | gimli::DW_TAG_rvalue_reference_type => pointer(unit, &entry),
        gimli::DW_TAG_subroutine_type | gimli::DW_TAG_ptr_to_member_type => ValueType::Other(None),
        gimli::DW_TAG_enumeration_type => enumeration(unit, at, size),
        gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type => {
            structure(unit, at, &entry, size, levels)
        }
        _ => ValueType::Other(size),
    }
}

/// Returns the entry of a type behind its other names and qualifiers.
fn plain<'a>(unit: Unit<'_, 'a>, offset: UnitOffset) -> Option<(UnitOffset, Entry<'a>)> {
    let mut at = offset;
    for _ in 0..MOST_STEPS {
        let entry = unit.entry(at).ok()?;
        match entry.tag() {
            gimli::DW_TAG_typedef
            | gimli::DW_TAG_const_type
            | gimli::DW_TAG_volatile_type
            | gimli::DW_TAG_restrict_type
            | gimli::DW_TAG_atomic_type => at = reference(&entry, gimli::DW_AT_type)?,
            _ => return Some((at, entry)),
        }
    }
    None
}

fn base<'a>(unit: Unit<'_, 'a>, entry: &Entry<'a>, size: Option<u64>) -> ValueType {
    let encoding = match entry.attr_value(gimli::DW_AT_encoding) {
        Some(AttributeValue::Encoding(encoding)) => encoding,
        _ => return ValueType::Other(size),
    };
    let Some(bytes) = size.and_then(|size| u8::try_from(size).ok()) else {
        return ValueType::Other(size);
    };
    match (encoding, bytes) {
        (gimli::DW_ATE_boolean, 1) => ValueType::Boolean,
        (gimli::DW_ATE_float, 4 | 8) => ValueType::Float(bytes),
        // `int8_t` and `uint8_t` are numbers, although their types are characters.
        (gimli::DW_ATE_signed_char | gimli::DW_ATE_unsigned_char, 1)
            if name(unit, entry) == "char" =>
        {
            ValueType::Character
        }
        (gimli::DW_ATE_signed | gimli::DW_ATE_signed_char, 1 | 2 | 4 | 8) => {
            ValueType::Signed(bytes)
        }
        (
            gimli::DW_ATE_unsigned
            | gimli::DW_ATE_unsigned_char
            | gimli::DW_ATE_UTF
            | gimli::DW_ATE_boolean,
            1 | 2 | 4 | 8,
        ) => ValueType::Unsigned(bytes),
        _ => ValueType::Other(size),
    }
}

fn pointer<'a>(unit: Unit<'_, 'a>, entry: &Entry<'a>) -> ValueType {
    let target = reference(entry, gimli::DW_AT_type).and_then(|at| plain(unit, at));
    let Some((_, target)) = target else {
        return ValueType::Pointer;
    };
    let size = number(&target, gimli::DW_AT_byte_size);
    let is_text = target.tag() == gimli::DW_TAG_base_type
        && base(unit, &target, size) == ValueType::Character;
    let is_pointer = entry.tag() == gimli::DW_TAG_pointer_type;
    if is_text && is_pointer {
        return ValueType::Text;
    }
    match is_string(&name(unit, &target), size) {
        true => ValueType::StringReference,
        false => ValueType::Pointer,
    }
}

/// Returns whether a class is libstdc++'s string of today: the older one and other libraries' have other sizes.
fn is_string(name: &str, size: Option<u64>) -> bool {
    name.starts_with("basic_string<char, ") && size == Some(32)
}

fn enumeration(unit: Unit<'_, '_>, at: UnitOffset, size: Option<u64>) -> ValueType {
    let Some(bytes @ (1 | 2 | 4 | 8)) = size.and_then(|size| u8::try_from(size).ok()) else {
        return ValueType::Other(size);
    };
    let mut names = Vec::new();
    each_child(unit, at, |child| {
        let value = child.attr_value(gimli::DW_AT_const_value);
        let value = value.and_then(|value| {
            let unsigned = || i64::try_from(value.udata_value()?).ok();
            value.sdata_value().or_else(unsigned)
        });
        if names.len() < MOST_MEMBERS
            && let Some(value) = value
        {
            names.push((name(unit, child), value));
        }
    });
    ValueType::Enumeration { size: bytes, names }
}

fn structure<'a>(
    unit: Unit<'_, 'a>,
    at: UnitOffset,
    entry: &Entry<'a>,
    size: Option<u64>,
    levels: usize,
) -> ValueType {
    let name = self::name(unit, entry);
    if is_string(&name, size) {
        return ValueType::String;
    }
    let Some(size) = size.filter(|_| levels > 0) else {
        return ValueType::Other(size);
    };
    let mut members = Vec::new();
    let mut is_whole = entry.tag() != gimli::DW_TAG_union_type;
    let mut is_copied_by_code = false;
    each_child(unit, at, |child| {
        let is_member = matches!(
            child.tag(),
            gimli::DW_TAG_member | gimli::DW_TAG_inheritance
        );
        let is_static = child.attr(gimli::DW_AT_external).is_some()
            || child.attr(gimli::DW_AT_declaration).is_some();
        match child.tag() {
            gimli::DW_TAG_variant_part => is_whole = false,
            gimli::DW_TAG_subprogram => is_copied_by_code |= copies(unit, child, &name, at),
            _ => {}
        }
        if !is_member || is_static {
            return;
        }
        let offset = match child.attr(gimli::DW_AT_data_member_location) {
            Some(_) => number(child, gimli::DW_AT_data_member_location),
            None => Some(0),
        };
        let is_bits = child.attr(gimli::DW_AT_bit_size).is_some();
        match (offset, reference(child, gimli::DW_AT_type)) {
            (Some(offset), Some(of)) if !is_bits && members.len() < MOST_MEMBERS => {
                let member = value_type(unit, of, levels - 1);
                is_copied_by_code |= match &member {
                    ValueType::Struct(of) => of.is_passed_by_address,
                    member => *member == ValueType::String,
                };
                let name = self::name(unit, child);
                // The pointer to the table of a class with virtual functions, which copies do not take over.
                is_copied_by_code |= name.starts_with("_vptr");
                members.push((name, offset, member));
            }
            _ => is_whole = false,
        }
    });
    if let Some(view) = view(&name, size, &members, unit, at) {
        return view;
    }
    // clang says so; of gcc's classes it follows from their functions.
    let is_passed_by_address = match entry.attr_value(gimli::DW_AT_calling_convention) {
        Some(AttributeValue::CallingConvention(convention)) => {
            convention == gimli::DW_CC_pass_by_reference
        }
        _ => is_copied_by_code,
    };
    ValueType::Struct(StructType {
        name,
        size,
        members,
        is_whole,
        is_passed_by_address,
    })
}

/// Returns whether a member function of the class at `class` is a destructor, or a constructor that copies or moves,
/// which the program defines itself.
fn copies<'a>(unit: Unit<'_, 'a>, function: &Entry<'a>, of: &str, class: UnitOffset) -> bool {
    let is_by_compiler = function.attr(gimli::DW_AT_artificial).is_some()
        || function.attr(gimli::DW_AT_defaulted).is_some();
    if is_by_compiler {
        return false;
    }
    let name = name(unit, function);
    if name.starts_with('~') {
        return true;
    }
    if name != of.split('<').next().unwrap_or(of) {
        return false;
    }
    let mut given = Vec::new();
    each_child(unit, function.offset(), |child| {
        let is_this = child.attr(gimli::DW_AT_artificial).is_some();
        if child.tag() == gimli::DW_TAG_formal_parameter && !is_this {
            given.push(reference(child, gimli::DW_AT_type));
        }
    });
    let [Some(only)] = given[..] else {
        return false;
    };
    let Some((_, referring)) = plain(unit, only) else {
        return false;
    };
    let is_reference = matches!(
        referring.tag(),
        gimli::DW_TAG_reference_type | gimli::DW_TAG_rvalue_reference_type
    );
    let target = reference(&referring, gimli::DW_AT_type).and_then(|at| plain(unit, at));
    is_reference && target.is_some_and(|(at, _)| at == class)
}

/// Returns the view that a struct of a pointer and a number is.
fn view(
    name: &str,
    size: u64,
    members: &[(String, u64, ValueType)],
    unit: Unit<'_, '_>,
    at: UnitOffset,
) -> Option<ValueType> {
    let is_rusts = name == "&str" || name.starts_with("&[") || name.starts_with("&mut [");
    let is_text = name.starts_with("basic_string_view<char, ");
    if size != 16 || !(is_rusts || is_text || name == "&mut str") {
        return None;
    }
    let [(_, _, first), (_, 8, _)] = members else {
        return None;
    };
    if is_text || name.ends_with("str") {
        return Some(ValueType::View {
            element: Box::new(ValueType::Character),
            size: 1,
            is_number_first: matches!(first, ValueType::Unsigned(8)),
        });
    }
    let mut element = ValueType::Other(None);
    each_child(unit, at, |child| {
        if self::name(unit, child) == "data_ptr" {
            let pointer = reference(child, gimli::DW_AT_type).and_then(|at| plain(unit, at));
            let target = pointer.and_then(|(_, pointer)| reference(&pointer, gimli::DW_AT_type));
            if let Some(target) = target {
                element = value_type(unit, target, 1);
            }
        }
    });
    let size = element.size().and_then(|size| u16::try_from(size).ok());
    Some(ValueType::View {
        size: size.filter(|size| *size > 0)?,
        element: Box::new(element),
        is_number_first: false,
    })
}
