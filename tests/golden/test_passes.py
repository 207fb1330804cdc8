"""Golden tests of the passes: the graph before and the graph expected after, in one file for each case.

tests/golden/passes/NAME/*.txt holds what the pass called NAME does. A file starts with comments that say what
it shows, and perhaps `// options: a=1, b="x"`; then come the graph, a line of dashes, and the graph expected.
How values are named doesn't count. The graph after must also compute what the one before computes.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hagane.ops  # noqa: F401
from hagane.ir.diff import diff_graphs
from hagane.ir.interpreter import run
from hagane.ir.parse import parse_graph
from hagane.ir.text import print_graph
from hagane.ir.verify import verify
from tests.golden.passes_under_test import make_pass, pass_classes
from tests.property.random_graphs import random_feed

FOLDER = Path(__file__).parent / "passes"
SEPARATOR = "----"
FILES = sorted(FOLDER.glob("*/*.txt"))
BLESS = "if the new graph is right: python -m pytest tests/golden --bless"


@dataclass(frozen=True)
class Golden:
    """A file's parts."""

    path: Path
    before: str
    after: str

    @property
    def options(self) -> dict[str, Any]:
        """Options of the pass, from the comment that gives them."""
        for line in self.before.split("\n"):
            if line.startswith("// options: "):
                call = ast.parse(f"f({line.removeprefix('// options: ')})", mode="eval").body
                assert isinstance(call, ast.Call)
                return {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
        return {}


def read(path: Path) -> Golden:
    before, _, after = path.read_text().partition(f"\n{SEPARATOR}\n")
    return Golden(path, before.rstrip("\n") + "\n", after)


def write(golden: Golden, after: str) -> None:
    golden.path.write_text(f"{golden.before}{SEPARATOR}\n{after}")


@pytest.mark.parametrize("path", FILES, ids=[f"{p.parent.name}/{p.stem}" for p in FILES])
def test_pass(path: Path, bless: bool) -> None:
    golden = read(path)
    graph = parse_graph(golden.before)
    graph.output_names = graph.port_names
    feed = random_feed(graph)
    wanted = run(graph, feed)
    changed = make_pass(path.parent.name, **golden.options).run(graph)
    verify(graph)
    same_results(wanted, run(graph, feed))
    assert changed or not diff_graphs(parse_graph(golden.before), graph)
    after = print_graph(graph)
    faults = compare(golden.after, after)
    if faults and bless:
        write(golden, after)
    elif faults:
        pytest.fail(f"{path.name}: {faults}\n\n{BLESS}", pytrace=False)


def compare(expected: str, actual: str) -> str:
    """The difference in words, empty if there is none."""
    if not expected.strip():
        return f"no graph is expected yet; the pass gives\n{actual}"
    return diff_graphs(parse_graph(expected), parse_graph(actual), locs=True)


def same_results(wanted: dict[str, Any], found: dict[str, Any]) -> None:
    for name, array in wanted.items():
        wide = np.float64 if array.dtype.kind in "fV" else array.dtype
        np.testing.assert_allclose(
            found[name].astype(wide), array.astype(wide), rtol=1e-5, atol=1e-5, err_msg=name
        )


def test_every_pass_has_goldens() -> None:
    missing = sorted(set(pass_classes()) - {path.parent.name for path in FILES})
    assert not missing, f"passes without a file in tests/golden/passes/NAME: {', '.join(missing)}"


def test_every_folder_belongs_to_a_pass() -> None:
    unknown = sorted({path.parent.name for path in FILES} - set(pass_classes()))
    assert not unknown, f"folders in tests/golden/passes that name no pass: {', '.join(unknown)}"


def test_a_failing_golden_shows_the_difference() -> None:
    text = "graph @g(%x: f32[2]) -> f32[2] {\n  %y = relu(%x) : f32[2]\n  return %y\n}\n"
    shown = compare(text, text.replace("relu", "exp"))
    assert "+  %y~ = exp(%x) : f32[2]" in shown
    assert not compare(text, text.replace("%y", "%z"))
