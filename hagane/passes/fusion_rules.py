"""What may be fused with what: the rules that `fuse` follows, each with its reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hagane.core.symbolic import product
from hagane.ir.graph import Node, Shape, Value
from hagane.ir.region import ANCHOR_KINDS
from hagane.ir.registry import op_def

EXPENSIVE = frozenset({
    "exp", "log", "pow", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh",
    "acosh", "atanh", "erf", "sigmoid", "softplus", "gelu", "silu", "mish", "elu", "selu", "celu",
})  # fmt: skip
ROW_KINDS = ("reduction", "normalisation")
# these move data so that neighbours no longer are neighbours: fused, they make each of the consumer's reads
# a gather
SHORT_ROW = 16
SCATTERED = ("transpose", "gather", "gather_nd", "gather_elements", "resize", "tile")


@dataclass
class Group:
    """Nodes of one region to be, in execution order; only the last one's value is read outside."""

    nodes: list[Node]

    @property
    def output(self) -> Value:
        return self.nodes[-1].output

    def kinds(self) -> set[str]:
        return {op_def(node.op).kind for node in self.nodes}

    @property
    def kind(self) -> str:
        """The region's kind: the anchor's, else the most demanding one."""
        kinds = self.kinds()
        for kind in (*ANCHOR_KINDS, "window", "normalisation", "reduction", "pointwise", "movement"):
            if kind in kinds:
                return kind
        return "pointwise"


def may_absorb(consumer: Group, producer: Group, value: Value) -> bool:
    """True if the consumer's region may compute `value`, the producer's only output, in place."""
    return all(rule(consumer, producer, value) for rule in _RULES)


def _anchors_take_epilogues_only(consumer: Group, producer: Group, value: Value) -> bool:
    """A contraction's result is consumed in registers, by pointwise ops of its own shape."""
    kinds = producer.kinds()
    if not any(kind in ANCHOR_KINDS for kind in kinds):
        return True
    if "contraction" not in kinds:
        return False
    return consumer.kinds() == {"pointwise"} and all(n.output.shape == value.shape for n in consumer.nodes)


def _anchors_have_no_prologue(consumer: Group, producer: Group, value: Value) -> bool:
    """Contractions read each input element many times; a prologue would be recomputed each time."""
    return not any(kind in ANCHOR_KINDS for kind in consumer.kinds())


def _windows_have_no_prologue(consumer: Group, producer: Group, value: Value) -> bool:
    """Overlapping windows read an element several times; padding before a window costs nothing extra."""
    if "window" not in consumer.kinds():
        return True
    return all(node.op == "pad" for node in producer.nodes)


def _nothing_expensive_is_repeated(consumer: Group, producer: Group, value: Value) -> bool:
    """Where the consumer reads an element more than once, only cheap functions may be recomputed."""
    if not any(node.op in EXPENSIVE for node in producer.nodes):
        return True
    if consumer.kinds() & {"normalisation"}:
        return False
    return _covers(value.shape, consumer)


def _covers(shape: Shape, consumer: Group) -> bool:
    """True if the consumer's loops read each element of `shape` once: no consumer node is larger."""
    return all(_same_size(node.output.shape, shape) or _reduces(node) for node in consumer.nodes)


def _reduces(node: Node) -> bool:
    return op_def(node.op).kind == "reduction"


def _same_size(a: Shape, b: Shape) -> bool:
    return [d for d in a if d != 1] == [d for d in b if d != 1]


def _broadcasts_are_not_recomputed(consumer: Group, producer: Group, value: Value) -> bool:
    """A small tensor that is spread over a larger one is computed before, unless that costs nothing."""
    if producer.kinds() <= {"movement"} or any(_reduces_rows(node) for node in producer.nodes):
        return True
    arithmetic = [node for node in producer.nodes if op_def(node.op).kind == "pointwise"]
    cheap = len(arithmetic) <= 1 and not any(n.op in EXPENSIVE for n in arithmetic)
    return cheap or _covers(value.shape, consumer)


def _reduces_rows(node: Node) -> bool:
    return op_def(node.op).kind in ROW_KINDS


def _rows_stay_rows(consumer: Group, producer: Group, value: Value) -> bool:
    """A reduced value may be spread over the row it came from, as in a norm: it is computed once a row."""
    if not any(_reduces_rows(node) for node in producer.nodes):
        return True
    if not consumer.kinds() <= {"pointwise", "reduction"}:
        return False
    return all(_leading(value.shape, node.output.shape) for node in consumer.nodes)


def _leading(row: Shape, full: Shape) -> bool:
    """True if `row` equals `full` but for trailing axes of extent 1, or is equal to it from the left."""
    if len(row) != len(full):
        return False
    axis = 0
    while axis < len(row) and row[axis] == full[axis]:
        axis += 1
    return all(d == 1 for d in row[axis:]) or all(d == 1 for d in full[axis:])


def _scattered_reads_stand_alone(consumer: Group, producer: Group, value: Value) -> bool:
    """Transposes and gathers have kernels of their own, and whatever computes next wants contiguous loads."""
    if any(node.op in SCATTERED and not _reads_rows(node) for node in producer.nodes):
        return (
            all(node.op in ("reshape", "identity", "cast") for node in consumer.nodes)
            and len(producer.nodes) == 1
        )
    for node in consumer.nodes:
        if node.op in SCATTERED and (value in node.inputs or not _reads_rows(node)):
            return producer.kinds() <= {"movement"}
    return True


def _reads_rows(node: Node) -> bool:
    """True for a gather of whole rows, such as a table's: its loads stay contiguous."""
    if node.op != "gather":
        return False
    inner = product(node.input(0).shape[node.attrs["axis"] % node.input(0).rank + 1 :])
    return inner.is_const and inner.value >= SHORT_ROW


def _windows_keep_their_output(consumer: Group, producer: Group, value: Value) -> bool:
    """After a window only element-for-element ops follow."""
    if "window" not in producer.kinds():
        return True
    return consumer.kinds() == {"pointwise"} and all(n.output.shape == value.shape for n in consumer.nodes)


_RULES: tuple[Callable[[Group, Group, Value], bool], ...] = (
    _anchors_take_epilogues_only,
    _anchors_have_no_prologue,
    _windows_have_no_prologue,
    _windows_keep_their_output,
    _nothing_expensive_is_repeated,
    _broadcasts_are_not_recomputed,
    _rows_stay_rows,
    _scattered_reads_stand_alone,
)
