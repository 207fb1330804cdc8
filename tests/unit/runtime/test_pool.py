"""The thread pool and the native driver: forks, exits, more threads than cores, and odd jobs."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from typing import Any

import numpy as np
import pytest

from hagane.codegen.llvm.compile import compile_module
from hagane.codegen.llvm.driver import driver_ir
from hagane.codegen.llvm.link import Blob, link
from hagane.core.errors import EngineError
from hagane.core.symbolic import sym
from hagane.core.targets import parse_target
from hagane.plan.abi import HEADER_WORDS, JOB_THREADS, OPERANDS, POOL_EPOCH, Op
from hagane.plan.model import Launch, Program, Symbol
from hagane.runtime import Session
from hagane.runtime.devices.cpu import MappedCode, import_address
from hagane.runtime.devices.pool import Pool, _pools
from tests.unit.runtime.kernels import blob, buffer, f32, image

N = sym("N", 1)


def layers(count: int) -> Any:
    """y = x + count, one layer for each 1."""
    x, y = f32("x", N), f32("y", N)
    first = Launch("add1", ("x", "y"), (N,))
    more = [Launch("add1", ("y", "y"), (N,))] * (count - 1)
    return image(
        Program("main", (x,), (y,), (), (buffer(x, "input"), buffer(y, "output")), (first, *more)),
        (Symbol("N", 1),),
    )


def in_child(action: Any) -> int:
    """The exit status of a forked child that runs the action."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if action() else 1)
        except BaseException:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_fork(threads: int) -> None:
    x = np.arange(1000, dtype=np.float32)
    with Session(layers(5), threads=threads) as session:

        def works() -> bool:
            got = session.run({"x": x})["y"]
            later = session.run_async({"x": x + 1}).result()["y"]
            with Session(layers(2), threads=threads + 1) as other:
                return bool(
                    (got == x + 5).all()
                    and (later == x + 6).all()
                    and (other.run({"x": x})["y"] == x + 2).all()
                )

        assert works()
        assert in_child(works) == 0
        assert in_child(lambda: in_child(works) == 0) == 0
        assert works()


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_fork_during_a_run() -> None:
    x = np.zeros(4096, np.float32)
    with Session(layers(2000), threads=2) as session:
        future = session.run_async({"x": x})
        while not session._lock.locked():
            time.sleep(0)
        assert in_child(lambda: (session.run({"x": x})["y"] == 2000).all()) == 0
        assert (future.result()["y"] == 2000).all()


def test_more_threads_than_cores_do_not_collapse() -> None:
    """500 layers that take next to nothing: a spinning pool took milliseconds for each."""
    cores = len(os.sched_getaffinity(0))
    x = np.zeros(64, np.float32)
    with Session(layers(500), threads=4 * cores) as session:
        session.run({"x": x})
        start = time.perf_counter()
        for _ in range(5):
            assert (session.run({"x": x})["y"] == 500).all()
        assert (time.perf_counter() - start) / 2500 < 1e-3


def test_two_threads_on_one_core_do_not_collapse() -> None:
    code = """
        import os, time, numpy as np
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        from tests.unit.runtime.test_pool import layers
        from hagane.runtime import Session
        x = np.zeros(64, np.float32)
        with Session(layers(500), threads=2) as session:
            session.run({"x": x})
            start = time.perf_counter()
            for _ in range(10):
                session.run({"x": x})
            print((time.perf_counter() - start) / 5000 * 1e6)
        """
    assert float(python(code)) < 200


def python(code: str) -> str:
    """What a fresh interpreter prints."""
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout


@pytest.mark.parametrize("ending", ["", "session.close()", "del session", "sys.exit(0)"])
def test_interpreter_exits_cleanly(ending: str) -> None:
    code = f"""
        import sys, numpy as np
        from tests.unit.runtime.test_pool import layers
        from hagane.runtime import Session
        session = Session(layers(3), threads=3)
        session.run_async({{"x": np.zeros(5, np.float32)}})
        print(session.run({{"x": np.zeros(5, np.float32)}})["y"][0])
        {ending}
        """
    assert python(code) == "3.0\n"


def test_pool_outlives_the_session_that_brought_its_code() -> None:
    x = np.zeros(10, np.float32)
    for count in range(1, 6):
        with Session(layers(count), threads=2) as session:
            assert (session.run({"x": x})["y"] == count).all()


def test_sessions_of_different_thread_counts_take_turns() -> None:
    x = np.arange(100, dtype=np.float32)
    sessions = [Session(layers(3), threads=n) for n in (2, 4, 3, 1)]
    for _ in range(200):
        for session in sessions:
            assert (session.run({"x": x})["y"] == x + 3).all()
    for session in sessions:
        session.close()


def test_serial_programs_leave_the_workers_asleep() -> None:
    x, y = f32("x", N), f32("y", N)
    steps = (Launch("add1", ("x", "y"), (N,), serial=True), Launch("double", ("y", "y"), (N,), serial=True))
    program = Program("main", (x,), (y,), (), (buffer(x, "input"), buffer(y, "output")), steps)
    with Session(image(program, (Symbol("N", 1),)), threads=2) as session:
        pool = _pools[None]
        before = pool._memory[POOL_EPOCH]
        assert session.run({"x": np.ones(3, np.float32)})["y"].tolist() == [4, 4, 4]
        assert pool._memory[POOL_EPOCH] == before


def run_job(pool: Pool, threads: int, *instructions: tuple[Any, ...]) -> None:
    words = [word for op, *operands in instructions for word in (op, *operands)]
    job = np.zeros(HEADER_WORDS + len(words), np.int64)
    job[JOB_THREADS] = threads
    job[HEADER_WORDS:] = words
    with pool.lock:
        pool.run(pool.address, job.ctypes.data)


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 1000, 4097])
def test_parallel_copy_and_fill_touch_just_their_bytes(threads: int, size: int) -> None:
    pool = Pool(blob(), None)
    pool.grow(threads)
    source = np.random.default_rng(size).integers(0, 256, size + 16).astype(np.uint8)
    copied, filled = np.zeros(size + 16, np.uint8), np.zeros(size + 16, np.uint8)
    run_job(
        pool,
        threads,
        (Op.PARALLEL_COPY, copied.ctypes.data + 8, source.ctypes.data, size),
        (Op.PARALLEL_FILL, filled.ctypes.data + 8, 7, size),
        (Op.END,),
    )
    pool.stop()
    assert (copied[8 : size + 8] == source[:size]).all()
    assert not copied[:8].any() and not copied[size + 8 :].any()
    assert (filled[8 : size + 8] == 7).all()
    assert not filled[:8].any() and not filled[size + 8 :].any()


def test_a_stopped_pool_starts_again() -> None:
    pool = Pool(blob(), None)
    for _ in range(3):
        pool.grow(3)
        run_job(pool, 3, (Op.BARRIER,), (Op.BARRIER,), (Op.END,))
        pool.stop()
        assert pool.size == 1


def test_a_million_barriers() -> None:
    """No lost wake-up: with as many sleeps as possible, and the counters at their wrap-around."""
    pool = Pool(blob(), None)
    pool.grow(3)
    loop = HEADER_WORDS + 3
    program = (
        (Op.COUNTER_SET, 0, 0),
        (Op.COUNTER_TEST, 0, 20_000, loop + 4 + 2 + 1 + 2),
        (Op.COUNTER_ADD, 0),
        (Op.BARRIER,),
        (Op.JUMP, loop),
        (Op.END,),
    )
    for _ in range(3):
        run_job(pool, 3, *program)
    pool.stop()


def test_every_instruction_is_in_the_driver() -> None:
    text = driver_ir(parse_target("cpu:x86-64-v3"))
    for op in OPERANDS:
        assert f"\n{op.name.lower()}:\n" in text


@pytest.mark.parametrize("target", ["cpu:aarch64", "cpu:x86-64-v3", "cpu:x86-64-v4+vnni"])
def test_driver_compiles_for_every_target(target: str) -> None:
    parsed = parse_target(target)
    linked = link([compile_module(driver_ir(parsed), parsed)], ["hagane_run", "hagane_worker"])
    assert set(linked.imports) == {"memcpy", "memset", "sched_yield", "syscall"}


def test_unknown_imports_and_bad_tables() -> None:
    with pytest.raises(EngineError, match="no_such_function"):
        import_address("no_such_function")
    good = blob()
    with pytest.raises(EngineError, match="import table"):
        MappedCode(Blob(good.code, good.symbols, good.imports, len(good.code)))
    with pytest.raises(EngineError, match="import table"):
        MappedCode(Blob(b"", {}, (), 0))
    with pytest.raises(EngineError, match="lacks the function nothing"):
        MappedCode(good).address("nothing")
