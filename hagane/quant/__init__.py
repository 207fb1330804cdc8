"""Calibrators, quantise/dequantise insertion, recipes and sensitivity."""
