"""How two engines differ, in graph and plan, whatever numbers their regions, values and buffers have."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

import hagane.ops  # noqa: F401  registers the ops
from hagane.core.errors import ModelError
from hagane.engine.image import EngineImage
from hagane.ir.diff import diff_graphs
from hagane.ir.parse import parse_graph
from hagane.plan.model import Alloc, Copy, Fill, Launch, Plan, Program, RegionInfo, preorder


def diff_engines(a: EngineImage, b: EngineImage) -> str:
    """Unified diffs from a to b of the portable graphs and of each target's plan; empty if they are equal."""
    found = [_titled("graph", _graphs(a, b)), _titled("metadata", _lines(_metadata(a), _metadata(b)))]
    for target in sorted({*a.plans, *b.plans}):
        lines = [_plan_lines(image.plans[target]) if target in image.plans else [] for image in (a, b)]
        found.append(_titled(f"plan for {target}", _lines(*lines)))
    return "\n".join(filter(None, found))


def _titled(title: str, diff: str) -> str:
    return f"{title}\n{diff}" if diff else ""


def _graphs(a: EngineImage, b: EngineImage) -> str:
    if a.graph_text == b.graph_text:
        return ""
    try:
        return diff_graphs(parse_graph(a.graph_text, a.weights), parse_graph(b.graph_text, b.weights))
    except ModelError:  # a constant whose content only the model has: names and numbers count then
        return _lines(a.graph_text.splitlines(), b.graph_text.splitlines())


def _metadata(image: EngineImage) -> list[str]:
    return [f"{key} = {text!r}" for key, text in sorted(image.metadata.items())]


def _lines(a: list[str], b: list[str]) -> str:
    return "\n".join(difflib.unified_diff(a, b, "a", "b", lineterm="", n=2))


def _plan_lines(plan: Plan) -> list[str]:
    """A plan without numbers: buffers are described instead of named."""
    lines = [f"workspace {plan.workspace_bytes_per_thread}"]
    lines += [
        f"symbol {s.name} in {s.lo}..{'' if s.hi is None else s.hi} by {s.multiple}" for s in plan.symbols
    ]
    for program in plan.programs.values():
        lines += _program_lines(plan, program)
    return lines


def _program_lines(plan: Plan, program: Program) -> Iterator[str]:
    described = {
        b.name: b.name if b.kind in ("input", "output", "state") else f"{b.kind} {b.dtype} [{b.size_bytes}]"
        for b in program.buffers
    }
    yield f"program {program.name}"
    for kind, ports in (("input", program.inputs), ("output", program.outputs), ("state", program.states)):
        for port in ports:
            yield f"  {kind} {port.name}: {port.dtype}[{', '.join(map(str, port.shape))}]"
    last = -1
    for _, step in preorder(program.steps):
        match step:
            case Launch():
                if step.region != last and step.region < len(plan.regions):
                    yield _region_line(plan.regions[step.region])
                last = step.region
                args = ", ".join(described[name] for name in step.args)
                yield f"    {step.kernel}({args}) [{', '.join(map(str, step.dims))}]"
            case Copy(src=src, dst=dst, size_bytes=size):
                yield f"  copy {described[src]} -> {described[dst]} [{size}]"
            case Fill(dst=dst, size_bytes=size, value=value):
                yield f"  fill {described[dst]} [{size}] with {value}"
            case Alloc(buffers=buffers):
                yield "  alloc " + ", ".join(described[name] for name in buffers)
            case _:
                yield f"  {type(step).__name__.lower()}"


def _region_line(info: RegionInfo) -> str:
    return f"  {info.kind} by {info.tactic}: {', '.join(info.nodes)}; {info.flops} flops, {info.bytes} bytes"
