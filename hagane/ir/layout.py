"""How a tensor lies in memory: an order of axes, constant-factor blocks, a halo of zeros around axes.

A layout turns a logical index into an element offset. `None` as a value's layout means plain C order. The
halo and the lanes that fill up a partly used block always hold zeros: whoever writes the value writes them
too.
"""

from __future__ import annotations

from dataclasses import dataclass

from hagane.core.symbolic import Expr, ceildiv, const, product

Shape = tuple[Expr, ...]


@dataclass(frozen=True)
class Layout:
    """order: outer axes from slowest to fastest; blocks: (axis, factor) appended innermost, in this order.

    halo[axis] = (before, after) elements of zero padding of that axis; empty means none.
    """

    order: tuple[int, ...]
    blocks: tuple[tuple[int, int], ...] = ()
    halo: tuple[tuple[int, int], ...] = ()

    @property
    def block_of(self) -> dict[int, int]:
        return dict(self.blocks)

    def halo_of(self, axis: int) -> tuple[int, int]:
        return self.halo[axis] if self.halo else (0, 0)

    def outer_extent(self, shape: Shape, axis: int) -> Expr:
        """Extent of the axis in the outer part: blocks, or elements with the halo."""
        factor = self.block_of.get(axis)
        if factor is not None:
            return ceildiv(shape[axis], factor)
        before, after = self.halo_of(axis)
        return shape[axis] + before + after

    def physical_shape(self, shape: Shape) -> Shape:
        """Extents in memory order: the outer axes, then the blocks."""
        outer = tuple(self.outer_extent(shape, axis) for axis in self.order)
        return outer + tuple(const(factor) for _, factor in self.blocks)

    def num_elements(self, shape: Shape) -> Expr:
        """Elements that the value occupies, padding included."""
        return product(self.physical_shape(shape))

    def offset(self, shape: Shape, index: tuple[Expr, ...]) -> Expr:
        """Element offset of a logical index."""
        factors = self.block_of
        physical: list[Expr] = []
        for axis in self.order:
            factor = factors.get(axis)
            physical.append(index[axis] // factor if factor else index[axis] + self.halo_of(axis)[0])
        physical += [index[axis] % factor for axis, factor in self.blocks]
        return linear_offset(self.physical_shape(shape), tuple(physical))

    def __str__(self) -> str:
        parts = ["".join(map(str, self.order))]
        parts += [f"b{axis}x{factor}" for axis, factor in self.blocks]
        parts += [f"h{axis}:{a}:{b}" for axis, (a, b) in enumerate(self.halo) if (a, b) != (0, 0)]
        return "_".join(parts)


@dataclass(frozen=True)
class AnyLayout:
    """Stands for a layout where a tactic reads or writes whatever the others choose."""


ANY = AnyLayout()


@dataclass(frozen=True)
class Layouts:
    """What the kernels of a region require; None is plain C order. A required halo is a minimum."""

    inputs: tuple[Layout | AnyLayout | None, ...]
    outputs: tuple[Layout | AnyLayout | None, ...]


def satisfies(actual: Layout | None, required: Layout | AnyLayout | None) -> bool:
    """True if a kernel that requires one layout can read a value that has the other."""
    if isinstance(required, AnyLayout) or actual == required:
        return True
    if (
        actual is None
        or required is None
        or actual.order != required.order
        or actual.blocks != required.blocks
    ):
        return False
    wanted = required.halo or ((0, 0),) * len(required.order)
    return all(
        have[0] >= want[0] and have[1] >= want[1]
        for have, want in zip(actual.halo or ((0, 0),) * len(actual.order), wanted, strict=True)
    )


def merge_halos(a: Layout, b: Layout) -> Layout | None:
    """The layout that satisfies both, or None if they differ in more than the halo."""
    if a.order != b.order or a.blocks != b.blocks:
        return None
    none = ((0, 0),) * len(a.order)
    pairs = zip(a.halo or none, b.halo or none, strict=True)
    halo = tuple((max(x[0], y[0]), max(x[1], y[1])) for x, y in pairs)
    return Layout(a.order, a.blocks, halo if any(h != (0, 0) for h in halo) else ())


def layout_fault(layout: Layout, shape: Shape) -> str:
    """What makes a layout unfit for a shape, in words that follow "the layout"; empty if nothing does."""
    rank = len(shape)
    blocked = [axis for axis, _ in layout.blocks]
    if sorted(layout.order) != list(range(rank)) or not 1 <= rank <= 10:
        return f"doesn't order {rank} axes"
    if len(set(blocked)) != len(blocked) or not set(blocked) <= set(range(rank)):
        return "blocks an axis twice, or one that isn't there"
    if any(factor < 2 for _, factor in layout.blocks):
        return "has a block of less than two elements"
    if not all(shape[axis].is_const for axis in blocked):
        return "blocks an axis whose extent isn't constant"
    if layout.halo and len(layout.halo) != rank:
        return f"has a halo for {len(layout.halo)} of {rank} axes"
    if any(before < 0 or after < 0 for before, after in layout.halo):
        return "has a negative halo"
    if any(layout.halo_of(axis) != (0, 0) for axis in blocked):
        return "has a halo around a blocked axis"
    return ""


def blocked_channels(rank: int, block: int, halo: tuple[tuple[int, int], ...] = ()) -> Layout:
    """N, C/block, spatial axes, block: the layout of convolutions; halo is per axis of the tensor."""
    if not any(before or after for before, after in halo):
        halo = ()
    return Layout(tuple(range(rank)), ((1, block),), halo)


def linear_offset(shape: Shape, index: tuple[Expr, ...]) -> Expr:
    """Element offset of an index in plain C order."""
    offset = const(0)
    for extent, position in zip(shape, index, strict=True):
        offset = offset * extent + position
    return offset


def offset_of(layout: Layout | None, shape: Shape, index: tuple[Expr, ...]) -> Expr:
    """Element offset in a layout or, for None, in plain C order."""
    return linear_offset(shape, index) if layout is None else layout.offset(shape, index)


def num_elements(layout: Layout | None, shape: Shape) -> Expr:
    """Elements occupied in a layout or, for None, in plain C order."""
    return product(shape) if layout is None else layout.num_elements(shape)


def parse_layout(text: str, rank: int) -> Layout:
    """Reads the text form, such as "0123_b1x16_h2:1:1_h3:1:1". Raises: ValueError."""
    head, *rest = text.split("_")
    blocks: list[tuple[int, int]] = []
    halo = [(0, 0)] * rank
    for part in rest:
        if part[0] == "b":
            axis, factor = part[1:].split("x")
            blocks.append((int(axis), int(factor)))
        elif part[0] == "h":
            axis, before, after = part[1:].split(":")
            halo[int(axis)] = (int(before), int(after))
        else:
            raise ValueError(f"{part!r} is no part of a layout")
    kept = tuple(halo) if any(h != (0, 0) for h in halo) else ()
    return Layout(tuple(int(c) for c in head), tuple(blocks), kept)
