"""Networks with seeded random weights, written as ONNX; needs onnx.

Each function returns an onnx.ModelProto; the same options give the same bytes. Weights are scaled so that
values stay near 1 from layer to layer, as in a trained network.
"""

from hagane.zoo.networks.bert import bert
from hagane.zoo.networks.dlrm import dlrm
from hagane.zoo.networks.mlp import mlp
from hagane.zoo.networks.mobilenet_v2 import mobilenet_v2
from hagane.zoo.networks.resnet50 import resnet50
from hagane.zoo.networks.unet import unet

__all__ = ["bert", "dlrm", "mlp", "mobilenet_v2", "resnet50", "unet"]
