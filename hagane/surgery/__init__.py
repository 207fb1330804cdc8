"""Editing of graphs."""
