"""One run of a program that has events: Python drives, segment by segment.

A frame knows the symbols bound so far, where each buffer lies, and the strings, which live outside the arena.
Buffers whose size an event changes get a chunk of memory of that event; running it again places them anew.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hagane.core.dtypes import DType
from hagane.core.errors import EngineError, HaganeError, RunError
from hagane.host.steps import find_step
from hagane.plan.model import Alloc, Bind, Call, Host, Port, Require, Shape
from hagane.runtime.inputs import address_of, bind_dims, check_dims, evaluate, range_fault
from hagane.runtime.memory import Chunk
from hagane.runtime.program import Binding, ProgramRunner, check_out, check_required, place_buffers
from hagane.runtime.resources import copy_to, memory_view
from hagane.runtime.schedule import Branch, Event, Item, Repeat, Segment, symbol_names

if TYPE_CHECKING:
    from collections.abc import Callable

Array = np.ndarray[Any, Any]


class Frame:
    """Made for one run; results() carries it out."""

    def __init__(
        self,
        runner: ProgramRunner,
        binding: Binding,
        arrays: Sequence[Array],
        out: Mapping[str, Array] | None,
        runner_of: Callable[[str], ProgramRunner],
    ) -> None:
        self._runner = runner
        self._binding = binding
        self._inputs = arrays
        self._out = out or {}
        self._runner_of = runner_of
        self._env = dict(binding.env)
        self._sizes = dict(binding.sizes)
        self._addresses = dict(binding.states)
        self._strings: dict[str, Array] = {}
        self._outputs: dict[str, Array] = {}

    def results(self) -> dict[str, Array]:
        """Runs the program and gives its outputs."""
        self._relocate()
        for port, array in zip(self._runner.program.inputs, self._inputs, strict=True):
            if port.dtype is DType.STRING:
                self._strings[port.name] = array
            else:
                self._addresses[port.name] = address_of(array)
        for name, shape, dtype, _ in self._binding.outputs:
            self._allocate_output(name, shape, dtype)
        self._run_items(self._runner.schedule.items)
        return {port.name: self._result(port) for port in self._runner.program.outputs}

    def _result(self, port: Port) -> Array:
        found = (self._strings if port.dtype is DType.STRING else self._outputs).get(port.name)
        if found is None:
            raise EngineError(f"no step gives the output {port.name} its shape")
        return found

    def _allocate_output(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        if dtype.hasobject:
            return
        if name in self._out:
            array = check_out(name, self._out[name], shape, dtype, [*self._inputs, *self._outputs.values()])
        else:
            array = np.empty(shape, dtype)
        self._outputs[name] = array
        self._addresses[name] = address_of(array)
        self._sizes[name] = array.nbytes

    def _relocate(self) -> None:
        """After memory has moved, here or in a program that was called."""
        runner = self._runner
        if self._binding.moves != runner.resources.budget.moves:
            runner.relocate(self._binding)
        base = runner.arena.address
        for name, offset in self._binding.offsets.items():
            self._addresses[name] = base + offset

    def _address(self, name: str) -> int:
        found = self._addresses.get(name)
        if found is None:
            found = self._runner.resources.constants.get(name)
        if found is None:
            raise EngineError(f"buffer {name} is used before its size is known")
        return found

    def _size(self, name: str) -> int:
        return self._runner.size_of(name, self._sizes)

    def _run_items(self, items: Sequence[Item]) -> None:
        for item in items:
            if isinstance(item, Segment):
                self._run_segment(item)
            elif isinstance(item, Event):
                self._run_event(item)
            elif isinstance(item, Branch):
                self._run_items(item.then if self._flag(item.step.cond_buffer) else item.otherwise)
            else:
                self._run_loop(item)

    def _run_segment(self, segment: Segment) -> None:
        if self._binding.moves != self._runner.resources.budget.moves:
            self._relocate()
        bound = self._binding.segments[id(segment)]
        for place, name in bound.io_places:
            bound.view[place] = self._address(name)
        if segment.is_dynamic:
            stride = self._runner.scratch_stride(self._env)
            if stride > self._binding.scratch_stride:
                self._widen_scratch(stride)
            bound.fill(self._env, self._size)
        self._runner.resources.execute(bound.address)

    def _widen_scratch(self, stride: int) -> None:
        """The workspace grows with symbols that have got a value since binding."""
        self._binding.scratch_stride = stride
        self._runner.relocate(self._binding)
        for bound in self._binding.segments.values():
            bound.set_scratch_stride(stride)

    def _flag(self, name: str) -> bool:
        if self._size(name) < 1:
            raise EngineError(f"the condition {name} has no byte")
        return bool(ctypes.c_uint8.from_address(self._address(name)).value)

    def _run_loop(self, item: Repeat) -> None:
        step = item.step
        limit = None if step.trip_count is None else evaluate((step.trip_count,), self._env)[0]
        index = 0
        while (limit is None or index < limit) and (step.cond_buffer is None or self._flag(step.cond_buffer)):
            if step.index_buffer is not None:
                if self._size(step.index_buffer) < 8:
                    raise EngineError(f"the loop index {step.index_buffer} has fewer than 8 bytes")
                ctypes.c_int64.from_address(self._address(step.index_buffer)).value = index
            self._run_items(item.body)
            index += 1

    def _run_event(self, event: Event) -> None:
        step = event.step
        if isinstance(step, Bind):
            self._define(step.symbol, self._element(step))
        elif isinstance(step, Require):
            check_required(step, self._env)
            return
        elif isinstance(step, Shape):
            for name, expr in step.symbols:
                self._define(name, evaluate((expr,), self._env)[0])
        elif isinstance(step, Host):
            self._finish(event, step.outputs, self._call_host(step))
            return
        elif isinstance(step, Call):
            self._finish(event, step.outputs, self._call_program(step))
            return
        else:
            assert isinstance(step, Alloc)
        self._place(event)

    def _define(self, name: str, value: int) -> None:
        fault = range_fault(self._runner.resources.symbols.get(name), value)
        if fault:
            raise RunError(
                f"{name}, which the model computes, is {value}, {fault}",
                next_step="these inputs lead outside the ranges that the engine was built for",
            )
        self._env[name] = value

    def _element(self, step: Bind) -> int:
        dtype = self._runner.buffers[step.buffer].dtype
        end = (step.index + 1) * dtype.itemsize
        if dtype not in (DType.I64, DType.I32) or not 0 < end <= self._size(step.buffer):
            raise EngineError(f"{step.buffer} has no integer {step.index} for the symbol {step.symbol}")
        kind = ctypes.c_int64 if dtype is DType.I64 else ctypes.c_int32
        return int(kind.from_address(self._address(step.buffer) + end - dtype.itemsize).value)

    def _place(self, event: Event) -> None:
        """Gives memory to the buffers, and arrays to the outputs, whose size is known now."""
        known = self._env.keys()
        buffers = [b for b in event.buffers if symbol_names(b.size_bytes) <= known]
        if buffers:
            offsets, total = place_buffers(buffers, self._env)
            chunk = self._runner.event_chunks.get(event.number)
            if chunk is None:
                chunk = Chunk(self._runner.resources.budget, "arena")
                self._runner.event_chunks[event.number] = chunk
            chunk.ensure(total)
            for buffer, (offset, size) in zip(buffers, offsets, strict=True):
                self._addresses[buffer.name] = chunk.address + offset
                self._sizes[buffer.name] = size
        for port in event.outputs:
            if symbol_names(*port.shape) <= known:
                shape = tuple(evaluate(port.shape, self._env))
                self._runner.check_output(port, shape)
                self._allocate_output(port.name, shape, port.dtype.np)

    def _finish(self, event: Event, ports: Sequence[Port], results: Sequence[Array]) -> None:
        """Takes the results of a host step or call into the buffers named by its outputs."""
        symbols = self._runner.resources.symbols
        for port, result in zip(ports, results, strict=True):
            bind_dims(port, result.shape, self._env, symbols)
        for port, result in zip(ports, results, strict=True):
            check_dims(port, result.shape, self._env)
        self._place(event)
        for port, result in zip(ports, results, strict=True):
            if port.dtype is DType.STRING:
                self._strings[port.name] = result
            elif result.nbytes > self._size(port.name):
                raise EngineError(f"{port.name} has {self._size(port.name)} bytes, not {result.nbytes}")
            else:
                copy_to(self._address(port.name), result)

    def _operand(self, port: Port) -> Array:
        if port.dtype is DType.STRING:
            return self._strings[port.name]
        shape = tuple(evaluate(port.shape, self._env))
        view = memory_view(self._address(port.name), port.dtype.np, shape)
        if view.nbytes > self._size(port.name):
            raise EngineError(f"{port.name} has {self._size(port.name)} bytes, not {view.nbytes}")
        return view

    def _call_host(self, step: Host) -> list[Array]:
        function = find_step(step.fn)
        operands = [self._operand(port) for port in step.inputs]
        try:
            results = function(step.attrs, *operands)
        except HaganeError:
            raise
        except Exception as error:
            raise RunError(
                f"the host step {step.fn} failed: {error!r}",
                where={
                    port.name: f"{a.dtype}{list(a.shape)}"
                    for port, a in zip(step.inputs, operands, strict=True)
                },
                next_step="check these inputs of the model",
            ) from error
        given = [result.dtype for result in results]
        wanted = [port.dtype.np for port in step.outputs]
        if given != wanted:
            raise EngineError(f"the host step {step.fn} gives {given}, the plan says {wanted}")
        # a view of an operand would lose its memory when the outputs are placed
        return [result if result.base is None else result.copy() for result in results]

    def _call_program(self, step: Call) -> list[Array]:
        callee = self._runner_of(step.program)
        arrays = [self._operand(port) for port in step.inputs]
        binding = callee.bind(tuple(array.shape for array in arrays))
        results = run_program(callee, binding, arrays, None, self._runner_of)
        return list(results.values())


def run_program(
    runner: ProgramRunner,
    binding: Binding,
    arrays: Sequence[Array],
    out: Mapping[str, Array] | None,
    runner_of: Callable[[str], ProgramRunner],
) -> dict[str, Array]:
    """Runs a bound program, the fast way if it is one segment."""
    if runner.is_static:
        return runner.run_static(binding, arrays, out)
    return Frame(runner, binding, arrays, out, runner_of).results()
