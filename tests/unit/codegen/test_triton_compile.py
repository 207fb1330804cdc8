"""Triton kernels compile to cubins for every architecture that we claim, on a machine without a GPU.

Each compilation is a process of its own: other tests have Triton interpret instead.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from hagane.core.targets import CUDA_CAPABILITIES

_SCRIPT = """
import sys
from hagane.codegen.triton.compile import compile_kernel
from hagane.ir.registry import op_def
from hagane.kernels.triton.generic import TACTIC
from tests.differential.kernel_cases import op_case
from hagane.codegen.triton.compile import KernelSource
import hagane.ops

for name, number in [("softmax", 0), ("gelu", 0), ("argmax", 0), ("pow", 0), ("conv", 0)]:
    op = op_def(name)
    region = op_case(op, list(op.samples())[number], False).region()
    for launch in TACTIC.lower(region, None, {}).launches:
        text = launch.write("k_" + name)
        source = KernelSource("k_" + name, text, launch.signature, launch.constants, launch.num_warps)
        cubin = compile_kernel(source, int(sys.argv[1]))
        assert cubin.code[:4] == b"\\x7fELF" and cubin.entry == "k_" + name, cubin.entry
        print(cubin.entry, len(cubin.code))
"""


@pytest.mark.parametrize("capability", CUDA_CAPABILITIES)
def test_generic_kernels_compile(capability: int) -> None:
    command = [sys.executable, "-c", _SCRIPT, str(capability)]
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 5
