"""From LLVM IR text to a relocatable object, in one call or in a pool of child processes.

The same text, target and options give the same bytes. LLVM aborts its process on some bad inputs and its
flags are global to it, so that builds use CompilePool; compile_module runs LLVM in this process.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import llvmlite.binding as llvm

from hagane.core.errors import InternalError


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
    """assembly: give assembly text, with spills marked, instead of an object.

    misched: run LLVM's machine scheduler, which rescues some register tiles and makes others spill. It is
    fixed for a process by its first compilation; a pool has children for both.
    """

    assembly: bool = False
    misched: bool = False


# Compiles twice as fast as O1 and gives the same speed: kernels come unrolled and vectorised already, and
# the code generator eliminates common subexpressions and hoists invariants itself. SROA makes registers of
# Vars.
_PASSES = (
    "always_inliner",
    "sroa",
    "instruction_combine",
    "simplify_cfg",
    "dead_code_elimination",
    "global_dead_code_eliminate",
)

_process_misched: bool | None = None


def compile_module(ir_text: str, target: CompileTarget, *, options: CompileOptions | None = None) -> bytes:
    """Compiles to a position-independent ELF object, or to assembly, in this process.

    Raises: InternalError if the text doesn't parse or verify; it names a file that holds the text.
    """
    try:
        return run_llvm(ir_text, target, options or CompileOptions())
    except RuntimeError as error:
        raise compile_error(str(error), ir_text) from error


def run_llvm(ir_text: str, target: CompileTarget, options: CompileOptions) -> bytes:
    """Compiles; LLVM's complaints come as RuntimeError."""
    _fix_scheduler(options.misched)
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


def compile_error(message: str, ir_text: str) -> InternalError:
    """The error for a failed compilation, with the text saved in a temporary file."""
    with tempfile.NamedTemporaryFile("w", prefix="hagane-", suffix=".ll", delete=False) as file:
        file.write(ir_text)
    first, _, rest = message.strip().partition("\n")
    where = {"LLVM IR": file.name}
    if rest:
        where["LLVM says"] = rest
    return InternalError(
        f"LLVM can't compile generated code: {first}",
        where=where,
        next_step="report this, with the file; choosing another precision or fusing less may avoid it",
    )


def _fix_scheduler(misched: bool) -> None:
    global _process_misched
    if _process_misched is None:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        if not misched:
            # LLVM accepts the flag once in a process; its default is true
            llvm.set_option("hagane", "-enable-misched=false")
        _process_misched = misched
    elif _process_misched != misched:
        raise InternalError(
            f"this process compiles with misched={_process_misched}, which can't change",
            next_step="use a CompilePool, which has a child process for each setting",
        )


@cache
def _machine(cpu: str, features: str, triple: str) -> Any:
    target = llvm.Target.from_triple(triple)
    machine = target.create_target_machine(cpu=cpu, features=features, opt=3, reloc="pic", codemodel="small")
    # count_spills reads the comments
    machine.set_asm_verbosity(True)
    return machine


_LABEL = re.compile(r"^([A-Za-z_$][\w.$]*):")
_SPILL = re.compile(r"(\d+)-byte (?:Folded )?(?:Spill|Reload)")


def count_spills(asm_text: str) -> dict[str, int]:
    """For each function of the assembly, how many instructions save or restore vectors on the stack."""
    counts: dict[str, int] = {}
    name = ""
    for line in asm_text.splitlines():
        if label := _LABEL.match(line):
            name = label.group(1)
            counts[name] = 0
        elif (spill := _SPILL.search(line)) and int(spill.group(1)) >= 16 and name:
            counts[name] += 1
    return counts
