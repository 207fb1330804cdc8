"""Index expressions as Triton text, given what their symbols stand for."""

from __future__ import annotations

from hagane.codegen.triton import Source
from hagane.core.errors import InternalError
from hagane.core.symbolic import Call, Expr, Sym


class Indices:
    """The values of symbols in one block of a kernel, and expressions over them; inner blocks see outer ones.

    index_type: i32 or i64, the type that indices are computed in.
    """

    def __init__(self, source: Source, index_type: str, parent: Indices | None = None) -> None:
        self.source, self.index_type = source, index_type
        self._parent = parent
        self._symbols: dict[str, tuple[str, bool]] = {}
        self._memo: dict[Expr, str] = {}

    @property
    def triton_type(self) -> str:
        return "tl.int32" if self.index_type == "i32" else "tl.int64"

    def child(self) -> Indices:
        """The values of a nested block."""
        return Indices(self.source, self.index_type, self)

    def bind(self, name: str, value: str, lanes: bool) -> None:
        """Gives a symbol its value here. lanes: it differs from lane to lane."""
        self._symbols[name] = value, lanes

    def has(self, name: str) -> bool:
        """True if the symbol has a value here or further out."""
        return name in self._symbols or (self._parent is not None and self._parent.has(name))

    def varies(self, expr: Expr) -> bool:
        """True if the expression differs from lane to lane."""
        return any(self._lookup(s.name)[1] for s in expr.symbols())

    def text(self, expr: Expr) -> str:
        """The expression's value: a number, or a name."""
        if expr.is_const:
            return str(expr.value)
        names = {s.name for s in expr.symbols()}
        scope: Indices | None = self
        while scope is not None:
            if expr in scope._memo:
                return scope._memo[expr]
            if not names.isdisjoint(scope._symbols):
                break
            scope = scope._parent
        text = self._sum(expr)
        value = text if text.isidentifier() else self.source.let(text, "i")
        self._memo[expr] = value
        return value

    def _lookup(self, name: str) -> tuple[str, bool]:
        scope: Indices | None = self
        while scope is not None:
            if name in scope._symbols:
                return scope._symbols[name]
            scope = scope._parent
        raise InternalError(f"symbol {name} has no value in kernel {self.source.name}")

    def _sum(self, expr: Expr) -> str:
        parts: list[str] = []
        for monomial, factor in expr.terms:
            product = " * ".join(self._atom(atom) for atom in monomial)
            if not product:
                term = str(abs(factor))
            else:
                term = product if abs(factor) == 1 else f"{product} * {abs(factor)}"
            sign = "-" if factor < 0 else "+"
            parts.append(f"{sign} {term}" if parts else ("-" + term if factor < 0 else term))
        return " ".join(parts)

    def _atom(self, atom: Sym | Call) -> str:
        if isinstance(atom, Sym):
            return self._lookup(atom.name)[0]
        args = [self.text(a) for a in atom.args]
        if atom.op in ("min", "max"):
            function = "tl.minimum" if atom.op == "min" else "tl.maximum"
            result = args[0]
            for arg in args[1:]:
                result = f"{function}({result}, {arg})"
            return result
        a, b = args
        if all((x.bounds()[0] or -1) >= 0 or x.bounds()[0] == 0 for x in atom.args):
            return f"({a} // {b})" if atom.op == "floordiv" else f"({a} % {b})"
        # Triton divides as C does: the remainder has the dividend's sign
        remainder = self.source.let(f"{a} % {b}", "rem")
        below = self.source.let(f"(({remainder} < 0) & ({b} > 0)) | (({remainder} > 0) & ({b} < 0))", "below")
        if atom.op == "mod":
            return f"tl.where({below}, {remainder} + {b}, {remainder})"
        return f"(({a} - {remainder}) // {b} - tl.where({below}, 1, 0))"
