"""State values: parameters of a program that are updated in place, such as a language model's cache.

An update takes a version of the state and gives the next one, so that the order of effects is the order of
versions and no pass can lose or swap one unseen. The check here makes sure that all versions can share one
memory: a version is gone once a node has updated it.
"""

from __future__ import annotations

from hagane.core.errors import InternalError
from hagane.ir.graph import Graph, Node, Value
from hagane.ir.registry import is_op, op_def

STATE_KINDS = ("state", "control")
"""Kinds of ops that may take and give states; all others compute with tensors."""


def check_states(graph: Graph) -> None:
    """Raises: InternalError unless each version is updated at most once, not used after, and none is lost."""
    if any(v.type.state for v in graph.inputs):
        states = _States()
        states.graph(graph, set())
        return
    for node in graph.walk():
        for value in node.outputs:
            if value.type.state:
                raise InternalError(f"state %{value.name} comes from no input of the program")


def _fault(what: str, node: Node) -> InternalError:
    return InternalError(what, where={"node": f"{node} {node.loc}".strip()})


class _States:
    """root: the program's input that a version belongs to. gone: versions that a node has updated."""

    def __init__(self) -> None:
        self._root: dict[Value, Value] = {}
        self._gone: dict[Value, Node] = {}

    def graph(self, graph: Graph, updatable: set[Value]) -> None:
        """Checks a graph. updatable: versions of the graphs around that it may update."""
        for value in graph.inputs:
            if value.type.state:
                self._root.setdefault(value, value)
                updatable = updatable | {value}
        made: list[Value] = []
        for node in graph.nodes:
            self._node(node, updatable)
            fresh = [v for v in node.outputs if v.type.state]
            made += fresh
            updatable = updatable.union(fresh)
        returned = [v for v in graph.outputs if v.type.state]
        for value in returned:
            if value in self._gone:
                raise InternalError(f"%{value.name} is returned after {self._gone[value]} has updated it")
        if len({self._root[v] for v in returned}) < len(returned):
            raise InternalError(f"{graph.name} returns a state twice")
        for value in made:
            if value not in self._gone and value not in returned and value.producer is not None:
                lost = f"the update that gives %{value.name} is lost: the last version must be returned"
                raise _fault(lost, value.producer)

    def _node(self, node: Node, updatable: set[Value]) -> None:
        taken = [v for v in node.inputs if v is not None and v.type.state]
        given = [v for v in node.outputs if v.type.state]
        if (taken or given) and is_op(node.op) and op_def(node.op).kind not in STATE_KINDS:
            raise _fault(f"{node.op} can't take or give a state", node)
        for value in taken:
            if value in self._gone:
                raise _fault(
                    f"%{value.name} is used by {node} after {self._gone[value]} has updated it", node
                )
        if node.op == "if":
            self._if(node, updatable)
            return
        if given:
            self._update(node, taken, updatable)
        if node.op == "loop":
            self._loop(node)
            return
        for inner in node.graphs.values():
            self.graph(inner, set())
        for value in given:
            if len(taken) != 1:
                raise _fault(f"{node.op} should take one state, it takes {len(taken)}", node)
            self._root[value] = self._root[taken[0]]

    def _update(self, node: Node, taken: list[Value], updatable: set[Value]) -> None:
        for value in taken:
            if value not in updatable:
                raise _fault(f"{node} updates %{value.name}, which the loop around it must carry", node)
            self._gone[value] = node

    def _if(self, node: Node, updatable: set[Value]) -> None:
        """One branch runs, so each may update what the other one updates too."""
        before = dict(self._gone)
        gone = dict(before)
        for branch in node.graphs.values():
            self._gone = dict(before)
            self.graph(branch, updatable)
            inside = {v for inner in branch.walk() for v in inner.outputs}
            passed = [v for v in branch.outputs if v.type.state and v not in inside]
            gone.update(self._gone)
            gone.update(dict.fromkeys(passed, node))
        self._gone = gone
        for position, value in enumerate(node.outputs):
            if value.type.state:
                self._set_root(node, value, {self._root[g.outputs[position]] for g in node.graphs.values()})

    def _loop(self, node: Node) -> None:
        """Loops carry the states that they update; the initial version is gone."""
        body = node.graphs["body"]
        for initial, inner in zip(node.inputs, body.inputs, strict=True):
            if initial is not None and initial.type.state:
                self._root[inner] = self._root[initial]
        self.graph(body, set())
        for position, value in enumerate(node.outputs):
            if value.type.state:
                self._set_root(
                    node,
                    value,
                    {self._root[node.input(position + 2)], self._root[body.outputs[position + 1]]},
                )

    def _set_root(self, node: Node, value: Value, roots: set[Value]) -> None:
        if len(roots) > 1:
            shown = " and ".join(sorted(f"%{v.name}" for v in roots))
            raise _fault(f"%{value.name} would be a version of {shown} at once", node)
        self._root[value] = next(iter(roots))
