"""Binds a program to input shapes and runs it.

A binding holds the filled tables of all segments for one tuple of input shapes; a bounded number of them is
kept, those used last. They share one arena: when it moves, a binding's tables are relocated at its next
run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from hagane.core.dtypes import DType
from hagane.core.errors import EngineError, RunError
from hagane.plan.abi import JOB_SCRATCH, JOB_SCRATCH_STRIDE
from hagane.plan.arena import Request, assign_offsets
from hagane.plan.model import Buffer, Port, Program, Require
from hagane.runtime.inputs import address_of, bind_shapes, evaluate, port_text
from hagane.runtime.memory import Chunk
from hagane.runtime.resources import Resources
from hagane.runtime.schedule import Clock, Segment, build_schedule, symbol_names

Array = np.ndarray[Any, Any]
Shapes = tuple[tuple[int, ...], ...]

_MAX_BINDINGS = 64
# a stride of whole pages would put all threads' workspaces on the same cache sets
_PAGE, _LINE = 4096, 64

_empty = np.empty


class BoundSegment:
    """A segment's table for one binding: words, which `view` writes fast, and where addresses go in it."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.words = segment.template.words.copy()
        self.view = memoryview(self.words.data)
        self.address = int(self.words.ctypes.data)
        self.arena_places: list[int] = []
        self.arena_offsets: list[int] = []
        self.io_places: list[tuple[int, str]] = []

    def fill(self, env: Mapping[str, int], size_of: Callable[[str], int]) -> None:
        """Writes all that depends on symbols, and chooses the kernels.

        Raises: EngineError if a copy is larger than its buffers.
        """
        template = self.segment.template
        values = evaluate(template.exprs, env)
        words = self.words
        for place, value in zip(template.expr_places, values, strict=False):
            words[place] = value
        for choice in template.choices:
            for guards, kernel in choice.variants:
                if all(values[number] >= 0 for number in guards):
                    words[choice.place] = kernel
                    break
            else:
                words[choice.place] = template.words[choice.place]
        for expr, name in template.checks:
            (size,) = evaluate((expr,), env)
            if not 0 <= size <= size_of(name):
                raise EngineError(f"a step touches {size} bytes of {name}, which has {size_of(name)}")

    def set_scratch_stride(self, stride: int) -> None:
        """Bytes between the workspaces of two threads."""
        self.words[JOB_SCRATCH_STRIDE] = stride

    def relocate(self, arena: int, scratch: int) -> None:
        """Writes the addresses that follow from where the arena and the workspace lie now."""
        self.words[JOB_SCRATCH] = scratch
        if self.arena_places:
            self.words[self.arena_places] = np.array(self.arena_offsets, np.int64) + arena


class Binding:
    """All that follows from one tuple of input shapes.

    outputs: (name, shape, dtype, words that take its address) of the static ones, whose words are in the only
    segment. sizes: bytes of buffers by name. offsets: those of static arena buffers. states: their addresses.
    """

    def __init__(self, env: dict[str, int]) -> None:
        self.env = env
        self.segments: dict[int, BoundSegment] = {}
        self.only: BoundSegment | None = None
        self.input_places: list[list[int]] = []
        self.outputs: list[tuple[str, tuple[int, ...], np.dtype[Any], list[int]]] = []
        self.sizes: dict[str, int] = {}
        self.offsets: dict[str, int] = {}
        self.states: dict[str, int] = {}
        self.arena_bytes = 0
        self.scratch_stride = 0
        self.moves = -1


class ProgramRunner:
    """One program of a session. Not thread-safe: the session's lock guards it."""

    def __init__(self, program: Program, resources: Resources, clock: Clock | None = None) -> None:
        self.program = program
        self.resources = resources
        self.schedule = build_schedule(program, resources.code.address, resources.threads, clock)
        self.arena = Chunk(resources.budget, "arena")
        self.event_chunks: dict[int, Chunk] = {}
        self.buffers = {buffer.name: buffer for buffer in program.buffers}
        self.is_static = (
            self.schedule.only_segment is not None
            and not self.schedule.only_segment.is_dynamic
            and not any(port.dtype is DType.STRING for port in program.inputs + program.outputs)
        )
        self._bindings: dict[Shapes, Binding] = {}

    def bind(self, shapes: Shapes) -> Binding:
        """The binding for input shapes, from the cache if it is there.

        Raises: RunError if the shapes don't fit, or need more memory than is allowed.
        """
        binding = self._bindings.pop(shapes, None)
        if binding is None:
            binding = self._make(shapes)
            if len(self._bindings) >= _MAX_BINDINGS:
                del self._bindings[next(iter(self._bindings))]
        self._bindings[shapes] = binding
        return binding

    def forget(self) -> None:
        """Drops all bindings and the memory that they use."""
        self._bindings.clear()
        for chunk in (self.arena, *self.event_chunks.values()):
            chunk.trim()

    def run_static(
        self, binding: Binding, arrays: Sequence[Array], out: Mapping[str, Array] | None
    ) -> dict[str, Array]:
        """Runs a program of one segment."""
        if binding.moves != self.resources.budget.moves:
            self.relocate(binding)
        only = binding.only
        assert only is not None
        view = only.view
        for array, places in zip(arrays, binding.input_places, strict=True):
            address = address_of(array)
            for place in places:
                view[place] = address
        results: dict[str, Array] = {}
        for name, shape, dtype, places in binding.outputs:
            if out is None or name not in out:
                result = _empty(shape, dtype)
            else:
                result = check_out(name, out[name], shape, dtype, [*arrays, *results.values()])
            results[name] = result
            address = address_of(result)
            for place in places:
                view[place] = address
        self.resources.execute(only.address)
        return results

    def relocate(self, binding: Binding) -> None:
        """Makes the arena and workspace large enough and the binding's tables point into them."""
        resources = self.resources
        self.arena.ensure(binding.arena_bytes)
        resources.scratch.ensure(binding.scratch_stride * resources.threads)
        for bound in binding.segments.values():
            bound.relocate(self.arena.address, resources.scratch.address)
        binding.moves = resources.budget.moves

    def _make(self, shapes: Shapes) -> Binding:
        program, schedule, resources = self.program, self.schedule, self.resources
        env = bind_shapes(program, resources.symbols, shapes)
        for step in schedule.shapes:
            for name, expr in step.symbols:
                (env[name],) = evaluate((expr,), env)
        for require in schedule.requires:
            check_required(require, env)
        binding = Binding(env)
        self._measure(binding)
        self._place(binding)
        binding.scratch_stride = self.scratch_stride(env)
        for segment in schedule.segments():
            binding.segments[id(segment)] = self._bind_segment(segment, binding)
        only = schedule.only_segment
        if only is not None:
            binding.only = binding.segments[id(only)]
            for port in program.inputs:
                binding.input_places.append(_places(binding.only, port.name))
        for port in program.outputs:
            if port.name not in schedule.dynamic_buffers:
                places = _places(binding.only, port.name) if binding.only else []
                shape = tuple(evaluate(port.shape, env))
                self.check_output(port, shape)
                binding.outputs.append((port.name, shape, port.dtype.np, places))
        self.relocate(binding)
        return binding

    def _measure(self, binding: Binding) -> None:
        """Sizes of all ports that are known by now, and addresses of states."""
        sizes, env = binding.sizes, binding.env
        ports = self.program.inputs + self.program.outputs + self.program.states
        for port in ports:
            if port.name not in self.schedule.dynamic_buffers:
                sizes[port.name] = prod(evaluate(port.shape, env)) * port.dtype.itemsize
        for port in self.program.states:
            binding.states[port.name] = self.resources.state_address(port, sizes[port.name])

    def size_of(self, name: str, sizes: Mapping[str, int]) -> int:
        """Bytes of a buffer, 0 if it has no memory yet."""
        found = sizes.get(name)
        return self.resources.constant_bytes.get(name, 0) if found is None else found

    def _place(self, binding: Binding) -> None:
        buffers = self.schedule.static_buffers
        offsets, binding.arena_bytes = place_buffers(buffers, binding.env)
        for buffer, (offset, size) in zip(buffers, offsets, strict=True):
            binding.offsets[buffer.name] = offset
            binding.sizes[buffer.name] = size

    def scratch_stride(self, env: Mapping[str, int]) -> int:
        """Bytes from one thread's workspace to the next; symbols that are unbound yet count as their lo."""
        expr = self.resources.plan.workspace_bytes_per_thread
        known = {
            name: env.get(name, symbol.lo if symbol is not None else 0)
            for name in symbol_names(expr)
            for symbol in [self.resources.symbols.get(name)]
        }
        (size,) = evaluate((expr,), known)
        stride = -(-max(size, 0) // _LINE) * _LINE
        return stride + 2 * _LINE if stride and stride % _PAGE == 0 else stride

    def check_output(self, port: Port, shape: tuple[int, ...]) -> None:
        """Raises: RunError for a shape that no output can have."""
        num_bytes = prod(shape) * port.dtype.itemsize
        if min(shape, default=0) < 0 or num_bytes > self.resources.budget.physical_bytes:
            raise RunError(
                f"output {port.name} would have the shape {list(shape)}, {num_bytes:,} bytes",
                where={"output": port_text(port)},
                next_step="run inputs of another size",
            )

    def _bind_segment(self, segment: Segment, binding: Binding) -> BoundSegment:
        bound = BoundSegment(segment)
        bound.set_scratch_stride(binding.scratch_stride)
        for place, name in segment.template.pointers:
            buffer = self.buffers.get(name)
            kind = buffer.kind if buffer is not None else "constant"
            if name in self.schedule.dynamic_buffers or kind in ("input", "output"):
                bound.io_places.append((place, name))
            elif kind == "arena":
                bound.arena_places.append(place)
                bound.arena_offsets.append(binding.offsets[name])
            else:
                fixed = binding.states if kind == "state" else self.resources.constants
                bound.words[place] = fixed[name]
        if not segment.is_dynamic:
            bound.fill(binding.env, lambda name: self.size_of(name, binding.sizes))
        return bound


def check_required(step: Require, env: Mapping[str, int]) -> None:
    """Raises: RunError unless the dims are equal, pair by pair."""
    for left, right in zip(step.left, step.right, strict=True):
        (a,), (b,) = evaluate((left,), env), evaluate((right,), env)
        if a != b:
            raise RunError(
                f"{step.message}: {left} is {a}, {right} is {b}",
                next_step="run inputs whose shapes fit each other",
            )


def place_buffers(buffers: Sequence[Buffer], env: Mapping[str, int]) -> tuple[list[tuple[int, int]], int]:
    """(offset, size) of each buffer, and the bytes of all. Raises: RunError for impossible sizes."""
    sizes = evaluate([buffer.size_bytes for buffer in buffers], env)
    requests: list[Request] = []
    for buffer, size in zip(buffers, sizes, strict=True):
        if size < 0:
            raise RunError(f"buffer {buffer.name} has a size of {size} bytes", next_step="run larger inputs")
        requests.append((size, buffer.first_step, buffer.last_step, buffer.align))
    offsets, total = assign_offsets(requests)
    return list(zip(offsets, sizes, strict=True)), total


def check_out(
    name: str, array: Array, shape: tuple[int, ...], dtype: np.dtype[Any], others: Sequence[Array]
) -> Array:
    """The caller's array for an output. Raises: RunError if it can't take the result as it is."""
    problem = ""
    if type(array) is not np.ndarray:
        problem = f"is a {type(array).__name__}, not an array"
    elif array.dtype != dtype or array.shape != shape:
        problem = f"is {array.dtype}{list(array.shape)}"
    elif not (array.flags.c_contiguous and array.flags.aligned and array.flags.writeable):
        problem = "is not contiguous and writable"
    elif any(np.may_share_memory(array, item) for item in others):
        problem = "shares memory with an input or another output"
    if problem:
        raise RunError(
            f"out[{name!r}] {problem}",
            where={"expected": f"{name}: {dtype}{list(shape)}, C-contiguous, writable, memory of its own"},
            next_step=f"leave {name} out of out=, or allocate it with numpy.empty",
        )
    return array


def _places(bound: BoundSegment, name: str) -> list[int]:
    return [place for place, other in bound.io_places if other == name]
