"""Graph to graph rewrites, one file per pass."""
