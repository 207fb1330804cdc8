"""Running one model over several devices."""
