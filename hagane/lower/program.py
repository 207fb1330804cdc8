"""From a graph of regions to the steps and buffers of a program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from hagane.core.dtypes import DType
from hagane.core.errors import BuildError
from hagane.core.hashing import content_hash
from hagane.core.symbolic import Expr, const, emax, emin, to_expr
from hagane.ir.graph import Graph, Node, Value
from hagane.ir.layout import num_elements
from hagane.ir.region import Region
from hagane.ir.registry import op_def
from hagane.kernels.tactic import (
    Argument,
    Input,
    Lowering,
    Output,
    Packed,
    Params,
    Tactic,
    Temporary,
    describe,
)
from hagane.lower.cost import region_bytes, region_flops
from hagane.lower.kernels import KernelLibrary
from hagane.lower.lifetimes import place_lifetimes
from hagane.lower.region_key import region_key
from hagane.passes.recipes import recipe_of
from hagane.passes.views import is_view
from hagane.plan.model import (
    Bind,
    Buffer,
    Constant,
    Copy,
    Fill,
    If,
    Launch,
    Loop,
    Port,
    Program,
    Recipe,
    RegionInfo,
    Require,
    Step,
)

Choose = Callable[[Region], tuple[Tactic, Params]]


@dataclass
class ProgramWriter:
    """Writes one program; what programs of a plan share is collected here too."""

    library: KernelLibrary
    choose: Choose
    constants: dict[str, Constant] = field(default_factory=dict)
    regions: list[RegionInfo] = field(default_factory=list)
    buffers: dict[str, Buffer] = field(default_factory=dict)
    scratch_bytes: Expr = field(default_factory=lambda: const(0))
    _names: dict[Value, str] = field(default_factory=dict)

    def write(self, graph: Graph, name: str) -> Program:
        """The program of a graph whose layouts are chosen."""
        inputs = tuple(Port(v.name, v.dtype, v.shape) for v in graph.inputs)
        outputs = tuple(
            Port(o, v.dtype, v.shape) for o, v in zip(graph.port_names, graph.outputs, strict=True)
        )
        for value in graph.inputs:
            self._names[value] = self._buffer(value.name, "input", value)
        copied = self._claim_outputs(graph)
        steps = self._steps(graph)
        for port, value in copied:
            steps.append(Copy(self._name(value), port, _value_bytes(value)))
        buffers = place_lifetimes(tuple(steps), self.buffers)
        return Program(name, inputs, outputs, (), buffers, tuple(steps))

    def _claim_outputs(self, graph: Graph) -> list[tuple[str, Value]]:
        """Lets regions write into output buffers directly;
        returns the outputs that must be copied instead.
        """
        copied: list[tuple[str, Value]] = []
        own = {v for node in graph.nodes for v in node.outputs}
        for port, value in zip(graph.port_names, graph.outputs, strict=True):
            self.buffers[port] = Buffer(port, "output", value.dtype, _value_bytes(value))
            root = _root(value)
            if value in own and root in own and root not in self._names and root.layout is None:
                self._names[root] = port
            else:
                copied.append((port, value))
        return copied

    def _steps(self, graph: Graph) -> list[Step]:
        steps: list[Step] = []
        for node in graph.nodes:
            steps += self._node(node)
        return steps

    def _node(self, node: Node) -> list[Step]:
        if node.op == "region":
            return [] if is_view(node) else self._region(Region(node))
        if node.op == "bind_symbols":
            value = node.input(0)
            return [Bind(s, self._name(value), k) for k, s in enumerate(node.attrs["names"])]
        if node.op == "require_dims":
            left, right = (tuple(to_expr(d) for d in node.attrs[side]) for side in ("left", "right"))
            return [Require(left, right, node.attrs["message"])]
        if node.op == "if":
            return self._if(node)
        if node.op == "loop":
            return self._loop(node)
        raise BuildError(
            f"op {node.op!r} ({op_def(node.op).kind}) can't run on this target yet",
            where={"node": str(node.loc)},
            next_step="hagane check MODEL lists every such op",
        )

    def _region(self, region: Region) -> list[Step]:
        tactic, params = self.choose(region)
        lowering = tactic.lower(region, self.library.target, params)
        number = len(self.regions)
        kind = region.kind
        info = RegionInfo(
            region.outputs[0].name,
            kind,
            describe(tactic, params),
            region.node.loc.nodes,
            region_flops(region),
            region_bytes(region),
        )
        self.regions.append(info)
        self.scratch_bytes = emax(self.scratch_bytes, lowering.scratch_bytes)
        for value in region.outputs:
            self._name(value)
        temporaries = self._temporaries(region, lowering)
        steps: list[Step] = []
        key = f"{region_key(region)} {info.tactic}"
        for position, launch in enumerate(lowering.launches):
            kernel = self.library.add(launch, kind, f"{key} {position}")
            args = tuple(self._argument(a, region, temporaries) for a in launch.args)
            steps.append(Launch(kernel, args, launch.dims, launch.serial, number))
        return steps

    def _temporaries(self, region: Region, lowering: Lowering) -> list[str]:
        names = []
        for number, size in enumerate(lowering.temporaries):
            name = f"{region.outputs[0].name}.tmp{number}"
            self.buffers[name] = Buffer(name, "arena", DType.U8, size)
            names.append(name)
        return names

    def _argument(self, argument: Argument, region: Region, temporaries: list[str]) -> str:
        match argument:
            case Input(position=k):
                return self._name(region.operands[k])
            case Output(position=k):
                return self._name(region.outputs[k])
            case Temporary(number=k):
                return temporaries[k]
            case Packed(recipe=recipe, dtype=dtype, shape=shape):
                return self._constant(recipe, dtype, shape)

    def _constant(self, recipe: Recipe, dtype: DType, shape: tuple[int, ...]) -> str:
        name = "packed_" + content_hash(repr((recipe.nodes, dtype, shape)))[:16]
        if name not in self.constants:
            self.constants[name] = Constant(name, dtype, shape, recipe)
            size = dtype.itemsize
            for extent in shape:
                size *= extent
            self.buffers[name] = Buffer(name, "constant", dtype, const(size))
        return name

    def _name(self, value: Value) -> str:
        """The buffer that holds a value, made at first sight."""
        value = _root(value)
        if value not in self._names:
            if value.data is not None:
                self._names[value] = self._constant(recipe_of(value), value.dtype, value.data.shape)
            else:
                self._names[value] = self._buffer(value.name, "arena", value)
        return self._names[value]

    def _buffer(self, name: str, kind: str, value: Value) -> str:
        while name in self.buffers:  # a port may have the name of another value
            name += "'"
        self.buffers[name] = Buffer(name, kind, value.dtype, _value_bytes(value))
        return name

    def _if(self, node: Node) -> list[Step]:
        branches: list[tuple[Step, ...]] = []
        for name in ("then", "else"):
            graph = node.graphs[name]
            steps = self._steps(graph)
            for inner, outer in zip(graph.outputs, node.outputs, strict=True):
                # equal where the branch is taken; sizes are checked where it isn't, too
                size = emin(_value_bytes(_root(inner)), _value_bytes(outer))
                steps.append(Copy(self._name(inner), self._name(outer), size))
            branches.append(tuple(steps))
        return [If(self._name(node.input(0)), branches[0], branches[1])]

    def _loop(self, node: Node) -> list[Step]:
        """A loop's carried values live in buffers of their own, copied at the end of each turn."""
        body = node.graphs["body"]
        trip, cond, *carried = node.inputs
        count = len(carried)
        if len(node.outputs) > count:
            raise _loop_error(node, "it collects rows whose number or size isn't known before")
        steps: list[Step] = []
        index, turn, *state = body.inputs
        if not _symbol_names(state) <= _symbol_names(carried):
            raise _loop_error(node, "what it carries changes its size between turns")
        for inner, start in zip(state, carried, strict=True):
            assert start is not None
            steps.append(Copy(self._name(start), self._name(inner), _value_bytes(inner)))
        if cond is not None:
            steps.append(Copy(self._name(cond), self._name(turn), const(1)))
        else:
            steps.append(Fill(self._name(turn), const(1), 1))
        trip_count: Expr | None = None
        if trip is not None:
            elements = trip.elements
            if elements is None:
                raise _loop_error(node, "its number of turns is computed")
            trip_count = elements[0]
        inner_steps = self._steps(body)
        inner_steps += self._next_turn([turn, *state], body.outputs)
        steps.append(Loop(trip_count, self._name(turn), self._name(index), tuple(inner_steps)))
        for inner, outer in zip(state, node.outputs, strict=True):
            steps.append(Copy(self._name(inner), self._name(outer), _value_bytes(outer)))
        return steps

    def _next_turn(self, state: list[Value], results: list[Value]) -> list[Step]:
        """Copies a turn's results to where the next one reads them.

        A result that is another carried value's state goes through a buffer, as that state may be overwritten
        by then.
        """
        own = {self._name(v) for v in state}
        staged: list[Step] = []
        direct: list[Step] = []
        for inner, result in zip(state, results, strict=True):
            source, target, size = self._name(result), self._name(inner), _value_bytes(inner)
            if source in own and source != target:
                between = f"{inner.name}.next"
                self.buffers[between] = replace(self.buffers[target], name=between)
                staged.append(Copy(source, between, size))
                source = between
            if source != target:
                direct.append(Copy(source, target, size))
        return staged + direct


def _loop_error(node: Node, what: str) -> BuildError:
    return BuildError(
        f"a loop can't run on this target yet: {what}",
        where={"node": str(node.loc)},
        next_step="export the model with the loop unrolled, or with a fixed size and a mask",
    )


def _symbol_names(values: Sequence[Value | None]) -> set[str]:
    return {s.name for v in values if v is not None for dim in v.shape for s in dim.symbols()}


def _root(value: Value) -> Value:
    """The value whose memory a view shares."""
    while value.producer is not None and is_view(value.producer):
        value = value.producer.input(0)
    return value


def _value_bytes(value: Value) -> Expr:
    return num_elements(value.layout, value.shape) * value.dtype.itemsize
