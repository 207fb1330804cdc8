"""Where the time of a session goes: region by region, with rates and the model's node names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from hagane.core.symbolic import Expr
from hagane.debug.roofline import measure_roofline
from hagane.plan.model import Port, Program, Shape, preorder
from hagane.runtime.profiler import profile
from hagane.runtime.session import Session


@dataclass(frozen=True)
class RegionTime:
    """A region's least time in microseconds, all its launches together; rates are 0 where work is unknown."""

    region: int
    us: float
    gflops: float
    gbytes: float
    roofline: float
    kind: str
    tactic: str
    where: str
    launches: int

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def profile_session(session: Session, feed: Mapping[str, Any], repeats: int = 20) -> list[RegionTime]:
    """Times of all regions that a run reaches, in order. Raises: RunError for inputs that don't fit."""
    outputs = session.run(feed)
    with session.exclusive() as (resources, program):
        regions, dims = resources.plan.regions, _dims(program, feed, outputs)
    us: dict[int, float] = {}
    count: dict[int, int] = {}
    for launch in profile(session, feed, repeats):
        us[launch.region] = us.get(launch.region, 0.0) + launch.us
        count[launch.region] = count.get(launch.region, 0) + 1
    peak = measure_roofline(session.threads)
    rows = []
    for number in sorted(us):
        info, time = regions[number], us[number]
        flops, num_bytes = _evaluate(info.flops, dims), _evaluate(info.bytes, dims)
        rows.append(
            RegionTime(
                number,
                time,
                flops / time / 1e3 if time else 0.0,
                num_bytes / time / 1e3 if time else 0.0,
                peak.share(flops, num_bytes, time),
                info.kind,
                info.tactic,
                ", ".join(info.nodes),
                count[number],
            )
        )
    return rows


def _dims(program: Program, feed: Mapping[str, Any], outputs: Mapping[str, Any]) -> dict[str, int]:
    """The symbols that shapes of inputs and outputs tell, and what steps derive from them."""
    dims: dict[str, int] = {}
    for ports, arrays in ((program.inputs, feed), (program.outputs, outputs)):
        for port in ports:
            dims |= _bound(port, np.shape(arrays[port.name]), dims)
    for _, step in preorder(program.steps):
        if isinstance(step, Shape):
            for name, expr in step.symbols:
                if all(s.name in dims for s in expr.symbols()):
                    dims.setdefault(name, expr.evaluate(dims))
    return dims


def _bound(port: Port, shape: tuple[int, ...], known: Mapping[str, int]) -> dict[str, int]:
    symbols = [(dim.as_sym, size) for dim, size in zip(port.shape, shape, strict=True)]
    return {s.name: size for s, size in symbols if s is not None and s.name not in known}


def _evaluate(work: Expr, dims: Mapping[str, int]) -> int:
    if any(symbol.name not in dims for symbol in work.symbols()):
        return 0
    return max(0, work.evaluate(dims))
