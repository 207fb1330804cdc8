"""NumPy host steps and the packing recipes of constants."""
