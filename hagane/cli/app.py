"""The command's frame: its verbs, and what an error looks like."""

from __future__ import annotations

import functools
import logging
import os
import platform
import sys
import tempfile
import traceback
from collections.abc import Callable
from typing import Any

import typer

import hagane
from hagane.cli import bench, build, check, compare, demo, doctor, inspect, profile, zoo
from hagane.cli import run as run_verb
from hagane.core.errors import HaganeError, InternalError

app = typer.Typer(
    name="hagane",
    help="Compiles trained networks into engines tuned to the machine they run on.",
    epilog="Exit status: 0 done, 1 a check failed, 2 wrong usage, 3 the model, engine or input is unusable.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
_VERBS = {
    build: "build an engine from a model",
    run_verb: "run an engine or a model once, on real data",
    bench: "measure latency and throughput, alone or beside a peer",
    compare: "compare answers with a reference",
    check: "list what is supported and what will be slow",
    inspect: "show what is inside an engine and why",
    profile: "show where the time goes",
    demo: "read the text in a picture",
    doctor: "show what this machine offers and what is missing",
}


class _InterruptedError(Exception):
    """Ctrl-C, which typer would otherwise answer by itself."""


def _interruptible(command: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(command)
    def run_command(*args: Any, **options: Any) -> None:
        try:
            command(*args, **options)
        except KeyboardInterrupt as error:
            raise _InterruptedError from error

    return run_command


for verb, summary in _VERBS.items():
    app.command(name=verb.NAME, short_help=summary, epilog=f"Example: {verb.EXAMPLE}")(
        _interruptible(verb.command)
    )
app.add_typer(zoo.app, name="zoo")


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"hagane {hagane.__version__}")
        raise typer.Exit()


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", help="print the version", is_eager=True, callback=_show_version
    ),
) -> None:
    pass


def run() -> None:
    """Runs the command line; our errors become a message and exit status 3."""
    logging.basicConfig(
        level=os.environ.get("HAGANE_LOG", "WARNING").upper(), format="%(levelname)s %(name)s: %(message)s"
    )
    try:
        app(prog_name="hagane")
    except InternalError as error:
        _fail(error, f"the details are in {_write_report()}")
    except HaganeError as error:
        _fail(error)
    except (KeyboardInterrupt, _InterruptedError):
        print("interrupted; nothing was written", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # whoever read our output has stopped
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except MemoryError:
        _fail(
            HaganeError(
                "the memory of this machine doesn't suffice",
                next_step="use smaller shapes or a smaller batch",
            )
        )
    except Exception as error:
        found = InternalError(
            f"{type(error).__name__}: {error}", next_step="please report this with the file that it names"
        )
        _fail(found, f"the details are in {_write_report()}")


def _fail(error: HaganeError, note: str = "") -> None:
    print(f"{type(error).__name__}: {error}", file=sys.stderr)
    if note:
        print(f"  {note}", file=sys.stderr)
    logging.getLogger("hagane").debug("where it was raised", exc_info=True)
    sys.exit(3)


def _write_report() -> str:
    """A file with what a bug report needs."""
    with tempfile.NamedTemporaryFile("w", prefix="hagane-report-", suffix=".txt", delete=False) as file:
        file.write(
            f"hagane {hagane.__version__}, Python {platform.python_version()}, {platform.platform()}\n"
        )
        file.write(f"arguments: {sys.argv[1:]}\n\n")
        file.write(traceback.format_exc())
    return file.name
