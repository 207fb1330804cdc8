from __future__ import annotations

import mmap

import numpy as np
import pytest

from hagane.codegen.llvm.compile import compile_module
from hagane.codegen.llvm.dsl import Module, f64, i64
from hagane.codegen.llvm.link import link
from hagane.core.errors import InternalError
from hagane.core.targets import CpuTarget
from tests.unit.codegen.native import NEON, V3, load_modules


def _table(target: CpuTarget, name: str, numbers: list[int]) -> Module:
    """A module with a function of that name that indexes a constant, both of which others have too."""
    module = Module(target)
    module.constant("table", np.array(numbers, np.int64).tobytes())
    inner = module.function("inner", [("i", i64)], i64, internal=True, inline="never")
    inner.ret(inner.load(i64, inner.address_of("table"), inner.arg("i") * 8))
    f = module.function(name, [("i", i64)], i64)
    f.ret(f.call(inner, f.arg("i")))
    return module


def _caller(target: CpuTarget) -> Module:
    module = Module(target)
    for name in ("first", "second"):
        module.declare(name, i64, [i64])
    f = module.function("both", [("i", i64)], i64)
    f.ret(f.call("first", f.arg("i")) * 1000 + f.call("second", f.arg("i")))
    g = module.function("indirect", [("i", i64)], i64)
    g.ret(g.call_pointer(g.address_of("second"), i64, g.arg("i")))
    return module


def test_objects_call_each_other_and_keep_their_own_locals(target: CpuTarget) -> None:
    modules = [_caller(target), _table(target, "first", [3, 4, 5]), _table(target, "second", [6, 7, 8])]
    loaded = load_modules(*modules, exports=["both", "first", "indirect"])
    assert loaded("both", 1) == 4007
    assert loaded("first", 2) == 5
    assert loaded("indirect", 2) == 8
    assert loaded.blob.imports == ()
    assert list(loaded.blob.symbols) == ["both", "first", "indirect"]
    assert loaded.blob.import_table_offset == len(loaded.blob.code)


def test_imports_go_through_the_table(target: CpuTarget) -> None:
    module = Module(target)
    module.declare("fmod", f64, [f64, f64])
    module.declare("getpagesize", "i32")
    f = module.function("k", [("a", "ptr"), ("b", "ptr"), ("n", i64)], i64)
    f.copy(f.arg("a"), f.arg("b"), f.arg("n"))
    f.store(f.call("fmod", f.load(f64, f.arg("a")), 3.0), f.arg("a"))
    f.ret(f.cast(f.call_pointer(f.address_of("getpagesize"), "i32"), i64))
    loaded = load_modules(module, exports=["k"])
    assert loaded.blob.imports == ("fmod", "getpagesize", "memcpy")
    assert loaded.blob.import_table_offset % 4096 == 0
    assert len(loaded.blob.code) == loaded.blob.import_table_offset + 3 * 8
    out, x = np.zeros(4), np.array([7.5, 1, 2, 3])
    assert loaded("k", out, x, 32) == mmap.PAGESIZE
    assert out.tolist() == [1.5, 1, 2, 3]


def test_image_is_the_same_each_time(target: CpuTarget) -> None:
    def image() -> bytes:
        return link([compile_module(_table(target, "a", [1]).text(), target)], ["a"]).code

    assert image() == image()


def test_a_name_defined_twice_is_refused() -> None:
    objects = [compile_module(_table(V3, "same", [n]).text(), V3) for n in (1, 2)]
    with pytest.raises(InternalError, match="two objects define same"):
        link(objects, ["same"])


def test_a_missing_export_is_refused() -> None:
    data = compile_module(_table(V3, "there", [1]).text(), V3)
    with pytest.raises(InternalError, match="no object defines absent"):
        link([data], ["there", "absent"])


def test_absolute_addresses_are_refused() -> None:
    text = Module(V3).text() + "@f = external global i8\n@t = constant [2 x ptr] [ptr @f, ptr @f]\n"
    with pytest.raises(InternalError, match="writable"):
        link([compile_module(text, V3)], [])
    text = (
        Module(V3).text() + '@f = external global i8\n@t = constant [1 x ptr] [ptr @f], section ".rodata"\n'
    )
    with pytest.raises(InternalError, match=r"writable|R_X86_64_64"):
        link([compile_module(text, V3)], [])


def test_writable_data_is_refused() -> None:
    text = Module(V3).text() + "@counter = global i64 7\n"
    with pytest.raises(InternalError, match=r"\.data is writable"):
        link([compile_module(text, V3)], [])


def test_machines_do_not_mix() -> None:
    objects = [compile_module(_table(target, "f", [1]).text(), target) for target in (V3, NEON)]
    with pytest.raises(InternalError, match="EM_AARCH64, EM_X86_64"):
        link(objects, [])


def test_aarch64_image() -> None:
    """Its instructions are checked by hand: they can't run here."""
    modules = [_caller(NEON), _table(NEON, "first", [3]), _table(NEON, "second", [6])]
    blob = link([compile_module(m.text(), NEON) for m in modules], ["both", "first", "second"])
    words = np.frombuffer(blob.code[: len(blob.code) // 4 * 4], np.uint32)
    start = blob.symbols["both"] // 4
    end = start + int(np.argmax(words[start:] == 0xD65F03C0))
    calls = [i for i in range(start, end) if words[i] >> 26 == 0b100101]
    targets = [(i + (int(words[i]) & 0x3FFFFFF)) * 4 for i in calls]
    assert targets == [blob.symbols["first"], blob.symbols["second"]]
    assert blob.import_table_offset % 65536 == 0
