"""One file per family of tactics, for LLVM and for Triton."""
