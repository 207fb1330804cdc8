"""Serving engines over a network."""
