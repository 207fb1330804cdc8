"""Reads the pieces of a graph's text that stand for data: types, dims, attributes, constants, recipes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from hagane.core.dtypes import DType, from_numpy
from hagane.core.errors import HaganeError
from hagane.core.symbolic import Expr, const, sym
from hagane.ir.dim_text import read_dim
from hagane.ir.graph import Array, Shape, Type, Value, constant
from hagane.ir.layout import Layout, parse_layout
from hagane.ir.scanner import Scanner
from hagane.ir.text import INLINE_ELEMENTS
from hagane.plan.model import Recipe, RecipeNode

MAX_NESTED_TUPLES = 16

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INT = re.compile(r"-?[0-9]+")
_HASH = re.compile(r"[0-9a-f]{32}")
_LAYOUT = re.compile(r"\{[0-9a-z:_]+\}")
_NUMBER = re.compile(r"-?([0-9][0-9.]*(e[-+]?[0-9]+)?|inf)|nan")
_BITS = re.compile(r"0x[0-9a-f]+")
_DTYPES = {d.value: d for d in DType}


class Literals:
    """Knows the facts about symbols, once they are read, and the arrays of the constants."""

    def __init__(self, weights: Mapping[str, Array]) -> None:
        self.raw_dims = False  # before the facts are known dims are only skipped
        self._weights = weights
        self._symbols: dict[str, Expr] = {}
        self._known: dict[str, Shape] = {}

    # ---- types

    def type(self, line: Scanner) -> Type:
        """`f16[B, 128]` or `state<...>` of it."""
        state = line.accept("state<")
        name = line.take(_WORD, "an element type")
        if name not in _DTYPES:
            line.fail(f"{name!r} is no element type")
        line.expect("[")
        shape = self._dims(line, "]")
        if state:
            line.expect(">")
        return Type(_DTYPES[name], shape, state)

    def layout(self, line: Scanner, rank: int) -> Layout | None:
        """A layout in braces, if one is next."""
        found = line.match(_LAYOUT)
        if found is None:
            return None
        try:
            layout = parse_layout(found[1:-1], rank)
        except (ValueError, IndexError):
            line.fail(f"{found} is no layout of {rank} axes")
        if str(layout) != found[1:-1]:
            line.fail(f"the layout {found} should be written {{{layout}}}")
        return layout

    def dims(self, line: Scanner) -> Shape:
        """Dims in parentheses."""
        line.expect("(")
        return self._dims(line, ")")

    def facts(self, line: Scanner) -> dict[str, Expr]:
        """`B in 1..64 by 8, I in 0.. below B, N = 2*B, ...`; symbols are known by them from here on."""
        found: dict[str, Expr] = {}
        while not found or line.accept(","):
            name = line.take(_WORD, "a symbol")
            if name in found:
                line.fail(f"symbol {name} is described twice")
            found[name] = self._fact(line, name)
            self._symbols[name] = found[name]
        return found

    def _fact(self, line: Scanner, name: str) -> Expr:
        if line.accept("="):
            return self.expression(line, line.until("{,").strip())
        line.expect("in")
        lo = self._int(line)
        line.expect("..")
        hi = self._int(line) if line.match(_AHEAD_INT) is not None else None
        multiple = self._int(line) if line.accept("by") else 1
        bound = None
        if line.accept("below"):
            bound = self.expression(line, line.until("{,").strip())
        if multiple < 1 or (hi is not None and hi < lo):
            line.fail(f"no number is in {lo}..{hi} and a multiple of {multiple}")
        return sym(name, lo, hi, multiple, bound)

    def _int(self, line: Scanner) -> int:
        text = line.take(_INT, "an integer")
        return int(text) if len(text) < 40 else line.fail("the integer is too long")

    def _dims(self, line: Scanner, closer: str) -> Shape:
        text = line.until(closer)
        line.expect(closer)
        if self.raw_dims:
            return (const(1),) * len(_split(text))
        if text not in self._known:
            self._known[text] = tuple(self.expression(line, part) for part in _split(text))
        return self._known[text]

    def expression(self, line: Scanner, text: str) -> Expr:
        """One dim. Raises: ModelError for an undeclared symbol and whatever is no expression."""
        if text.isdecimal() and len(text) < 40:
            return const(int(text))
        try:
            found = read_dim(text, self._symbols)
        except HaganeError as error:
            line.fail(error.what)
        for symbol in found.symbols():
            if symbol.name not in self._symbols:
                line.fail(f"nothing is said about symbol {symbol.name} after 'where'")
        return found

    # ---- attributes

    def attributes(self, line: Scanner) -> dict[str, Any]:
        """`{a=1, b="x"}`."""
        line.expect("{")
        found: dict[str, Any] = {}
        while not found or line.accept(","):
            key = line.name("an attribute's name")
            if key in found:
                line.fail(f"attribute {key} is given twice")
            line.expect("=")
            found[key] = self._attribute(line, 0)
        line.expect("}")
        return found

    def _attribute(self, line: Scanner, depth: int) -> Any:
        if depth > MAX_NESTED_TUPLES:
            line.fail("the attribute is nested too deep")
        if line.sees('"'):
            return line.string()
        if line.sees("("):
            return self.dims(line)
        if line.accept("`"):
            text = line.until("`")
            line.expect("`")
            return self.expression(line, text)
        if line.accept("["):
            items: list[Any] = []
            while not line.accept("]"):
                if items:
                    line.expect(",")
                items.append(self._attribute(line, depth + 1))
            return tuple(items)
        number = line.match(_NUMBER)
        if number is not None:
            return self._number(line, number)
        word = line.take(_WORD, "an attribute")
        if word in _DTYPES:
            return _DTYPES[word]
        if word not in _WORDS:
            line.fail(f"{word!r} is no attribute")
        return _WORDS[word]

    def _number(self, line: Scanner, text: str) -> int | float:
        try:
            if not _INT.fullmatch(text):
                return float(text)
            return int(text) if len(text) < 40 else line.fail("the integer is too long")
        except ValueError:
            line.fail(f"{text!r} is no number")

    # ---- constants

    def constant(self, line: Scanner, name: str) -> Value:
        """The rest of a constant's line: its type, its content and, for a derived one, its recipe."""
        type_ = self.type(line)
        layout = self.layout(line, len(type_.shape))
        data = self.content(line, name, type_)
        recipe = self._recipe(line) if line.accept("from") else None
        value = constant(name, data, type_.dtype, recipe)
        value.layout = layout
        return value

    def content(self, line: Scanner, name: str, type_: Type) -> Array:
        """`= elements` or `= hash`, with the array that goes by the hash or the name."""
        line.expect("=")
        if type_.state or not all(d.is_const and d.value >= 0 for d in type_.shape):
            line.fail(f"a constant can't be {type_}")
        shape = tuple(d.value for d in type_.shape)
        if prod(shape) <= INLINE_ELEMENTS:
            return self._inline(line, type_.dtype, shape)
        digest = line.take(_HASH, "a content hash")
        array = self._weights.get(digest)
        if array is not None:  # equal bytes have one hash, whatever their type and shape
            array = _reinterpreted(array, type_.dtype, shape)
        else:
            array = self._weights.get(name)
            if array is None:
                line.fail(f"there is no data for {name!r} (hash {digest})")
        if array is None or array.shape != shape or from_numpy(array.dtype) is not type_.dtype:
            shown = "" if array is None else f": it is {array.dtype}{list(array.shape)}"
            line.fail(f"{name!r} is {type_}, its data isn't{shown}")
        return array

    def _inline(self, line: Scanner, dtype: DType, shape: tuple[int, ...]) -> Array:
        elements: list[Any] = []
        if not shape:
            elements.append(self._element(line, dtype))
        else:
            line.expect("[")
            while not line.accept("]"):
                if elements:
                    line.expect(",")
                elements.append(self._element(line, dtype))
        if len(elements) != prod(shape):
            line.fail(f"{len(elements)} elements don't fill {list(shape)}")
        array = np.empty(len(elements), dtype.np)
        for position, element in enumerate(elements):
            array[position] = element
        return array.reshape(shape)

    def _element(self, line: Scanner, dtype: DType) -> Any:
        if dtype is DType.STRING:
            return line.string()
        if dtype is DType.BOOL:
            word = line.take(_WORD, "true or false")
            return word == "true" if word in ("true", "false") else line.fail(f"{word!r} is no bool")
        if dtype.is_int:
            number = self._int(line)
            bits = dtype.bits - dtype.is_signed
            if not (-(1 << bits) if dtype.is_signed else 0) <= number < 1 << bits:
                line.fail(f"{number} is no {dtype}")
            return dtype.np.type(number)
        raw = line.match(_BITS)
        if raw is not None:
            return self._from_bits(line, dtype, raw[2:])
        value = self._number(line, line.take(_NUMBER, "a number"))
        with np.errstate(all="ignore"):
            return np.asarray(float(value)).astype(dtype.np)

    def _from_bits(self, line: Scanner, dtype: DType, digits: str) -> Any:
        if len(digits) != 2 * dtype.np.itemsize:
            line.fail(f"{dtype} has {2 * dtype.np.itemsize} hex digits")
        return np.frombuffer(bytes.fromhex(digits)[::-1], dtype.np)[0]

    def _recipe(self, line: Scanner) -> Recipe:
        line.expect("{")
        nodes: list[RecipeNode] = []
        while not nodes or line.accept(";"):
            op = line.name("a recipe's operation")
            line.expect("(")
            inputs: list[int | str] = []
            while not line.accept(")"):
                if inputs:
                    line.expect(",")
                inputs.append(self._int(line) if line.accept("#") else line.string())
                if isinstance(inputs[-1], int) and not 0 <= inputs[-1] < len(nodes):
                    line.fail(f"a recipe has no earlier step #{inputs[-1]}")
            nodes.append(RecipeNode(op, tuple(inputs), self.attributes(line) if line.sees("{") else {}))
        line.expect("}")
        return Recipe(tuple(nodes))


_WORDS = {"true": True, "false": False, "none": None}
_AHEAD_INT = re.compile(r"(?=-?[0-9])")


def _split(text: str) -> list[str]:
    """The parts between commas that aren't inside parentheses."""
    parts: list[str] = []
    depth = start = 0
    for position, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            parts.append(text[start:position].strip())
            start = position + 1
    last = text[start:].strip()
    return [*parts, last] if parts or last else []


def _reinterpreted(array: Array, dtype: DType, shape: tuple[int, ...]) -> Array | None:
    """The same bytes as another type and shape; None if they don't fit."""
    if array.shape == shape and array.dtype == dtype.np:
        return array
    if (array.dtype == object) != (dtype is DType.STRING):
        return None
    flat = np.ascontiguousarray(array).reshape(-1)
    flat = flat if array.dtype == dtype.np else flat.view(np.uint8).view(dtype.np)
    return flat.reshape(shape) if flat.size == prod(shape) else None
