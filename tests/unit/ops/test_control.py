import numpy as np
import pytest

import hagane.ops  # noqa: F401
from hagane.core.errors import ShapeError
from hagane.core.symbolic import const, sym
from hagane.ir.builder import Builder
from hagane.ir.graph import DType, Graph, Type, tensor
from hagane.ir.interpreter import run
from hagane.ir.verify import verify

F32, I64, BOOL = DType.F32, DType.I64, DType.BOOL
TRUE = np.array(True)


def _if_graph(then_shape, else_shape):
    """if cond: a + b else: b, with values captured from outside."""
    builder = Builder(Graph())
    cond = builder.input("cond", tensor(BOOL))
    a, b = builder.input("a", tensor(F32, *then_shape)), builder.input("b", tensor(F32, *else_shape))
    then, other = Builder(Graph("then"), builder), Builder(Graph("else"), builder)
    then.graph.outputs = [then.op("add", a, a)]
    other.graph.outputs = [b]
    builder.graph.outputs = builder.ops("if", cond, graphs={"then": then.graph, "else": other.graph})
    return builder.graph


def test_if_runs_the_branch_that_the_condition_names():
    graph = _if_graph((3,), (3,))
    verify(graph)
    feed = {"a": np.arange(3, dtype=np.float32), "b": np.full(3, 7, np.float32)}
    [name] = [v.name for v in graph.outputs]
    np.testing.assert_array_equal(run(graph, {"cond": TRUE, **feed})[name], [0, 2, 4])
    np.testing.assert_array_equal(run(graph, {"cond": ~TRUE, **feed})[name], [7, 7, 7])


def test_if_keeps_dims_that_agree_and_names_the_others():
    batch = sym("B")
    [y] = _if_graph((batch, 3), (batch, 4)).outputs
    assert y.shape[0] == batch
    assert y.shape[1].as_sym is not None
    assert y.producer is not None
    from hagane.ir.registry import op_def

    assert op_def("if").infer(y.producer) == [y.type]


def test_branches_must_agree_in_rank():
    with pytest.raises(ShapeError, match=r"is f32\[3\] in one branch and f32\[3, 1\] in the other"):
        _if_graph((3,), (3, 1))


def _loop(carried, make_body, trip_count=None, cond=None):
    """A loop over one carried value; make_body(builder, iter, cond, x) -> outputs."""
    builder = Builder(Graph())
    x = builder.input("x", carried[0])
    trips = None if trip_count is None else builder.const(trip_count, I64)
    start = None if cond is None else builder.const(cond, BOOL)
    body = Builder(Graph("body"), builder)
    arguments = [
        body.input("iter", tensor(I64)),
        body.input("going", tensor(BOOL)),
        body.input("state", carried[1]),
    ]
    body.graph.outputs = make_body(body, *arguments)
    builder.graph.outputs = builder.ops("loop", trips, start, x, graphs={"body": body.graph})
    return builder.graph


def _results(graph, x):
    verify(graph)
    return list(run(graph, {"x": np.asarray(x, np.float32)}).values())


def test_loop_carries_and_scans():
    def body(b, i, going, x):
        doubled = b.op("add", x, x)
        return [going, doubled, x]

    graph = _loop([tensor(F32, 2)] * 2, body, trip_count=3)
    last, rows = _results(graph, [1, 2])
    np.testing.assert_array_equal(last, [8, 16])
    np.testing.assert_array_equal(rows, [[1, 2], [2, 4], [4, 8]])
    assert graph.outputs[1].type == tensor(F32, 3, 2)


def test_loop_of_no_trips():
    graph = _loop(
        [tensor(F32, sym("N"))] * 2, lambda b, i, going, x: [going, b.op("add", x, x), x], trip_count=0
    )
    last, rows = _results(graph, [1, 2])
    np.testing.assert_array_equal(last, [1, 2])
    assert rows.shape == (0, 2)


def test_loop_stops_when_its_condition_fails():
    def body(b, i, going, x):
        more = b.op("add", x, x)
        total = b.op("reduce_sum", more, axes=(0,), keepdims=False)
        return [b.op("lt", total, b.scalar_like(total, 50)), more, total]

    graph = _loop([tensor(F32, 2)] * 2, body)
    last, totals = _results(graph, [1, 2])
    np.testing.assert_array_equal(last, [32, 64])
    np.testing.assert_array_equal(totals, [6, 12, 24, 48, 96])
    assert graph.outputs[1].shape[0].as_sym is not None


def test_a_carried_value_may_grow():
    inner = sym("n")

    def body(b, i, going, x):
        return [going, b.op("concat", x, x, axis=0)]

    graph = _loop([tensor(F32, 1), Type(F32, (inner,))], body, trip_count=3)
    assert graph.outputs[0].shape[0].as_sym is not None
    np.testing.assert_array_equal(_results(graph, [5])[0], [5] * 8)


def test_a_dim_that_trips_keep_stays():
    batch = sym("B")
    graph = _loop(
        [tensor(F32, batch, 4), Type(F32, (sym("n"), const(4)))],
        lambda b, i, going, x: [going, b.op("add", x, x), x],
        trip_count=5,
    )
    assert graph.outputs[0].type == tensor(F32, batch, 4)
    assert graph.outputs[1].shape[0] == 5
    assert graph.outputs[1].shape[1] != sym("n")


def test_bodies_must_fit():
    with pytest.raises(ShapeError, match="carries 1 values has a body of 3 inputs and 1 outputs"):
        _loop([tensor(F32, 2)] * 2, lambda b, i, going, x: [going], trip_count=1)
    with pytest.raises(ShapeError, match="carried value 0 of a loop changes its type"):
        _loop([tensor(F32, 2)] * 2, lambda b, i, going, x: [going, i], trip_count=1)
