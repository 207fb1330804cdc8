"""Hagane: an inference compiler and runtime.

The public names are loaded on first use, so that importing the package costs nothing and a process that only
runs engines never imports the compiler.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "build": "hagane.api",
    "compare": "hagane.api",
    "load": "hagane.api",
    "Dim": "hagane.core.dims",
    "errors": "hagane.core.errors",
}

__all__ = ["Dim", "build", "compare", "errors", "load"]


class _Package(ModuleType):
    """Keeps `hagane.build` the public function when the package of that name is imported.

    Python sets an attribute on the parent for each imported submodule; statements such as
    `from hagane.build.builder import ...` don't read it.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (name == "build" and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    """Import the module that holds a public name, the first time that the name is asked for."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'hagane' has no attribute {name!r}")
    module = import_module(home)
    value = module if home.endswith("." + name) else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
