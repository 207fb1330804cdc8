"""hagane doctor: what this machine offers, what is missing, how to get it."""

from __future__ import annotations

import os
import platform
from importlib import metadata

import typer

from hagane.cli.arguments import Json
from hagane.cli.output import show_json, show_table
from hagane.core.errors import HaganeError
from hagane.core.targets import native_cpu

NAME = "doctor"
EXAMPLE = "hagane doctor"
_PACKAGES = {
    "numpy": "runtime",
    "ml_dtypes": "runtime",
    "llvmlite": "build",
    "onnx": "build",
    "pyelftools": "build",
    "triton": "cuda",
    "cuda-bindings": "cuda",
    "onnxruntime": "comparisons",
    "openvino": "comparisons",
}


def command(json: Json = False) -> None:
    """Reports CPU, threads and packages; exit status 1 if engines can't be run or built here."""
    rows = [
        ("python", platform.python_version(), ""),
        ("system", f"{platform.system()} {platform.machine()}", ""),
    ]
    usable = True
    try:
        rows.append(("target", str(native_cpu()), ""))
    except HaganeError as error:
        usable = False
        rows.append(("target", "none", error.what))
    rows.append(("cores", str(len(os.sched_getaffinity(0))), ""))
    for package, use in _PACKAGES.items():
        version = _version(package)
        missing = version is None and use in ("runtime", "build")
        usable &= not missing
        extra = f"[{use}]" if use != "runtime" else ""
        hint = (
            f"pip install 'hagane{extra}'"
            if use in ("runtime", "build", "cuda")
            else f"pip install {package}"
        )
        rows.append((f"{package} ({use})", version or "missing", "" if version else hint))
    if json:
        show_json({name: {"found": found, "next": hint} for name, found, hint in rows})
    else:
        show_table(("", "found", "next"), rows)
    if not usable:
        raise typer.Exit(1)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
