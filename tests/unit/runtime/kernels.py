"""Kernels as LLVM IR text, compiled once a process, and short ways to write plans by hand."""

from __future__ import annotations

from functools import cache

from hagane.codegen.llvm.compile import compile_module
from hagane.codegen.llvm.driver import driver_ir
from hagane.codegen.llvm.link import Blob, link
from hagane.core.dtypes import DType
from hagane.core.symbolic import Expr, product, to_expr
from hagane.core.targets import native_cpu
from hagane.engine.image import EngineImage
from hagane.plan.model import Buffer, Constant, Plan, Port, Program, Recipe, RecipeNode, Symbol

TARGET = str(native_cpu())


def pointwise(name: str, body: str, num_inputs: int = 1, element: str = "float") -> str:
    """dims[0] elements, split among the threads; args are inputs, then the output. body: %r from %a, %b."""
    names = "ab"[:num_inputs]
    loads = [
        f"""  %{c}.pp = getelementptr ptr, ptr %args, i64 {i}
  %{c}.p = load ptr, ptr %{c}.pp"""
        for i, c in enumerate(names)
    ]
    values = [
        f"""  %{c}.e = getelementptr {element}, ptr %{c}.p, i64 %i
  %{c} = load {element}, ptr %{c}.e"""
        for c in names
    ]
    newline = "\n"
    return f"""
define void @{name}(ptr %args, ptr %dims, ptr %scratch, i64 %tid, i64 %nth) {{
entry:
{newline.join(loads)}
  %o.pp = getelementptr ptr, ptr %args, i64 {num_inputs}
  %o.p = load ptr, ptr %o.pp
  %n = load i64, ptr %dims
  %n1 = add i64 %n, %nth
  %n2 = sub i64 %n1, 1
  %per = udiv i64 %n2, %nth
  %start = mul i64 %per, %tid
  %stop0 = add i64 %start, %per
  %over = icmp sgt i64 %stop0, %n
  %stop = select i1 %over, i64 %n, i64 %stop0
  br label %head
head:
  %i = phi i64 [ %start, %entry ], [ %i1, %body ]
  %more = icmp slt i64 %i, %stop
  br i1 %more, label %body, label %end
body:
{newline.join(values)}
{body}
  %o.e = getelementptr {element}, ptr %o.p, i64 %i
  store {element} %r, ptr %o.e
  %i1 = add i64 %i, 1
  br label %head
end:
  ret void
}}
"""


SERIAL = """
define void @count_positive(ptr %args, ptr %dims, ptr %scratch, i64 %tid, i64 %nth) {
entry:
  %x = load ptr, ptr %args
  %cpp = getelementptr ptr, ptr %args, i64 1
  %c = load ptr, ptr %cpp
  %n = load i64, ptr %dims
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %i1, %body ]
  %k = phi i64 [ 0, %entry ], [ %k1, %body ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %body, label %end
body:
  %e = getelementptr float, ptr %x, i64 %i
  %v = load float, ptr %e
  %p = fcmp ogt float %v, 0.0
  %p64 = zext i1 %p to i64
  %k1 = add i64 %k, %p64
  %i1 = add i64 %i, 1
  br label %head
end:
  store i64 %k, ptr %c
  ret void
}
define void @take_positive(ptr %args, ptr %dims, ptr %scratch, i64 %tid, i64 %nth) {
entry:
  %x = load ptr, ptr %args
  %ypp = getelementptr ptr, ptr %args, i64 1
  %y = load ptr, ptr %ypp
  %n = load i64, ptr %dims
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %k = phi i64 [ 0, %entry ], [ %k2, %next ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %body, label %end
body:
  %e = getelementptr float, ptr %x, i64 %i
  %v = load float, ptr %e
  %p = fcmp ogt float %v, 0.0
  br i1 %p, label %keep, label %next
keep:
  %o = getelementptr float, ptr %y, i64 %k
  store float %v, ptr %o
  %k1 = add i64 %k, 1
  br label %next
next:
  %k2 = phi i64 [ %k, %body ], [ %k1, %keep ]
  %i1 = add i64 %i, 1
  br label %head
end:
  ret void
}
define void @first_positive(ptr %args, ptr %dims, ptr %scratch, i64 %tid, i64 %nth) {
  %x = load ptr, ptr %args
  %cpp = getelementptr ptr, ptr %args, i64 1
  %c = load ptr, ptr %cpp
  %v = load float, ptr %x
  %p = fcmp ogt float %v, 0.0
  %b = zext i1 %p to i8
  store i8 %b, ptr %c
  ret void
}
define void @add_index(ptr %args, ptr %dims, ptr %scratch, i64 %tid, i64 %nth) {
  %own = icmp eq i64 %tid, 0
  br i1 %own, label %do, label %end
do:
  %ip = load ptr, ptr %args
  %ypp = getelementptr ptr, ptr %args, i64 1
  %y = load ptr, ptr %ypp
  %i = load i64, ptr %ip
  %f = sitofp i64 %i to float
  %v = load float, ptr %y
  %s = fadd float %v, %f
  store float %s, ptr %y
  br label %end
end:
  ret void
}
define void @thread_numbers(ptr %args, ptr %dims, ptr %scratch, i64 %tid, i64 %nth) {
  %y = load ptr, ptr %args
  %e = getelementptr i64, ptr %y, i64 %tid
  store i64 %nth, ptr %scratch
  %v = load i64, ptr %scratch
  store i64 %v, ptr %e
  ret void
}
define void @calls_libm(ptr %args, ptr %dims, ptr %scratch, i64 %tid, i64 %nth) {
  %x = load ptr, ptr %args
  %ypp = getelementptr ptr, ptr %args, i64 1
  %y = load ptr, ptr %ypp
  %v = load float, ptr %x
  %r = call float @powf(float %v, float 2.0)
  store float %r, ptr %y
  ret void
}
declare float @powf(float, float)
"""

KERNELS = {
    "add1": pointwise("add1", "  %r = fadd float %a, 1.0"),
    "double": pointwise("double", "  %r = fmul float %a, 2.0"),
    "negate": pointwise("negate", "  %r = fneg float %a"),
    "add": pointwise("add", "  %r = fadd float %a, %b", 2),
    "mul": pointwise("mul", "  %r = fmul float %a, %b", 2),
}
NAMES = (
    *KERNELS,
    "count_positive",
    "take_positive",
    "first_positive",
    "add_index",
    "thread_numbers",
    "calls_libm",
)


@cache
def blob() -> Blob:
    """All kernels and the driver, for this machine."""
    target = native_cpu()
    text = driver_ir(target) + "".join(KERNELS.values()) + SERIAL
    return link([compile_module(text, target)], [*NAMES, "hagane_run", "hagane_worker"])


def f32(name: str, *shape: int | Expr) -> Port:
    """A float32 port."""
    return Port(name, DType.F32, tuple(map(to_expr, shape)))


def buffer(port: Port, kind: str = "arena", first: int = 0, last: int = 0) -> Buffer:
    """The buffer of a port, or one of its size."""
    size = product(port.shape) * port.dtype.itemsize
    return Buffer(port.name, kind, port.dtype, size, first, last)


def weight(name: str, *shape: int) -> Constant:
    """A constant that is a canonical weight as it is."""
    return Constant(name, DType.F32, shape, Recipe((RecipeNode("weight", (name,)),)))


def image(
    program: Program,
    symbols: tuple[Symbol, ...] = (),
    constants: tuple[Constant, ...] = (),
    others: tuple[Program, ...] = (),
    workspace: int | Expr = 0,
    **content: object,
) -> EngineImage:
    """An engine in memory around one program."""
    programs = {item.name: item for item in (program, *others)}
    plan = Plan(TARGET, symbols, constants, programs, workspace_bytes_per_thread=to_expr(workspace))
    return EngineImage({TARGET: plan}, {TARGET: blob()}, **content)  # type: ignore[arg-type]
