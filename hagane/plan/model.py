"""The plan: everything the runtime executes, as plain data.

A plan belongs to one target. Its programs share constants, states and symbols. Steps nest (If, Loop). A
step's number, which buffer lifetimes refer to, is its pre-order position over the whole program: an If or
Loop counts as one step, then come the steps of `then`, then those of `otherwise` (see `preorder`). A buffer
touched inside a loop body lives from the Loop step to the last step of its body; the branches of an If come
one after the other, so they share memory.

Nothing here checks anything: `plan.verify` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from hagane.core.dtypes import DType
from hagane.core.symbolic import Expr, const

Attr: TypeAlias = "bool | int | float | str | tuple[Attr, ...] | None"
Attrs: TypeAlias = Mapping[str, Attr]

ZERO = const(0)
BUFFER_KINDS = ("input", "output", "constant", "arena", "state")


@dataclass(frozen=True)
class Port:
    """A named tensor that crosses a boundary: of a program, a host step or a call.

    In a host step or call `name` is a buffer of the calling program. A dim that is a bare symbol binds that
    symbol if nothing has bound it yet; every other dim is checked against the array.
    """

    name: str
    dtype: DType
    shape: tuple[Expr, ...]


@dataclass(frozen=True)
class Symbol:
    """An integer with lo <= value (<= hi if not None), divisible by `multiple`; its name an identifier."""

    name: str
    lo: int = 0
    hi: int | None = None
    multiple: int = 1


@dataclass(frozen=True)
class RecipeNode:
    """One operation of a recipe; an int input is an earlier node, a str input a canonical weight's name."""

    op: str
    inputs: tuple[int | str, ...]
    attrs: Attrs = field(default_factory=dict)


@dataclass(frozen=True)
class Recipe:
    """How `host.recipes` makes a packed constant from canonical weights; the last node is the result."""

    nodes: tuple[RecipeNode, ...]


@dataclass(frozen=True)
class Constant:
    """A packed constant: what a buffer of kind "constant" with this name holds, in C order."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    recipe: Recipe


@dataclass(frozen=True)
class Buffer:
    """Memory that kernel arguments point to.

    kind: "input" and "output" have the name of their port and are plain C order, aligned to their element
    only; "constant" has the name of a Constant, "state" that of a state port; "arena" is placed by size and
    lifetime. first_step, last_step: numbers of the first and last step that touch it; only an arena's are
    used. A buffer of dtype str lives in Python; only host steps touch it.
    """

    name: str
    kind: str
    dtype: DType
    size_bytes: Expr
    first_step: int = 0
    last_step: int = 0
    align: int = 64


@dataclass(frozen=True)
class Variant:
    """Another kernel for a launch, with the same arguments and dims; usable if every guard is >= 0."""

    guards: tuple[Expr, ...]
    kernel: str


@dataclass(frozen=True)
class Launch:
    """Every thread calls the kernel, then they meet; a serial launch is run by thread 0 alone.

    region: index into Plan.regions. variants: tried in order before `kernel`, which is the generic one.
    """

    kernel: str
    args: tuple[str, ...]
    dims: tuple[Expr, ...] = ()
    serial: bool = False
    region: int = 0
    variants: tuple[Variant, ...] = ()
    device: str = "cpu:0"


@dataclass(frozen=True)
class Copy:
    """Copies the first size_bytes of one buffer to another; they don't overlap."""

    src: str
    dst: str
    size_bytes: Expr
    device: str = "cpu:0"


@dataclass(frozen=True)
class Fill:
    """Sets the first size_bytes of a buffer to one byte value."""

    dst: str
    size_bytes: Expr
    value: int = 0
    device: str = "cpu:0"


@dataclass(frozen=True)
class Shape:
    """Defines symbols from expressions over symbols bound before, in order."""

    symbols: tuple[tuple[str, Expr], ...]
    device: str = "cpu:0"


@dataclass(frozen=True)
class Require:
    """Demands that dims are equal, pair by pair: the model was compiled on that assumption.

    Outside an If or Loop it is checked when inputs are bound, inside one when it is reached.
    """

    left: tuple[Expr, ...]
    right: tuple[Expr, ...]
    message: str
    device: str = "cpu:0"


@dataclass(frozen=True)
class Bind:
    """Reads element `index` of a computed i64 or i32 buffer into a symbol. Ends the native segment."""

    symbol: str
    buffer: str
    index: int = 0
    device: str = "cpu:0"


@dataclass(frozen=True)
class Host:
    """Calls a function of `host.steps` on arrays; an output's unbound symbols take the result's shape."""

    fn: str
    attrs: Attrs
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    device: str = "cpu:0"


@dataclass(frozen=True)
class Alloc:
    """Gives arena buffers fresh memory of their own, of their size under the symbols bound by now.

    Needed only for a buffer whose size changes while a Python-driven loop runs; others are placed by
    lifetime.
    """

    buffers: tuple[str, ...]
    device: str = "cpu:0"


@dataclass(frozen=True)
class Collective:
    """An operation over a named mesh axis, such as all_reduce_sum; reserved, no device runs it yet."""

    op: str
    axis: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    device: str = "cpu:0"


@dataclass(frozen=True)
class If:
    """Runs `then` if the first byte of the buffer is not zero, else `otherwise`."""

    cond_buffer: str
    then: tuple[Step, ...]
    otherwise: tuple[Step, ...] = ()
    device: str = "cpu:0"


@dataclass(frozen=True)
class Loop:
    """Repeats the body trip_count times, while the condition's byte, read before each turn, isn't zero.

    At least one of trip_count and cond_buffer is given. index_buffer: an i64 scalar that receives the
    number of the turn.
    """

    trip_count: Expr | None
    cond_buffer: str | None
    index_buffer: str | None
    body: tuple[Step, ...]
    device: str = "cpu:0"


@dataclass(frozen=True)
class Call:
    """Runs another program of the plan: inputs and outputs are buffers of this one, in the callee's order."""

    program: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    device: str = "cpu:0"


Step: TypeAlias = Launch | Copy | Fill | Shape | Require | Bind | Host | Alloc | Collective | If | Loop | Call


@dataclass(frozen=True)
class Program:
    """One entry point. States keep their content between runs and are shared by name in a plan."""

    name: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    states: tuple[Port, ...] = ()
    buffers: tuple[Buffer, ...] = ()
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True)
class RegionInfo:
    """What a launch computes, for reports: the model's own node names, and the work as expressions."""

    name: str
    kind: str
    tactic: str
    nodes: tuple[str, ...] = ()
    flops: Expr = ZERO
    bytes: Expr = ZERO
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """All that one target executes.

    symbols: every symbol that any expression uses. workspace_bytes_per_thread: the largest need of any
    kernel; while a symbol is still unbound it counts as its lo.
    """

    target: str
    symbols: tuple[Symbol, ...]
    constants: tuple[Constant, ...]
    programs: Mapping[str, Program]
    regions: tuple[RegionInfo, ...] = ()
    workspace_bytes_per_thread: Expr = ZERO


def children(step: Step) -> tuple[tuple[Step, ...], ...]:
    """The nested step lists of a step, in numbering order."""
    if isinstance(step, If):
        return (step.then, step.otherwise)
    if isinstance(step, Loop):
        return (step.body,)
    return ()


def preorder(steps: tuple[Step, ...], start: int = 0) -> Iterator[tuple[int, Step]]:
    """All steps with their numbers, those inside If and Loop included."""
    for step in steps:
        yield start, step
        start += 1
        for nested in children(step):
            for number, inner in preorder(nested, start):
                yield number, inner
                start = number + 1


def count_steps(steps: tuple[Step, ...]) -> int:
    """How many numbers `preorder` gives out."""
    return sum(1 + sum(count_steps(nested) for nested in children(step)) for step in steps)
