"""Text that is no graph: the messages, and that nothing but a ModelError ever comes out."""

import random

import pytest

import hagane.ops  # noqa: F401
from hagane.core.errors import ModelError
from hagane.ir.parse import parse_graph
from hagane.ir.text import print_graph

GOOD = """\
graph @main(%x: f32[B, 4], %i: i64[2]) -> (y: f32[B, 4], z: f32[4, B]) where B in 1..64 by 2 {
  %0 = add(%x, @k) : f32[B, 4]  // ["m.onnx", "/a"]
  %1 = transpose(%0) {perm=[1, 0]} : f32[4, B]
  %2 = region(%0) {kind="pointwise"} : f32[B, 4] {
    body(%a: f32[B, 4]) {
      %b = mul(%a, @two) : f32[B, 4]
      return %b
    }
  }
  return %2, %1
}
metadata "k" = "v"
const @k: f32[4] = [0.0, 1.0, nan, -inf] from {weight("w"); neg(#0)}
const @two: f32[] = 2.0
weight w: f32[4] = [0.0, 1.0, 2.0, 3.0]
"""

FAULTS = [
    ("f32[B, 4], %i", "f33[B, 4], %i", "line 1, column 20: 'f33' is no element type"),
    ("f32[B, 4], %i", "f32[B, 4, %i", r"line 1, column 37: '%i: i64\[2' is no"),
    ("f32[B, 4], %i", "f32[C, 4], %i", "nothing is said about symbol C after 'where'"),
    ("f32[B, 4], %i", "f32[B // 0, 4], %i", "divides by zero"),
    ("B in 1..64 by 2", "B in 9..4", "no number is in 9..4"),
    ("B in 1..64 by 2", "B in 1..64 below Q", "nothing is said about symbol Q"),
    ("B in 1..64 by 2", "B in 1..4, B in 1..4", "symbol B is described twice"),
    ("graph @main", "graph main", "line 1, column 7: expected '@', found 'main"),
    ("%0 = add(%x, @k)", "%0 = add(%x, @l)", "line 2, column 18: constant @l is not defined"),
    ("%0 = add(%x, @k)", "%0 = add(%x, %9)", "%9 is not defined here"),
    ("%0 = add(%x, @k)", "%x = add(%x, @k)", "'x' is defined twice"),
    ("%0 = add(%x, @k)", "%0 = bad(%x, @k)", "op 'bad' is unknown to this version"),
    ("%0 = add(%x, @k)", "%0 = add(%x)", "line 2, column .*: add doesn't accept these operands"),
    ("%0 = add(%x, @k)", "%0 add(%x, @k)", "expected '=', found 'add"),
    (": f32[4, B]\n", ": f32[5, B]\n", r"should have type f32\[4, B\], it has f32\[5, B\]"),
    (": f32[4, B]\n", "\n", "line 3, column .*: expected ':', found the end of the line"),
    ("{perm=[1, 0]}", "{perm=[1, 0], perm=1}", "attribute perm is given twice"),
    ("{perm=[1, 0]}", "{perm=[1, 0}", "expected ','"),
    ("{perm=[1, 0]}", "{perm=oops}", "'oops' is no attribute"),
    ("{perm=[1, 0]}", "", "transpose doesn't accept these operands and attributes: KeyError"),
    ('"m.onnx", "/a"]', '"m.onnx", "/a', "bad string"),
    ("    body(", "    body(%c: f32[2], ", "line 4, .* a region of 1 operands has a body of 2"),
    ("mul(%a, @two)", "mul(%a, %x)", "reads %x: f32.* from outside"),
    ("  return %2, %1\n", "", "line 10, column 1: expected an op, found '}'"),
    ("  return %2, %1\n}\n", "", "line 9: the text ends where 'return' should follow"),
    ("  return %2, %1\n", "  return %2\n", r"line 1, .* the graph returns \(f32\[B, 4\]\), not"),
    ("nan, -inf]", "nan]", "line 13, .*: 3 elements don't fill"),
    ("nan, -inf]", "nan, true]", "expected a number, found 'true"),
    ("neg(#0)", "neg(#1)", "a recipe has no earlier step #1"),
    ("const @two", "const @k", "'k' is defined twice"),
    ("f32[] = 2.0", "f32[99] = 2.0", "expected a content hash"),
    ("f32[] = 2.0", "f32[B] = 2.0", "a constant can't be"),
    ('"v"\n', '"v" 7\n', "line 12, column 20: expected the end of the line, found '7'"),
    ('metadata "k"', "metadata k", "line 12, column 1: expected an op|expected nothing more"),
    ("(y: f32[B, 4], z:", "(y: f32[B, 4],", "either all results have names or none has"),
]


def test_the_good_text_is_good():
    assert print_graph(parse_graph(GOOD)) == GOOD


@pytest.mark.parametrize(("old", "new", "message"), FAULTS, ids=range(len(FAULTS)))
def test_faults_are_named_with_their_line(old, new, message):
    assert GOOD.count(old) >= 1
    with pytest.raises(ModelError, match=message):
        parse_graph(GOOD.replace(old, new, 1))


@pytest.mark.parametrize(
    "text", ["", "\n\n", "graph", b"\xff\xfe", b"\x00" * 9, "}", "const @x: f32[] = 1.0"]
)
def test_what_is_no_graph_at_all(text):
    with pytest.raises(ModelError):
        parse_graph(text)


@pytest.mark.parametrize(
    "dim",
    [
        "(" * 500 + "B" + ")" * 500,
        "-" * 3000 + "B",
        "+".join(["B"] * 1900),
        "*".join(["(B + 1)"] * 400),
        "min(" + ", ".join(f"B*{i} % 7" for i in range(200)) + ")",
        "9" * 5000,
        "B" * 5000,
        "B ** B",
        "B.real",
        "lambda: 0",
        "0x10",
        "1_000",
        "B if B else B",
        "min(B)",
        "max()",
        "B % 0",
    ],
)
def test_hostile_dims(dim):
    text = f"graph @g(%b: f32[B], %x: f32[{dim}]) -> f32[B] where B in 1.. {{\n  return %b\n}}\n"
    try:
        parse_graph(text)
    except ModelError as error:
        assert "line 1" in str(error)


def test_deep_nesting_is_refused():
    opened = "".join("if(%c) {\n  then() {\n" for _ in range(2000))
    with pytest.raises(ModelError, match="graphs are nested more than 64 deep"):
        parse_graph("graph @g(%c: bool[]) -> () {\n" + opened)
    with pytest.raises(ModelError, match="the attribute is nested too deep"):
        parse_graph("graph @g() -> () {\n  f() {a=" + "[" * 9000 + "}\n")


def test_mutated_text_never_crashes():
    """Any text gives a graph that prints and reads again, or a ModelError."""
    rng = random.Random(0)
    pieces = [
        "%",
        "@",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ",",
        ":",
        "=",
        "`",
        '"',
        "//",
        "none",
        "-1",
        "1e9",
        "%0",
        "\n",
    ]
    for _ in range(2000):
        chars = list(GOOD)
        for _ in range(rng.choice([1, 1, 2, 5])):
            at = rng.randrange(len(chars))
            match rng.randrange(4):
                case 0:
                    del chars[at : at + rng.randrange(1, 20)]
                case 1:
                    chars[at] = chr(rng.randrange(300))
                case 2:
                    chars.insert(at, rng.choice(pieces))
                case _:
                    start = rng.randrange(len(chars))
                    chars[at:at] = chars[start : start + rng.randrange(1, 30)]
        try:
            graph = parse_graph("".join(chars))
        except ModelError as error:
            assert "line" in str(error) or "no valid graph" in str(error)
        else:
            text = print_graph(graph)
            assert print_graph(parse_graph(text)) == text


def test_random_bytes_never_crash():
    rng = random.Random(0)
    for length in (0, 1, 10, 1000):
        for _ in range(50):
            with pytest.raises(ModelError):
                parse_graph(rng.randbytes(length))
