"""hagane zoo: example models."""

from __future__ import annotations

from typing import Annotated

import typer

from hagane.cli.arguments import Json
from hagane.cli.output import show_json, show_table
from hagane.cli.progress import working

app = typer.Typer(
    help="list or fetch example models, by pinned hash", no_args_is_help=True, rich_markup_mode=None
)


@app.command("list", epilog="Example: hagane zoo list")
def list_models(json: Json = False) -> None:
    """Lists the models."""
    from hagane import zoo

    models = zoo.models()
    if json:
        keys = ("name", "task", "licence", "preprocessing")
        show_json([{key: getattr(model, key) for key in keys} for model in models])
    else:
        show_table(("name", "task", "licence"), [(m.name, m.task, m.licence) for m in models])


@app.command("pull", epilog="Example: hagane zoo pull ppocr_cls_v2")
def pull(
    name: Annotated[str, typer.Argument(help="a name from hagane zoo list", show_default=False)],
    json: Json = False,
) -> None:
    """Fetches or generates a model and prints the file's path."""
    from hagane import zoo

    with working(f"fetching {name}"):
        path = zoo.pull(name)
    if json:
        show_json({"name": name, "path": str(path), "bytes": path.stat().st_size})
    else:
        print(path)
