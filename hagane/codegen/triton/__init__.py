"""Writes Triton sources and compiles them to machine code for NVIDIA GPUs, on any machine."""

from hagane.codegen.triton.source import INDEX_TYPES, Source

__all__ = ["INDEX_TYPES", "Source"]
