"""Where a program's buffers lie in the arena, from which step to which, at given dims."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from hagane.core.errors import EngineError
from hagane.debug.feeds import within
from hagane.plan.arena import assign_offsets, peak_live_bytes
from hagane.plan.model import Plan, Program, Shape, preorder

TYPICAL_SIZE = 8


@dataclass(frozen=True)
class PlacedBuffer:
    """A buffer; offset is -1 outside the arena."""

    name: str
    kind: str
    type: str
    size_bytes: int
    first_step: int
    last_step: int
    offset: int


@dataclass(frozen=True)
class MemoryReport:
    """A program's memory. peak_bytes: the largest sum of live bytes, below which no arena can be."""

    program: str
    dims: dict[str, int]
    buffers: list[PlacedBuffer]
    arena_bytes: int
    peak_bytes: int
    constant_bytes: int
    workspace_bytes_per_thread: int

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def __str__(self) -> str:
        shown = ", ".join(f"{name}={value}" for name, value in self.dims.items())
        head = f"memory of {self.program}" + (f" at {shown}" if shown else "")
        lines = [head, f"{'offset':>10} {'bytes':>10}  {'steps':<9} {'kind':<8} {'type':<5} buffer"]
        for b in self.buffers:
            offset = "" if b.offset < 0 else str(b.offset)
            steps = f"{b.first_step}..{b.last_step}"
            lines.append(f"{offset:>10} {b.size_bytes:>10}  {steps:<9} {b.kind:<8} {b.type:<5} {b.name}")
        lines.append(
            f"arena {self.arena_bytes} bytes; live at once {self.peak_bytes}; "
            f"constants {self.constant_bytes}; workspace {self.workspace_bytes_per_thread} a thread"
        )
        return "\n".join(lines)


def memory_report(plan: Plan, program: Program, given: Mapping[str, int], batch: int = 1) -> MemoryReport:
    """Places the buffers as a session would; dims that aren't given take the batch, or a typical size.

    Raises: EngineError for dims that the program doesn't have.
    """
    dims = _dims(plan, program, given, batch)
    sizes = {b.name: max(0, b.size_bytes.evaluate(dims)) for b in program.buffers}
    arena = [b for b in program.buffers if b.kind == "arena"]
    requests = [(sizes[b.name], b.first_step, b.last_step, b.align) for b in arena]
    offsets, total = assign_offsets(requests)
    place = {b.name: offset for b, offset in zip(arena, offsets, strict=True)}
    placed = [
        PlacedBuffer(
            b.name, b.kind, str(b.dtype), sizes[b.name], b.first_step, b.last_step, place.get(b.name, -1)
        )
        for b in program.buffers
    ]
    placed.sort(key=lambda b: (b.first_step, b.last_step, b.name))
    return MemoryReport(
        program.name,
        dims,
        placed,
        total,
        peak_live_bytes(requests),
        sum(sizes[b.name] for b in program.buffers if b.kind == "constant"),
        plan.workspace_bytes_per_thread.evaluate(dims),
    )


def _dims(plan: Plan, program: Program, given: Mapping[str, int], batch: int) -> dict[str, int]:
    """A value for each symbol, those that steps compute included."""
    unknown = sorted(set(given) - {s.name for s in plan.symbols})
    if unknown:
        known = ", ".join(s.name for s in plan.symbols) or "none: all its shapes are constant"
        raise EngineError(f"the engine has no dim {', '.join(unknown)}", next_step=f"its dims are {known}")
    leading = {s.name for p in program.inputs if len(p.shape) > 1 for s in p.shape[0].symbols()}
    wanted = {s.name: batch if s.name in leading else TYPICAL_SIZE for s in plan.symbols}
    dims = {s.name: given.get(s.name, within(s, wanted[s.name])) for s in plan.symbols}
    for _, step in preorder(program.steps):
        if isinstance(step, Shape):
            dims |= {name: expr.evaluate(dims) for name, expr in step.symbols if name not in given}
    return dims
