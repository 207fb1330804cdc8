"""Ops that only rearrange elements by axes: reshape, transpose, broadcast_to, tile.

A reshape's index splits into groups of axes with equal extents, so // and % appear only where dims merge.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hagane.core.errors import ShapeError
from hagane.core.symbolic import Expr, const, product, to_expr
from hagane.ir.graph import Array, Node, Shape, Type
from hagane.ir.layout import linear_offset
from hagane.ir.registry import Attrs, OpDef, Sample, register
from hagane.ir.scalar import Index, Read, Scalar
from hagane.ops.shapes import broadcast_index, broadcast_shapes

Group = tuple[list[int], list[int]]


def _infer_reshape(node: Node) -> list[Type]:
    x = node.input(0)
    shape = tuple(to_expr(d) for d in node.attrs["shape"])
    before, after = product(x.shape), product(shape)
    if before.is_const and after.is_const and before != after:
        raise ShapeError(f"{x} has {before} elements, which don't fill [{', '.join(map(str, shape))}]")
    return [Type(x.dtype, shape)]


def reshape_groups(source: Shape, target: Shape) -> list[Group]:
    """The shortest runs of axes that agree in extent: (source axes, target axes), without extents of 1."""
    a = [axis for axis, dim in enumerate(source) if dim != 1]
    b = [axis for axis, dim in enumerate(target) if dim != 1]
    front, a, b = _match([source[i] for i in a], [target[i] for i in b], a, b)
    back, a, b = _match([source[i] for i in reversed(a)], [target[i] for i in reversed(b)], a[::-1], b[::-1])
    back = [(s[::-1], t[::-1]) for s, t in reversed(back)]
    rest: list[Group] = [(a[::-1], b[::-1])] if a or b else []
    return front + rest + back


def _match(
    a: list[Expr], b: list[Expr], a_axes: list[int], b_axes: list[int]
) -> tuple[list[Group], list[int], list[int]]:
    """Groups found from the front by comparing products of leading dims, and the axes left over."""
    groups: list[Group] = []
    start_a = start_b = 0
    while start_a < len(a) and start_b < len(b):
        ends = {str(product(a[start_a : i + 1])): i + 1 for i in reversed(range(start_a, len(a)))}
        for j in range(start_b, len(b)):
            end_a = ends.get(str(product(b[start_b : j + 1])))
            if end_a is not None:
                groups.append((a_axes[start_a:end_a], b_axes[start_b : j + 1]))
                start_a, start_b = end_a, j + 1
                break
        else:
            break
    return groups, a_axes[start_a:], b_axes[start_b:]


def reshape_index(source: Shape, target: Shape, index: Index) -> Index:
    """The index into `source` of the element at `index` of its reshape to `target`."""
    result = [const(0)] * len(source)
    if any(dim == 0 for dim in (*source, *target)):
        return tuple(result)  # there is no element to read
    for source_axes, target_axes in reshape_groups(source, target):
        flat = linear_offset(tuple(target[i] for i in target_axes), tuple(index[i] for i in target_axes))
        stride = const(1)
        for axis in reversed(source_axes):
            position = flat // stride
            result[axis] = position if axis == source_axes[0] else position % source[axis]
            stride = stride * source[axis]
    return tuple(result)


def _define_reshape(node: Node, read: Read, index: Index, output: int) -> Scalar:
    return read(0, reshape_index(node.input(0).shape, node.output.shape, index))


def _reshape_samples() -> Iterable[Sample]:
    x = np.arange(2 * 12 * 5 * 8, dtype=np.float32).reshape(2, 12, 5, 8)
    yield Sample((x,), {"shape": (2, 3, 4, 40)}, dynamic=((0, 0), (0, 2)))
    yield Sample((x,), {"shape": (24, 5, 2, 4)}, dynamic=((0, 2),))
    yield Sample((x,), {"shape": (2, 1, 12, 5, 1, 8)}, dynamic=((0, 0),))
    yield Sample((x,), {"shape": (16, 60)})
    yield Sample((x,), {"shape": (960,)}, dynamic=((0, 0), (0, 1)))
    yield Sample((x.reshape(-1),), {"shape": (5, 1, 192)}, dynamic=((0, 0),))
    yield Sample((x[:1, :1, :1, :1],), {"shape": ()})
    yield Sample((x[0, 0, 0, 0].reshape(()),), {"shape": (1, 1)})
    yield Sample((x[:0],), {"shape": (12, 0, 7)})
    yield Sample((x[:1, :0, 0],), {"shape": (0, 2)})
    yield Sample(((x[0] > 7),), {"shape": (10, 48)})


register(
    OpDef(
        "reshape",
        "movement",
        _infer_reshape,
        lambda attrs, x: x.reshape(attrs["shape"]),
        define=_define_reshape,
        elements=lambda node: node.input(0).elements if len(node.attrs["shape"]) <= 1 else None,
        samples=_reshape_samples,
    )
)


def _infer_transpose(node: Node) -> list[Type]:
    x, perm = node.input(0), node.attrs["perm"]
    if sorted(perm) != list(range(x.rank)):
        raise ShapeError(f"perm {list(perm)} is no permutation of the {x.rank} axes of {x}")
    return [Type(x.dtype, tuple(x.shape[p] for p in perm))]


def _define_transpose(node: Node, read: Read, index: Index, output: int) -> Scalar:
    perm = node.attrs["perm"]
    return read(0, tuple(index[perm.index(axis)] for axis in range(len(perm))))


def _transpose_samples() -> Iterable[Sample]:
    x = np.random.default_rng(0).standard_normal((3, 5, 7, 19)).astype(np.float32)
    yield Sample((x,), {"perm": (0, 2, 1, 3)}, dynamic=((0, 0), (0, 2)))
    yield Sample((x,), {"perm": (3, 1, 0, 2)}, dynamic=((0, 3),))
    yield Sample((x,), {"perm": (0, 2, 3, 1)})
    yield Sample((x[0, 0].astype(np.float16),), {"perm": (1, 0)}, dynamic=((0, 0), (0, 1)))
    yield Sample((x[0].astype(np.int64),), {"perm": (2, 1, 0)})
    yield Sample((x[0, 0, 0, 0].reshape(()),), {"perm": ()})
    yield Sample((x[:, :0],), {"perm": (1, 3, 2, 0)})


register(
    OpDef(
        "transpose",
        "movement",
        _infer_transpose,
        lambda attrs, x: np.transpose(x, attrs["perm"]),
        define=_define_transpose,
        elements=lambda node: node.input(0).elements,
        samples=_transpose_samples,
    )
)


def _infer_broadcast(node: Node) -> list[Type]:
    x = node.input(0)
    shape = tuple(to_expr(d) for d in node.attrs["shape"])
    joined = broadcast_shapes(x.shape, shape)
    if len(joined) != len(shape):
        raise ShapeError(f"{x} has more axes than [{', '.join(map(str, shape))}], to which it is broadcast")
    for wanted, dim in zip(shape, joined, strict=True):
        if dim.is_const and wanted.is_const and dim != wanted:
            raise ShapeError(f"{x} can't be broadcast to [{', '.join(map(str, shape))}]")
    return [Type(x.dtype, shape)]


def _define_broadcast(node: Node, read: Read, index: Index, output: int) -> Scalar:
    return read(0, broadcast_index(node.input(0).shape, node.output.shape, index))


def _broadcast_elements(node: Node) -> tuple[Expr, ...] | None:
    known, shape = node.input(0).elements, node.attrs["shape"]
    if known is None or len(shape) > 1:
        return None
    length = to_expr(shape[0]) if shape else const(1)
    if len(known) != 1 or not length.is_const or length.value > 64:
        return known if length == len(known) else None
    return known * length.value


def _broadcast_samples() -> Iterable[Sample]:
    x = np.random.default_rng(0).standard_normal((3, 1, 7)).astype(np.float32)
    yield Sample((x,), {"shape": (3, 5, 7)}, dynamic=((0, 0),))
    yield Sample((x,), {"shape": (2, 3, 19, 7)}, dynamic=((0, 0), (0, 2)))
    yield Sample((x[0, 0],), {"shape": (4, 7)})
    yield Sample((x[0, 0, 0].reshape(()),), {"shape": (2, 33)})
    yield Sample((x.astype(np.int64),), {"shape": (3, 0, 7)})
    yield Sample((x > 0,), {"shape": (3, 2, 7)})


register(
    OpDef(
        "broadcast_to",
        "movement",
        _infer_broadcast,
        lambda attrs, x: np.broadcast_to(x, attrs["shape"]),
        define=_define_broadcast,
        elements=_broadcast_elements,
        samples=_broadcast_samples,
    )
)


def _infer_tile(node: Node) -> list[Type]:
    x, repeats = node.input(0), node.attrs["repeats"]
    if len(repeats) != x.rank:
        raise ShapeError(f"tile has {len(repeats)} repeats for the {x.rank} axes of {x}")
    return [Type(x.dtype, tuple(d * r for d, r in zip(x.shape, repeats, strict=True)))]


def _define_tile(node: Node, read: Read, index: Index, output: int) -> Scalar:
    shape, repeats = node.input(0).shape, node.attrs["repeats"]
    return read(
        0, tuple(i if r == 1 or d == 0 else i % d for i, d, r in zip(index, shape, repeats, strict=True))
    )


def _tile_elements(node: Node) -> tuple[Expr, ...] | None:
    known = node.input(0).elements
    if known is None or not node.attrs["repeats"]:
        return known
    repeat = to_expr(node.attrs["repeats"][0])
    return known * repeat.value if repeat.is_const and len(known) * repeat.value <= 64 else None


def _tile_samples() -> Iterable[Sample]:
    x = np.random.default_rng(0).standard_normal((3, 1, 7)).astype(np.float32)
    yield Sample((x,), {"repeats": (2, 3, 1)}, dynamic=((0, 0), (0, 2)))
    yield Sample((x,), {"repeats": (1, 1, 5)}, dynamic=((0, 2),))
    yield Sample((x.astype(np.int32),), {"repeats": (1, 0, 2)})
    yield Sample((x[:0],), {"repeats": (2, 1, 1)})
    yield Sample((x[:, 0, 0] > 0,), {"repeats": (4,)})


def _tile(attrs: Attrs, x: Array) -> Array:
    return np.tile(x, attrs["repeats"])


register(
    OpDef(
        "tile",
        "movement",
        _infer_tile,
        _tile,
        define=_define_tile,
        elements=_tile_elements,
        samples=_tile_samples,
    )
)
