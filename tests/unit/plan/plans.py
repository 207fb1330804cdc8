"""A plan with every kind of step, value and attribute."""

from __future__ import annotations

from hagane.core.dtypes import DType
from hagane.core.symbolic import const, emax, sym
from hagane.plan.model import (
    Alloc,
    Bind,
    Buffer,
    Call,
    Collective,
    Constant,
    Copy,
    Fill,
    Host,
    If,
    Launch,
    Loop,
    Plan,
    Port,
    Program,
    Recipe,
    RecipeNode,
    RegionInfo,
    Shape,
    Step,
    Symbol,
    Variant,
)

B, P, M = sym("B", 1, 64, 2), sym("P"), sym("M", 0, 4096)
KERNELS = {"k": (3, 1), "k_even": (3, 1), "serial": (2, 0)}


def everything() -> Plan:
    """Valid; of two programs."""
    x, y, kv = (
        Port("x", DType.F32, (B, const(4))),
        Port("y", DType.F32, (M,)),
        Port("kv", DType.F16, (const(2), B)),
    )
    main = Program("main", (x,), (y,), (kv,), _buffers(), _steps())
    return Plan(
        "cpu:x86-64-v4+bf16+vnni",
        (
            Symbol("B", 1, 64, 2),
            Symbol("H"),
            Symbol("W"),
            Symbol("M", 0, 4096),
            Symbol("P"),
            Symbol("ONE", 1, 1),
        ),
        (Constant("w.packed", DType.BF16, (4, 8), _recipe()),),
        {"main": main, "inner": _inner()},
        (
            RegionInfo(
                "up",
                "contraction",
                "matmul",
                ("/mlp/up/MatMul", "/mlp/act/Gelu"),
                B * 8,
                B * 4 + 12,
                ("why",),
            ),
            RegionInfo("count", "reduction", "generic"),
        ),
        B * 64 + 4096,
    )


def _inner() -> Program:
    return Program(
        "inner",
        (Port("a", DType.F32, (P,)),),
        (Port("b", DType.F32, (P,)),),
        (),
        (Buffer("a", "input", DType.F32, 4 * P), Buffer("b", "output", DType.F32, 4 * P)),
        (Copy("a", "b", 4 * P),),
    )


def _steps() -> tuple[Step, ...]:
    return (
        Shape((("H", B // 2), ("W", emax(B, 3) % 5))),  # 0
        Launch(
            "k", ("x", "w.packed", "h"), (B,), region=0, variants=(Variant((B - 16, 64 - B), "k_even"),)
        ),  # 1
        Launch("serial", ("h", "n"), (), serial=True, region=1),  # 2
        Bind("M", "n", 0),  # 3
        Host(
            "unique",
            {"axis": 0, "sorted": True, "eps": 1e-5, "names": ("a", (1, 2.5)), "none": None},
            (Port("h", DType.F32, (B, const(4))),),
            (Port("u", DType.F32, (P,)),),
        ),  # 4
        Alloc(("h",)),  # 5
        If(  # 6
            "c",
            (Fill("y", M * 4, 255),),  # 7
            (Loop(const(10), "c", "i", (Copy("u", "y", const(4)), Loop(B, None, None, ()))),),  # 8, 9, 10
        ),
        If("c", (Collective("all_reduce_sum", "tensor", ("h",), ("h",)),)),  # 11, 12
        Call("inner", (Port("u", DType.F32, (P,)),), (Port("v", DType.F32, (P,)),)),  # 13
        Launch("serial", ("kv", "v"), (), serial=True, device="cpu:1"),  # 14
    )


def _buffers() -> tuple[Buffer, ...]:
    return (
        Buffer("x", "input", DType.F32, B * 16),
        Buffer("y", "output", DType.F32, M * 4),
        Buffer("kv", "state", DType.F16, B * 4),
        Buffer("w.packed", "constant", DType.BF16, const(64)),
        Buffer("h", "arena", DType.F32, B * 16 + sym("H") * 4, 1, 12, 128),
        Buffer("n", "arena", DType.I64, const(8), 2, 3),
        Buffer("u", "arena", DType.F32, P * 4, 4, 13),
        Buffer("v", "arena", DType.F32, P * 4, 13, 14),
        Buffer("c", "arena", DType.BOOL, const(1), 6, 12),
        Buffer("i", "arena", DType.I64, const(8), 8, 10),
    )


def _recipe() -> Recipe:
    return Recipe(
        (
            RecipeNode("weight", ('odd "name"\n\\ é/weight',)),
            RecipeNode("pad", (0,), {"before": (0, 0), "after": (1, 3)}),
            RecipeNode("mul", (1,), {"value": -0.5}),
            RecipeNode("cast", (2,), {"dtype": "bf16"}),
        )
    )
