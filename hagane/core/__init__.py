"""Data types, symbolic dims, targets, errors and hashing that every other package builds on."""
