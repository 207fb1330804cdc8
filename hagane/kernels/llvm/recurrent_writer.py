"""Writes the kernels of recurrent layers: the inputs' part of all gates, and the walk over time."""

from __future__ import annotations

from dataclasses import dataclass

from hagane.codegen.llvm import Function, Type, Value
from hagane.kernels.llvm.frame import Frame
from hagane.kernels.llvm.gemm_tile import F32_BYTES, Panel, Rows, Sums, Tile
from hagane.kernels.llvm.gemm_writer import HeightFunctions, Heights, cut_rows
from hagane.kernels.llvm.recurrent_cells import Cell
from hagane.kernels.llvm.recurrent_problem import Layer

_UPDATE = 0


@dataclass(frozen=True)
class Block:
    """Matrices side by side in panels: columns are (block of hidden units, gate, unit)."""

    gates: tuple[int, ...]
    tile: Tile
    num_blocks: int

    @property
    def num_panels(self) -> int:
        return -(-self.num_blocks * len(self.gates) // self.tile.vectors)

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of the product, whole panels."""
        return self.num_panels * self.tile.row_bytes

    def matrix_bytes(self, depth: int) -> int:
        return self.row_bytes * depth

    def where(self, f: Function, block: Value, gate: int) -> Value:
        """Byte offset of a gate of a block of units in a row."""
        return (block * len(self.gates) + self.gates.index(gate)) * (self.tile.lanes * F32_BYTES)


def multiply_panels(
    f: Function,
    functions: HeightFunctions,
    block: Block,
    height: Value,
    depth: int,
    a: Rows,
    weights: Value,
    out: Sums,
) -> None:
    """Rows times all panels of one matrix."""
    with f.loop(0, block.num_panels) as panel:
        b = Panel(f.ptr(weights, panel * (depth * block.tile.row_bytes)), block.tile.row_bytes)
        place = Sums(f.ptr(out.pointer, panel * block.tile.row_bytes), out.row)
        functions.call(height, depth, a, b, place)


def write_projection(frame: Frame, layer: Layer, block: Block) -> None:
    """Inputs times input weights; arguments: weights, x, result[directions, steps * batch, columns]."""
    f, scope = frame.f, frame.scope
    weights, x, result = frame.pointers
    total = scope.expr(layer.length * layer.batch)
    cut = cut_rows(f, total, block.tile.rows)
    functions = HeightFunctions(frame.module, f, block.tile, "x")
    panels, depth = block.num_panels, layer.features
    lo, hi = frame.share(cut.count * (panels * layer.directions))
    with f.loop(lo, hi) as unit:
        tile, rest = unit % f.imax(cut.count, 1), unit // f.imax(cut.count, 1)
        panel, direction = rest % panels, rest // panels
        first, height = cut.first_row(f, tile), cut.height(f, tile)
        a = Rows(f.ptr(x, first * (depth * F32_BYTES)), depth * F32_BYTES)
        b = Panel(f.ptr(weights, rest * (depth * block.tile.row_bytes)), block.tile.row_bytes)
        where = (direction * total + first) * block.row_bytes + panel * block.tile.row_bytes
        functions.call(height, depth, a, b, Sums(f.ptr(result, where), block.row_bytes))


@dataclass(frozen=True)
class StepBuffers:
    """Byte offsets in a thread's scratch memory: states, products of states and of inputs, for one tile."""

    h: int
    c: int
    reset_h: int
    products: tuple[int, ...]
    inputs: int
    total: int


def step_buffers(layer: Layer, groups: tuple[Block, ...], inputs: Block, inside: bool) -> StepBuffers:
    """Lays out the scratch memory. inside: whether inputs are multiplied step by step."""
    rows = groups[0].tile.rows
    state = rows * layer.padded * F32_BYTES
    offsets: list[int] = [0, state, 2 * state]
    place = 3 * state if layer.reset_first else 2 * state
    products: list[int] = []
    for block in groups:
        products.append(place)
        place += rows * block.row_bytes
    end = place + rows * inputs.row_bytes if inside else place
    return StepBuffers(offsets[0], offsets[1], offsets[2], tuple(products), place, end)


class Recurrence:
    """The walk over time of a tile of sequences in one direction."""

    def __init__(
        self,
        frame: Frame,
        layer: Layer,
        groups: tuple[Block, ...],
        inputs: Block,
        pointers: dict[str, Value],
        inside: bool,
    ) -> None:
        self.frame, self.f, self.layer, self.groups, self.inputs = frame, frame.f, layer, groups, inputs
        self.pointers, self.inside = pointers, inside
        self.buffers = step_buffers(layer, groups, inputs, inside)
        self.kind = Type("f32", layer.lanes)
        one = layer.batch == 1
        self.functions = [
            HeightFunctions(frame.module, frame.f, g.tile, f"r{n}_", (1,) if one else (), one_chain=not one)
            for n, g in enumerate(groups)
        ]
        self.input_functions = HeightFunctions(
            frame.module, frame.f, inputs.tile, "x", (1,) if one else (), one_chain=not one
        )

    def write(self) -> None:
        f, scope, layer = self.f, self.frame.scope, self.layer
        self.length, self.batch = scope.expr(layer.length), scope.expr(layer.batch)
        cut = self._cut()
        lo, hi = self.frame.share(cut.count * layer.directions)
        with f.loop(lo, hi) as unit:
            direction, tile = unit // f.imax(cut.count, 1), unit % f.imax(cut.count, 1)
            first, height = cut.first_row(f, tile), cut.height(f, tile)
            if layer.directions == 1 or layer.functions[0] == layer.functions[1]:
                self._walk(direction, 0, first, height)
            else:
                with f.if_else(direction.eq(0)) as branches:
                    for d, branch in enumerate(branches):
                        with branch:
                            self._walk(direction, d, first, height)

    def _cut(self) -> Heights:
        """Sequences over enough tiles for all threads."""
        f, rows = self.f, self.groups[0].tile.rows
        fewest = (self.batch + (rows - 1)) // rows
        directions = self.layer.directions
        wanted = (self.frame.nthreads + (directions - 1)) // directions
        count = f.imax(fewest, f.imin(self.batch, wanted))
        low = self.batch // f.imax(count, 1)
        return Heights(count, low, self.batch - low * count)

    def _walk(self, direction: Value, known: int, first: Value, height: Value) -> None:
        """known: a direction of the same activations as `direction`."""
        f, layer = self.f, self.layer
        with f.loop(0, height) as r:
            self._load_state("h", self.buffers.h, direction, first, r)
            if layer.op == "lstm":
                self._load_state("c", self.buffers.c, direction, first, r)
        clip = layer.attr("clip")
        cell = Cell(f, layer.functions[known], float(clip) if isinstance(clip, (int, float)) else 0.0)
        with f.loop(0, self.length) as step:
            last = self.length - 1 - step
            if layer.directions == 2:
                time = f.select(direction.eq(1), last, step)
            else:
                time = last if layer.backwards(0) else step
            self._step(cell, direction, time, first, height)
        with f.loop(0, height) as r:
            self._store_state("last_h", self.buffers.h, direction, first, r)
            if layer.op == "lstm":
                self._store_state("last_c", self.buffers.c, direction, first, r)

    def _state(self, base: int, r: Value, block: Value) -> Value:
        """Byte offset in scratch memory of a block of units of a sequence's state."""
        return (r * self.layer.num_blocks + block) * self.kind.nbytes + base

    def _mask(self, block: Value) -> Value | None:
        lanes, hidden = self.layer.lanes, self.layer.hidden
        return None if hidden % lanes == 0 else self.f.mask_below(hidden - block * lanes, lanes)

    def _load(self, pointer: Value, where: Value, mask: Value | None) -> Value:
        if mask is None:
            return self.f.load(self.kind, pointer, where)
        return self.f.masked_load(self.kind, pointer, mask, where)

    def _units(self, row: Value, block: Value) -> Value:
        """Byte offset of a block of units in a tensor whose rows are `hidden` long."""
        return (row * self.layer.hidden + block * self.layer.lanes) * F32_BYTES

    def _load_state(self, role: str, base: int, direction: Value, first: Value, r: Value) -> None:
        f = self.f
        with f.loop(0, self.layer.num_blocks) as block:
            value = f.const(self.kind, 0.0)
            if role in self.pointers:
                where = self._units(direction * self.batch + first + r, block)
                value = self._load(self.pointers[role], where, self._mask(block))
            f.store(value, self.frame.scratch, self._state(base, r, block))

    def _store_state(self, role: str, base: int, direction: Value, first: Value, r: Value) -> None:
        f = self.f
        with f.loop(0, self.layer.num_blocks) as block:
            value = f.load(self.kind, self.frame.scratch, self._state(base, r, block))
            self._store(value, self.pointers[role], direction * self.batch + first + r, block)

    def _store(self, value: Value, pointer: Value, row: Value, block: Value) -> None:
        where, mask = self._units(row, block), self._mask(block)
        if mask is None:
            self.f.store(value, pointer, where)
        else:
            self.f.masked_store(value, pointer, mask, where)

    def _products(self, number: int, source: int, direction: Value, height: Value) -> None:
        """States at `source` times the recurrent weights of a group of gates."""
        f, block, depth = self.f, self.groups[number], self.layer.hidden
        weights = f.ptr(self.pointers[f"r{number}"], direction * block.matrix_bytes(depth))
        a = Rows(f.ptr(self.frame.scratch, source), self.layer.padded * F32_BYTES)
        out = Sums(f.ptr(self.frame.scratch, self.buffers.products[number]), block.row_bytes)
        multiply_panels(f, self.functions[number], block, height, depth, a, weights, out)

    def _inputs(self, direction: Value, time: Value, first: Value, height: Value) -> Value:
        """The inputs' part of the gates for this step: a pointer to the tile's first row."""
        f, layer, block = self.f, self.layer, self.inputs
        row = time * self.batch + first
        if not self.inside:
            where = (direction * (self.length * self.batch) + row) * block.row_bytes
            return f.ptr(self.pointers["gates"], where)
        depth = layer.features
        out = Sums(f.ptr(self.frame.scratch, self.buffers.inputs), block.row_bytes)
        a = Rows(f.ptr(self.pointers["x"], row * (depth * F32_BYTES)), depth * F32_BYTES)
        weights = f.ptr(self.pointers["w"], direction * block.matrix_bytes(depth))
        multiply_panels(f, self.input_functions, block, height, depth, a, weights, out)
        return out.pointer

    def _step(self, cell: Cell, direction: Value, time: Value, first: Value, height: Value) -> None:
        f, layer = self.f, self.layer
        inputs = self._inputs(direction, time, first, height)
        self._products(0, self.buffers.h, direction, height)
        if layer.reset_first:
            with f.loop(0, height) as r, f.loop(0, layer.num_blocks) as block:
                self._reset(cell, Sums(inputs, self.inputs.row_bytes), direction, r, block)
            self._products(1, self.buffers.reset_h, direction, height)
        with f.loop(0, height) as r:
            alive = None
            if "lengths" in self.pointers:
                alive = time.lt(self._length_of(first + r))
            row = (time * layer.directions + direction) * self.batch + first + r
            with f.loop(0, layer.num_blocks) as block:
                total = Totals(self, Sums(inputs, self.inputs.row_bytes), direction, r, block)
                self._advance(cell, total, alive, row)

    def _length_of(self, sequence: Value) -> Value:
        dtype = self.layer.value("lengths").dtype
        value = self.f.load(dtype.value, self.pointers["lengths"], sequence * dtype.itemsize)
        return self.f.cast(value, "i64")

    def _reset(self, cell: Cell, inputs: Sums, direction: Value, r: Value, block: Value) -> None:
        """First half of a GRU's step: keeps the update gate, and the state times the reset gate."""
        f, scratch = self.f, self.frame.scratch
        total = Totals(self, inputs, direction, r, block)
        update, reset = cell.update_and_reset(total.all)
        f.store(update, scratch, total.product_place(_UPDATE))
        h = f.load(self.kind, scratch, self._state(self.buffers.h, r, block))
        f.store(reset * h, scratch, self._state(self.buffers.reset_h, r, block))

    def _advance(self, cell: Cell, total: Totals, alive: Value | None, row: Value) -> None:
        """The new state of a block of units, and the output."""
        f, layer, scratch = self.f, self.layer, self.frame.scratch
        h_place = self._state(self.buffers.h, total.r, total.block)
        h = f.load(self.kind, scratch, h_place)
        if layer.op == "lstm":
            c_place = self._state(self.buffers.c, total.r, total.block)
            c = f.load(self.kind, scratch, c_place)
            peephole = total.peephole if "peepholes" in self.pointers else None
            new_h, new_c = cell.lstm(total.all, c, peephole, bool(layer.attr("input_forget")))
            f.store(new_c if alive is None else f.select(alive, new_c, c), scratch, c_place)
        elif layer.op == "rnn":
            new_h = cell.rnn(total.all)
        elif layer.reset_first:
            update = f.load(self.kind, scratch, total.product_place(_UPDATE))
            new_h = cell.gru(update, total.all(2), h)
        else:
            update, reset = cell.update_and_reset(total.all)
            new_h = cell.gru(update, f.fma(reset, total.recurrent(2), total.input(2)), h)
        f.store(new_h if alive is None else f.select(alive, new_h, h), scratch, h_place)
        y = new_h if alive is None else f.select(alive, new_h, f.const(self.kind, 0.0))
        self._store(y, self.pointers["y"], row, total.block)


class Totals:
    """The sums in front of the activations of a block of units of a sequence, by gate."""

    def __init__(self, walk: Recurrence, inputs: Sums, direction: Value, r: Value, block: Value) -> None:
        self.walk, self.inputs, self.direction, self.r, self.block = walk, inputs, direction, r, block
        self.mask = walk._mask(block)

    def _bias(self, gate: int, recurrent: bool) -> Value | None:
        walk = self.walk
        if "bias" not in walk.pointers:
            return None
        gates = walk.layer.num_gates
        row = self.direction * (2 * gates) + (gate + (gates if recurrent else 0))
        return walk._load(walk.pointers["bias"], walk._units(row, self.block), self.mask)

    def product_place(self, gate: int) -> Value:
        """Byte offset in scratch memory of the state's part of a gate."""
        walk = self.walk
        number = next(n for n, group in enumerate(walk.groups) if gate in group.gates)
        group = walk.groups[number]
        row = self.r * group.row_bytes + walk.buffers.products[number]
        return row + group.where(walk.f, self.block, gate)

    def input(self, gate: int) -> Value:
        """The input's part of a gate, with its bias."""
        walk = self.walk
        where = self.r * walk.inputs.row_bytes + walk.inputs.where(walk.f, self.block, gate)
        value = walk.f.load(walk.kind, self.inputs.pointer, where)
        bias = self._bias(gate, recurrent=False)
        return value if bias is None else value + bias

    def recurrent(self, gate: int) -> Value:
        """The state's part of a gate, with its bias."""
        value = self.walk.f.load(self.walk.kind, self.walk.frame.scratch, self.product_place(gate))
        bias = self._bias(gate, recurrent=True)
        return value if bias is None else value + bias

    def all(self, gate: int) -> Value:
        return self.input(gate) + self.recurrent(gate)

    def peephole(self, number: int) -> Value:
        """The weights from the memory cell to a gate: 0 in, 1 out, 2 forget."""
        walk = self.walk
        where = walk._units(self.direction * 3 + number, self.block)
        return walk._load(walk.pointers["peepholes"], where, self.mask)
