"""Runs engines: sessions, devices, memory, profiler. Never imports a compiler."""

from hagane.runtime.load import load
from hagane.runtime.session import Session, TensorInfo

__all__ = ["Session", "TensorInfo", "load"]
