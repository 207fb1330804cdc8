"""The builder, which ties frontend, passes, tuner, lowering and engine together."""
