"""The passes in the order that they run."""

from __future__ import annotations

from hagane.ir.target_model import TargetModel
from hagane.passes.base import Pass
from hagane.passes.canonicalise import Canonicalise
from hagane.passes.choose_layouts import ChooseLayouts
from hagane.passes.common_subexpressions import MergeCommonSubexpressions
from hagane.passes.dead_code import RemoveDeadCode
from hagane.passes.expand_recurrent import ExpandRecurrent
from hagane.passes.fold_constants import FoldConstants
from hagane.passes.fold_scales import FoldScales
from hagane.passes.fuse import Fuse
from hagane.passes.fuse_attention import FuseAttention
from hagane.passes.sink_reshapes import SinkReshapes

SIMPLIFY: tuple[Pass, ...] = (
    FoldConstants(),
    Canonicalise(),
    SinkReshapes(),
    RemoveDeadCode(),  # a reshape left behind would look like a second reader
    FoldConstants(),
    Canonicalise(),
    FoldScales(),
    FoldConstants(),
    MergeCommonSubexpressions(),
    RemoveDeadCode(),
)


def build_pipeline(target: TargetModel, *, fuse: bool = True) -> tuple[Pass, ...]:
    """All passes of a build. fuse=False makes each op a region of its own, for debugging."""
    return (
        *SIMPLIFY,
        ExpandRecurrent(target),
        FuseAttention(enabled=fuse),
        Fuse(enabled=fuse),
        ChooseLayouts(target),
        RemoveDeadCode(),
    )
