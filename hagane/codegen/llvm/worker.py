"""The child process of a CompilePool: reads requests from its input, writes results to its output.

A message is one line of JSON, then as many bytes as its "length" says. The child ends when its input does,
so that it doesn't outlive the parent.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from typing import Any, BinaryIO

from hagane.codegen.llvm.compile import CompileOptions, run_llvm


@dataclass(frozen=True)
class _WireTarget:
    """The part of a target that compiling needs, as sent by the parent."""

    llvm_cpu: str
    llvm_features: str
    triple: str


def write_message(stream: BinaryIO, header: dict[str, Any], body: bytes) -> None:
    """Writes a header and a body."""
    stream.write(json.dumps({**header, "length": len(body)}).encode() + b"\n" + body)
    stream.flush()


def read_message(stream: BinaryIO) -> tuple[dict[str, Any], bytes] | None:
    """Reads a header and a body; None at the end of the stream, also if it ends within a message."""
    line = stream.readline()
    if not line.endswith(b"\n"):
        return None
    header: dict[str, Any] = json.loads(line)
    body = stream.read(header["length"])
    return (header, body) if len(body) == header["length"] else None


def main() -> None:
    """Serves requests until the input ends."""
    # what LLVM prints must not get between the messages
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while (message := read_message(sys.stdin.buffer)) is not None:
        header, body = message
        target = _WireTarget(header["cpu"], header["features"], header["triple"])
        options = CompileOptions(assembly=header["assembly"], misched=header["misched"])
        try:
            write_message(output, {"ok": True}, run_llvm(body.decode(), target, options))
        except RuntimeError as error:
            write_message(output, {"ok": False}, str(error).encode())


if __name__ == "__main__":
    main()
