"""Interfaces of other inference tools, on top of this one."""
