"""A key that regions share if the same kernels compute them, equally fast and exact."""

from __future__ import annotations

from hagane.core.hashing import content_hash
from hagane.ir.graph import Value
from hagane.ir.region import Region


def region_key(region: Region) -> str:
    """A hash of all that decides how fast and how exact kernels for the region are; names don't count."""
    numbers: dict[Value, str] = {}
    lines = []
    for inner, outer in zip(region.body.inputs, region.operands, strict=True):
        numbers[inner] = f"%{len(numbers)}"
        lines.append(f"{numbers[inner]}: {outer.type} {outer.layout} {'const' if outer.is_const else ''}")
    for node in region.body.nodes:
        inputs = ["none" if v is None else numbers.get(v) or _literal(v) for v in node.inputs]
        attrs = sorted((k, repr(a)) for k, a in node.attrs.items())
        for value in node.outputs:
            numbers[value] = f"%{len(numbers)}"
        types = [str(v.type) for v in node.outputs]
        lines.append(f"{node.op} {inputs} {attrs} {types}")
    lines += [
        f"{numbers.get(v)} {outer.layout}"
        for v, outer in zip(region.body.outputs, region.outputs, strict=True)
    ]
    return content_hash("\n".join(lines))


def _literal(value: Value) -> str:
    return f"{value.type}={None if value.data is None else value.data.tolist()}"
