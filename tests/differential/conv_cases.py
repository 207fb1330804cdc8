"""Convolutions for the tests of kernels: small graphs, as many oddities in each as fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hagane.core.dtypes import DType
from hagane.ir.builder import Builder
from hagane.ir.graph import Graph, tensor
from tests.differential.harness import Case, dims_of, integers, uniform

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Conv:
    """A convolution: x[n, ic, *spatial], oc filters; what follows it is named in `epilogue`."""

    n: int
    ic: int
    spatial: tuple[int, ...]
    oc: int
    kernel: tuple[int, ...]
    strides: tuple[int, ...] = ()
    begin: tuple[int, ...] | None = None
    end: tuple[int, ...] | None = None
    dilations: tuple[int, ...] = ()
    group: int = 1
    epilogue: tuple[str, ...] = ("bias", "relu")
    extra: tuple[int, ...] | None = None  # output_padding of a transposed convolution

    def __str__(self) -> str:
        parts = [f"{self.n}x{self.ic}x{'x'.join(map(str, self.spatial))}", f"{self.oc}k{self.kernel}"]
        parts += [f"s{self.strides}"] * bool(self.strides) + [f"d{self.dilations}"] * bool(self.dilations)
        parts += [f"p{self.begin}{self.end}"] * (self.begin is not None) + [f"g{self.group}"] * (
            self.group > 1
        )
        return "_".join([*parts, *self.epilogue]).replace(" ", "").replace(",)", ")")

    def case(self, dynamic: str = "", exact: bool = False, weight_multiple: int = 1) -> Case:
        """The graph with data. dynamic: which of the dims N, H, W are symbols. exact: small whole numbers."""
        rank = len(self.spatial)
        make = (lambda seed, *shape: integers(seed, -3, 3, *shape)) if exact else uniform
        ones, pads = (1,) * rank, tuple(k // 2 for k in self.kernel)
        attrs: dict[str, Any] = {
            "strides": self.strides or ones,
            "dilations": self.dilations or ones,
            "pads_begin": pads if self.begin is None else self.begin,
            "group": self.group,
        }
        attrs["pads_end"] = attrs["pads_begin"] if self.end is None else self.end
        names = tuple(d if d in dynamic else None for d in ("N", "-", "H", "W")[: rank + 2])
        if rank == 1:
            names = (names[0], None, "W" if "W" in dynamic else None)
        builder = Builder(Graph("conv"))
        shape = (self.n, self.ic, *self.spatial)
        x = builder.input("x", tensor(DType.F32, *dims_of(shape, names)))
        w_shape = (self.oc, self.ic // self.group, *self.kernel)
        op = "conv"
        if self.extra is not None:
            op, w_shape = "conv_transpose", (self.ic, self.oc // self.group, *self.kernel)
            attrs["output_padding"] = self.extra
        w = builder.const(make(1, *w_shape) * np.float32(weight_multiple), name="w")
        bias = builder.const(make(2, self.oc), name="b") if "bias" in self.epilogue else None
        y = builder.op(op, x, w, bias, **attrs)
        feed = {"x": make(0, *shape)}
        dims = dict(zip(("N", "-", "H", "W") if rank == 2 else ("N", "-", "W"), shape, strict=True))
        for number, step in enumerate(self.epilogue):
            full = tuple(d.evaluate(dims) for d in y.shape)
            channels = (1, self.oc) + (1,) * rank
            if step == "relu":
                y = builder.op("relu", y)
            elif step == "residual":
                feed[f"r{number}"] = make(10 + number, *full)
                y = builder.op("add", y, builder.input(f"r{number}", y.type))
            elif step == "scale":
                y = builder.op("mul", y, builder.const(make(20 + number, *channels), name="s"))
            elif step == "gate":  # one number for each image and channel, computed elsewhere
                feed[f"g{number}"] = make(30 + number, full[0], *channels[1:])
                gate = builder.input(f"g{number}", tensor(DType.F32, y.shape[0], *channels[1:]))
                y = builder.op("mul", y, gate)
            elif step == "offset":  # not zero in the unused lanes
                y = builder.op("add", y, builder.scalar_like(y, 2.0))
            elif step == "map":  # one number for each position
                feed[f"m{number}"] = make(40 + number, full[0], 1, *full[2:])
                y = builder.op(
                    "add", y, builder.input(f"m{number}", tensor(DType.F32, y.shape[0], 1, *y.shape[2:]))
                )
        builder.graph.outputs = [y]
        return Case(builder.graph, feed)
