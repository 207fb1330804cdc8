"""One file per op family: schema, shape inference, NumPy reference, samples, cost.

Importing registers them all.
"""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
