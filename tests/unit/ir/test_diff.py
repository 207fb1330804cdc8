"""Structural comparison: names of values don't count, everything else does."""

import pytest

import hagane.ops  # noqa: F401
from hagane.ir.diff import diff_graphs, same_graph
from hagane.ir.parse import parse_graph

A = """\
graph @main(%x: f32[B, 4]) -> f32[B, 4] where B in 1.. {
  %0 = add(%x, @k) : f32[B, 4]  // ["m", "/a"]
  %1 = relu(%0) : f32[B, 4]
  %2 = mul(%1, %0) : f32[B, 4]
  return %2
}
const @k: f32[] = 2.0
"""


def changed(*pairs: tuple[str, str]) -> str:
    text = A
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


RENAMED = changed(("%0", "%2~"), ("%2 ", "%7 "), ("return %2", "return %7"), ("@k", "@c"), ("%1", "%0"))


def test_numbering_does_not_count():
    assert same_graph(parse_graph(A), parse_graph(RENAMED))


def test_an_inserted_node_is_all_that_differs():
    extra = changed(("  %2 = mul(%1,", "  %9 = exp(%1) : f32[B, 4]\n  %2 = mul(%9,"))
    shown = diff_graphs(parse_graph(A), parse_graph(extra), context=0).split("\n")
    assert [line for line in shown[2:] if not line.startswith("@@")] == [
        "-  %2 = mul(%1, %0) : f32[B, 4]",
        "+  %9 = exp(%1) : f32[B, 4]",
        "+  %2 = mul(%9, %0) : f32[B, 4]",
    ]


def test_new_values_never_borrow_names_of_the_other_graph():
    extra = changed(("%0", "%a"), ("  %2 = mul(%1,", "  %0 = exp(%1) : f32[B, 4]\n  %2 = mul(%0,"))
    shown = diff_graphs(parse_graph(A), parse_graph(extra), context=0)
    assert "+  %0~ = exp(%1) : f32[B, 4]" in shown and "mul(%0~, %0)" in shown


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("mul(%1, %0)", "mul(%0, %1)", "+  %2 = mul(%0, %1) : f32[B, 4]"),
        ("relu", "exp", "+  %1~ = exp(%0) : f32[B, 4]"),
        ("= 2.0", "= 3.0", "+const @k~: f32[] = 3.0"),
        ("%x", "%y", "+graph @main(%y: f32[B, 4]) -> f32[B, 4] where B in 1.. {"),
        ("B in 1..", "B in 1..9", "+graph @main(%x: f32[B, 4]) -> f32[B, 4] where B in 1..9 {"),
        ("-> f32[B, 4]", "-> y: f32[B, 4]", "+graph @main(%x: f32[B, 4]) -> y: f32[B, 4] where B in 1.. {"),
    ],
)
def test_what_counts(old, new, line):
    shown = diff_graphs(parse_graph(A), parse_graph(changed((old, new))))
    assert line in shown.split("\n")


def test_places_count_only_if_asked_for():
    other = parse_graph(changed(('"/a"', '"/b"')))
    assert same_graph(parse_graph(A), other)
    assert '+  %0 = add(%x, @k) : f32[B, 4]  // ["m", "/b"]' in diff_graphs(parse_graph(A), other, locs=True)


NESTED = """\
graph @main(%x: f32[4], %c: bool[]) -> f32[4] {
  %r = if(%c) : f32[4] {
    else() {
      %a = relu(%x) : f32[4]
      return %a
    }
    then() {
      return %x
    }
  }
  return %r
}
"""


def test_nested_graphs():
    a = parse_graph(NESTED)
    assert same_graph(a, parse_graph(NESTED.replace("%a", "%z").replace("%r", "%a")))
    shown = diff_graphs(
        a, parse_graph(NESTED.replace("return %x", "return %x").replace("return %a", "return %x"))
    )
    assert "-      return %a\n+      return %x" in shown
