"""Regions and their tactics become a plan; memory planning."""
