"""From LLVM IR text to a relocatable object (or assembly), in this process.

LLVM aborts the process on some bad inputs, and its flags are global to it: pool.py has children that compile.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import llvmlite.binding as llvm


class CompileTarget(Protocol):
    """What compiling asks of a target."""

    @property
    def llvm_cpu(self) -> str: ...
    @property
    def llvm_features(self) -> str: ...
    @property
    def triple(self) -> str: ...


@dataclass(frozen=True)
class CompileOptions:
    """Assembly text instead of an object; LLVM's machine scheduler on or off."""

    assembly: bool = False
    misched: bool = False


@cache
def _initialize(misched: bool) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.set_option("hagane", f"-enable-misched={'true' if misched else 'false'}")


@cache
def _machine(cpu: str, features: str, triple: str) -> Any:
    target = llvm.Target.from_triple(triple)
    return target.create_target_machine(cpu=cpu, features=features, opt=3, reloc="pic", codemodel="small")


# Compiles twice as fast as O1 and gives the same speed: kernels come unrolled and vectorised already, and the
# code generator eliminates common subexpressions and hoists invariants itself. SROA makes registers of Vars.
_PASSES = ("always_inliner", "sroa", "instruction_combine", "simplify_cfg", "dead_code_elimination")


def compile_here(ir_text: str, target: CompileTarget, options: CompileOptions = CompileOptions()) -> bytes:
    """Compiles in this process, whose scheduler flag the first call fixes.

    Raises: RuntimeError with LLVM's message if the text doesn't parse or verify.
    """
    _initialize(options.misched)
    machine = _machine(target.llvm_cpu, target.llvm_features, target.triple)
    module = llvm.parse_assembly(f'target datalayout = "{machine.target_data}"\n{ir_text}')
    module.verify()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=1))
    passes = llvm.create_new_module_pass_manager()
    for name in _PASSES:
        getattr(passes, f"add_{name}_pass")()
    passes.run(module, builder)
    if options.assembly:
        return bytes(machine.emit_assembly(module), "utf-8")
    return bytes(machine.emit_object(module))
