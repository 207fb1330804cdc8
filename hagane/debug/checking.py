"""What a build would make of a model: what is supported, by which kernels, what is slow. Compiles nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import hagane.ops  # noqa: F401  registers the ops
from hagane.core.errors import BuildError, HaganeError
from hagane.core.targets import CpuTarget, parse_target
from hagane.debug.feeds import default_dims, within
from hagane.debug.survey import survey_onnx
from hagane.frontends.onnx import load_onnx
from hagane.ir.graph import Graph, Node, Value
from hagane.ir.layout import Layouts
from hagane.ir.region import Region
from hagane.kernels.catalog import FALLBACK, CpuModel, fitting
from hagane.kernels.tactic import KernelLaunch, Params, Tactic
from hagane.lower.kernels import KernelLibrary
from hagane.lower.program import Choose, ProgramWriter
from hagane.passes.base import run_passes
from hagane.passes.pipelines import build_pipeline
from hagane.plan.model import RegionInfo, Step, Symbol

# The fallback is as good as any kernel for work that is bound by memory; contractions want tiling and packing
GOOD_IN_FALLBACK = ("pointwise", "movement", "reduction")
TILED_KINDS = ("contraction", "attention", "scan")
SLOW_TILED_SHARE = 0.01
SLOW_SHARE = 0.1


@dataclass(frozen=True)
class CheckedRegion:
    """A region with its tactic. share: of the model's arithmetic, at the dims of the report."""

    kind: str
    tactic: str
    where: str
    flops: int
    share: float


@dataclass
class ModelCheck:
    """What `check_model` found; dims are those that the shares are computed for."""

    ports: list[tuple[str, str]] = field(default_factory=list)
    dims: dict[str, int] = field(default_factory=dict)
    regions: list[CheckedRegion] = field(default_factory=list)
    host_steps: list[str] = field(default_factory=list)
    problems: list[HaganeError] = field(default_factory=list)

    @property
    def slow(self) -> list[CheckedRegion]:
        """Regions that the fallback computes although they need more, the biggest first."""
        weak = [r for r in self.regions if r.tactic.startswith(FALLBACK) and r.kind not in GOOD_IN_FALLBACK]
        found = [r for r in weak if r.share >= _limit(r)]
        return sorted(found, key=lambda r: -r.share)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "ports": dict(self.ports),
            "dims": self.dims,
            "regions": [asdict(r) for r in self.regions],
            "slow": [asdict(r) for r in self.slow],
            "host_steps": self.host_steps,
            "problems": [
                {"error": type(p).__name__, "what": p.what, "where": p.where, "next": p.next_step}
                for p in self.problems
            ],
        }


def _limit(region: CheckedRegion) -> float:
    return SLOW_TILED_SHARE if region.kind in TILED_KINDS else SLOW_SHARE


def check_model(
    model: Path, target: str = "native", shapes: Mapping[str, Any] | None = None, batch: int = 1
) -> ModelCheck:
    """Imports a model, runs the passes and chooses a tactic for each region; compiles nothing.

    Raises: ModelError if the file can't be read as a model, BuildError for an unknown target.
    """
    cpu = parse_target(target)
    check = ModelCheck()
    try:
        graph = load_onnx(str(model), shapes=shapes)
    except HaganeError as error:
        check.problems = survey_onnx(str(model), shapes) or [error]
        return check
    check.ports = [(v.name, str(v.type)) for v in (*graph.inputs, *graph.outputs)]
    check.dims = _dims(graph, batch)
    tolerant = _TolerantModel(cpu)
    writer = _Surveyor(_NoLibrary(cpu), _first_choice(cpu))
    try:
        run_passes(graph, build_pipeline(tolerant))
        writer.write(graph, "main")
    except HaganeError as error:
        writer.problems.append(error)
    found = [*tolerant.problems, *writer.problems]
    check.problems = list({str(problem): problem for problem in found}.values())
    check.host_steps = writer.host_steps
    check.regions = _regions(writer.regions, check.dims)
    return check


def _dims(graph: Graph, batch: int) -> dict[str, int]:
    """Sizes to compute work for: of inputs' dims, then of all that is known only at run time."""
    ports = [_Port(v) for v in graph.inputs]
    symbols = {n: _symbol(n, e.bounds()[0], e.bounds()[1]) for n, e in graph.symbols.items()}
    dims = default_dims(ports, symbols, None, batch)
    return dims | {n: within(s, 1) for n, s in symbols.items() if n not in dims}


def _symbol(name: str, lo: int | None, hi: int | None) -> Symbol:
    return Symbol(name, max(lo or 0, 0), hi)


class _Port:
    def __init__(self, value: Value) -> None:
        self.name, self.dtype = value.name, value.dtype
        self.shape = tuple(d.value if d.is_const else str(d) for d in value.shape)


class _TolerantModel(CpuModel):
    """Gives a region that no kernel computes plain layouts, and remembers it."""

    def __init__(self, target: CpuTarget) -> None:
        super().__init__(target)
        self.problems: list[HaganeError] = []

    def layouts(self, region: Region) -> Layouts:
        try:
            return super().layouts(region)
        except BuildError as error:
            self.problems.append(error)
            return Layouts((None,) * len(region.node.inputs), (None,) * len(region.outputs))


def _first_choice(target: CpuTarget) -> Choose:
    """What a build without tuning takes."""

    def choose(region: Region) -> tuple[Tactic, Params]:
        tactic = fitting(region, target)[0]
        return tactic, tactic.space(region, target)[0]

    return choose


class _NoLibrary(KernelLibrary):
    """Takes kernels without writing them."""

    def add(self, launch: KernelLaunch, kind: str, key: str) -> str:
        return f"{kind}_{launch.slug}"


class _Surveyor(ProgramWriter):
    """A writer that goes on after a node that no kernel computes."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.problems: list[HaganeError] = []
        self.host_steps: list[str] = []

    def _node(self, node: Node) -> list[Step]:
        try:
            steps = super()._node(node)
        except HaganeError as error:
            self.problems.append(error)
            for value in node.outputs:
                self._name(value)
            return []
        if any(type(step).__name__ == "Host" for step in steps):
            self.host_steps.append(f"{node.op}: {node.loc}")
        return steps


def _regions(infos: list[RegionInfo], dims: dict[str, int]) -> list[CheckedRegion]:
    flops = [max(0, _evaluate(info, dims)) for info in infos]  # below 0 where the model forbids such dims
    total = max(1, sum(flops))
    return [
        CheckedRegion(info.kind, info.tactic, ", ".join(info.nodes), work, work / total)
        for info, work in zip(infos, flops, strict=True)
    ]


def _evaluate(info: RegionInfo, dims: dict[str, int]) -> int:
    unknown = {s.name: max(1, s.lo) for s in info.flops.symbols() if s.name not in dims}
    return info.flops.evaluate(dims | unknown)
