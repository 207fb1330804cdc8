"""What all programs of a session share: code, constants, states, workspace, and the way to start a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from hagane.core.errors import EngineError, RunError
from hagane.engine.image import EngineImage
from hagane.host.recipes import is_identity, run_recipe, weights_of
from hagane.plan.model import Constant, Plan, Port
from hagane.runtime.devices.cpu import MappedCode
from hagane.runtime.devices.pool import driver_functions, pool_memory, shared_pool
from hagane.runtime.inputs import address_of, port_text
from hagane.runtime.memory import Block, Budget, Chunk

Array = np.ndarray[Any, Any]

_ALIGN = 64


class Resources:
    """Made for one plan of an image; closed with its session."""

    def __init__(
        self,
        image: EngineImage,
        target: str,
        threads: int,
        affinity: tuple[int, ...] | None,
        memory_limit: int | None,
    ) -> None:
        self.plan: Plan = image.plans[target]
        self.symbols = {symbol.name: symbol for symbol in self.plan.symbols}
        self.threads = threads
        self.budget = Budget(memory_limit)
        blob = image.code[target]
        self.code = MappedCode(blob)
        self.execute = self._executor(blob, affinity)
        self.scratch = Chunk(self.budget, "workspace")
        self._keep: list[object] = []
        self.weights_bytes = 0
        self.constant_bytes = {constant.name: _num_bytes(constant) for constant in self.plan.constants}
        self.constants = self._place_constants(image, target)
        self._states: dict[str, tuple[int, Block]] = {}

    def _executor(self, blob: Any, affinity: tuple[int, ...] | None) -> Callable[[int], None]:
        """A function that runs a job: on the calling thread alone, or with the pool."""
        threads = self.threads
        if threads == 1:
            run, _ = driver_functions(self.code)
            memory = pool_memory()
            own = memory.ctypes.data

            def alone(job: int, keep: Array = memory) -> None:
                run(own, job)

            return alone
        pool = shared_pool(blob, threads, affinity)
        run_in_pool = pool.run

        def together(job: int) -> None:
            if pool.size < threads:  # in a forked child
                pool.grow(threads)
            with pool.lock:
                run_in_pool(pool.address, job)

        return together

    def _place_constants(self, image: EngineImage, target: str) -> dict[str, int]:
        """Addresses by name; what isn't mapped ready for use is made in one block."""
        addresses: dict[str, int] = {}
        rest: list[Constant] = []
        for constant in self.plan.constants:
            ready = self._ready(image, target, constant)
            if ready is None:
                rest.append(constant)
            else:
                self._keep.append(ready)
                self.weights_bytes += ready.nbytes
                addresses[constant.name] = address_of(ready)
        sizes = [_round_up(_num_bytes(constant)) for constant in rest]
        if sizes:
            self.budget.change("packed", 0, sum(sizes))
            block = Block(sum(sizes))
            self._keep.append(block)
            place = block.address
            for constant, size in zip(rest, sizes, strict=True):
                self._fill(image, target, constant, place)
                addresses[constant.name] = place
                place += size
        return addresses

    @staticmethod
    def _ready(image: EngineImage, target: str, constant: Constant) -> Array | None:
        """The constant's bytes where they lie, if they can be used there."""
        found = image.packed.get((target, constant.name))
        if found is not None and found.nbytes != _num_bytes(constant):
            raise EngineError(f"the packed content of {constant.name} has another size than the plan says")
        if found is None and is_identity(constant.recipe):
            found = image.weights.get(weights_of(constant.recipe)[0])
            if found is not None and (found.dtype != constant.dtype.np or found.size != _size(constant)):
                return None
        if found is None or not found.flags.c_contiguous or address_of(found) % _ALIGN:
            return None
        return found

    @staticmethod
    def _fill(image: EngineImage, target: str, constant: Constant, address: int) -> None:
        value = image.packed.get((target, constant.name))
        if value is None:
            value = run_recipe(constant, image.weights)
            if image.release_weight is not None:
                for name in weights_of(constant.recipe):
                    image.release_weight(name)
        copy_to(address, value)

    def state_address(self, port: Port, num_bytes: int) -> int:
        """Where a state lies; made zeroed at first use.

        Raises: RunError if it has another size than before.
        """
        found = self._states.get(port.name)
        if found is None:
            self.budget.change("states", 0, num_bytes)
            found = self._states[port.name] = (num_bytes, Block(num_bytes))
        if found[0] != num_bytes:
            raise RunError(
                f"state {port.name} has {found[0]:,} bytes, these inputs want {num_bytes:,}",
                where={"state": port_text(port)},
                next_step="call reset_states() before running another size",
            )
        return found[1].address

    def drop_states(self) -> None:
        """Forgets all states; words that point to them must be made anew."""
        for num_bytes, block in self._states.values():
            self.budget.change("states", num_bytes, 0)
            block.close()
        self._states.clear()
        self.budget.moves += 1

    def memory(self) -> Mapping[str, int]:
        """Bytes by owner; weights are mapped from the file, or lie in the image's arrays."""
        held = self.budget.held
        owners = ("packed", "arena", "workspace", "states")
        known = {name: held.get(name, 0) for name in owners}
        return {"weights": self.weights_bytes, **known, "code": self.code.size_bytes}

    def close(self) -> None:
        """Gives back all that isn't plain Python memory."""
        self.scratch.trim()
        self.drop_states()
        for item in self._keep:
            if isinstance(item, Block):
                item.close()
        self._keep.clear()
        self.code.close()


def copy_to(address: int, value: Array) -> None:
    """Writes an array's bytes, in C order, to an address."""
    if value.nbytes:
        target = memory_view(address, value.dtype, value.shape)
        target[...] = value


class _Raw:
    """Bytes at an address, in the form that NumPy makes an array from without copying."""

    def __init__(self, address: int, num_bytes: int) -> None:
        self.__array_interface__ = {
            "version": 3,
            "data": (address, False),
            "shape": (num_bytes,),
            "typestr": "|u1",
        }


def memory_view(address: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """An array over memory that it doesn't own."""
    num_bytes = prod(shape) * dtype.itemsize
    if not num_bytes:
        return np.empty(shape, dtype)
    return np.asarray(_Raw(address, num_bytes)).view(dtype).reshape(shape)


def _size(constant: Constant) -> int:
    return prod(constant.shape)


def _num_bytes(constant: Constant) -> int:
    return _size(constant) * constant.dtype.itemsize


def _round_up(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN
