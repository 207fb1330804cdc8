"""Joins relocatable objects into one position-independent image that a loader maps and calls.

The image is code, then read-only data, then, on a page of its own, a table of 8-byte slots that the loader
fills with the addresses of what the code calls outside. No loader ever has to relocate it.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import SymbolTableSection

from hagane.codegen.llvm.relocate import MACHINES, Machine
from hagane.core.errors import InternalError

_ALIGN = 64  # a cache line; also the widest vector
_WRITE, _ALLOC, _EXECUTE = 1, 2, 4
_SLOT_BYTES = 8


@dataclass(frozen=True)
class Blob:
    """A linked image. Slot i, at import_table_offset + 8 * i, is for the address of imports[i].

    code ends with the table, zeroed; the part before it is mapped readable and executable, the table
    writable until it is filled. import_table_offset is a multiple of the page size.
    """

    code: bytes
    symbols: dict[str, int]
    imports: tuple[str, ...]
    import_table_offset: int


@dataclass
class _Section:
    """One section of one object, and where it comes to lie in the image."""

    data: bytes
    align: int
    executable: bool
    offset: int = 0


@dataclass(frozen=True)
class _Relocation:
    section: int
    offset: int
    kind: int
    symbol: int
    addend: int


@dataclass(frozen=True)
class _Symbol:
    name: str
    section: int | None  # None: defined elsewhere
    value: int
    local: bool


@dataclass(frozen=True)
class _Object:
    machine: str
    sections: dict[int, _Section]
    symbols: list[_Symbol]
    relocations: list[_Relocation]


def link(objects: Sequence[bytes], exports: Sequence[str]) -> Blob:
    """Links objects; exports are the functions whose offsets are wanted.

    Raises: InternalError if a name is defined twice, an export is missing, or an object holds what an image
    can't: writable data, absolute addresses.
    """
    parsed = [_read(data) for data in objects]
    machines = {item.machine for item in parsed}
    if len(machines) != 1 or not machines <= MACHINES.keys():
        raise InternalError(f"can't link objects for {', '.join(sorted(machines)) or 'no machine at all'}")
    machine = MACHINES[machines.pop()]
    image = _place_sections(parsed, machine)
    defined = _global_symbols(parsed)
    missing = [name for name in exports if name not in defined]
    if missing:
        raise InternalError(f"no object defines {', '.join(missing)}")
    imports = sorted(_undefined(parsed, defined))
    called = sorted(_called(parsed, machine, set(imports)))
    stubs = {name: len(image) + machine.stub_bytes * i for i, name in enumerate(called)}
    table = _round_up(len(image) + machine.stub_bytes * len(called), machine.page_bytes)
    slots = {name: table + _SLOT_BYTES * i for i, name in enumerate(imports)}
    for name in called:
        image += machine.stub(stubs[name], slots[name])
    image += bytes(table + _SLOT_BYTES * len(imports) - len(image))
    for item in parsed:
        _relocate(image, item, machine, defined, stubs, slots)
    symbols = {name: defined[name] for name in sorted(exports)}
    return Blob(bytes(image), symbols, tuple(imports), table)


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _read(data: bytes) -> _Object:
    elf = ELFFile(io.BytesIO(data))
    sections: dict[int, _Section] = {}
    relocations: list[_Relocation] = []
    symbols: list[_Symbol] = []
    for index, section in enumerate(elf.iter_sections()):
        flags, name = section["sh_flags"], section.name
        if isinstance(section, SymbolTableSection):
            symbols = [_symbol(symbol) for symbol in section.iter_symbols()]
        elif isinstance(section, RelocationSection):
            relocations += _relocations(section)
        # unwind tables are of no use to code that never throws
        elif flags & _ALLOC and section["sh_size"] and name != ".eh_frame":
            if flags & _WRITE:
                raise InternalError(f"section {name} is writable; an image holds code and constants only")
            align = max(1, section["sh_addralign"])
            sections[index] = _Section(section.data(), align, bool(flags & _EXECUTE))
    return _Object(elf["e_machine"], sections, symbols, [r for r in relocations if r.section in sections])


def _symbol(symbol: Any) -> _Symbol:
    where = symbol["st_shndx"]
    local = symbol["st_info"]["bind"] == "STB_LOCAL"
    if where in ("SHN_ABS", "SHN_COMMON") and symbol["st_info"]["type"] != "STT_FILE":
        raise InternalError(f"symbol {symbol.name} is {where}, which an image can't hold")
    return _Symbol(symbol.name, where if isinstance(where, int) else None, symbol["st_value"], local)


def _relocations(section: Any) -> Iterator[_Relocation]:
    for entry in section.iter_relocations():
        yield _Relocation(
            section["sh_info"],
            entry["r_offset"],
            entry["r_info_type"],
            entry["r_info_sym"],
            entry["r_addend"],
        )


def _place_sections(objects: Sequence[_Object], machine: Machine) -> bytearray:
    """Lays out code, then constants; returns the image with their bytes."""
    image = bytearray()
    for executable in (True, False):
        for item in objects:
            for section in item.sections.values():
                if section.executable == executable:
                    section.offset = _round_up(len(image), max(_ALIGN, section.align))
                    image += machine.padding * (section.offset - len(image)) + section.data
    image += machine.padding * (_round_up(len(image), _ALIGN) - len(image))
    return image


def _address(item: _Object, symbol: _Symbol) -> int | None:
    if symbol.section is None:
        return None
    if symbol.section not in item.sections:
        # a section left out, such as an empty one: only its start can be meant
        return None
    return item.sections[symbol.section].offset + symbol.value


def _global_symbols(objects: Sequence[_Object]) -> dict[str, int]:
    found: dict[str, int] = {}
    for item in objects:
        for symbol in item.symbols:
            address = _address(item, symbol)
            if symbol.local or address is None:
                continue
            if symbol.name in found:
                raise InternalError(f"two objects define {symbol.name}")
            found[symbol.name] = address
    return found


def _undefined(objects: Sequence[_Object], defined: dict[str, int]) -> set[str]:
    names = set()
    for item in objects:
        for relocation in item.relocations:
            symbol = item.symbols[relocation.symbol]
            if symbol.section is None and symbol.name not in defined:
                names.add(symbol.name)
    return names


def _called(objects: Sequence[_Object], machine: Machine, imports: set[str]) -> set[str]:
    """The imports that are reached by something else than their slot, so that they need a stub."""
    names = set()
    for item in objects:
        for relocation in item.relocations:
            name = item.symbols[relocation.symbol].name
            if name in imports and relocation.kind not in machine.via_slot:
                names.add(name)
    return names


def _relocate(
    image: bytearray,
    item: _Object,
    machine: Machine,
    defined: dict[str, int],
    stubs: dict[str, int],
    slots: dict[str, int],
) -> None:
    for relocation in item.relocations:
        symbol = item.symbols[relocation.symbol]
        own = _address(item, symbol)
        target = own if own is not None else defined.get(symbol.name)
        slot = target is None
        if target is None:
            table = slots if relocation.kind in machine.via_slot else stubs
            if symbol.name not in table:
                raise InternalError(
                    f"a relocation refers to {symbol.name or 'a section'}, which isn't linked"
                )
            target = table[symbol.name]
        place = item.sections[relocation.section].offset + relocation.offset
        machine.apply(image, place, relocation.kind, target, relocation.addend, slot)
