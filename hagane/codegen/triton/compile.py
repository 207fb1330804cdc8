"""Compiles one Triton source to a cubin, without a GPU: what a worker process does.

The AST source is given the types of all arguments; pointers are promised to be multiples of 16, which buffers
in the arena are.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hagane.core.errors import InternalError

POINTER_ALIGN = 16


@dataclass(frozen=True)
class KernelSource:
    """A source and all that its machine code depends on.

    signature: types of the parameters that aren't constants, in order, such as *fp32 and i32.
    """

    name: str
    text: str
    signature: tuple[str, ...]
    constants: Mapping[str, int] = field(default_factory=dict)
    num_warps: int = 4
    num_stages: int = 3


@dataclass(frozen=True)
class Cubin:
    """Machine code of one kernel. shared_bytes: dynamic shared memory of a launch."""

    code: bytes
    entry: str
    shared_bytes: int
    num_warps: int


def compile_kernel(source: KernelSource, capability: int) -> Cubin:
    """The kernel's cubin for a compute capability. Raises: InternalError with Triton's complaint."""
    from triton import compile as triton_compile
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    with tempfile.TemporaryDirectory(prefix="hagane-triton-") as folder:
        function = load_kernel(source, Path(folder))
        names = list(function.arg_names)
        types = dict(zip(names, source.signature, strict=False))
        types |= dict.fromkeys(source.constants, "constexpr")
        constants = {(names.index(name),): value for name, value in source.constants.items()}
        aligned = {
            (number,): [["tt.divisibility", POINTER_ALIGN]]
            for number, kind in enumerate(source.signature)
            if kind.startswith("*")
        }
        ast = ASTSource(function, signature=types, constexprs=constants, attrs=aligned)
        options = {"num_warps": source.num_warps, "num_stages": source.num_stages}
        try:
            compiled = triton_compile(ast, target=GPUTarget("cuda", capability, 32), options=options)
        except Exception as error:  # whatever Triton or ptxas raises is about our source
            raise InternalError(
                f"Triton can't compile {source.name} for sm{capability}: {error}",
                where={"source": source.text},
                next_step="please report this; the source above reproduces it",
            ) from error
    meta = compiled.metadata
    return Cubin(compiled.asm["cubin"], meta.name, int(meta.shared), int(meta.num_warps))


def load_kernel(source: KernelSource, folder: Path) -> Any:
    """The jitted function; Triton reads its text from a file, which is written to the folder."""
    path = folder / f"{source.name}.py"
    path.write_text(source.text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(f"hagane_kernel_{source.name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, source.name)
