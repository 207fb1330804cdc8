"""hagane zoo: example models."""

from __future__ import annotations

from typing import Annotated

import typer

from hagane.cli.output import show_json, show_table

app = typer.Typer(help="Example models, by pinned hash.", no_args_is_help=True, rich_markup_mode=None)


@app.command("list", epilog="Example: hagane zoo list")
def list_models(json: Annotated[bool, typer.Option("--json", help="print JSON")] = False) -> None:
    """Lists the models."""
    from hagane import zoo

    rows = [(m.name, m.task, m.licence) for m in zoo.models()]
    if json:
        show_json([{"name": n, "task": t, "licence": lic} for n, t, lic in rows])
    else:
        show_table(("name", "task", "licence"), rows)


@app.command("pull", epilog="Example: hagane zoo pull ppocr_cls_v2")
def pull(name: Annotated[str, typer.Argument(help="a name from hagane zoo list")]) -> None:
    """Fetches or generates a model and prints the file's path."""
    from hagane import zoo

    print(zoo.pull(name))
