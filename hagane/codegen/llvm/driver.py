"""The native driver of a job: barrier, table interpreter, worker loop, as LLVM IR text for any target.

Who waits spins, then sleeps on a futex. Spinning alone took 4 ms for a layer of 7 us when threads outnumbered
the cores, so the number of spins halves each time they were in vain and grows again when they were not; now
and then a barrier tries the full number. There is no yielding: two threads that yield to each other stay on
one core while another idles (barrier 2.5 us instead of 0.25, no speed-up).

What operands, words and symbols mean is in hagane.plan.abi. System calls go through libc, whose number for
futex is data, so nothing here depends on the processor but the hint that a thread is spinning.
"""

from __future__ import annotations

from typing import Protocol

from hagane.plan import abi
from hagane.plan.abi import OPERANDS, Op

_WAIT_PRIVATE, _WAKE_PRIVATE, _ALL = 128, 129, 0x7FFFFFFF
_KERNEL = "void (ptr, ptr, ptr, i64, i64)"
_PROBE = 1023  # generations between two barriers that spin in full, less one; a power of two, less one


class DriverTarget(Protocol):
    """What the driver asks of a target."""

    @property
    def arch(self) -> str: ...


def driver_ir(target: DriverTarget) -> str:
    """The driver's module for a target: it defines the two entry points and imports from libc only."""
    declarations, pause = _pause(target.arch)
    clock_declaration, clock = _clock(target.arch)
    parts = [
        _DECLARATIONS + declarations + clock_declaration,
        _wake(),
        _barrier(pause),
        _execute(pause, clock),
        _flushing(target.arch),
        _run(),
        _worker(pause),
    ]
    return "\n".join(parts)


def _pause(arch: str) -> tuple[str, str]:
    """The declaration of the spin hint and the call of it."""
    if arch.startswith("x86"):
        return "declare void @llvm.x86.sse2.pause()\n", "call void @llvm.x86.sse2.pause()"
    if arch == "aarch64":
        return "declare void @llvm.aarch64.hint(i32)\n", "call void @llvm.aarch64.hint(i32 1)"
    return "", 'fence syncscope("singlethread") seq_cst'


def _clock(arch: str) -> tuple[str, str]:
    """The declaration and the call of a counter of constant rate that any process may read."""
    if arch == "aarch64":
        declaration = 'declare i64 @llvm.read_volatile_register.i64(metadata)\n!0 = !{!"cntvct_el0"}\n'
        return declaration, "call i64 @llvm.read_volatile_register.i64(metadata !0)"
    return "declare i64 @llvm.readcyclecounter()\n", "call i64 @llvm.readcyclecounter()"


_DECLARATIONS = """
declare i64 @syscall(i64, ...)
declare i32 @sched_yield()
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)
"""


def _word(name: str, word: int, base: str = "%pool") -> str:
    return f"  %{name} = getelementptr i64, ptr {base}, i64 {word}"


def _syscall(address: str, action: int, value: str) -> str:
    """A futex call; %futex is its number."""
    arguments = f"i64 %futex, ptr {address}, i64 {action}, i64 {value}, ptr null, ptr null, i64 0"
    return f"  %r = call i64 (i64, ...) @syscall({arguments})"


def _wake() -> str:
    """Wakes all that sleep on an address."""
    return f"""
define internal void @hagane_wake(ptr %pool, ptr %address) noinline {{
{_word("futexp", abi.POOL_FUTEX)}
  %futex = load i64, ptr %futexp, align 8
{_syscall("%address", _WAKE_PRIVATE, str(_ALL))}
  ret void
}}"""


def _barrier(pause: str) -> str:
    """A barrier of nth threads: the last to arrive resets the count and starts the next generation."""
    return f"""
define internal void @hagane_barrier(ptr %pool, i64 %nth) noinline {{
entry:
  %alone = icmp eq i64 %nth, 1
  br i1 %alone, label %done, label %arrive
arrive:
{_word("arrived", abi.POOL_ARRIVED)}
{_word("generation", abi.POOL_GENERATION)}
{_word("sleepers", abi.POOL_BARRIER_SLEEPERS)}
  %mine = load atomic i64, ptr %generation monotonic, align 8
  %before = atomicrmw add ptr %arrived, i64 1 acq_rel
  %rank = add i64 %before, 1
  %last = icmp eq i64 %rank, %nth
  br i1 %last, label %release, label %wait
release:
  store atomic i64 0, ptr %arrived monotonic, align 8
  %following = add i64 %mine, 1
  store atomic i64 %following, ptr %generation seq_cst, align 8
  %asleep = load atomic i64, ptr %sleepers seq_cst, align 8
  %any = icmp ne i64 %asleep, 0
  br i1 %any, label %wake, label %done
wake:
  call void @hagane_wake(ptr %pool, ptr %generation)
  ret void
{_barrier_spin(pause)}
{_barrier_sleep()}
done:
  ret void
}}
"""


def _barrier_spin(pause: str) -> str:
    """Spins for a while until the generation changes, and adapts the number of spins to how that went."""
    return f"""\
wait:
{_word("mostp", abi.POOL_MOST_SPINS)}
{_word("leastp", abi.POOL_LEAST_SPINS)}
{_word("spinsp", abi.POOL_SPINS)}
{_word("futexp", abi.POOL_FUTEX)}
  %most = load i64, ptr %mostp, align 8
  %least = load i64, ptr %leastp, align 8
  %futex = load i64, ptr %futexp, align 8
  %known = load atomic i64, ptr %spinsp monotonic, align 8
  %phase = and i64 %mine, {_PROBE}
  %probe = icmp eq i64 %phase, {_PROBE}
  %spins = select i1 %probe, i64 %most, i64 %known
  br label %spin
spin:
  %i = phi i64 [ 0, %wait ], [ %i1, %spinning ]
  %seen1 = load atomic i64, ptr %generation acquire, align 8
  %open1 = icmp ne i64 %seen1, %mine
  br i1 %open1, label %intime, label %spinning
spinning:
  {pause}
  %i1 = add i64 %i, 1
  %more1 = icmp slt i64 %i1, %spins
  br i1 %more1, label %spin, label %vain
intime:
  %room = icmp slt i64 %known, %most
  br i1 %room, label %grow, label %done
grow:
  %eighth = lshr i64 %spins, 3
  %grown0 = add i64 %spins, %eighth
  %grown1 = add i64 %grown0, 1
  %grown = call i64 @llvm.umin.i64(i64 %grown1, i64 %most)
  store atomic i64 %grown, ptr %spinsp monotonic, align 8
  ret void
vain:
  %half = lshr i64 %known, 1
  %shrunk = call i64 @llvm.umax.i64(i64 %half, i64 %least)
  store atomic i64 %shrunk, ptr %spinsp monotonic, align 8
  %sleepless = icmp eq i64 %futex, 0
  br i1 %sleepless, label %yield, label %bed"""


def _barrier_sleep() -> str:
    """Waits without spinning until the generation changes: on the futex, or yielding where there is none."""
    return f"""\
yield:
  %y = call i32 @sched_yield()
  %seen2 = load atomic i64, ptr %generation acquire, align 8
  %open2 = icmp ne i64 %seen2, %mine
  br i1 %open2, label %done, label %yield
bed:
  %s0 = atomicrmw add ptr %sleepers, i64 1 seq_cst
  br label %sleep
sleep:
  %seen3 = load atomic i64, ptr %generation seq_cst, align 8
  %open3 = icmp ne i64 %seen3, %mine
  br i1 %open3, label %rise, label %sleeping
sleeping:
  %low = and i64 %mine, 4294967295
{_syscall("%generation", _WAIT_PRIVATE, "%low")}
  br label %sleep
rise:
  %s1 = atomicrmw sub ptr %sleepers, i64 1 seq_cst
  ret void"""


def _block(op: Op, body: str, jumps: bool = False) -> str:
    """One instruction: loads its operands as %op.operand, runs the body and, unless it jumps, goes on."""
    name = op.name.lower()
    lines = [f"{name}:"]
    for place, operand in enumerate(OPERANDS[op], start=1):
        lines.append(f"  %{name}.{operand}.p = getelementptr i64, ptr %at, i64 {place}")
        lines.append(f"  %{name}.{operand} = load i64, ptr %{name}.{operand}.p, align 8")
    lines.append(body.strip("\n").replace("$", f"%{name}."))
    if not jumps:
        lines.append(_go_on(op))
    return "\n".join(lines)


def _go_on(op: Op, suffix: str = "") -> str:
    name = f"%{op.name.lower()}.next{suffix}"
    return f"  {name} = add i64 %here, {1 + len(OPERANDS[op])}\n  store i64 {name}, ptr %pc\n  br label %step"


def _only_first(op: Op, body: str) -> str:
    """An instruction that thread 0 alone carries out."""
    name = op.name.lower()
    text = f"  br i1 %first, label %{name}.do, label %{name}.over\n{name}.do:\n{body.strip(chr(10))}\n"
    return _block(op, f"{text}  br label %{name}.over\n{name}.over:")


def _call_kernel(tid: str, nth: str) -> str:
    return f"""
  $k = inttoptr i64 $kernel to ptr
  $a = getelementptr i64, ptr %job, i64 $args
  $d = getelementptr i64, ptr %job, i64 $dims
  call {_KERNEL} $k(ptr $a, ptr $d, ptr %scratch, i64 {tid}, i64 {nth})
"""


_SLICE = """
  $chunk0 = add i64 $size, %nth63
  $chunk1 = udiv i64 $chunk0, %nth
  $chunk = and i64 $chunk1, -64
  $start0 = mul i64 $chunk, %tid
  $start = call i64 @llvm.umin.i64(i64 $start0, i64 $size)
  $rest = sub i64 $size, $start
  $part0 = call i64 @llvm.umin.i64(i64 $chunk, i64 $rest)
  $final = icmp eq i64 %tid1, %nth
  $part = select i1 $final, i64 $rest, i64 $part0
  $to0 = add i64 $dst, $start
"""
_COPY = "  call void @llvm.memcpy.p0.p0.i64(ptr $to, ptr $from, i64 {size}, i1 false)"
_FILL = """  $byte = trunc i64 $value to i8
  call void @llvm.memset.p0.i64(ptr $to, i8 $byte, i64 {size}, i1 false)"""
_BRANCH = f"""
  %parity = load i64, ptr %parityp
  %other = xor i64 %parity, 1
  store i64 %other, ptr %parityp
  %control0 = add i64 %parity, {abi.POOL_CONTROL}
  %control = getelementptr i64, ptr %pool, i64 %control0
  br i1 %first, label %publish, label %meet
publish:
  $bytep = inttoptr i64 $byte to ptr
  %flag8 = load i8, ptr $bytep
  %flag64 = zext i8 %flag8 to i64
  store atomic i64 %flag64, ptr %control monotonic, align 8
  br label %meet
meet:
  call void @hagane_barrier(ptr %pool, i64 %nth)
  %flag = load atomic i64, ptr %control monotonic, align 8
  %taken = icmp eq i64 %flag, 0
  br i1 %taken, label %branch.jump, label %branch.fall
branch.jump:
  store i64 $target, ptr %pc
  br label %step
branch.fall:
"""
_COUNTER_TEST = """
  $cp = getelementptr i64, ptr %counters, i64 $slot
  $c = load i64, ptr $cp
  $out = icmp sge i64 $c, $limit
  br i1 $out, label %counter.jump, label %counter.fall
counter.jump:
  store i64 $target, ptr %pc
  br label %step
counter.fall:
"""


_PAUSES = """
  br label %pausing
pausing:
  $i = phi i64 [ 0, %pause ], [ $i1, %pausing ]
  {pause}
  $i1 = add i64 $i, 1
  $more = icmp slt i64 $i1, $count
  br i1 $more, label %pausing, label %paused
paused:
"""


_CLOCK = """
  $now = {clock}
  $last = load i64, ptr %lastp
  store i64 $now, ptr %lastp
  $starts = icmp eq i64 $cell, 0
  br i1 $starts, label %clock.over, label %clock.count
clock.count:
  $ticksp = inttoptr i64 $cell to ptr
  $ticks = load i64, ptr $ticksp, align 8
  $passed = sub i64 $now, $last
  $ticks1 = add i64 $ticks, $passed
  store i64 $ticks1, ptr $ticksp, align 8
  $turnsp = getelementptr i64, ptr $ticksp, i64 1
  $turns = load i64, ptr $turnsp, align 8
  $turns1 = add i64 $turns, 1
  store i64 $turns1, ptr $turnsp, align 8
"""


def _instructions(pause: str, clock: str) -> list[str]:
    into = "  $to = inttoptr i64 $dst to ptr\n"
    source = "  $from = inttoptr i64 $src to ptr\n"
    part = "  $to = inttoptr i64 $to0 to ptr\n"
    part_source = "  $from0 = add i64 $src, $start\n  $from = inttoptr i64 $from0 to ptr\n"
    counter = "  $cp = getelementptr i64, ptr %counters, i64 $slot\n"
    load = counter + "  $c = load i64, ptr $cp\n"
    return [
        _block(Op.END, "  call void @hagane_barrier(ptr %pool, i64 %nth)\n  ret void", jumps=True),
        _block(Op.LAUNCH, _call_kernel("%tid", "%nth")),
        _only_first(Op.SERIAL, _call_kernel("0", "1")),
        _block(Op.BARRIER, "  call void @hagane_barrier(ptr %pool, i64 %nth)"),
        _only_first(Op.COPY, into + source + _COPY.format(size="$size")),
        _block(Op.PARALLEL_COPY, _SLICE + part + part_source + _COPY.format(size="$part")),
        _only_first(Op.FILL, into + _FILL.format(size="$size")),
        _block(Op.PARALLEL_FILL, _SLICE + part + _FILL.format(size="$part")),
        _block(Op.BRANCH_IF_ZERO, _BRANCH),
        _block(Op.JUMP, "  store i64 $target, ptr %pc\n  br label %step", jumps=True),
        _block(Op.COUNTER_SET, counter + "  store i64 $value, ptr $cp"),
        _block(Op.COUNTER_TEST, _COUNTER_TEST),
        _block(Op.COUNTER_ADD, load + "  $c1 = add i64 $c, 1\n  store i64 $c1, ptr $cp"),
        _only_first(
            Op.COUNTER_STORE, load + "  $ap = inttoptr i64 $address to ptr\n  store i64 $c, ptr $ap, align 8"
        ),
        _block(Op.PAUSE, _PAUSES.format(pause=pause)),
        _only_first(Op.CLOCK, _CLOCK.format(clock=clock)),
    ]


def _execute(pause: str, clock: str) -> str:
    cases = "\n".join(f"    i64 {op.value}, label %{op.name.lower()}" for op in Op if op is not Op.END)
    return f"""
define internal void @hagane_execute(ptr %pool, ptr %job, i64 %tid, i64 %nth) noinline {{
entry:
  %pc = alloca i64
  %parityp = alloca i64
  %lastp = alloca i64
  %counters = alloca [{abi.MAX_COUNTERS} x i64]
  store i64 {abi.HEADER_WORDS}, ptr %pc
  store i64 0, ptr %parityp
  store i64 0, ptr %lastp
{_word("scratchp", abi.JOB_SCRATCH, "%job")}
{_word("stridep", abi.JOB_SCRATCH_STRIDE, "%job")}
  %scratch0 = load i64, ptr %scratchp, align 8
  %stride = load i64, ptr %stridep, align 8
  %scratch1 = mul i64 %stride, %tid
  %scratch2 = add i64 %scratch0, %scratch1
  %scratch = inttoptr i64 %scratch2 to ptr
  %first = icmp eq i64 %tid, 0
  %tid1 = add i64 %tid, 1
  %nth63 = mul i64 %nth, 63
  br label %step
step:
  %here = load i64, ptr %pc
  %at = getelementptr i64, ptr %job, i64 %here
  %op = load i64, ptr %at, align 8
  switch i64 %op, label %end [
{cases}
  ]
{chr(10).join(_instructions(pause, clock))}
}}
"""


# bits 15 and 6 of MXCSR: results, and operands, below the smallest normal number count as zero
_FLUSH_DENORMALS = 1 << 15 | 1 << 6


def _flushing(arch: str) -> str:
    """Runs a job with denormals flushed to zero where the processor can, and restores the caller's mode.

    Tails of GELU and sigmoid are full of denormals, and arithmetic on one takes over a hundred cycles on
    x86: they took four fifths of the time of a text detector.
    """
    enter = leave = declarations = ""
    if arch.startswith("x86"):
        declarations = "declare void @llvm.x86.sse.stmxcsr(ptr)\ndeclare void @llvm.x86.sse.ldmxcsr(ptr)\n"
        enter = f"""  %saved = alloca i32, align 4
  %mode = alloca i32, align 4
  call void @llvm.x86.sse.stmxcsr(ptr %saved)
  %old = load i32, ptr %saved, align 4
  %new = or i32 %old, {_FLUSH_DENORMALS}
  store i32 %new, ptr %mode, align 4
  call void @llvm.x86.sse.ldmxcsr(ptr %mode)
"""
        leave = "  call void @llvm.x86.sse.ldmxcsr(ptr %saved)\n"
    return f"""{declarations}
define internal void @hagane_execute_flushing(ptr %pool, ptr %job, i64 %tid, i64 %nth) noinline {{
{enter}  call void @hagane_execute(ptr %pool, ptr %job, i64 %tid, i64 %nth)
{leave}  ret void
}}
"""


def _run() -> str:
    """Publishes the job to the workers and runs it as thread 0."""
    return f"""
define void @{abi.RUN_SYMBOL}(ptr %pool, ptr %job) noinline {{
entry:
{_word("epochp", abi.POOL_EPOCH)}
{_word("jobp", abi.POOL_JOB)}
{_word("stopp", abi.POOL_STOP)}
{_word("sleepersp", abi.POOL_IDLE_SLEEPERS)}
  %stop = icmp eq ptr %job, null
  br i1 %stop, label %halt, label %start
halt:
  store atomic i64 1, ptr %stopp monotonic, align 8
  br label %publish
start:
{_word("nthp", abi.JOB_THREADS, "%job")}
  %nth = load i64, ptr %nthp, align 8
  %alone = icmp eq i64 %nth, 1
  br i1 %alone, label %execute, label %publish
publish:
  %threads = phi i64 [ 65535, %halt ], [ %nth, %start ]
  %jobbits = ptrtoint ptr %job to i64
  store atomic i64 %jobbits, ptr %jobp monotonic, align 8
  %old = load atomic i64, ptr %epochp monotonic, align 8
  %count = and i64 %old, -65536
  %count1 = add i64 %count, 65536
  %epoch = or i64 %count1, %threads
  store atomic i64 %epoch, ptr %epochp seq_cst, align 8
  %asleep = load atomic i64, ptr %sleepersp seq_cst, align 8
  %any = icmp ne i64 %asleep, 0
  br i1 %any, label %wake, label %awake
wake:
  call void @hagane_wake(ptr %pool, ptr %epochp)
  br label %awake
awake:
  br i1 %stop, label %done, label %execute
execute:
  %n = phi i64 [ 1, %start ], [ %threads, %awake ]
  call void @hagane_execute_flushing(ptr %pool, ptr %job, i64 0, i64 %n)
  br label %done
done:
  ret void
}}
"""


def _worker(pause: str) -> str:
    """Waits for a new epoch. Only a worker that it needs reads the job, which then stays until it is done."""
    return f"""
define void @{abi.WORKER_SYMBOL}(ptr %pool, i64 %tid, i64 %spins) noinline {{
entry:
{_word("epochp", abi.POOL_EPOCH)}
{_word("jobp", abi.POOL_JOB)}
{_word("stopp", abi.POOL_STOP)}
{_word("sleepersp", abi.POOL_IDLE_SLEEPERS)}
{_word("futexp", abi.POOL_FUTEX)}
  %futex = load i64, ptr %futexp, align 8
  %sleepless = icmp eq i64 %futex, 0
  br label %idle
idle:
  %seen = phi i64 [ 0, %entry ], [ %epoch, %work ], [ %epoch, %news ]
  br label %spin
spin:
  %i = phi i64 [ 0, %idle ], [ %i1, %nothing ], [ %i1, %yield ], [ 0, %risen ]
  %epoch = load atomic i64, ptr %epochp acquire, align 8
  %new = icmp ne i64 %epoch, %seen
  br i1 %new, label %check, label %nothing
nothing:
  {pause}
  %i1 = add i64 %i, 1
  %few = icmp slt i64 %i1, %spins
  br i1 %few, label %spin, label %vain
vain:
  br i1 %sleepless, label %yield, label %bed
yield:
  %y = call i32 @sched_yield()
  br label %spin
bed:
  %s0 = atomicrmw add ptr %sleepersp, i64 1 seq_cst
  %still = load atomic i64, ptr %epochp seq_cst, align 8
  %quiet = icmp eq i64 %still, %seen
  br i1 %quiet, label %sleep, label %risen
sleep:
  %low = and i64 %seen, 4294967295
{_syscall("%epochp", _WAIT_PRIVATE, "%low")}
  br label %risen
risen:
  %s1 = atomicrmw sub ptr %sleepersp, i64 1 seq_cst
  br label %spin
check:
  %stop = load atomic i64, ptr %stopp acquire, align 8
  %halt = icmp ne i64 %stop, 0
  br i1 %halt, label %end, label %news
news:
  %nth = and i64 %epoch, 65535
  %needed = icmp slt i64 %tid, %nth
  br i1 %needed, label %work, label %idle
work:
  %jobbits = load atomic i64, ptr %jobp monotonic, align 8
  %job = inttoptr i64 %jobbits to ptr
  call void @hagane_execute_flushing(ptr %pool, ptr %job, i64 %tid, i64 %nth)
  br label %idle
end:
  ret void
}}
"""
