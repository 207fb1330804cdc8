"""A function of the kernel language: everything that can be emitted, its arguments and its text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hagane.codegen.llvm.dot import Dot
from hagane.codegen.llvm.types import Type
from hagane.codegen.llvm.value import Operand, Value

if TYPE_CHECKING:
    from hagane.codegen.llvm.module import Module


class Function(Dot):
    """Made by Module.function. Operations are in the base classes: one file per family."""

    def __init__(
        self,
        module: Module,
        name: str,
        args: Sequence[tuple[str, Type, str]],
        result: Type,
        internal: bool,
        attributes: str,
    ) -> None:
        super().__init__(module)
        self.name = name
        self.result = result
        self._internal = internal
        self._attributes = attributes
        self._signature = ", ".join(
            f"{type.llvm} {extra + ' ' if extra else ''}%{n}" for n, type, extra in args
        )
        self._args = {arg: Value(self, "%" + arg, type) for arg, type, _ in args}

    def arg(self, name: str) -> Value:
        """An argument by its name."""
        return self._args[name]

    def ret(self, value: Operand | None = None) -> None:
        """Returns from the function; a function without result also returns at its end by itself."""
        if (value is None) != (self.result.kind == "void"):
            raise TypeError(f"{self.name} returns {self.result}")
        if value is None:
            self.raw("ret void")
        else:
            returned = self.literal(value, self.result)
            if returned.type != self.result:
                raise TypeError(f"{self.name} returns {self.result}, not {returned.type}")
            self.raw(f"ret {returned.typed}")
        self.place(self.new_name("dead"))

    def text(self) -> str:
        """The definition in LLVM's syntax."""
        linkage = "internal " if self._internal else ""
        end = "ret void" if self.result.kind == "void" else "unreachable"
        # dso_local: its address is a distance in the image, not a slot of a table
        head = f"define {linkage}dso_local {self.result.llvm} @{self.name}({self._signature})"
        head += f" {self._attributes}#0 {{"
        return "\n".join([head, "entry:", *self.slots, *self.lines, "  " + end, "}", ""])
