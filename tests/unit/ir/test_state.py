"""State values: a program over a paged cache, and what the verifier refuses."""

import numpy as np
import pytest

import hagane.ops  # noqa: F401
from hagane.core.errors import InternalError, ModelError
from hagane.ir.interpreter import run
from hagane.ir.parse import parse_graph
from hagane.ir.text import print_graph
from hagane.ir.verify import verify
from hagane.passes.base import run_passes
from hagane.passes.fuse import Fuse
from hagane.passes.pipelines import SIMPLIFY

# One step of decoding: the new keys go into their slots (page, place in the page), then each sequence reads
# the pages that its block table lists.
PAGED = """\
graph @decode(%q: f32[T, 2, 8], %k: f32[T, 2, 8], %slots: i64[T, 2], %pages: i64[T, N, 1], \
%kv: state<f32[P, 16, 2, 8]>) -> (scores: f32[T, 2, 16*N], kv: state<f32[P, 16, 2, 8]>) \
where N in 1.., P in 1.., T in 1..64 {
  %kv.1 = state_write(%kv, %k, %slots) : state<f32[P, 16, 2, 8]>
  %read = state_read(%kv.1, %pages) : f32[T, N, 16, 2, 8]
  %keys = reshape(%read) {shape=(T, 16*N, 2, 8)} : f32[T, 16*N, 2, 8]
  %turned = transpose(%keys) {perm=[0, 2, 3, 1]} : f32[T, 2, 8, 16*N]
  %row = reshape(%q) {shape=(T, 2, 1, 8)} : f32[T, 2, 1, 8]
  %dots = matmul(%row, %turned) : f32[T, 2, 1, 16*N]
  %scores = reshape(%dots) {shape=(T, 2, 16*N)} : f32[T, 2, 16*N]
  return %scores, %kv.1
}
"""


def feed():
    rng = np.random.default_rng(0)
    return {
        "q": rng.standard_normal((3, 2, 8)).astype(np.float32),
        "k": rng.standard_normal((3, 2, 8)).astype(np.float32),
        "slots": np.array([[4, 0], [-1, 0], [2, 15]]),  # the second token is padding
        "pages": np.array([[4, 1], [0, 0], [2, 3]])[..., None],
        "kv": rng.standard_normal((5, 16, 2, 8)).astype(np.float32),
    }


def expected(q, k, slots, pages, kv):
    kv = kv.copy()
    kv[4, 0], kv[2, 15] = k[0], k[2]
    keys = kv[pages[..., 0]].reshape(3, 32, 2, 8)
    return np.einsum("thd,tshd->ths", q.astype(np.float64), keys.astype(np.float64)), kv


def test_a_paged_cache():
    graph = parse_graph(PAGED)
    assert print_graph(graph) == PAGED
    results = run(graph, feed())
    scores, kv = expected(**feed())
    np.testing.assert_allclose(results["scores"], scores, rtol=1e-6)
    np.testing.assert_array_equal(results["kv"], kv)


def test_passes_keep_states():
    graph = parse_graph(PAGED)
    before = run(graph, feed())
    run_passes(graph, (*SIMPLIFY, Fuse()))
    assert [n.op for n in graph.nodes if n.op.startswith("state")] == ["state_write", "state_read"]
    after = run(graph, feed())
    np.testing.assert_allclose(after["scores"], before["scores"], rtol=1e-9)
    np.testing.assert_array_equal(after["kv"], before["kv"])


def test_whole_states_are_read_and_written_too():
    graph = parse_graph(
        "graph @g(%s: state<i64[3]>, %x: i64[3]) -> (old: i64[3], s: state<i64[3]>) {\n"
        "  %old = state_read(%s) : i64[3]\n"
        "  %sum = add(%old, %x) : i64[3]\n"
        "  %s.1 = state_write(%s, %sum) : state<i64[3]>\n"
        "  return %old, %s.1\n}\n"
    )
    results = run(graph, {"s": np.arange(3), "x": np.full(3, 5)})
    assert results["old"].tolist() == [0, 1, 2] and results["s"].tolist() == [5, 6, 7]


S = "state<f32[4]>"


def program(body: str, results: str = S, inputs: str = "") -> str:
    return f"graph @g(%s: {S}, %x: f32[4], %c: bool[], %n: i64[]{inputs}) -> {results} {{\n{body}\n}}\n"


def write(new: str, old: str, value: str = "%x") -> str:
    return f"%{new} = state_write(%{old}, {value}) : {S}\n"


BRANCHES = f"%r = if(%c) : {S} {{\nelse() {{\nreturn %s\n}}\nthen() {{\n{write('a', 's')}return %a\n}}\n}}\n"
LOOP_HEAD = f"%r = loop(%n, none, %s) : {S} {{\nbody(%i: i64[], %go: bool[], %t: {S}) {{\n"


@pytest.mark.parametrize(
    "text",
    [
        program("return %s"),
        program(write("a", "s") + write("b", "a") + "return %b"),
        program(BRANCHES + "return %r"),
        program(BRANCHES + write("z", "r") + "return %z"),
        program(LOOP_HEAD + write("a", "t") + "return %go, %a\n}\n}\nreturn %r"),
        program(LOOP_HEAD + "%o = state_read(%t) : f32[4]\nreturn %go, %t\n}\n}\nreturn %r"),
        program("return %x", "f32[4]"),
    ],
)
def test_legal_orders(text):
    verify(parse_graph(text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            program(write("a", "s") + write("b", "s") + "return %b"),
            "%s is used by b = state_write after a = ",
        ),
        (program(write("a", "s") + "return %s"), "%s is returned after a = state_write has updated it"),
        (program(write("a", "s") + "return %x", "f32[4]"), "the update that gives %a is lost"),
        (
            program(write("a", "s") + "%o = state_read(%s) : f32[4]\nreturn %a, %o", f"({S}, f32[4])"),
            "%s is used by o = state_read after a = state_write has updated it",
        ),
        (program("%y = relu(%s) : state<f32[4]>\nreturn %y"), "relu can't take or give a state"),
        (program("%o = relu(%x) : state<f32[4]>\nreturn %o"), "should have type f32"),
        (program("return %s, %s", f"({S}, {S})"), "g returns a state twice"),
        (program(BRANCHES + write("z", "s") + "return %z"), "%s is used by z = state_write after a = "),
        (program(BRANCHES + "return %s"), "%s is returned after a = state_write|after r = if"),
        (
            program(LOOP_HEAD + write("a", "s") + "return %go, %a\n}\n}\nreturn %r"),
            "after r = loop has updated",
        ),
        (
            program(
                "%r = loop(%n, none, %x) : f32[4] {\nbody(%i: i64[], %go: bool[], %t: f32[4]) {\n"
                + write("a", "s")
                + "return %go, %t\n}\n}\nreturn %s"
            ),
            "updates %s, which the loop around it must carry",
        ),
        (
            program(
                f"%r = if(%c) : {S} {{\nelse() {{\nreturn %s\n}}\nthen() {{\nreturn %u\n}}\n}}\nreturn %r",
                inputs=f", %u: {S}",
            ),
            "%r would be a version of %s and %u at once",
        ),
        (program(write("a", "s", "%s") + "return %a"), "state_write should get f32"),
        (program("%o = state_read(%x) : f32[4]\nreturn %o", "f32[4]"), "state_read takes a state, not"),
    ],
)
def test_illegal_orders(text, message):
    with pytest.raises(ModelError, match=message):
        parse_graph(text)


def test_a_pass_that_loses_an_update_is_caught():
    graph = parse_graph(program(write("a", "s") + "return %a"))
    graph.outputs = [graph.inputs[1]]
    with pytest.raises(InternalError, match="the last version must be returned"):
        verify(graph)
