"""The builder: from a model to an engine."""
