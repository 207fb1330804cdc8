"""Parameter spaces, measurement, search, cost model and timing cache."""
