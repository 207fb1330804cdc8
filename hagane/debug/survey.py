"""Imports as much of a model as can be imported and collects every error, not just the first."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from onnx import GraphProto, NodeProto

from hagane.core.errors import HaganeError, ModelError
from hagane.frontends.onnx.emit import Emitter
from hagane.frontends.onnx.importer import Importer, Place
from hagane.frontends.onnx.inputs import Shapes
from hagane.frontends.onnx.reader import read_model
from hagane.frontends.onnx.scope import Entry, Scope


def survey_onnx(source: str | Path, shapes: Shapes | None = None) -> list[HaganeError]:
    """All errors in a model, each with its node; what depends on a node with an error isn't reported.

    Raises: ModelError if the file can't be read at all.
    """
    importer = _Survey(read_model(source), shapes)
    with suppress(_LostError):
        try:
            importer.run()
        except HaganeError as error:
            if error not in importer.errors and not isinstance(error, _LostError):
                importer.errors.append(error)
    return importer.errors


class _LostError(ModelError):
    """A tensor that isn't known because the node that computes it had an error."""


class _Survey(Importer):
    """An importer that goes on after an error in a node."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.errors: list[HaganeError] = []
        self._lost: set[str] = set()

    def _import_node(self, node: NodeProto, name: str, place: Place, emit: Emitter) -> None:
        try:
            super()._import_node(node, name, place, emit)
        except HaganeError as error:
            self._lost.update(filter(None, node.output))
            if not isinstance(error, _LostError) and error not in self.errors:
                self.errors.append(error)
            if place.depth:  # the call or branch around it is lost too
                raise _LostError("an inner node had an error") from error

    def _operand(self, name: str, scope: Scope) -> Entry:
        if scope.find(name) is None and name in self._lost:
            raise _LostError(f"{name} is not known")
        return super()._operand(name, scope)

    def _add_outputs(self, proto: GraphProto, scope: Scope, emit: Emitter) -> None:
        if not self.errors:
            super()._add_outputs(proto, scope, emit)
