"""Verified builds: every region's kernels against the interpreter, at several shapes and on hard inputs.

A region that is off is demoted to the next tactic, the generic kernel last, and reported by the model's node
names; one that is off even then fails the build. The tolerance follows the conditioning of the region on the
inputs at hand: what a relative change of its inputs by 2^-20 does to the result, plus 2^-20 of the largest
value.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hagane.build.choosing import Choices
from hagane.build.compile import Compiler
from hagane.build.options import BuildOptions, report
from hagane.build.regions import Alone, plan_alone, region_feed, sample_dims, sessions, unique_regions
from hagane.core.dtypes import from_numpy
from hagane.core.errors import BuildError, RunError
from hagane.ir import interpreter
from hagane.ir.graph import Array, Graph
from hagane.ir.region import Region
from hagane.kernels.tactic import Lowering
from hagane.runtime.session import Session

logger = logging.getLogger(__name__)
STEP = 2.0**-20
# rounding grows with the root of the number of terms, as `typical` does with 2^-20 for f32's 2^-24, but
# partial sums are larger than the result; the design's own bound is looser still
SLACK = 32
KINDS = {"quick": ("normal",), "full": ("normal", "large", "zeros", "rows", "special")}
NUM_DIMS = {"quick": 1, "full": 3}
VERIFY_THREADS = 2


@dataclass(frozen=True)
class Finding:
    """A region whose kernels are off: where, and by how much on which inputs."""

    key: str
    nodes: str
    what: str


def verify_graph(
    graph: Graph, choices: Choices, compiler: Compiler, options: BuildOptions, weights: Mapping[str, Array]
) -> str:
    """Checks all regions, demotes those that are off, and returns the verification records, one a line.

    Raises: BuildError if a region is off even in the generic kernel.
    """
    pending = unique_regions(graph)
    records: list[str] = []
    while pending:
        library = compiler.library()
        plans = [plan_alone(region, library, choices) for region in pending.values()]
        findings: list[Finding] = []
        opened = sessions(plans, library, compiler, weights, VERIFY_THREADS)
        for number, (key, alone, session) in enumerate(zip(pending, plans, opened, strict=True)):
            report(options, "verify", number, len(plans))
            with session:
                tactic, params = choices(alone.region)
                lowering = tactic.lower(alone.region, choices.target, params)
                finding, checked = _check(key, alone, lowering, session, options.verify)
            records.append(f"{key} {alone.plan.regions[-1].tactic} {'off' if finding else 'ok'} {checked}")
            if finding is not None:
                findings.append(finding)
        pending = _demote(findings, pending, choices)
    return "\n".join(records)


def _demote(findings: list[Finding], regions: Mapping[str, Region], choices: Choices) -> dict[str, Region]:
    """The regions to check again, with other kernels."""
    again: dict[str, Region] = {}
    for finding in findings:
        region = regions[finding.key]
        tactic = choices(region)[0].name
        following = choices.demote(region)
        if following is None:
            raise BuildError(
                f"the kernels of a region give wrong results: {finding.what}",
                where={"node": finding.nodes},
                tried=f"the {tactic} kernel",
                next_step="please report the model; hagane.build(..., fuse=False) may avoid the fault",
            )
        logger.warning(
            "%s: the %s kernel is off (%s); %s is used", finding.nodes, tactic, finding.what, following.name
        )
        again[finding.key] = region
    return again


def _check(
    key: str, alone: Alone, lowering: Lowering, session: Session, level: str
) -> tuple[Finding | None, int]:
    """The first fault found, and the number of runs compared."""
    runs = 0
    shapes = 0
    for dims in sample_dims(alone.region):
        if shapes == NUM_DIMS[level]:
            break
        for seed, kind in enumerate(KINDS[level]):
            if kind == "special" and lowering.spreads_nan:
                continue
            feed = region_feed(alone, dims, kind, seed)
            want = _reference(alone.graph, feed)
            if want is not None and (counted := _counted(alone.graph, dims, want[0])) != dims:
                dims = counted
                feed = region_feed(alone, dims, kind, seed)
                want = _reference(alone.graph, feed)
            if want is None or _counted(alone.graph, dims, want[0]) != dims:  # they don't fit each other
                break
            got, slack = session.run(feed), SLACK * lowering.error_factor
            fault = _compare(got, *want, slack)
            if fault is not None:
                # rounding alone may lead over a step: the floor of tanh(10) is 1 in f32, and 0 in float64
                rounded = interpreter.run(alone.graph, feed, rounded=True)
                moved = _moved_by_rounding(alone.region, *want, rounded)
                fault = _compare(got, want[0], moved, slack, rounded)
            runs += 1
            if fault is not None:
                where = f"{fault} on {kind} inputs" + (f" with {dims}" if dims else "")
                return Finding(key, str(alone.region.node.loc), where), runs
        else:
            shapes += 1
    return None, runs


def _reference(graph: Graph, feed: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, Array]] | None:
    """The right outputs, and those for slightly moved inputs; None if the shapes can't be computed with."""
    try:
        want = interpreter.run(graph, feed)
    except RunError:
        return None
    return want, interpreter.run(graph, {name: _nudged(array) for name, array in feed.items()})


def _counted(graph: Graph, dims: Mapping[str, int], want: Mapping[str, Array]) -> dict[str, int]:
    """The dims, with those that depend on data, such as how many elements are nonzero, as they turned out."""
    counted = dict(dims)
    for value, array in zip(graph.outputs, want.values(), strict=True):
        for dim, extent in zip(value.shape, array.shape, strict=True):
            if dim.as_sym is not None:
                counted[dim.as_sym.name] = extent
    return counted


def _compare(
    got: Mapping[str, Array],
    want: Mapping[str, Array],
    moved: Mapping[str, Array],
    slack: float,
    rounded: Mapping[str, Array] | None = None,
) -> str | None:
    """rounded: the outputs with each op's result rounded, where values may be instead of the right ones."""
    for name, expected in want.items():
        fault = _fault(got[name], expected, moved[name], slack)
        if fault is not None and rounded is not None and got[name].shape == expected.shape:
            nearer = _as_from_nearer(got[name], expected, rounded[name])
            fault = _fault(nearer, expected, moved[name], slack)
        if fault is not None:
            return fault
    return None


def _as_from_nearer(got: Array, want: Array, rounded: Array) -> Array:
    """The values, those that are nearer to the rounded ones being as far from the right ones instead."""
    if not from_numpy(want.dtype).is_float:
        return np.where(got == rounded, want, got)
    a, b, c = (x.astype(np.float64) for x in (got, want, rounded))
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(a - c) < np.abs(a - b), a - c + b, a)


def _moved_by_rounding(
    region: Region, want: Mapping[str, Array], moved: Mapping[str, Array], rounded: Mapping[str, Array]
) -> dict[str, Array]:
    """The moved outputs; those of a wider type than a value inside, which a kernel may round or not, moved by
    that rounding where it is more.
    """
    inner = [v.dtype for node in region.body.nodes for v in node.outputs if v.dtype.is_float]
    narrowest = min((dtype.bits for dtype in inner), default=64)
    found = dict(moved)
    for name, expected in want.items():
        dtype = from_numpy(expected.dtype)
        if dtype.is_float and dtype.bits > narrowest:
            a, b, c = (x[name].astype(np.float64) for x in (want, moved, rounded))
            with np.errstate(invalid="ignore"):
                found[name] = np.where(np.abs(c - a) > np.abs(b - a), c, b)
    return found


def _nudged(array: Array) -> Array:
    """The inputs changed by a relative 2^-20, up and down at random; small types keep their rounding."""
    if array.dtype.kind != "f" or array.dtype.itemsize < 4:
        return array
    signs = np.random.default_rng(array.size).choice((-1.0, 1.0), array.shape)
    nudged: Array = (array * (1 + signs * STEP)).astype(array.dtype)
    return nudged


def _fault(got: Array, want: Array, moved: Array, slack: float) -> str | None:
    if got.shape != want.shape:
        return f"the shape is {list(got.shape)} for {list(want.shape)}"
    if not from_numpy(want.dtype).is_float:
        wrong = int(np.count_nonzero(got != want))
        return f"{wrong} of {want.size} values differ" if wrong else None
    a, b, c = (x.astype(np.float64) for x in (got, want, moved))
    steady = np.isfinite(b) & np.isfinite(c)
    special = ~np.isfinite(b) & (~np.isfinite(c))
    if not np.array_equal(np.isnan(a[special]), np.isnan(b[special])):
        return "NaN is at other places"
    scale = np.abs(b[steady]).max(initial=0.0)
    unit = float(np.finfo(want.dtype).eps) if want.dtype.kind == "f" else 2.0**-7
    moves = np.abs(c[steady] - b[steady])
    typical = float(np.sqrt(np.mean(moves**2))) if moves.size else 0.0
    bound = slack * (moves + typical) + max(STEP, unit) * (scale + np.abs(b[steady])) + 1e-30
    with np.errstate(invalid="ignore"):
        error = np.abs(a[steady] - b[steady])
    bad = ~(error <= bound)
    if bad.any():
        worst = float(np.nanmax(error))
        return f"{int(bad.sum())} of {want.size} values are off, by up to {worst:.3g} of {scale:.3g}"
    return None
