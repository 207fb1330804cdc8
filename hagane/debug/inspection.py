"""What is inside an engine: regions and why, memory with lifetimes, plan, graph, kernel sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hagane.core.errors import EngineError
from hagane.core.symbolic import Expr
from hagane.debug.memory_report import MemoryReport, memory_report
from hagane.engine.read import EngineFile, read_engine
from hagane.plan.model import Launch, Plan, RegionInfo, preorder
from hagane.plan.text import print_plan


@dataclass(frozen=True)
class Inspection:
    """An engine file, opened. Its methods give text for people, `as_dict` data for programs."""

    path: Path
    image: EngineFile

    @classmethod
    def of(cls, path: Path) -> Inspection:
        """Opens an engine file. Raises: EngineError."""
        return cls(path, read_engine(path))

    def summary(self, region: int | None = None) -> str:
        """Ports, sizes, and the regions; or all about one region. Raises: EngineError for a wrong number."""
        if region is not None:
            return "\n".join(self._one_region(target, region) for target in self.image.plans)
        return "\n".join([*self._head(), *(self._regions(plan) for plan in self.image.plans.values())])

    def _head(self) -> list[str]:
        image = self.image
        weights = sum(w.nbytes for w in image.weights.values())
        packed = sum(p.nbytes for p in image.packed.values())
        lines = [
            f"{self.path.name}: {_bytes(self.path.stat().st_size)}, weights {_bytes(weights)}, "
            f"packed {_bytes(packed)} ({image.pack}), {len(image.sources)} kernels"
        ]
        for target, plan in image.plans.items():
            code = len(image.code[target].code)
            lines.append(f"target {target}: {len(plan.regions)} regions, machine code {_bytes(code)}")
            for program in plan.programs.values():
                for kind, ports in (("input", program.inputs), ("output", program.outputs)):
                    lines += [
                        f"  {program.name}: {kind} {p.name} {p.dtype}[{', '.join(map(str, p.shape))}]"
                        for p in ports
                    ]
        return lines

    def _regions(self, plan: Plan) -> str:
        rows = [
            f"{number:>4}  {info.kind:<12} {info.tactic:<44} {_work(info.flops)}  {_nodes(info)}"
            for number, info in enumerate(plan.regions)
        ]
        return "\n".join([f"{'#':>4}  {'kind':<12} {'tactic':<44} {'flops':>16}  nodes", *rows])

    def _one_region(self, target: str, number: int) -> str:
        info = self._region_info(target, number)
        launches = _launches(self.image.plans[target], number)
        lines = [f"region {number} of {target}: {info.kind}, computes {info.name}"]
        lines += [f"  tactic: {info.tactic}", f"  flops:  {info.flops}", f"  bytes:  {info.bytes}"]
        lines += [f"  node:   {node}" for node in info.nodes]
        lines += [f"  note:   {note}" for note in info.notes]
        for step in launches:
            lines.append(f"  kernel: {step.kernel} dims [{', '.join(map(str, step.dims))}]")
            lines += [f"          reads or writes {name}" for name in step.args]
        return "\n".join(lines)

    def _region_info(self, target: str, number: int) -> RegionInfo:
        regions = self.image.plans[target].regions
        if not 0 <= number < len(regions):
            raise EngineError(
                f"there is no region {number}",
                where={"engine": str(self.path)},
                next_step=f"use a number from 0 to {len(regions) - 1}",
            )
        return regions[number]

    def memory(self, dims: Mapping[str, int] | None = None, batch: int = 1) -> str:
        """Buffers with lifetimes and places in the arena, at given dims."""
        return "\n".join(str(report) for report in self.memory_reports(dims, batch))

    def memory_reports(self, dims: Mapping[str, int] | None = None, batch: int = 1) -> list[MemoryReport]:
        """For each program of each target. Raises: EngineError for unknown dims."""
        return [
            memory_report(plan, program, dims or {}, batch)
            for plan in self.image.plans.values()
            for program in plan.programs.values()
        ]

    def plan_text(self) -> str:
        """The plans, as they parse back."""
        return "\n".join(print_plan(plan) for plan in self.image.plans.values())

    def graph_text(self) -> str:
        """The portable graph."""
        return self.image.graph_text

    def kernel_sources(self, region: int | None = None) -> str:
        """Sources of all kernels, or of one region's. Raises: EngineError for a wrong number."""
        names = list(self.image.sources)
        if region is not None:
            for target in self.image.plans:
                self._region_info(target, region)
            plans = self.image.plans.values()
            names = list(dict.fromkeys(n for plan in plans for n in _kernels(plan, region)))
        return "\n".join(f"; kernel {name}\n{self.image.sources[name]}" for name in names)

    def verify_weights(self) -> None:
        """Checks every byte against the hashes in the file. Raises: EngineError."""
        self.image.verify_weights()

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        image = self.image
        return {
            "engine": str(self.path),
            "bytes": self.path.stat().st_size,
            "weights_bytes": sum(w.nbytes for w in image.weights.values()),
            "packed_bytes": sum(p.nbytes for p in image.packed.values()),
            "pack": image.pack,
            "metadata": dict(image.metadata),
            "kernels": sorted(image.sources),
            "targets": {target: self._target_dict(target, plan) for target, plan in image.plans.items()},
        }

    def _target_dict(self, target: str, plan: Plan) -> dict[str, Any]:
        return {
            "code_bytes": len(self.image.code[target].code),
            "regions": [
                {
                    "name": info.name,
                    "kind": info.kind,
                    "tactic": info.tactic,
                    "nodes": list(info.nodes),
                    "flops": str(info.flops),
                    "bytes": str(info.bytes),
                    "notes": list(info.notes),
                    "kernels": _kernels(plan, number),
                }
                for number, info in enumerate(plan.regions)
            ],
            "programs": {
                name: {
                    "inputs": {p.name: f"{p.dtype}[{', '.join(map(str, p.shape))}]" for p in program.inputs},
                    "outputs": {
                        p.name: f"{p.dtype}[{', '.join(map(str, p.shape))}]" for p in program.outputs
                    },
                    "steps": sum(1 for _ in preorder(program.steps)),
                }
                for name, program in plan.programs.items()
            },
        }


def _launches(plan: Plan, region: int) -> list[Launch]:
    steps = (step for program in plan.programs.values() for _, step in preorder(program.steps))
    return [step for step in steps if isinstance(step, Launch) and step.region == region]


def _kernels(plan: Plan, region: int) -> list[str]:
    """The names of a region's kernels, variants included."""
    return list(
        dict.fromkeys(
            name
            for launch in _launches(plan, region)
            for name in (*(v.kernel for v in launch.variants), launch.kernel)
        )
    )


def _nodes(info: RegionInfo) -> str:
    return ", ".join(info.nodes[:3]) + (f" +{len(info.nodes) - 3}" if len(info.nodes) > 3 else "")


def _work(flops: Expr) -> str:
    text = str(flops)
    return f"{text if len(text) <= 16 else 'dynamic':>16}"


def _bytes(count: int) -> str:
    return f"{count / 1e6:.2f} MB" if count >= 10_000 else f"{count} bytes"
