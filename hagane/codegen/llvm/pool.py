"""Compiling in child processes that persist, and are replaced when LLVM takes one down."""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Iterable
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import IO, BinaryIO

import hagane
from hagane.codegen.llvm.compile import CompileOptions, CompileTarget, compile_error
from hagane.codegen.llvm.worker import read_message, write_message

_Job = tuple[str, CompileTarget, CompileOptions, "Future[bytes]"]


class CompilePool:
    """Compiles in up to `processes` children: `with CompilePool(2) as pool: pool.submit(...).result()`.

    A child that dies, or that takes longer than timeout_s, fails its one job with an InternalError that
    names a file holding the text, and is replaced. Leaving the context ends the children; jobs not yet begun
    are cancelled.
    """

    def __init__(self, processes: int = 1, timeout_s: float = 300.0) -> None:
        if processes < 1:
            raise ValueError(f"a pool needs one process at least, not {processes}")
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lanes = [_Lane(self._jobs, timeout_s) for _ in range(processes)]
        self._closed = False
        self._finalizer = weakref.finalize(self, _shut_down, self._jobs, self._lanes)

    def submit(
        self, ir_text: str, target: CompileTarget, options: CompileOptions | None = None
    ) -> Future[bytes]:
        """Queues a module; the future gives the object, or the assembly."""
        if self._closed:
            raise RuntimeError("the pool is closed")
        future: Future[bytes] = Future()
        self._jobs.put((ir_text, target, options or CompileOptions(), future))
        return future

    def close(self) -> None:
        """Cancels what hasn't begun, stops what has, and ends the children."""
        self._closed = True
        self._finalizer()

    def __enter__(self) -> CompilePool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _shut_down(jobs: queue.SimpleQueue[_Job | None], lanes: Iterable[_Lane]) -> None:
    with contextlib.suppress(queue.Empty):
        while True:
            job = jobs.get_nowait()
            if job is not None:
                job[3].cancel()
    for lane in lanes:
        jobs.put(None)
        lane.stop()
    for lane in lanes:
        lane.thread.join()


class _Lane:
    """A thread that takes jobs, and its child processes: one for each setting of LLVM's global flags."""

    def __init__(self, jobs: queue.SimpleQueue[_Job | None], timeout_s: float) -> None:
        self._jobs = jobs
        self._timeout_s = timeout_s
        self._children: dict[bool, _Child] = {}
        self._stopping = False
        self._lock = threading.Lock()
        self.thread = threading.Thread(target=self._serve, name="hagane-compile", daemon=True)
        self.thread.start()

    def stop(self) -> None:
        """Ends the children; a job in progress fails."""
        with self._lock:
            self._stopping = True
            for child in self._children.values():
                child.end()

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            ir_text, target, options, future = job
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = self._child(options).compile(ir_text, target, options, self._timeout_s)
            except Exception as error:
                future.set_exception(error)
            else:
                future.set_result(result)

    def _child(self, options: CompileOptions) -> _Child:
        with self._lock:
            if self._stopping:
                raise RuntimeError("the pool was closed")
            child = self._children.get(options.misched)
            if child is None or not child.alive:
                child = self._children[options.misched] = _Child()
            return child


class _Child:
    """One child process."""

    def __init__(self) -> None:
        package_root = str(Path(hagane.__file__).parents[1])
        known = os.environ.get("PYTHONPATH")
        path = package_root + (os.pathsep + known if known else "")
        self._ended = False
        self._complaints: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (end() closes it)
        # not multiprocessing: that imports the caller's main script again, in the child
        self._process = subprocess.Popen(
            [sys.executable, "-m", "hagane.codegen.llvm.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            env={**os.environ, "PYTHONPATH": path},
        )

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def compile(
        self, ir_text: str, target: CompileTarget, options: CompileOptions, timeout_s: float
    ) -> bytes:
        """Compiles one module. Raises: InternalError; the child may be dead then."""
        header = {
            "cpu": target.llvm_cpu,
            "features": target.llvm_features,
            "triple": target.triple,
            "assembly": options.assembly,
            "misched": options.misched,
        }
        started = time.monotonic()
        watch = threading.Timer(timeout_s, self._process.kill)
        watch.daemon = True
        watch.start()
        answer = None
        try:
            # a pipe breaks when the child dies, and is closed when the pool is
            with contextlib.suppress(BrokenPipeError, ValueError):
                write_message(_pipe(self._process.stdin), header, ir_text.encode())
                answer = read_message(_pipe(self._process.stdout))
        finally:
            watch.cancel()
        if self._ended:
            raise RuntimeError("the pool was closed")
        timed_out = time.monotonic() - started >= timeout_s
        if answer is None or timed_out:
            cause = self._cause_of_death()
            self.end()
            raise compile_error(f"it took longer than {timeout_s:g} s" if timed_out else cause, ir_text)
        ok, body = answer[0]["ok"], answer[1]
        if not ok:
            raise compile_error(body.decode(), ir_text)
        return body

    def _cause_of_death(self) -> str:
        self._process.kill()
        status = self._process.wait()
        said = ""
        with contextlib.suppress(ValueError):
            self._complaints.seek(0)
            said = self._complaints.read().decode(errors="replace").strip()
        # the first line is LLVM's own message; a stack dump follows it
        first = said.partition("\n")[0] or "it said nothing"
        return f"the compiler process ended with status {status}: {first}\n{said[-2000:]}"

    def end(self) -> None:
        """Ends the process at once, and waits for that."""
        self._ended = True
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._complaints):
            with contextlib.suppress(OSError):
                _pipe(stream).close()


def _pipe(stream: IO[bytes] | None) -> BinaryIO:
    assert stream is not None, "opened as a pipe"
    return stream  # type: ignore[return-value]
