"""How each machine's relocations are applied inside one position-independent image.

S is the symbol's offset in the image, A the addend, P the place, all from the image's start. An image can
hold distances only, never an absolute address: whatever needs one goes through a slot of the import table.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from hagane.core.errors import InternalError

# apply(image, place, target, addend): target is S, or the offset of the symbol's slot for a relocation in
# via_slot
Apply = Callable[[bytearray, int, int, int], None]


@dataclass(frozen=True)
class Machine:
    """One architecture: how to apply each relocation type, and how to call through a slot."""

    name: str
    page_bytes: int
    padding: bytes
    handlers: dict[int, Apply]
    # relocations that want the slot of their symbol, if it is imported
    via_slot: frozenset[int]
    # what to do with those whose symbol turns out to be in the image
    relaxed: dict[int, Apply]
    stub_bytes: int
    stub: Callable[[int, int], bytes]
    # names of types that can't be supported, for the message
    absolute: dict[int, str]

    def apply(self, image: bytearray, place: int, kind: int, target: int, addend: int, slot: bool) -> None:
        """Patches the image at a place.

        Raises: InternalError for a relocation type that a position-independent image can't have.
        """
        table = self.relaxed if kind in self.via_slot and not slot else self.handlers
        handler = table.get(kind)
        if handler is None:
            raise InternalError(
                f"relocation type {self.absolute.get(kind, kind)} of {self.name} has no place in a "
                "position-independent image",
                next_step="emit the code without absolute addresses: no tables of pointers, no switch",
            )
        handler(image, place, target, addend)


def _fits(value: int, bits: int) -> int:
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise InternalError(f"a distance of {value} bytes doesn't fit a relocation of {bits} bits")
    return value


def _pc32(image: bytearray, place: int, target: int, addend: int) -> None:
    struct.pack_into("<i", image, place, _fits(target + addend - place, 32))


def _pc64(image: bytearray, place: int, target: int, addend: int) -> None:
    struct.pack_into("<q", image, place, target + addend - place)


def _nothing(image: bytearray, place: int, target: int, addend: int) -> None:
    pass


def _relax_got(image: bytearray, place: int, target: int, addend: int) -> None:
    """Turns an x86 access through the table into a direct one: the symbol is in the image."""
    opcode = bytes(image[place - 2 : place])
    if opcode[0] == 0x8B:  # mov slot(%rip), reg: lea
        image[place - 2] = 0x8D
        _pc32(image, place, target, addend)
    elif opcode == b"\xff\x15":  # call *slot(%rip): addr32 call
        image[place - 2 : place] = b"\x67\xe8"
        _pc32(image, place, target, addend)
    elif opcode == b"\xff\x25":  # jmp *slot(%rip): jmp; nop
        image[place - 2] = 0xE9
        _pc32(image, place - 1, target, addend)
        image[place + 3] = 0x90
    else:
        raise InternalError(
            f"can't make the instruction {opcode.hex()} address a symbol of the image directly"
        )


def _x86_stub(at: int, slot: int) -> bytes:
    return b"\xff\x25" + struct.pack("<i", slot - (at + 6)) + b"\xcc\xcc"


_X86_64 = Machine(
    name="x86-64",
    page_bytes=4096,
    padding=b"\xcc",
    handlers={0: _nothing, 2: _pc32, 4: _pc32, 9: _pc32, 24: _pc64, 41: _pc32, 42: _pc32},
    via_slot=frozenset({9, 41, 42}),
    relaxed={9: _relax_got, 41: _relax_got, 42: _relax_got},
    stub_bytes=8,
    stub=_x86_stub,
    absolute={1: "R_X86_64_64", 10: "R_X86_64_32", 11: "R_X86_64_32S", 25: "R_X86_64_GOTOFF64"},
)


def _patch(image: bytearray, place: int, clear: int, bits: int) -> None:
    word = struct.unpack_from("<I", image, place)[0]
    struct.pack_into("<I", image, place, (word & ~clear & 0xFFFFFFFF) | bits)


def _adrp_bits(place: int, target: int) -> int:
    pages = _fits((target >> 12) - (place >> 12), 21)
    return (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5


def _adr_page(image: bytearray, place: int, target: int, addend: int) -> None:
    _patch(image, place, 3 << 29 | 0x7FFFF << 5, _adrp_bits(place, target + addend))


def _low12(scale: int) -> Apply:
    def apply(image: bytearray, place: int, target: int, addend: int) -> None:
        low = (target + addend) & 0xFFF
        if low & ((1 << scale) - 1):
            raise InternalError("a load's address isn't aligned as its relocation wants")
        _patch(image, place, 0xFFF << 10, low >> scale << 10)

    return apply


def _branch26(image: bytearray, place: int, target: int, addend: int) -> None:
    distance = _fits(target + addend - place, 28)
    _patch(image, place, 0x3FFFFFF, distance >> 2 & 0x3FFFFFF)


def _relax_got_load(image: bytearray, place: int, target: int, addend: int) -> None:
    """ldr xd, [xn, slot] becomes add xd, xn, #low12: the symbol is in the image."""
    registers = struct.unpack_from("<I", image, place)[0] & 0x3FF
    struct.pack_into("<I", image, place, 0x91000000 | registers | ((target + addend) & 0xFFF) << 10)


def _aarch64_stub(at: int, slot: int) -> bytes:
    adrp = 0x90000010 | _adrp_bits(at, slot)
    load = 0xF9400210 | (slot & 0xFFF) >> 3 << 10
    return struct.pack("<4I", adrp, load, 0xD61F0200, 0xD4200000)  # adrp x16; ldr x16, [x16]; br x16; brk


_AARCH64 = Machine(
    name="AArch64",
    # the largest page size that Linux uses there
    page_bytes=65536,
    padding=b"\x00",
    handlers={
        0: _nothing,
        260: _pc64,
        261: _pc32,
        275: _adr_page,
        277: _low12(0),
        278: _low12(0),
        284: _low12(1),
        285: _low12(2),
        286: _low12(3),
        299: _low12(4),
        282: _branch26,
        283: _branch26,
        311: _adr_page,
        312: _low12(3),
    },
    via_slot=frozenset({311, 312}),
    relaxed={311: _adr_page, 312: _relax_got_load},
    stub_bytes=16,
    stub=_aarch64_stub,
    absolute={257: "R_AARCH64_ABS64", 258: "R_AARCH64_ABS32"},
)

# by ELF's e_machine
MACHINES = {"EM_X86_64": _X86_64, "EM_AARCH64": _AARCH64}
