"""The kernels of a plan: each emitted once, named by its content."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from hagane.codegen.llvm import Module
from hagane.core.hashing import content_hash
from hagane.core.targets import CpuTarget
from hagane.kernels.tactic import KernelLaunch

_PLACEHOLDER = "kernel"


@dataclass(frozen=True)
class Kernel:
    """A kernel's source. num_args, num_dims: what it reads of its two tables."""

    name: str
    source: str
    num_args: int
    num_dims: int
    misched: bool


@dataclass
class KernelLibrary:
    """Collects kernels; equal sources become one kernel, so that repeated layers share code.

    emitted: kernels by what they were emitted for, shared by the libraries of one build.
    """

    target: CpuTarget
    emitted: dict[str, Kernel] = field(default_factory=dict)
    kernels: dict[str, Kernel] = field(default_factory=dict)

    def add(self, launch: KernelLaunch, kind: str, key: str) -> str:
        """The name of a launch's kernel, which is emitted unless that was done for the same key before."""
        if key not in self.emitted:
            self.emitted[key] = self._emit(launch, kind)
        kernel = self.emitted[key]
        self.kernels[kernel.name] = kernel
        return kernel.name

    def _emit(self, launch: KernelLaunch, kind: str) -> Kernel:
        """A kernel named by kind, slug and the start of its content's hash."""
        module = Module(self.target)
        launch.emit(module, _PLACEHOLDER)
        source = module.text()
        digest = content_hash(source, str(launch.unmisched))[:12]
        name = f"{kind}_{_identifier(launch.slug)}_{digest}"
        renamed = re.sub(rf"@{_PLACEHOLDER}\b", f"@{name}", source)
        return Kernel(name, renamed, len(launch.args), len(launch.dims), not launch.unmisched)


def _identifier(text: str) -> str:
    return re.sub(r"\W", "_", text)
