"""A module: functions, declarations and constant data for one target, printed as LLVM IR."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from hagane.codegen.llvm.function import Function
from hagane.codegen.llvm.types import Type, as_type, void

# every loop carries !0: unrolling and vectorising are the kernel author's decisions, not LLVM's
_METADATA = """
!0 = distinct !{!0, !1, !2}
!1 = !{!"llvm.loop.unroll.disable"}
!2 = !{!"llvm.loop.vectorize.enable", i1 false}
!3 = !{i32 1}
"""


class Target(Protocol):
    """What is asked of a target; hagane.core.targets.CpuTarget has it."""

    @property
    def arch(self) -> str: ...
    @property
    def features(self) -> frozenset[str]: ...
    @property
    def vector_bytes(self) -> int: ...
    @property
    def llvm_cpu(self) -> str: ...
    @property
    def llvm_features(self) -> str: ...
    @property
    def triple(self) -> str: ...


class Module:
    """Collects functions; text() is the whole. The same calls always give the same text."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.is_x86 = target.arch.startswith("x86")
        self._functions: dict[str, Function] = {}
        self._signatures: dict[str, tuple[Type, list[Type]]] = {}
        self._declared: dict[str, str] = {}
        self._constants: dict[str, str] = {}

    def lanes(self, element: Type | str) -> int:
        """Lanes of the target's vector for an element type."""
        return self.target.vector_bytes // as_type(element).element_bytes

    def function(
        self,
        name: str,
        args: Sequence[tuple[str, Type | str] | tuple[str, Type | str, str]] = (),
        result: Type | str = void,
        internal: bool = False,
        inline: str = "",
    ) -> Function:
        """Starts a function. An argument is (name, type) or (name, type, LLVM attributes such as "noalias").

        inline: "always" (for internal ones), "never", or "" to let LLVM's pipeline, which doesn't inline, be.
        """
        if name in self._signatures:
            raise ValueError(f"the module has a function {name} already")
        full = [(arg[0], as_type(arg[1]), arg[2] if len(arg) == 3 else "") for arg in args]
        attributes = {"": "", "always": "alwaysinline ", "never": "noinline "}[inline]
        function = Function(self, name, full, as_type(result), internal, attributes)
        self._functions[name] = function
        self._signatures[name] = (as_type(result), [type for _, type, _ in full])
        return function

    def declare(self, name: str, result: Type | str, args: Sequence[Type | str] = ()) -> None:
        """Declares a function that is defined elsewhere; doing so twice with one signature is no error."""
        signature = (as_type(result), [as_type(arg) for arg in args])
        known = self._signatures.setdefault(name, signature)
        if known != signature:
            raise ValueError(f"{name} is declared with two signatures")
        if name not in self._functions:
            types = ", ".join(arg.llvm for arg in signature[1])
            self._declared[name] = f"declare {signature[0].llvm} @{name}({types})"

    def constant(self, name: str, data: bytes, align: int = 64) -> str:
        """Adds read-only data, private to the module, unless it is there; f.address_of(name) finds it."""
        text = "".join(f"\\{byte:02X}" for byte in data)
        line = f'@{name} = internal constant [{len(data)} x i8] c"{text}", align {align}'
        if self._constants.setdefault(name, line) != line:
            raise ValueError(f"the module has another constant {name} already")
        return name

    def signature(self, name: str) -> tuple[Type, list[Type]]:
        """The result and argument types of a function that is defined or declared here."""
        if name not in self._signatures:
            raise KeyError(f"the module neither defines nor declares {name}")
        return self._signatures[name]

    def text(self) -> str:
        """The module as LLVM IR."""
        target = self.target
        bits = 8 * target.vector_bytes
        attributes = {
            "target-cpu": target.llvm_cpu,
            "target-features": target.llvm_features,
            "prefer-vector-width": bits,
            # without it LLVM splits 512-bit vectors of internal values
            "min-legal-vector-width": bits,
            "frame-pointer": "none",
            "no-jump-tables": "true",
        }
        group = " ".join(f'"{key}"="{value}"' for key, value in attributes.items())
        parts = [
            f'target triple = "{target.triple}"\n',
            "".join(line + "\n" for line in self._constants.values()),
            "".join(self._declared[name] + "\n" for name in sorted(self._declared)),
            *(function.text() for function in self._functions.values()),
            f"attributes #0 = {{ nounwind {group} }}",
            _METADATA,
        ]
        return "\n".join(part for part in parts if part)
