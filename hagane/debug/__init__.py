"""Compare, bisect, reduce, inspect and report."""
