"""All passes, found by looking through hagane.passes, and a small target for those that want one."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from typing import Any

import hagane.passes
from hagane.core.dtypes import DType
from hagane.ir.layout import ANY, AnyLayout, Layout, Layouts, blocked_channels
from hagane.ir.region import Region
from hagane.ops.recurrent import NUM_GATES
from hagane.passes.base import Pass
from hagane.passes.pipelines import build_pipeline


class BlockedConvolutions:
    """A target whose convolutions over constant channels want blocks of 4, with a halo for their padding.

    Of recurrent layers it has those in f32.
    """

    def layouts(self, region: Region) -> Layouts:
        inputs: list[Layout | AnyLayout | None] = [None if v.is_const else ANY for v in region.operands]
        outputs: list[Layout | AnyLayout | None] = [ANY for _ in region.outputs]
        anchor = region.anchor
        if anchor is None:
            plain = region.kind in ("movement", "select", "scan")
            return (
                Layouts((None,) * len(inputs), (None,) * len(outputs))
                if plain
                else Layouts(tuple(inputs), tuple(outputs))
            )
        if anchor.op != "conv" or len(anchor.output.shape) != 4 or not anchor.input(0).shape[1].is_const:
            return Layouts((None,) * len(inputs), (None,) * len(outputs))
        pads = zip(anchor.attrs["pads_begin"], anchor.attrs["pads_end"], strict=True)
        source = region.operand_of(anchor.input(0))
        inputs = [None] * len(inputs)
        inputs[source] = blocked_channels(4, 4, ((0, 0), (0, 0), *pads))
        return Layouts(tuple(inputs), (blocked_channels(4, 4),) * len(outputs))

    def computes(self, region: Region) -> bool:
        anchor = region.anchor
        return anchor is None or anchor.op not in NUM_GATES or anchor.output.dtype is DType.F32


def pass_classes() -> dict[str, type[Any]]:
    """The class of each pass by the pass's name."""
    found: dict[str, type[Any]] = {}
    for module in pkgutil.iter_modules(hagane.passes.__path__):
        for item in vars(importlib.import_module(f"hagane.passes.{module.name}")).values():
            if isinstance(item, type) and dataclasses.is_dataclass(item) and hasattr(item, "run"):
                names = [f.default for f in dataclasses.fields(item) if f.name == "name"]
                if names and item.__module__.startswith("hagane.passes."):
                    found[str(names[0])] = item
    return dict(sorted(found.items()))


def make_pass(name: str, **options: Any) -> Pass:
    """A pass by its name; one that asks for a target gets the small one."""
    cls = pass_classes()[name]
    if any(f.name == "target" for f in dataclasses.fields(cls)):
        options.setdefault("target", BlockedConvolutions())
    return cls(**options)  # type: ignore[no-any-return]


def every_pass() -> list[Pass]:
    """Each pass with its default options, but for those that need a graph of regions."""
    return [make_pass(name) for name in pass_classes() if name != "choose-layouts"]


def pipeline() -> tuple[Pass, ...]:
    """What a build runs."""
    return build_pipeline(BlockedConvolutions())
