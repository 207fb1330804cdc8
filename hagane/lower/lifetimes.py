"""When each buffer is in use: the first and last step that touch it, in the plan's numbering."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from hagane.plan.model import (
    Bind,
    Buffer,
    Call,
    Collective,
    Copy,
    Fill,
    Host,
    If,
    Launch,
    Loop,
    Step,
    children,
    count_steps,
)  # fmt: skip


def place_lifetimes(steps: tuple[Step, ...], buffers: Mapping[str, Buffer]) -> tuple[Buffer, ...]:
    """The buffers that some step touches, or that are ports, with their lifetimes."""
    spans: dict[str, tuple[int, int]] = {}
    _visit(steps, 0, None, spans)
    placed = []
    for name, buffer in buffers.items():
        if name in spans:
            placed.append(replace(buffer, first_step=spans[name][0], last_step=spans[name][1]))
        elif buffer.kind in ("input", "output"):
            placed.append(buffer)
    return tuple(placed)


def _visit(
    steps: tuple[Step, ...], start: int, loop: tuple[int, int] | None, spans: dict[str, tuple[int, int]]
) -> None:
    """loop: first and last step of the outermost loop around; what it touches lives throughout."""
    number = start
    for step in steps:
        size = count_steps((step,))
        span = loop
        if span is None and isinstance(step, Loop):
            span = (number, number + size - 1)
        first, last = span or (number, number)
        for name in touched(step):
            known = spans.get(name, (first, last))
            spans[name] = (min(known[0], first), max(known[1], last))
        inner = number + 1
        for nested in children(step):
            _visit(nested, inner, span, spans)
            inner += count_steps(nested)
        number += size


def touched(step: Step) -> Iterator[str]:
    """Names of the buffers that a step itself reads or writes."""
    match step:
        case Launch(args=args):
            yield from args
        case Copy(src=src, dst=dst):
            yield from (src, dst)
        case Fill(dst=dst):
            yield dst
        case Bind(buffer=buffer):
            yield buffer
        case Host(inputs=inputs, outputs=outputs) | Call(inputs=inputs, outputs=outputs):
            yield from (port.name for port in (*inputs, *outputs))
        case Collective(inputs=inputs, outputs=outputs):
            yield from (*inputs, *outputs)
        case If(cond_buffer=cond):
            yield cond
        case Loop(cond_buffer=cond, index_buffer=index):
            yield from (name for name in (cond, index) if name is not None)
