"""Imports an ONNX model: walks its graphs in execution order and lets each node's converter write IR.

Shapes and types that the file states for anything but inputs are not trusted: they follow from the ops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto

import hagane.frontends.onnx.ops
import hagane.ops  # noqa: F401  (registers the ops)
from hagane.core.errors import HaganeError, InternalError, ModelError
from hagane.core.symbolic import Expr, Sym, sym
from hagane.frontends.onnx.agreement import require_agreement
from hagane.frontends.onnx.attributes import Attributes
from hagane.frontends.onnx.blame import locate
from hagane.frontends.onnx.context import NodeContext
from hagane.frontends.onnx.emit import Emitter
from hagane.frontends.onnx.functions import model_functions, schema_function
from hagane.frontends.onnx.inputs import InputDims, Shapes
from hagane.frontends.onnx.reader import Model, execution_order, read_model
from hagane.frontends.onnx.registry import find_converter, known_ops
from hagane.frontends.onnx.scope import Entry, OptionalEntry, Scope, SequenceEntry
from hagane.frontends.onnx.tensors import TensorReader
from hagane.ir.graph import Graph, Loc, Value, constant

FUNCTION_DEPTH = 64


def load_onnx(source: str | Path | bytes | ModelProto, *, shapes: Shapes | None = None) -> Graph:
    """The graph of an ONNX model.

    source: a path, the file's bytes, or a ModelProto; external data is found only beside a path.
    shapes: dims of inputs by name that override the file's, wrong static ones too: sizes, names, or Dims.
    Raises: ModelError if the model can't be used, ShapeError where its shapes contradict each other.
    """
    model = read_model(source)
    importer = Importer(model, shapes)
    graph = importer.run()
    if importer.has_open_squeeze and not has_declared_ranks(model, graph):
        with suppress(ModelError):
            other = Importer(model, shapes, drops_dynamic_ones=True).run()
            graph = other if has_declared_ranks(model, other) else graph
    require_agreement(graph)
    return graph


def has_declared_ranks(model: Model, graph: Graph) -> bool:
    """True if the outputs have the ranks that the file states: a hint for what only a run could tell."""
    for proto, value in zip(model.proto.graph.output, graph.outputs, strict=True):
        tensor = proto.type.tensor_type
        if tensor.HasField("shape") and len(tensor.shape.dim) != value.rank:
            return False
    return True


@dataclass(frozen=True)
class Place:
    """Where nodes are imported to: visible names, versions of op sets, the function call around them."""

    scope: Scope
    opsets: Mapping[str, int]
    prefix: str = ""
    attributes: Mapping[str, AttributeProto] = field(default_factory=dict)
    depth: int = 0

    def opset(self, domain: str) -> int:
        return self.opsets.get("" if domain == "ai.onnx" else domain, 1)


class Importer:
    """One run over one model.

    drops_dynamic_ones: what a Squeeze without axes does with a dynamic dim, which may be 1 or not.
    """

    def __init__(self, model: Model, shapes: Shapes | None, drops_dynamic_ones: bool = False) -> None:
        self.model = model
        self.file = model.file
        self.reader = TensorReader(model.base_dir)
        self.dims = InputDims(shapes, model.file)
        self.functions = model_functions(model.proto)
        self.drops_dynamic_ones = drops_dynamic_ones
        self.has_open_squeeze = False  # set by the converter of Squeeze

    def run(self) -> Graph:
        """The whole model as a graph."""
        proto = self.model.proto
        graph = Graph("main")
        emit = Emitter(graph, self.dims.fresh_symbol)
        opsets = {("" if o.domain == "ai.onnx" else o.domain): o.version for o in proto.opset_import}
        place = Place(Scope(), opsets)
        emit.reserve([v.name for v in (*proto.graph.input, *proto.graph.output)])
        self._add_initializers(proto.graph, place.scope, emit)
        self._add_inputs(proto.graph, place.scope, emit)
        self.import_nodes(proto.graph.node, place, emit, self._graph_names(proto.graph))
        self._add_outputs(proto.graph, place.scope, emit)
        graph.symbols = self.dims.symbols | _symbols_of(graph)
        graph.metadata = {entry.key: entry.value for entry in proto.metadata_props}
        return graph

    def _add_inputs(self, proto: GraphProto, scope: Scope, emit: Emitter) -> None:
        own = [i for i in proto.input if i.name not in scope.entries]
        names = [i.name for i in own]
        if len(set(names)) != len(names) or "" in names:
            raise ModelError(f"{self.file} has inputs without a name of their own: {', '.join(names)}")
        for name, type in self.dims.types(own).items():
            value = emit.input(name, type)
            value.name = name  # the user's own, whatever characters it has
            scope.entries[name] = value

    def _add_outputs(self, proto: GraphProto, scope: Scope, emit: Emitter) -> None:
        """Each output is a value of its own that has the output's name."""
        names = [o.name for o in proto.output]
        if len(set(names)) != len(names):
            raise ModelError(f"{self.file} names an output twice: {', '.join(names)}")
        for name in names:
            value = self._output_value(scope, name)
            if value.name == name and value in emit.graph.inputs:
                emit.graph.outputs.append(value)
                continue
            taken = value.producer is None or value in emit.graph.outputs
            if taken or value.producer not in emit.graph.nodes:
                emit.loc = Loc(self.file, (f"{name} (output)",))
                value = Emitter.op(emit, "identity", value, name=name)
            value.name = name
            emit.graph.outputs.append(value)

    def _output_value(self, scope: Scope, name: str) -> Value:
        entry = scope.find(name)
        if entry is None:
            raise ModelError(
                f"output {name!r} of {self.file} is computed nowhere",
                next_step=self._similar(name, scope),
            )
        if not isinstance(entry, Value):
            kind = "sequence" if isinstance(entry, SequenceEntry) else "optional"
            raise ModelError(f"output {name!r} is of the kind {kind}; outputs must be tensors")
        return entry

    def _similar(self, name: str, scope: Scope) -> str | None:
        close = get_close_matches(name, list(scope.names()), 1)
        return f"did the exporter mean {close[0]!r}?" if close else None

    def _add_initializers(self, proto: GraphProto, scope: Scope, emit: Emitter) -> None:
        named = [(t.name, t) for t in proto.initializer]
        sparse = [(t.values.name, t) for t in proto.sparse_initializer]
        for name, tensor in [*named, *sparse]:
            if name in scope.entries or not name:
                raise ModelError(f"initializer {name!r} of {self.file} needs a name of its own")
            try:
                array, dtype = (
                    self.reader.read_sparse(tensor)
                    if hasattr(tensor, "indices")
                    else self.reader.read(tensor)
                )
            except HaganeError as error:
                error.where = {"initializer": f"{name} in {self.file}", **error.where}
                raise
            scope.entries[name] = constant(emit.fresh(name), array, dtype)

    def _graph_names(self, proto: GraphProto) -> set[str]:
        names = {i.name for i in proto.input} | {t.name for t in proto.initializer}
        return names | {t.values.name for t in proto.sparse_initializer}

    def import_nodes(
        self, nodes: Sequence[NodeProto], place: Place, emit: Emitter, taken: set[str] | None = None
    ) -> None:
        """Imports nodes in execution order into the place's scope. Raises: ModelError, ShapeError."""
        names = [n.name or f"{n.op_type}_{k}" for k, n in enumerate(nodes)]
        self._check_unique(nodes, names, taken or set())
        for position in execution_order(nodes, self.file):
            self._import_node(nodes[position], place.prefix + names[position], place, emit)

    def _check_unique(self, nodes: Sequence[NodeProto], names: Sequence[str], taken: set[str]) -> None:
        producer = dict.fromkeys(taken, "an input or initializer")
        for node, name in zip(nodes, names, strict=True):
            for output in filter(None, node.output):
                if output in producer:
                    raise ModelError(
                        f"the tensor {output!r} is computed twice",
                        where={"node": f"{name} ({node.op_type}) in {self.file}", "first": producer[output]},
                        next_step="give each tensor a name of its own",
                    )
                producer[output] = f"{name} ({node.op_type})"

    def _import_node(self, node: NodeProto, name: str, place: Place, emit: Emitter) -> None:
        outer_loc = emit.loc
        emit.loc = Loc(self.file, (f"{name} ({node.op_type})",))
        entries: list[Entry | None] = []
        try:
            named = [None if place.scope.is_absent(n) else n for n in node.input]
            entries = [self._operand(n, place.scope) if n else None for n in named]
            results = self._convert(node, name, entries, place, emit)
            self._bind_outputs(node, results, place.scope)
        except HaganeError as error:
            locate(error, self.file, node, name, entries)
            raise
        except (AssertionError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            wrapped = InternalError(
                f"importing {node.op_type} failed: {type(error).__name__}: {error}",
                next_step="report this with the model: it is a fault of Hagane, not of the file",
            )
            locate(wrapped, self.file, node, name, entries)
            raise wrapped from error
        finally:
            emit.loc = outer_loc

    def _operand(self, name: str, scope: Scope) -> Entry:
        entry = scope.find(name)
        if entry is None:
            raise ModelError(f"input {name!r} is defined nowhere", next_step=self._similar(name, scope))
        return entry

    def _convert(
        self, node: NodeProto, name: str, entries: list[Entry | None], place: Place, emit: Emitter
    ) -> Sequence[Entry | None]:
        function = self.functions.get((node.domain, node.op_type, node.overload))
        if function is not None:
            return self._expand(function, node, name, entries, place, emit)
        domain = "" if node.domain == "ai.onnx" else node.domain
        if domain not in place.opsets and (domain or not place.opsets):
            raise ModelError(f"the model uses ops of the domain {domain!r} without importing it")
        convert = find_converter(domain, node.op_type, place.opset(domain))
        if convert is not None:
            attributes = Attributes(node, place.attributes, self.reader)
            result = convert(NodeContext(self, place, emit, node, name, entries, attributes))
            if result is not None:
                attributes.check_all_read()
                return [result] if isinstance(result, (Value, SequenceEntry, OptionalEntry)) else result
        given = Attributes(node, place.attributes, self.reader).given()
        expanded = schema_function(node, list(given.values()), place.opset(domain), entries)
        if expanded is None:
            raise self._unsupported(node, domain)
        return self._expand(expanded, node, name, entries, place, emit)

    def _unsupported(self, node: NodeProto, domain: str) -> ModelError:
        op = f"{domain}.{node.op_type}" if domain else node.op_type
        close = get_close_matches(node.op_type, known_ops(domain), 1)
        similar = f"the closest supported op is {close[0]}; " if close else ""
        return ModelError(
            f"the op {op} is not supported",
            tried="a converter, a function of the model, and the function that ONNX defines the op by",
            next_step=f"{similar}hagane check lists every unsupported op of a model",
        )

    def _expand(
        self,
        function: FunctionProto,
        node: NodeProto,
        name: str,
        entries: list[Entry | None],
        place: Place,
        emit: Emitter,
    ) -> Sequence[Entry | None]:
        """Imports a function's body in place of the call."""
        if place.depth >= FUNCTION_DEPTH:
            raise ModelError(f"functions call each other more than {FUNCTION_DEPTH} levels deep")
        if len(entries) > len(function.input):
            raise ModelError(f"{node.op_type} takes {len(function.input)} inputs, it has {len(entries)}")
        scope = Scope()
        for formal, actual in zip(function.input, [*entries, *[None] * len(function.input)], strict=False):
            if actual is None:
                scope.absent.add(formal)
            else:
                scope.entries[formal] = actual
        defaults = {a.name: a for a in function.attribute_proto}
        given = Attributes(node, place.attributes, self.reader).given()
        unknown = sorted(set(given) - set(defaults) - set(function.attribute))
        if unknown:
            raise ModelError(f"the function {function.name} has no attribute {', '.join(unknown)}")
        opsets = {("" if o.domain == "ai.onnx" else o.domain): o.version for o in function.opset_import}
        inner = Place(scope, {**place.opsets, **opsets}, f"{name}/", defaults | given, place.depth + 1)
        self.import_nodes(list(function.node), inner, emit, set(function.input))
        return [scope.find(output) for output in function.output]

    def _bind_outputs(self, node: NodeProto, results: Sequence[Entry | None], scope: Scope) -> None:
        for position, name in enumerate(node.output):
            if not name:
                continue
            found = results[position] if position < len(results) else None
            if found is None:
                raise ModelError(f"{node.op_type} has no output {position} here, but {name!r} wants it")
            scope.entries[name] = found

    def import_subgraph(
        self, proto: GraphProto, place: Place, emit: Emitter, arguments: Sequence[Entry], name: str
    ) -> list[Entry]:
        """Imports a sub-graph's nodes into the emitter's graph, inputs bound to arguments; its outputs."""
        if len(arguments) != len(proto.input):
            raise ModelError(
                f"the sub-graph {name} takes {len(proto.input)} inputs, it is given {len(arguments)}"
            )
        scope = Scope(place.scope)
        inner = Place(scope, place.opsets, f"{name}/", place.attributes, place.depth + 1)
        if inner.depth > FUNCTION_DEPTH:
            raise ModelError(f"sub-graphs lie more than {FUNCTION_DEPTH} levels deep in each other")
        self._add_initializers(proto, scope, emit)
        for formal, actual in zip(proto.input, arguments, strict=True):
            scope.entries[formal.name] = actual
        self.import_nodes(list(proto.node), inner, emit, self._graph_names(proto))
        return [self._operand(o.name, scope) for o in proto.output]


def _symbols_of(graph: Graph) -> dict[str, Expr]:
    """All symbols in the shapes of a graph and its sub-graphs."""
    values = [*graph.inputs, *(v for node in graph.walk() for v in node.outputs)]
    found = {s for v in values for dim in v.shape for s in dim.symbols()}
    return {s.name: sym(s.name, s.lo, s.hi, s.multiple, s.bound) for s in sorted(found, key=Sym.sort_key)}
