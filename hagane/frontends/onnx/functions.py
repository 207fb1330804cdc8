"""Functions that nodes may call: those in the model, and those by which ONNX itself defines an op."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
from onnx import AttributeProto, FunctionProto, ModelProto, NodeProto, TypeProto

from hagane.core.errors import ModelError
from hagane.frontends.onnx.scope import Entry
from hagane.frontends.onnx.tensors import PROTO_TYPES
from hagane.ir.graph import Value

FunctionKey = tuple[str, str, str]


def model_functions(model: ModelProto) -> dict[FunctionKey, FunctionProto]:
    """The model's functions by domain, name and overload. Raises: ModelError for two of one key."""
    found: dict[FunctionKey, FunctionProto] = {}
    for function in model.functions:
        key = (function.domain, function.name, function.overload)
        if key in found:
            raise ModelError(f"the model has two functions {function.domain}.{function.name}")
        found[key] = function
    return found


def schema_function(
    node: NodeProto, attributes: Sequence[AttributeProto], opset: int, entries: Sequence[Entry | None]
) -> FunctionProto | None:
    """The function that ONNX defines an op by, for ops that have no converter; None if there is none.

    attributes: those of the node, references to a function's attributes resolved.
    """
    domain = "" if node.domain == "ai.onnx" else node.domain
    try:
        schema: Any = onnx.defs.get_schema(node.op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None
    body: FunctionProto | None = None
    resolved = NodeProto()
    resolved.CopyFrom(node)
    del resolved.attribute[:]
    resolved.attribute.extend(attributes)
    if schema.has_function:
        usable = [v for v in schema.function_opset_versions if v <= opset]
        version = max(usable, default=min(schema.function_opset_versions, default=opset))
        body = FunctionProto.FromString(schema.get_function_with_opset_version(version))
    elif schema.has_context_dependent_function:
        types = [_type(e).SerializeToString() for e in entries]
        usable = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
        version = max(usable, default=min(schema.context_dependent_function_opset_versions, default=opset))
        data = schema.get_context_dependent_function_with_opset_version(
            version, resolved.SerializeToString(), types
        )
        body = FunctionProto.FromString(data)
    if body is None:
        return None
    for name, attribute in schema.attributes.items():
        declared = name in body.attribute or any(a.name == name for a in body.attribute_proto)
        if not declared:
            body.attribute.append(name)
        elif name in body.attribute and attribute.default_value.name:
            body.attribute.remove(name)
            body.attribute_proto.append(attribute.default_value)
    return body


def _type(entry: Entry | None) -> TypeProto:
    proto = TypeProto()
    if isinstance(entry, Value):
        proto.tensor_type.elem_type = PROTO_TYPES[entry.dtype]
        proto.tensor_type.shape.SetInParent()
        for dim in entry.shape:
            added = proto.tensor_type.shape.dim.add()
            if dim.is_const:
                added.dim_value = dim.value
    return proto
