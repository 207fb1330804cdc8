"""The command line, one file per verb."""

from __future__ import annotations

import sys


def main() -> None:
    """The `hagane` command. Exit status: 0, 1 (a check failed), 2 (usage), 3 (model or engine unusable)."""
    try:
        import typer  # noqa: F401
    except ImportError:
        print("the hagane command needs typer and rich, which are not installed", file=sys.stderr)
        print("  next: pip install 'hagane[build]'", file=sys.stderr)
        sys.exit(2)
    from hagane.cli.app import run

    run()
