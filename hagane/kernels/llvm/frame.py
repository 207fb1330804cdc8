"""The shell of a kernel: its function with the fixed signature, its pointers, and dims as values."""

from __future__ import annotations

from collections.abc import Sequence

from hagane.codegen.llvm import Function, Module, Value
from hagane.core.errors import InternalError
from hagane.core.symbolic import Call, Expr, Sym, sym
from hagane.ir.graph import Value as Tensor


def dim_symbols(tensors: Sequence[Tensor]) -> tuple[Expr, ...]:
    """The symbols of the tensors' shapes, sorted by name: what a kernel over them takes as dims."""
    found = {s.name: s for t in tensors for d in t.shape for s in d.symbols()}
    return tuple(sym(s.name, s.lo, s.hi, s.multiple, s.bound) for _, s in sorted(found.items()))


class Scope:
    """Values of symbols, and index expressions evaluated with them. Child scopes see their parent's.

    A scope's memo lives as long as its block: values made in a block don't leave it.
    """

    def __init__(self, f: Function, parent: Scope | None = None) -> None:
        self.f = f
        self._parent = parent
        self._symbols: dict[str, Value] = {}
        self._memo: dict[Expr, Value] = {}

    def child(self) -> Scope:
        return Scope(self.f, self)

    def bind(self, name: str, value: Value) -> None:
        """Gives a symbol its value in this scope; the name must be new to it."""
        self._symbols[name] = value

    def lookup(self, name: str) -> Value:
        """The value of a symbol. Raises: InternalError if it has none."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope._symbols:
                return scope._symbols[name]
            scope = scope._parent
        raise InternalError(f"symbol {name} has no value in kernel {self.f.name}")

    def has(self, name: str) -> bool:
        """True if the symbol has a value here."""
        return name in self._symbols or (self._parent is not None and self._parent.has(name))

    def expr(self, expr: Expr) -> Value:
        """An expression as an i64 value: a scalar, or a vector if one of its symbols is a vector."""
        if expr.is_const:
            return self.f.const("i64", expr.value)
        names = {s.name for s in expr.symbols()}
        scope: Scope | None = self
        while scope is not None:
            if expr in scope._memo:
                return scope._memo[expr]
            # bound here: what outer scopes remember is about other values
            if not names.isdisjoint(scope._symbols):
                break
            scope = scope._parent
        value = self._emit(expr)
        self._memo[expr] = value
        return value

    def _emit(self, expr: Expr) -> Value:
        total: Value | None = None
        for monomial, coefficient in expr.terms:
            product: Value | None = None
            for atom in monomial:
                factor = self._atom(atom)
                product = factor if product is None else product * factor
            term = self.f.const("i64", coefficient) if product is None else product * coefficient
            total = term if total is None else total + term
        assert total is not None
        return total

    def _atom(self, atom: Sym | Call) -> Value:
        if isinstance(atom, Sym):
            return self.lookup(atom.name)
        args = [self.expr(a) for a in atom.args]
        if atom.op in ("min", "max"):
            choose = self.f.imin if atom.op == "min" else self.f.imax
            result = args[0]
            for arg in args[1:]:
                result = choose(result, arg)
            return result
        nonneg = (atom.args[0].bounds()[0] or -1) >= 0 or atom.args[0].bounds()[0] == 0
        if nonneg and (atom.args[1].bounds()[0] or 0) >= 0:  # the plain division is half the work
            return args[0] // args[1] if atom.op == "floordiv" else args[0] % args[1]
        return self.f.floor_div(*args) if atom.op == "floordiv" else self.f.floor_mod(*args)


class Frame:
    """An open kernel function. `dims` are the expressions (bare symbols) whose values the launch passes."""

    def __init__(self, module: Module, name: str, num_args: int, dims: Sequence[Expr]) -> None:
        self.f = module.function(
            name, [("args", "ptr"), ("dims", "ptr"), ("scratch", "ptr"), ("tid", "i64"), ("nthreads", "i64")]
        )
        self.module = module
        self.scope = Scope(self.f)
        args, dims_ptr = self.f.arg("args"), self.f.arg("dims")
        self.pointers = [self.f.load("ptr", args, 8 * k) for k in range(num_args)]
        for k, dim in enumerate(dims):
            symbol = dim.as_sym
            if symbol is None:
                raise InternalError(f"kernel dims are bare symbols, not {dim}")
            self.scope.bind(symbol.name, self.f.load("i64", dims_ptr, 8 * k))
        self.tid, self.nthreads = self.f.arg("tid"), self.f.arg("nthreads")
        self.scratch = self.f.arg("scratch")

    def share(self, total: Value) -> tuple[Value, Value]:
        """This thread's part [lo, hi) of `total` units."""
        return self.tid * total // self.nthreads, (self.tid + 1) * total // self.nthreads
