"""The views of a region: operands, anchor, tensor expressions with and without the anchor's result."""

import pytest

import hagane.ops  # noqa: F401
from hagane.core.errors import InternalError
from hagane.core.symbolic import Expr
from hagane.ir.parse import parse_graph
from hagane.ir.region import Region
from hagane.ir.scalar import Acc, Fn, Guard, IndexValue, LetIndex, Lit, Load, Reduce, Scalar

TEXT = """\
graph @main(%x: f32[B, 4], %w: f32[4, 1], %b: f32[3]) -> f32[B, 3] where B in 1.. {
  %y = region(%x, %w, %b) {kind="contraction"} : f32[B, 3] {
    body(%x0: f32[B, 4], %w0: f32[4, 1], %b0: f32[3]) {
      %0 = broadcast_to(%w0) {shape=(4, 3)} : f32[4, 3]
      %1 = matmul(%x0, %0) : f32[B, 3]
      %2 = add(%1, %b0) : f32[B, 3]
      %3 = mul(%2, @two) : f32[B, 3]
      return %3
    }
  }
  return %y
}
const @two: f32[1, 1] = [2.0]
"""


def shown(scalar: Scalar) -> str:
    match scalar:
        case Load(operand=operand, index=index):
            return f"{operand}[{', '.join(map(str, index))}]"
        case Fn(name=name, args=args):
            return f"{name}({', '.join(map(shown, args))})"
        case Reduce(op=op, axes=axes, body=body):
            loops = ", ".join(f"{a.sym.name} < {a.extent}" for a in axes)
            return f"{op}({loops}: {shown(body)})"
        case Lit(value=value):
            return str(value)
        case Acc():
            return "acc"
        case IndexValue(expr=expr):
            return str(expr)
        case Guard(cond=cond, value=value, other=other):
            return f"({shown(cond)} ? {shown(value)} : {shown(other)})"
        case LetIndex(name=name, value=value, body=body):
            return f"let {name} = {shown(value)} in {shown(body)}"
    raise AssertionError(scalar)


@pytest.fixture
def region() -> Region:
    return Region(parse_graph(TEXT).nodes[0])


def index_of(region: Region) -> tuple:
    return tuple(Expr([((axis.sym,), 1)]) for axis in region.axes())


def test_parts(region):
    assert region.kind == "contraction" and region.anchor.op == "matmul"
    assert [v.name for v in region.operands] == ["x", "w", "b"]
    assert region.operand_of(region.body.inputs[1]) == 1
    assert region.is_operand(region.body.inputs[2]) and not region.is_operand(region.anchor.output)
    with pytest.raises(InternalError, match="is no operand of the region"):
        region.operand_of(region.anchor.output)
    assert [(axis.sym.name, str(axis.extent)) for axis in region.axes()] == [("o0", "B"), ("o1", "3")]


def test_whole_expression(region):
    text = shown(region.expression(index_of(region)))
    assert text == "mul(add(sum(k2 < 4: mul(0[o0, k2], 1[k2, 0])), 2[o1]), 2.0)"


def test_epilogue_and_prologue(region):
    index = index_of(region)
    assert shown(region.epilogue(index)) == "mul(add(acc, 2[o1]), 2.0)"
    assert shown(region.anchor_read(0, index)) == "0[o0, o1]"
    assert shown(region.anchor_read(1, index)) == "1[o0, 0]"


def test_a_region_without_anchor():
    text = TEXT.replace("%1 = matmul(%x0, %0) : f32[B, 3]", "%1 = relu(%b0) : f32[3]")
    text = text.replace("%2 = add(%1, %b0) : f32[B, 3]", "%2 = broadcast_to(%1) {shape=(B, 3)} : f32[B, 3]")
    region = Region(parse_graph(text).nodes[0])
    assert region.anchor is None
    with pytest.raises(InternalError, match="has no anchor"):
        region.epilogue(index_of(region))


def test_equal_reads_are_one_scalar():
    text = TEXT.replace("%2 = add(%1, %b0)", "%2 = mul(%1, %1)")
    region = Region(parse_graph(text).nodes[0])
    product = region.expression(index_of(region))
    assert isinstance(product, Fn) and isinstance(product.args[0], Fn)
    assert product.args[0].args[0] is product.args[0].args[1]
