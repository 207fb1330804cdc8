"""The contract between compiled code and whoever runs it: kernels, the driver, its tables, the pool's memory.

A kernel is `void kernel(ptr args, ptr dims, ptr scratch, i64 tid, i64 nthreads)`: args are 8-byte pointers,
dims i64 values, scratch this thread's own workspace, aligned to 64 bytes. Input and output buffers are
aligned to their element only. Every thread calls every kernel, which splits its work by tid; a serial
kernel gets tid 0 of 1.

The driver, compiled into every engine, exports two functions:
  void hagane_run(ptr pool, ptr job)                 runs a job with the pool's workers; a null job stops them
  void hagane_worker(ptr pool, i64 tid, i64 spins)   a worker's life, from tid 1 on; returns when stopped
A job is a table of i64 words: a header, then instructions that every thread executes. Jump targets, args and
dims are word offsets from the job's start; all other operands are addresses and numbers.

DRIVER_ABI changes with anything on this page.
"""

from __future__ import annotations

import enum
from typing import Final

DRIVER_ABI: Final = 2
RUN_SYMBOL: Final = "hagane_run"
WORKER_SYMBOL: Final = "hagane_worker"

# words of a job's header; instructions start at HEADER_WORDS
JOB_SCRATCH: Final = 0  # address of thread 0's workspace
JOB_SCRATCH_STRIDE: Final = 1  # bytes from one thread's workspace to the next
JOB_THREADS: Final = 2
HEADER_WORDS: Final = 8


class Op(enum.IntEnum):
    """Instructions of a job; the words after the opcode are in OPERANDS."""

    END = 0
    LAUNCH = 1
    SERIAL = 2
    BARRIER = 3
    COPY = 4
    PARALLEL_COPY = 5
    FILL = 6
    PARALLEL_FILL = 7
    BRANCH_IF_ZERO = 8
    JUMP = 9
    COUNTER_SET = 10
    COUNTER_TEST = 11
    COUNTER_ADD = 12
    COUNTER_STORE = 13
    PAUSE = 14
    CLOCK = 15


OPERANDS: Final[dict[Op, tuple[str, ...]]] = {
    Op.END: (),  # all threads meet, then the job is over
    Op.LAUNCH: ("kernel", "args", "dims"),  # no barrier of its own
    Op.SERIAL: ("kernel", "args", "dims"),  # thread 0 only, no barrier
    Op.BARRIER: (),
    Op.COPY: ("dst", "src", "size"),  # thread 0 only, no barrier
    Op.PARALLEL_COPY: ("dst", "src", "size"),  # split among the threads, no barrier
    Op.FILL: ("dst", "value", "size"),
    Op.PARALLEL_FILL: ("dst", "value", "size"),
    Op.BRANCH_IF_ZERO: ("byte", "target"),  # thread 0 reads the byte; a barrier publishes it
    Op.JUMP: ("target",),
    Op.COUNTER_SET: ("slot", "value"),  # counters are private to each thread, and equal
    Op.COUNTER_TEST: ("slot", "limit", "target"),  # jumps if counter >= limit
    Op.COUNTER_ADD: ("slot",),
    Op.COUNTER_STORE: ("slot", "address"),  # thread 0 writes the counter there as i64
    Op.PAUSE: ("count",),  # that many spin hints, to measure what one takes
    # thread 0 adds the ticks since its last CLOCK to the word there, and 1 to the next word; 0: only starts
    Op.CLOCK: ("cell",),
}
MAX_COUNTERS: Final = 16  # loops nested in one job

# words of the pool's memory, a cache line for each group that is written together
POOL_EPOCH: Final = 0  # count << 16 | threads of the job; workers wait for it to change
POOL_JOB: Final = 1
POOL_STOP: Final = 2
POOL_ARRIVED: Final = 8
POOL_GENERATION: Final = 16  # the barrier's
POOL_CONTROL: Final = 17  # two words: what thread 0 read for a branch
POOL_BARRIER_SLEEPERS: Final = 24
POOL_IDLE_SLEEPERS: Final = 32
POOL_FUTEX: Final = 40  # number of the futex system call; 0: never sleep
POOL_MOST_SPINS: Final = 41  # spin hints at a barrier before sleeping, at most and at least
POOL_LEAST_SPINS: Final = 42
POOL_SPINS: Final = 48  # the present number, which adapts itself
POOL_WORDS: Final = 64
MAX_THREADS: Final = 1024
