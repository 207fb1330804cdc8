"""The typed SSA graph: values, layouts, regions, op registry, builder, text form, verifier, interpreter."""
