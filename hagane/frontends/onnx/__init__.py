"""The ONNX frontend: a model file, bytes or ModelProto becomes a Graph."""

from hagane.frontends.onnx.importer import load_onnx

__all__ = ["load_onnx"]
