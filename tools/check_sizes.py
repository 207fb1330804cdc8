"""Fails when a source file or a function is too long. Data and goldens are exempt.

A file counts all its lines; a function counts its lines of code: no blank lines, comments or docstring.
"""

import ast
import io
import subprocess
import sys
import tokenize
from pathlib import Path

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60
EXEMPT = ("tests/data/", "tests/golden/")
NOT_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
    tokenize.ENCODING,
}  # fmt: skip


def tracked_sources(root: Path) -> list[Path]:
    """The Python files that git tracks or would track."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"]
    listing = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    names = sorted(set(listing.split()))
    return [root / name for name in names if not name.startswith(EXEMPT) and (root / name).exists()]


def code_lines(source: str) -> set[int]:
    """The numbers of the lines on which some code stands."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return lines


def docstring_lines(node: ast.AST) -> set[int]:
    """The lines of the docstrings of a function and of what is defined in it."""
    lines: set[int] = set()
    documented = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    for inner in ast.walk(node):
        if isinstance(inner, documented) and ast.get_docstring(inner) is not None:
            lines.update(range(inner.body[0].lineno, (inner.body[0].end_lineno or 0) + 1))
    return lines


def too_long(path: Path, name: str) -> list[str]:
    """One message for each thing in the file that is too long."""
    source = path.read_text()
    found = []
    num_lines = source.count("\n")
    if num_lines > MAX_FILE_LINES:
        found.append(f"{name}: {num_lines} lines, the limit is {MAX_FILE_LINES}")
    lines = code_lines(source)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = set(range(node.lineno, (node.end_lineno or 0) + 1)) & lines - docstring_lines(node)
            if len(body) > MAX_FUNCTION_LINES:
                found.append(
                    f"{name}:{node.lineno}: {node.name} has {len(body)} lines of code, "
                    f"the limit is {MAX_FUNCTION_LINES}"
                )
    return found


def main() -> int:
    root = Path(__file__).resolve().parent.parent
    messages = [m for path in tracked_sources(root) for m in too_long(path, str(path.relative_to(root)))]
    print("\n".join(messages) or "every file and function is within the size limits")
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main())
