"""Language models: programs, state and decoding."""
