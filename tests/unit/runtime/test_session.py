"""Sessions: what goes in, what comes out, and what the messages say."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest

from hagane.core.dtypes import DType
from hagane.core.errors import EngineError, RunError
from hagane.core.symbolic import emax, sym
from hagane.plan.model import Launch, Plan, Port, Program, Symbol, Variant
from hagane.runtime import Session, load
from tests.unit.runtime.kernels import buffer, f32, image, weight

B = sym("B", 1, 64)


def two_layers(**content: object) -> Any:
    """y = (x + w) * 2, with a dynamic batch."""
    x, y, h = f32("x", B, 16), f32("y", B, 16), f32("h", B, 16)
    steps = (Launch("add1", ("x", "h"), (B * 16,)), Launch("double", ("h", "y"), (B * 16,)))
    buffers = (buffer(x, "input"), buffer(y, "output"), buffer(h, "arena", 0, 1))
    return image(Program("main", (x,), (y,), (), buffers, steps), (Symbol("B", 1, 64),), **content)


@pytest.fixture(params=[1, 2, 3])
def session(request: pytest.FixtureRequest) -> Any:
    with Session(two_layers(), threads=request.param) as opened:
        yield opened


def ramp(*shape: int) -> Any:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def test_every_batch(session: Session) -> None:
    for batch in (1, 7, 64, 3, 7):
        x = ramp(batch, 16)
        assert np.array_equal(session.run({"x": x})["y"], (x + 1) * 2)


def test_outputs_belong_to_the_caller(session: Session) -> None:
    first = session.run({"x": ramp(2, 16)})["y"]
    kept = first.copy()
    session.run({"x": ramp(2, 16) * 5})
    assert np.array_equal(first, kept)


def test_fills_out(session: Session) -> None:
    x, y = ramp(2, 16), np.empty((2, 16), np.float32)
    assert session.run({"x": x}, out={"y": y})["y"] is y
    assert np.array_equal(y, (x + 1) * 2)


def test_inputs_in_other_layouts(session: Session) -> None:
    x = ramp(4, 16)
    expected = (x + 1) * 2
    unaligned = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(4, 16)
    read_only = x.copy()
    read_only.flags.writeable = False
    for given in (np.asfortranarray(x), x[::-1][::-1], read_only, unaligned, np.repeat(x, 2, 1)[:, ::2]):
        assert np.array_equal(session.run({"x": given})["y"], expected)


def test_takes_dlpack(session: Session) -> None:
    class Tensor:
        def __dlpack__(self, **options: object) -> object:
            return ramp(2, 16).__dlpack__(**options)  # type: ignore[arg-type]

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    assert np.array_equal(session.run({"x": Tensor()})["y"], (ramp(2, 16) + 1) * 2)


@pytest.mark.parametrize(
    ("feed", "message"),
    [
        ({}, "lacks x: f32[B, 16]"),
        ({"x": ramp(1, 16), "z": ramp(1)}, "has no input z"),
        ({"x": ramp(1, 16).astype(np.float64)}, "dtype float64, expected float32"),
        ({"x": ramp(1, 16).astype(">f4")}, "dtype >f4, expected float32"),
        ({"x": [[1.0] * 16]}, "is a list, not an array"),
        ({"x": ramp(16)}, "1 dims, expected 2"),
        ({"x": ramp(2, 17)}, "dim 1 is 17, expected 16"),
        ({"x": ramp(65, 16)}, "dim 0 (B) is 65, outside 1..64"),
        ({"x": ramp(0, 16)}, "dim 0 (B) is 0, outside 1..64"),
        ({"x": np.array([["a"] * 16])}, "dtype <U1, expected float32"),
    ],
)
def test_bad_feeds(session: Session, feed: dict[str, Any], message: str) -> None:
    with pytest.raises(RunError, match=r"next:") as caught:
        session.run(feed)
    assert message in str(caught.value)
    assert np.array_equal(session.run({"x": ramp(1, 16)})["y"], (ramp(1, 16) + 1) * 2)


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ({"z": ramp(2, 16)}, "out= names z"),
        ({"y": ramp(2, 15)}, "is float32[2, 15]"),
        ({"y": ramp(2, 16).astype(np.float64)}, "is float64[2, 16]"),
        ({"y": ramp(2, 32)[:, ::2]}, "not contiguous"),
        ({"y": None}, "is a NoneType"),
    ],
)
def test_bad_out(session: Session, out: dict[str, Any], message: str) -> None:
    with pytest.raises(RunError) as caught:
        session.run({"x": ramp(2, 16)}, out=out)
    assert message in str(caught.value)


def test_out_must_not_be_an_input(session: Session) -> None:
    x = ramp(2, 16)
    with pytest.raises(RunError, match="shares memory"):
        session.run({"x": x}, out={"y": x})


def test_introspection() -> None:
    with Session(two_layers(metadata={"author": "someone"}), threads=1) as session:
        assert session.inputs == (("x", DType.F32, ("B", 16)),)
        assert session.outputs[0].name == "y"
        assert session.metadata == {"author": "someone"}
        session.run({"x": ramp(64, 16)})
        assert session.memory["arena"] == 4096
        session.trim()
        assert session.memory["arena"] == 0
        assert session.run({"x": ramp(1, 16)})["y"][0, 0] == 2


def test_closed() -> None:
    session = load(two_layers(), threads=2)
    session.run({"x": ramp(1, 16)})
    session.close()
    session.close()
    with pytest.raises(RunError, match="closed"):
        session.run({"x": ramp(1, 16)})


def test_run_async() -> None:
    with Session(two_layers(), threads=2) as session:
        futures = [session.run_async({"x": ramp(k, 16)}) for k in range(1, 20)]
        for k, future in enumerate(futures, start=1):
            assert np.array_equal(future.result()["y"], (ramp(k, 16) + 1) * 2)
        assert isinstance(session.run_async({}).exception(), RunError)


def test_constants_and_their_accounting() -> None:
    x, y = f32("x", 4), f32("y", 4)
    program = Program(
        "main",
        (x,),
        (y,),
        (),
        (buffer(x, "input"), buffer(y, "output")),
        (Launch("add", ("x", "w", "y"), (sym("B", 4, 4),)),),
    )
    engine = image(program, constants=(weight("w", 4),), weights={"w": ramp(4) + 10})
    with Session(engine, threads=1) as session:
        assert session.run({"x": ramp(4)})["y"].tolist() == [10, 12, 14, 16]
        assert session.memory["weights"] + session.memory["packed"] >= 16


def test_memory_limit() -> None:
    n = sym("N", 1)
    x, y, h = f32("x", n), f32("y", n), f32("h", n)
    steps = (Launch("add1", ("x", "h"), (n,)), Launch("double", ("h", "y"), (n,)))
    buffers = (buffer(x, "input"), buffer(y, "output"), buffer(h, "arena", 0, 1))
    engine = image(Program("main", (x,), (y,), (), buffers, steps), (Symbol("N", 1),))
    with Session(engine, threads=1, memory_limit=1 << 20) as session:
        session.run({"x": ramp(1000)})
        with pytest.raises(RunError, match="memory_limit is 1,048,576"):
            session.run({"x": ramp(1 << 19)})
        assert session.run({"x": ramp(1000)})["y"][999] == 2000


def test_workspace_of_each_thread() -> None:
    y = Port("y", DType.I64, (sym("T", 3, 3),))
    program = Program("main", (), (y,), (), (buffer(y, "output"),), (Launch("thread_numbers", ("y",)),))
    with Session(image(program, workspace=emax(4096, 8)), threads=3) as session:
        assert session.run({})["y"].tolist() == [3, 3, 3]
        assert session.memory["workspace"] >= 3 * 4096


def test_variants_are_tried_in_order() -> None:
    x, y = f32("x", B), f32("y", B)
    launch = Launch(
        "add1", ("x", "y"), (B,), variants=(Variant((B - 32,), "double"), Variant((B - 16, 20 - B), "negate"))
    )
    program = Program("main", (x,), (y,), (), (buffer(x, "input"), buffer(y, "output")), (launch,))
    with Session(image(program, (Symbol("B", 1, 64),)), threads=1) as session:
        for size, expected in ((40, 2), (32, 2), (18, -1), (21, 2), (3, 2)):
            assert session.run({"x": np.ones(size, np.float32)})["y"][0] == expected, size


def test_imports_reach_libm() -> None:
    x, y = f32("x", 1), f32("y", 1)
    program = Program(
        "main",
        (x,),
        (y,),
        (),
        (buffer(x, "input"), buffer(y, "output")),
        (Launch("calls_libm", ("x", "y"), serial=True),),
    )
    with Session(image(program), threads=1) as session:
        assert session.run({"x": np.array([3], np.float32)})["y"] == 9


def test_sums_of_input_dims_are_checked() -> None:
    a, c, y = f32("a", B), f32("c", B + 1), f32("y", B)
    program = Program(
        "main",
        (a, c),
        (y,),
        (),
        (buffer(a, "input"), buffer(c, "input"), buffer(y, "output")),
        (Launch("add", ("a", "c", "y"), (B,)),),
    )
    with Session(image(program, (Symbol("B", 1, 64),)), threads=1) as session:
        session.run({"a": ramp(3), "c": ramp(4)})
        with pytest.raises(RunError, match=r"c has shape \[3\]: dim 0 is 3, expected 4 \(B \+ 1\)"):
            session.run({"a": ramp(3), "c": ramp(3)})


def test_no_target_for_this_machine() -> None:
    engine = two_layers()
    (plan,) = engine.plans.values()
    other = Plan("cpu:aarch64", plan.symbols, plan.constants, plan.programs)
    engine.plans = {"cpu:aarch64": other}
    engine.code = {"cpu:aarch64": next(iter(engine.code.values()))}
    with pytest.raises(EngineError, match="the engine is for cpu:aarch64; this machine is"):
        Session(engine)


@pytest.mark.parametrize("options", [{"threads": 0}, {"threads": 5000}, {"affinity": [9999]}])
def test_impossible_options(options: dict[str, Any]) -> None:
    with pytest.raises(RunError, match="next:"):
        Session(two_layers(), **options)


def test_affinity() -> None:
    import os

    cpu = min(os.sched_getaffinity(0))
    with Session(two_layers(), threads=2, affinity=[cpu]) as session:
        assert session.run({"x": ramp(1, 16)})["y"][0, 0] == 2


def test_one_session_from_many_threads() -> None:
    failures: list[str] = []

    def work(session: Session, seed: int) -> None:
        for k in range(50):
            x = ramp(1 + (seed + k) % 9, 16) + seed
            if not np.array_equal(session.run({"x": x})["y"], (x + 1) * 2):
                failures.append(f"{seed}, {k}")

    with Session(two_layers(), threads=2) as shared, Session(two_layers(), threads=1) as other:
        threads = [threading.Thread(target=work, args=(s, i)) for i in range(4) for s in (shared, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures


def test_ten_thousand_runs_leak_nothing() -> None:
    import os
    import resource

    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()

    with Session(two_layers(), threads=2) as session:
        arrays = [ramp(k, 16) for k in range(1, 65)]
        for k in range(500):
            session.run({"x": arrays[k % 64]})
        gc.collect()
        before, handles = resident(), len(os.listdir("/proc/self/fd"))
        for k in range(10_000):
            session.run({"x": arrays[k * 7 % 64]})
        gc.collect()
        assert resident() - before < 2 << 20
        assert len(os.listdir("/proc/self/fd")) == handles


def test_many_sessions_leave_nothing_behind() -> None:
    for _ in range(20):
        with Session(two_layers(), threads=2) as session:
            session.run({"x": ramp(1, 16)})
    gc.collect()
    with open("/proc/self/maps") as file:
        before = len(file.readlines())
    for _ in range(100):
        with Session(two_layers(), threads=2) as session:
            session.run({"x": ramp(1, 16)})
    gc.collect()
    with open("/proc/self/maps") as file:
        assert len(file.readlines()) <= before + 3
