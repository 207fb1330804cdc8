"""If, Loop, data-dependent sizes, host steps, calls and states, natively and driven by Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hagane.core.dtypes import DType
from hagane.core.errors import EngineError, RunError
from hagane.core.symbolic import const, sym
from hagane.plan.model import (
    Alloc,
    Bind,
    Buffer,
    Call,
    Collective,
    Copy,
    Fill,
    Host,
    If,
    Launch,
    Loop,
    Port,
    Program,
    Shape,
    Step,
    Symbol,
)
from hagane.runtime import Session
from tests.unit.runtime.kernels import buffer, f32, image

N, M = sym("N", 1), sym("M")
SYMBOLS = (Symbol("N", 1, 4096), Symbol("M"), Symbol("K"))
THREADS = pytest.mark.parametrize("threads", [1, 2, 4])


def program(steps: tuple[Step, ...], *buffers: Buffer, y: Port | None = None) -> Program:
    """x: f32[N] to y, f32[N] if not given."""
    x, y = f32("x", N), y or f32("y", N)
    return Program("main", (x,), (y,), (), (buffer(x, "input"), buffer(y, "output"), *buffers), steps)


def flag(name: str, first: int = 0, last: int = 0) -> Buffer:
    return Buffer(name, "arena", DType.BOOL, const(1), first, last)


def count(name: str, first: int = 0, last: int = 0) -> Buffer:
    return Buffer(name, "arena", DType.I64, const(8), first, last)


def run(engine: Any, threads: int, *arrays: Any) -> list[Any]:
    with Session(engine, threads=threads) as session:
        return [session.run({"x": np.asarray(a, np.float32)})["y"].tolist() for a in arrays]


@THREADS
def test_if_takes_the_branch_of_each_run(threads: int) -> None:
    steps = (
        Launch("first_positive", ("x", "c"), serial=True),
        If("c", (Launch("double", ("x", "y"), (N,)),), (Launch("negate", ("x", "y"), (N,)),)),
    )
    engine = image(program(steps, flag("c", 0, 1)), SYMBOLS)
    assert run(engine, threads, [3, 1], [-3, 1], [2, 0]) == [[6, 2], [3, -1], [4, 0]]


@THREADS
def test_if_without_else_after_a_parallel_step(threads: int) -> None:
    steps = (
        Launch("add1", ("x", "y"), (N,)),
        Launch("first_positive", ("y", "c"), serial=True),
        If("c", (Launch("double", ("y", "y"), (N,)),)),
        Launch("add1", ("y", "y"), (N,)),
    )
    engine = image(program(steps, flag("c", 1, 2)), SYMBOLS)
    assert run(engine, threads, [1, 5], [-4, 5]) == [[5, 13], [-2, 7]]


@THREADS
def test_counted_loop_with_index(threads: int) -> None:
    body = (Launch("add_index", ("i", "y")), Launch("add1", ("y", "y"), (N,)))
    steps = (Copy("x", "y", N * 4), Loop(N, None, "i", body))
    engine = image(program(steps, count("i", 1, 3)), SYMBOLS)
    assert run(engine, threads, [10], [0, 0, 0, 0, 0]) == [[11], [15, 5, 5, 5, 5]]


@THREADS
def test_nested_loops_and_large_copies(threads: int) -> None:
    inner = Loop(const(3), None, None, (Launch("add1", ("y", "h"), (N,)), Copy("h", "y", N * 4)))
    outer = Loop(N // N + 1, None, None, (inner, Launch("double", ("y", "y"), (N,))))
    steps = (Fill("y", N * 4, 0), Launch("add", ("x", "y", "y"), (N,)), outer)
    h = buffer(f32("h", N), "arena", 0, 6)
    engine = image(program(steps, h), SYMBOLS)
    assert run(engine, threads, np.zeros(1000)) == [[18.0] * 1000]
    with Session(engine, threads=threads) as session:
        x = np.random.default_rng(0).standard_normal(4096).astype(np.float32)
        assert np.allclose(session.run({"x": x})["y"], ((x + 3) * 2 + 3) * 2, atol=1e-5)


@THREADS
@pytest.mark.parametrize("trip", [None, const(100), const(2)])
def test_while_loop(threads: int, trip: Any) -> None:
    """Adds 1 to the negated input until its first element isn't positive any more."""
    body = (
        Launch("negate", ("y", "h"), (N,)),
        Launch("add1", ("h", "h"), (N,)),
        Launch("negate", ("h", "y"), (N,)),
        Launch("first_positive", ("y", "c"), serial=True),
    )
    steps = (
        Copy("x", "y", N * 4),
        Launch("first_positive", ("y", "c"), serial=True),
        Loop(trip, "c", None, body),
        Launch("double", ("y", "y"), (N,)),
    )
    engine = image(program(steps, flag("c", 1, 6), buffer(f32("h", N), "arena", 2, 6)), SYMBOLS)
    turns = 2 if trip == 2 else 5
    assert run(engine, threads, [5, 1], [-1, 7]) == [[(5 - turns) * 2, (1 - turns) * 2], [-2, 14]]


def positive(more: tuple[Step, ...] = (), *buffers: Buffer) -> Program:
    """The positive elements of x: their number is known when they have been counted."""
    steps = (
        Launch("count_positive", ("x", "c"), (N,), serial=True),
        Bind("M", "c"),
        Launch("take_positive", ("x", "h"), (N,), serial=True),
        Launch("double", ("h", "y"), (M,)),
        *more,
    )
    return program(steps, count("c", 0, 1), buffer(f32("h", M), "arena", 2, 3), *buffers, y=f32("y", M))


@THREADS
def test_output_size_depends_on_data(threads: int) -> None:
    engine = image(positive(), SYMBOLS)
    assert run(engine, threads, [1, -2, 3], [-1], [5, 6, 7, -8]) == [[2, 6], [], [10, 12, 14]]
    with Session(engine, threads=threads) as session:
        out = np.empty(2, np.float32)
        x = np.array([1, -2, 3], np.float32)
        assert session.run({"x": x}, out={"y": out})["y"] is out
        assert out.tolist() == [2, 6]
        with pytest.raises(RunError, match="expected: y: float32"):
            session.run({"x": np.ones(3, np.float32)}, out={"y": out})


def test_bound_symbol_out_of_range() -> None:
    engine = image(positive(), (Symbol("N", 1, 4096), Symbol("M", 0, 2)))
    with Session(engine, threads=1) as session, pytest.raises(RunError, match=r"M, .* is 3, outside 0\.\.2"):
        session.run({"x": np.ones(3, np.float32)})


@THREADS
def test_host_step_binds_the_shape_of_its_result(threads: int) -> None:
    """Coordinates of the elements that aren't zero."""
    y = Port("y", DType.I64, (const(1), M))
    steps = (
        Launch("add1", ("x", "h"), (N,)),
        Host("nonzero", {}, (f32("h", N),), (y,)),
    )
    engine = image(program(steps, buffer(f32("h", N), "arena", 0, 1), y=y), SYMBOLS)
    assert run(engine, threads, [0, -1, 3], [-1]) == [[[0, 2]], [[]]]


@THREADS
def test_loop_with_growing_buffer_is_driven_by_python(threads: int) -> None:
    """Each turn binds K anew and adds K ones to the first element of y."""
    body = (
        Launch("count_positive", ("y", "c"), (N,), serial=True),
        Bind("K", "c"),
        Alloc(("g",)),
        Fill("g", sym("K") * 4, 0),
        Launch("add1", ("g", "g"), (sym("K"),)),
        Launch("add_index", ("i", "y")),
        If("c", (Launch("add", ("y", "g", "y"), (sym("K"),)),)),
    )
    steps = (Copy("x", "y", N * 4), Loop(const(3), None, "i", body))
    g = Buffer("g", "arena", DType.F32, sym("K") * 4, 1, 9)
    engine = image(program(steps, count("c", 1, 9), count("i", 1, 9), g), SYMBOLS)
    expected = np.array([1, 1, -5], np.float32)
    for turn in range(3):
        positive_now = int((expected > 0).sum())
        expected[0] += turn
        if positive_now:
            expected[:positive_now] += 1
    assert run(engine, threads, [1, 1, -5]) == [expected.tolist()]


@THREADS
def test_branch_with_an_event_inside(threads: int) -> None:
    steps = (
        Launch("first_positive", ("x", "f"), serial=True),
        If(
            "f",
            (Launch("count_positive", ("x", "c"), (N,), serial=True), Bind("M", "c")),
            (Shape((("M", N * 2),)),),
        ),
        Fill("y", M * 4, 0),
        Launch("add1", ("y", "y"), (M,)),
    )
    engine = image(program(steps, flag("f", 0, 1), count("c", 1, 3), y=f32("y", M)), SYMBOLS)
    assert run(engine, threads, [1, -1, 2], [-1, 1]) == [[1, 1], [1, 1, 1, 1]]


@THREADS
def test_call_of_another_program(threads: int) -> None:
    a, b, h = f32("a", N), f32("b", N), f32("h", N)
    callee = Program(
        "inner",
        (a,),
        (b,),
        (),
        (buffer(a, "input"), buffer(b, "output"), buffer(h, "arena", 0, 1)),
        (Launch("add1", ("a", "h"), (N,)), Launch("double", ("h", "b"), (N,))),
    )
    steps = (
        Launch("negate", ("x", "t"), (N,)),
        Call("inner", (f32("t", N),), (f32("u", N),)),
        Call("inner", (f32("u", N),), (f32("y", N),)),
    )
    engine = image(
        program(steps, buffer(f32("t", N), "arena", 0, 1), buffer(f32("u", N), "arena", 1, 2)),
        SYMBOLS,
        others=(callee,),
    )
    assert run(engine, threads, [1, 2, 3]) == [[2, -2, -6]]


@THREADS
def test_state_lasts_from_run_to_run(threads: int) -> None:
    x, y, s = f32("x", N), f32("y", N), f32("s", N)
    steps = (Launch("add", ("x", "s", "s"), (N,)), Copy("s", "y", N * 4))
    buffers = (buffer(x, "input"), buffer(y, "output"), buffer(s, "state"))
    engine = image(Program("main", (x,), (y,), (s,), buffers, steps), SYMBOLS)
    with Session(engine, threads=threads) as session:
        one = {"x": np.ones(3, np.float32)}
        assert [session.run(one)["y"][0] for _ in range(3)] == [1, 2, 3]
        with pytest.raises(RunError, match="reset_states"):
            session.run({"x": np.ones(4, np.float32)})
        assert session.run(one)["y"][0] == 4
        session.reset_states()
        assert session.run({"x": np.ones(4, np.float32)})["y"].tolist() == [1] * 4


def test_strings_pass_through_host_steps() -> None:
    text = Port("x", DType.STRING, (N,))
    same, joined = Port("same", DType.BOOL, (N,)), Port("joined", DType.STRING, (N,))
    empty = const(0)
    buffers = (
        Buffer("x", "input", DType.STRING, empty),
        Buffer("same", "output", DType.BOOL, N),
        Buffer("joined", "output", DType.STRING, empty),
    )
    steps = (
        Host("string_equal", {}, (text, text), (same,)),
        Host("string_concat", {}, (text, text), (joined,)),
    )
    engine = image(Program("main", (text,), (same, joined), (), buffers, steps), SYMBOLS)
    with Session(engine, threads=1) as session:
        got = session.run({"x": np.array(["ab", "c"])})
    assert got["same"].tolist() == [True, True]
    assert got["joined"].tolist() == ["abab", "cc"]


def test_static_shapes_are_evaluated_at_binding() -> None:
    steps = (
        Shape((("K", N - 1), ("M", sym("K") * 1))),
        Fill("y", N * 4, 0),
        Launch("add1", ("x", "y"), (M,)),
    )
    assert run(image(program(steps), SYMBOLS), 1, [1, 1, 1]) == [[2, 2, 0]]


def test_collectives_have_no_device_yet() -> None:
    steps = (Collective("all_reduce_sum", "tensor", ("x",), ("y",)),)
    with pytest.raises(EngineError, match="no device runs a collective"):
        Session(image(program(steps), SYMBOLS))


def test_a_copy_beyond_its_buffer_is_refused() -> None:
    engine = image(program((Copy("x", "y", N * 8),)), SYMBOLS)
    with (
        Session(engine, threads=1) as session,
        pytest.raises(EngineError, match="touches 24 bytes of x, which has 12"),
    ):
        session.run({"x": np.ones(3, np.float32)})
