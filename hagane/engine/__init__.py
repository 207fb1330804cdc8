"""The engine file: read, write, refit, verify."""
