"""The code section: an image of machine code, then JSON that describes it.

The description holds what calling the code relies on: where functions lie, what they import, how many
arguments each kernel takes, and the checksum of the plan that the code was compiled for. A plan that was
changed afterwards could make correct kernels read and write outside their buffers, so that it is refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from hagane.core.errors import EngineError
from hagane.engine.image import Blob, FileSlice, StoredBlob
from hagane.engine.layout import BLOB_ALIGN, Fields, check_count, damaged, parse_json
from hagane.plan.abi import DRIVER_ABI, RUN_SYMBOL, WORKER_SYMBOL

KernelTable = Mapping[str, tuple[int, int]]

_SLOT_BYTES = 8


def write_code(blob: Blob, kernels: KernelTable, plan_text: bytes) -> tuple[bytes, int]:
    """The section's bytes, and how many of them come before the description."""
    image = bytes(blob.code)
    image += bytes(-len(image) % BLOB_ALIGN)
    description = {
        "driver_abi": DRIVER_ABI,
        "image_size": len(blob.code),
        "import_table_offset": blob.import_table_offset,
        "imports": list(blob.imports),
        "kernels": {name: list(counts) for name, counts in sorted(kernels.items())},
        "plan_sha256": hashlib.sha256(plan_text).hexdigest(),
        "symbols": dict(sorted(blob.symbols.items())),
    }
    return image + json.dumps(description, separators=(",", ":")).encode(), len(image)


def read_code(
    data: memoryview, image_bytes: int, plan_text: bytes, file: FileSlice
) -> tuple[StoredBlob, dict[str, tuple[int, int]]]:
    """The code and its kernels. Raises: EngineError unless all of it fits together."""
    if not 0 < image_bytes <= len(data):
        raise damaged("the machine code has no description")
    fields = Fields(parse_json(bytes(data[image_bytes:]), "description of the code"), "code")
    version = fields.count("driver_abi")
    if version != DRIVER_ABI:
        raise EngineError(
            f"the engine's code has driver interface {version}, this version of hagane runs {DRIVER_ABI}",
            next_step="build the engine anew",
        )
    if fields.string("plan_sha256") != hashlib.sha256(plan_text).hexdigest():
        raise damaged("the plan is not the one that the code was compiled for")
    size, table = fields.count("image_size"), fields.count("import_table_offset")
    imports = tuple(fields.list("imports"))
    if not all(isinstance(name, str) for name in imports):
        raise damaged("imports must be names")
    if size > image_bytes or table + _SLOT_BYTES * len(imports) > size:
        raise damaged("the import table lies outside the code")
    symbols = {name: check_count(at, f"symbol {name}") for name, at in fields.dict("symbols").items()}
    outside = [name for name, offset in symbols.items() if offset >= (table or size)]
    if outside or not {RUN_SYMBOL, WORKER_SYMBOL} <= symbols.keys():
        raise damaged(f"the code lacks functions: {', '.join(outside) or 'the driver'}")
    kernels = {}
    for name, counts in fields.dict("kernels").items():
        if not isinstance(counts, list) or len(counts) != 2 or name not in symbols:
            raise damaged(f"kernel {name} is not declared properly")
        args, dims = (check_count(count, f"kernel {name}") for count in counts)
        kernels[name] = (args, dims)
    return StoredBlob(data[:size], symbols, imports, table, file), kernels
