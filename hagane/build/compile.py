"""Compiles a library of kernels and links them, with the driver, into one blob."""

from __future__ import annotations

from hagane.build.options import BuildOptions, num_processes, report
from hagane.codegen.llvm.compile import CompileOptions
from hagane.codegen.llvm.driver import driver_ir
from hagane.codegen.llvm.link import Blob, link
from hagane.codegen.llvm.pool import CompilePool
from hagane.core.errors import InternalError
from hagane.core.targets import CpuTarget
from hagane.lower.kernels import Kernel, KernelLibrary
from hagane.plan import abi


class Compiler:
    """Compiles kernels in child processes; keeps every object for the life of a build."""

    def __init__(self, target: CpuTarget, options: BuildOptions, pool: CompilePool | None = None) -> None:
        """pool: child processes to use, which stay the caller's; by default own ones."""
        self.target = target
        self._options = options
        self._owns_pool = pool is None
        self._pool = pool or CompilePool(num_processes(options))
        self._objects: dict[str, bytes] = {}
        self._emitted: dict[str, Kernel] = {}

    def close(self) -> None:
        """Ends the child processes, if they are its own."""
        if self._owns_pool:
            self._pool.close()

    def library(self) -> KernelLibrary:
        """An empty library of kernels that shares with the others of the build what was emitted."""
        return KernelLibrary(self.target, self._emitted)

    def failing(self, kernels: list[Kernel]) -> dict[str, InternalError]:
        """Compiles those kernels that are new, big ones first; gives the errors of those that can't be."""
        new = {k.name: k for k in kernels if k.name not in self._objects}
        ordered = sorted(new.values(), key=lambda k: -len(k.source))
        futures = [
            (k.name, self._pool.submit(k.source, self.target, CompileOptions(misched=k.misched)))
            for k in ordered
        ]
        errors: dict[str, InternalError] = {}
        for done, (name, future) in enumerate(futures):
            report(self._options, "compile", done, len(futures))
            try:
                self._objects[name] = future.result()
            except InternalError as error:
                errors[name] = error
        return errors

    def blob(self, kernels: list[Kernel]) -> Blob:
        """All kernels and the driver, linked. Raises: InternalError for a kernel that can't be compiled."""
        for error in self.failing(kernels).values():
            raise error
        objects = [self._objects[k.name] for k in kernels]
        if "" not in self._objects:
            self._objects[""] = self._pool.submit(driver_ir(self.target), self.target).result()
        exports = [*(k.name for k in kernels), abi.RUN_SYMBOL, abi.WORKER_SYMBOL]
        return link([*objects, self._objects[""]], exports)
