"""A dim that a user asks for: its name, the range that it may take, and the value to tune for."""

from __future__ import annotations

from dataclasses import dataclass

from hagane.core.errors import ShapeError
from hagane.core.symbolic import Expr, sym


@dataclass(frozen=True)
class Dim:
    """A named dynamic dim, for `shapes=`: Dim("batch", min=1, max=64, opt=8).

    opt is the value that kernels are tuned for (default: chosen by the builder); the dim is always divisible
    by `multiple`. With min=0 inputs of zero size are accepted; otherwise they are refused at run time.
    Raises: ShapeError if the figures contradict each other or the name is no identifier.
    """

    name: str
    min: int = 1
    max: int | None = None
    opt: int | None = None
    multiple: int = 1

    def __post_init__(self) -> None:
        figures = (self.min, self.max, self.opt, self.multiple)
        if any(f is not None and (not isinstance(f, int) or isinstance(f, bool)) for f in figures):
            raise ShapeError(
                f"dim {self.name} has figures that are no integers: min={self.min!r}, max={self.max!r}, "
                f"opt={self.opt!r}, multiple={self.multiple!r}",
                next_step="use integers",
            )
        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise ShapeError(
                f"dim name {self.name!r} is no identifier", next_step="use letters, digits and _"
            )
        if self.min < 0 or self.multiple < 1 or (self.max is not None and self.max < self.min):
            raise ShapeError(
                f"dim {self.name} can't be in {self.min}..{self.max} and a multiple of {self.multiple}",
                next_step="use 0 <= min <= max and multiple >= 1",
            )
        if self.opt is not None and not self.contains(self.opt):
            raise ShapeError(
                f"opt={self.opt} of dim {self.name} is outside its range {self.min}..{self.max or 'any'}"
                + (f", multiple of {self.multiple}" if self.multiple > 1 else ""),
                next_step="choose opt within min and max",
            )

    def contains(self, size: int) -> bool:
        """True if the dim may have this size."""
        return self.min <= size and (self.max is None or size <= self.max) and size % self.multiple == 0

    @property
    def expr(self) -> Expr:
        """The symbol with its facts; a constant if the range holds one value."""
        return sym(self.name, self.min, self.max, self.multiple)
