"""Code generators for LLVM and Triton, and their compile workers. Knows no region."""
