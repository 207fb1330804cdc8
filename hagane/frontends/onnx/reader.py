"""From a path, bytes or ModelProto to a checked ModelProto, and the order to import its nodes in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError, Message  # type: ignore[import-untyped, unused-ignore]
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto

from hagane.core.errors import ModelError

OLDEST_OPSET = 7
_LFS_MARK = b"version https://git-lfs"


@dataclass(frozen=True)
class Model:
    """A parsed file. file: its name for messages; base_dir: where its external data lies, None for bytes."""

    proto: ModelProto
    file: str
    base_dir: Path | None


def read_model(source: str | Path | bytes | ModelProto) -> Model:
    """Raises: ModelError if the source is missing, no ONNX model, broken, or of an opset we don't know."""
    if isinstance(source, ModelProto):
        model = Model(source, "the model", None)
    elif isinstance(source, (bytes, bytearray, memoryview)):
        model = Model(_parse(bytes(source), "the model"), "the model", None)
    elif isinstance(source, (str, Path)):
        path = Path(source)
        model = Model(_parse(_read_file(path), path.name), path.name, path.parent)
    else:
        raise ModelError(
            f"a model can't be read from {type(source).__name__}",
            next_step="pass a path, the file's bytes, or an onnx.ModelProto",
        )
    _check(model)
    return model


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:
        reason = "is a folder" if path.is_dir() else getattr(error, "strerror", None) or str(error)
        raise ModelError(
            f"can't read the model {str(path)!r}: {reason}", next_step="give the path of an .onnx file"
        ) from None


def _parse(data: bytes, file: str) -> ModelProto:
    if data.startswith(_LFS_MARK):
        raise ModelError(
            f"{file} is a pointer of Git LFS, not the model itself", next_step="fetch it with git lfs pull"
        )
    try:
        model: ModelProto = ModelProto.FromString(data)
    except DecodeError:
        raise ModelError(
            f"{file} is not an ONNX model, or is cut off ({len(data)} bytes)",
            tried="parsing it as the protocol buffer that ONNX files are",
            next_step="compare its size with the original's, and fetch or export it again",
        ) from None
    if not _is_text(model):
        raise ModelError(
            f"{file} is damaged: a name in it is not valid UTF-8",
            next_step="compare its size with the original's, and fetch or export it again",
        )
    return model


def _is_text(message: Message) -> bool:
    """True if all strings are: the parser hands out bytes for those that aren't valid UTF-8."""
    for field, value in message.ListFields():
        if field.type == field.TYPE_STRING:
            texts = [value] if isinstance(value, (str, bytes)) else value
            if not all(isinstance(t, str) for t in texts):
                return False
        elif field.type == field.TYPE_MESSAGE:
            inner = [value] if isinstance(value, Message) else value
            if not all(map(_is_text, inner)):
                return False
    return True


def _check(model: Model) -> None:
    proto = model.proto
    if not proto.HasField("graph") or not (proto.graph.node or proto.graph.output):
        raise ModelError(
            f"{model.file} is not an ONNX model: it holds no graph",
            next_step="pass the .onnx file that the exporter wrote",
        )
    if not proto.opset_import:
        raise ModelError(f"{model.file} doesn't say which opset its nodes are of")
    newest = onnx.defs.onnx_opset_version()
    for entry in proto.opset_import:
        if entry.domain in ("", "ai.onnx") and not OLDEST_OPSET <= entry.version <= newest:
            raise ModelError(
                f"{model.file} uses opset {entry.version}; opsets {OLDEST_OPSET} to {newest} are supported",
                next_step="convert it with onnx.version_converter.convert_version, or export it again",
            )


def subgraphs(node: NodeProto) -> list[tuple[str, GraphProto]]:
    """The sub-graphs of a node, with their attributes' names."""
    found: list[tuple[str, GraphProto]] = []
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            found.append((attribute.name, attribute.g))
        found += [(attribute.name, g) for g in attribute.graphs]
    return found


def free_names(graph: GraphProto) -> set[str]:
    """Names that a sub-graph takes from outside."""
    own = {i.name for i in graph.input} | {t.name for t in graph.initializer}
    own |= {t.values.name for t in graph.sparse_initializer}
    own |= {name for node in graph.node for name in node.output}
    read = {o.name for o in graph.output}
    for node in graph.node:
        read |= used_names(node)
    return read - own - {""}


def used_names(node: NodeProto) -> set[str]:
    """Names that a node reads, in its sub-graphs too."""
    read = {name for name in node.input if name}
    for _, graph in subgraphs(node):
        read |= free_names(graph)
    return read


def execution_order(nodes: Sequence[NodeProto], file: str) -> list[int]:
    """Positions of the nodes such that each comes after what it reads, in the file's order where that works.

    Raises: ModelError if nodes depend on each other in a circle.
    """
    producer = {name: k for k, node in enumerate(nodes) for name in node.output if name}
    waits_for = [{producer[n] for n in used_names(node) if n in producer} for node in nodes]
    order: list[int] = []
    state = [0] * len(nodes)  # 0 not reached, 1 on the path, 2 done
    for start in range(len(nodes)):
        stack = [(start, iter(sorted(waits_for[start])))] if state[start] == 0 else []
        while stack:
            position, rest = stack[-1]
            state[position] = 1
            following = next((k for k in rest if state[k] != 2), None)
            if following is None:
                state[position] = 2
                order.append(position)
                stack.pop()
            elif state[following] == 1:
                _report_cycle([nodes[k] for k, _ in stack], nodes[following], file)
            else:
                stack.append((following, iter(sorted(waits_for[following]))))
    return order


def _report_cycle(path: Iterable[NodeProto], closing: NodeProto, file: str) -> None:
    names = [f"{node.name or 'unnamed'} ({node.op_type})" for node in path]
    last = f"{closing.name or 'unnamed'} ({closing.op_type})"
    circle = [*names[names.index(last) if last in names else 0 :], last]
    raise ModelError(
        f"the nodes of {file} depend on each other in a circle",
        where={"circle": " <- ".join(circle[:8])},
        next_step="export the model again: no order of these nodes can run",
    )
