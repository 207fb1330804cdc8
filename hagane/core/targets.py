"""What machine an engine is built for: the text form, its features, and the vector width kernels use."""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass
from functools import cache

from hagane.core.errors import BuildError

# LLVM's names of the micro-architecture levels; features are those that we generate code for beyond the level
_X86_LEVELS = {"x86-64-v3": 32, "x86-64-v4": 64}
_X86_FEATURES = {"vnni": "avx512vnni", "bf16": "avx512bf16", "avxvnni": "avxvnni"}
_CPUINFO_FLAGS = {"vnni": "avx512_vnni", "bf16": "avx512_bf16", "avxvnni": "avx_vnni"}
_V3_FLAGS = {"avx2", "fma", "bmi1", "bmi2", "f16c", "movbe"}
_V4_FLAGS = {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}


@dataclass(frozen=True)
class CpuTarget:
    """A CPU: arch is an x86-64 level or "aarch64"; features are names such as "vnni" and "bf16"."""

    arch: str
    features: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return "cpu:" + "+".join([self.arch, *sorted(self.features)])

    @property
    def vector_bytes(self) -> int:
        """Bytes of the widest vector register that kernels use."""
        return _X86_LEVELS.get(self.arch, 16)

    @property
    def num_vector_registers(self) -> int:
        return 16 if self.arch == "x86-64-v3" else 32

    @property
    def llvm_cpu(self) -> str:
        return self.arch if self.arch in _X86_LEVELS else "generic"

    @property
    def llvm_features(self) -> str:
        return ",".join("+" + _X86_FEATURES[f] for f in sorted(self.features) if f in _X86_FEATURES)

    @property
    def triple(self) -> str:
        return f"{'x86_64' if self.arch in _X86_LEVELS else 'aarch64'}-unknown-linux-gnu"


@dataclass(frozen=True)
class CudaTarget:
    """An NVIDIA GPU by its compute capability: 90 for sm90."""

    capability: int

    def __str__(self) -> str:
        return f"cuda:sm{self.capability}"


CUDA_CAPABILITIES = (80, 86, 89, 90, 100, 120)


@cache
def _cpu_flags() -> frozenset[str]:
    try:
        with open("/proc/cpuinfo") as file:
            found = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", file.read(), re.MULTILINE)
    except OSError:
        found = None
    return frozenset(found.group(1).split()) if found else frozenset()


def native_cpu() -> CpuTarget:
    """The best CPU target that this machine runs.

    Raises: BuildError on an x86-64 CPU without AVX2 and FMA.
    """
    flags = _cpu_flags()
    if platform.machine() == "aarch64":
        return CpuTarget("aarch64")
    if not flags >= _V3_FLAGS:
        raise BuildError(
            f"this CPU lacks {', '.join(sorted(_V3_FLAGS - flags))}",
            tried="x86-64-v3, the oldest level that kernels are generated for",
            next_step="build and run on a CPU from 2013 or later",
        )
    arch = "x86-64-v4" if flags >= _V4_FLAGS else "x86-64-v3"
    return CpuTarget(arch, frozenset(_usable_features(arch, flags)))


def _usable_features(arch: str, flags: frozenset[str]) -> list[str]:
    allowed = ("vnni", "bf16") if arch == "x86-64-v4" else ("avxvnni",)
    return [name for name in allowed if _CPUINFO_FLAGS[name] in flags]


def parse_target(text: str) -> CpuTarget:
    """Reads "native", "cpu", "cpu:x86-64-v4+vnni+bf16".

    Raises: BuildError for an unknown target or feature.
    """
    if not isinstance(text, str):
        raise BuildError(
            f"the target is a {type(text).__name__}, not a string", next_step='use target="native"'
        )
    if text in ("native", "cpu"):
        return native_cpu()
    kind, _, rest = text.partition(":")
    arch, *features = rest.split("+")
    known = [*_X86_LEVELS, "aarch64"]
    if kind != "cpu" or arch not in known:
        raise BuildError(
            f"unknown target {text!r}",
            next_step="use native, cpu, or cpu: followed by one of " + ", ".join(known),
        )
    unknown = [f for f in features if f not in _X86_FEATURES]
    if unknown:
        raise BuildError(
            f"target {text!r} has unknown features: {', '.join(unknown)}",
            next_step="use some of " + ", ".join(sorted(_X86_FEATURES)),
        )
    return CpuTarget(arch, frozenset(features))


def can_run(target: CpuTarget) -> bool:
    """True if this machine runs code for the target."""
    if target.arch == "aarch64":
        return platform.machine() == "aarch64"
    flags = _cpu_flags()
    wanted = _V3_FLAGS | (_V4_FLAGS if target.arch == "x86-64-v4" else set())
    return flags >= wanted and all(_CPUINFO_FLAGS[f] in flags for f in target.features)
