"""The command's frame: its verbs, and what an error looks like."""

from __future__ import annotations

import logging
import os
import sys

import typer

from hagane.cli import bench, build, check, compare, demo, doctor, inspect, profile, run as run_verb, zoo
from hagane.core.errors import HaganeError

app = typer.Typer(
    name="hagane",
    help="Compiles trained networks into engines tuned to the machine they run on.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for verb in (build, run_verb, bench, compare, check, inspect, profile, demo, doctor):
    app.command(name=verb.NAME, epilog=f"Example: {verb.EXAMPLE}")(verb.command)
app.add_typer(zoo.app, name="zoo")


def run() -> None:
    """Runs the command line; our errors become a message and exit status 3."""
    logging.basicConfig(level=os.environ.get("HAGANE_LOG", "WARNING"), format="%(levelname)s %(name)s: %(message)s")
    try:
        app()
    except HaganeError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(3)
    except KeyboardInterrupt:
        print("interrupted; nothing was written", file=sys.stderr)
        sys.exit(130)
