"""The verifier accepts a full plan and names what is wrong with a broken one."""

from __future__ import annotations

import re

import pytest

from hagane.core.errors import EngineError, InternalError
from hagane.plan.model import count_steps, preorder
from hagane.plan.parse import parse_plan
from hagane.plan.text import print_plan
from hagane.plan.verify import kernel_table, verify_plan
from tests.unit.plan.plans import KERNELS, everything


def test_accepts_everything() -> None:
    verify_plan(everything(), KERNELS)
    verify_plan(everything(), set(KERNELS))
    assert kernel_table(everything()) == KERNELS


def test_preorder_numbers() -> None:
    steps = everything().programs["main"].steps
    numbers = [number for number, _ in preorder(steps)]
    assert numbers == list(range(15)) == list(range(count_steps(steps)))
    assert [type(step).__name__ for _, step in preorder(steps)][6:12] == [
        "If",
        "Fill",
        "Loop",
        "Copy",
        "Loop",
        "If",
    ]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('launch "k"', 'launch "q"', "the code has no kernel q"),
        (
            'variant "k_even"',
            'variant "serial"',
            "kernel serial wants (2, 0) args and dims, the launch has (3, 1)",
        ),
        ('"w.packed", "h") [B]', '"w.packed") [B]', "kernel k wants (3, 1)"),
        ('("x", "w.packed"', '("z", "w.packed"', "there is no buffer z"),
        ("live 1..12 align 128", "live 2..12 align 128", "h is used at step 1, outside its lifetime"),
        ("live 1..12 align 128", "live 1..11 align 128", "h is used at step 12, outside its lifetime"),
        ("live 1..12 align 128", "live 1..99 align 128", "buffer h has no valid lifetime"),
        ("live 1..12 align 128", "live 1..12 align 96", "h is aligned to 96"),
        (
            'buffer "i" arena i64[8] live 8..10',
            'buffer "i" arena i64[8] live 8..9',
            "i is used at step 8, outside",
        ),
        ("symbol H in 0..", "symbol Q in 0..", "H isn't declared"),
        ("symbol ONE in 1..1", "symbol B in 1..1", "two symbols are named B"),
        ("symbol ONE in 1..1", "symbol ONE in 2..1", "symbol ONE has an empty range"),
        ("symbol ONE in 1..1", "symbol min in 1..1", "'min' can't be a symbol's name"),
        ("[B] region 0", "[M] region 0", "symbol M is used before it is bound"),
        ("[B] region 0", "[B] region 9", "there is no region 9"),
        ("bind M =", "bind B =", "symbol B comes from an input's shape"),
        ('bind M = "n"[0]', 'bind M = "h"[0]', "a symbol can't be read from h"),
        ('copy "u" -> "y"', 'copy "u" -> "x"', "a step writes input x"),
        ('copy "u" -> "y"', 'copy "u" -> "w.packed"', "a step writes constant w.packed"),
        ('buffer "y" output f32', 'buffer "y" output f16', "port y has no output buffer of dtype f32"),
        ('buffer "v" arena', 'buffer "v" input', "buffer v has no port"),
        ('buffer "v" arena', 'buffer "v" magic', "is of kind 'magic'"),
        ('buffer "w.packed" constant bf16', 'buffer "w.packed" constant f16', "no constant of dtype f16"),
        ('call "inner"', 'call "outer"', "there is no program outer"),
        ('call "inner"', 'call "main"', "the call of main doesn't fit"),
        (
            'copy "a" -> "b" [4*P]',
            'call "inner" ("a": f32[P]) -> ("b": f32[P])',
            "call each other in a circle",
        ),
        ("loop count [B] {", "loop {", "neither count nor condition"),
        ("with 255", "with 256", "256 is no byte"),
        ("1 = pad(0)", "1 = pad(2)", "refers to a later node"),
        ("bf16[4, 8]", "bf16[4000000000000, 8000000000]", "constant w.packed has"),
        ("bf16[4, 8]", "bf16[4, -8]", "negative dim"),
        ('program "inner"', 'program "\\u0069nner2"', "no program inner"),
    ],
)
def test_names_what_is_wrong(old: str, new: str, message: str) -> None:
    text = print_plan(everything())
    assert old in text
    plan = parse_plan(text.replace(old, new, 1))
    with pytest.raises(EngineError, match=re.escape(message)):
        verify_plan(plan, KERNELS, EngineError)


def test_our_own_plans_fail_as_internal_errors() -> None:
    with pytest.raises(InternalError, match="the code has no kernel k"):
        verify_plan(everything(), {})
