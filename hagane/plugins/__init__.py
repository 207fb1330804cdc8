"""Ops defined by the user."""
