"""Kernels for CPUs, written with the LLVM DSL: one file per tactic family."""
