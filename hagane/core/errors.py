"""The one tree of errors that users see.

Every message says what failed, where in the user's own model, what was tried, and what to do next. `str()` of
an error is the whole message; the parts stay available as attributes.
"""

from __future__ import annotations


class HaganeError(Exception):
    """Base of all errors raised on purpose.

    what: one line that names the fault, with the figures that make it one.
    where: labelled places in the user's model, such as {"node": "/conv1/Conv (Conv) in net.onnx"}.
    tried: what was attempted before giving up.
    next_step: the command or change that helps.
    """

    def __init__(
        self,
        what: str,
        *,
        where: dict[str, str] | None = None,
        tried: str | None = None,
        next_step: str | None = None,
    ) -> None:
        self.what = what
        self.where = dict(where or {})
        self.tried = tried
        self.next_step = next_step
        super().__init__(what)

    def __str__(self) -> str:
        lines = [self.what]
        rows = dict(self.where)
        if self.tried:
            rows["tried"] = self.tried
        if self.next_step:
            rows["next"] = self.next_step
        width = max((len(label) for label in rows), default=0) + 1
        lines += [f"  {label + ':':<{width}} {text}" for label, text in rows.items()]
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.what, self.where, self.tried, self.next_step)


def _rebuild(
    kind: type[HaganeError], what: str, where: dict[str, str], tried: str | None, next_step: str | None
) -> HaganeError:
    return kind(what, where=where, tried=tried, next_step=next_step)


class ModelError(HaganeError):
    """The model can't be used as it is: unsupported op, broken file, impossible attribute."""


class ShapeError(ModelError):
    """Shapes in the model, or asked for with `shapes=`, contradict each other."""


class BuildError(HaganeError):
    """Building failed: out of memory, verification failed, impossible option, cancelled."""


class EngineError(HaganeError):
    """An engine file can't be used: wrong version, other target, corrupt."""


class RunError(HaganeError):
    """A call of a session failed: bad input, shape out of range, device fault."""


class InternalError(HaganeError):
    """Our own fault: an invariant of the compiler or runtime doesn't hold."""
