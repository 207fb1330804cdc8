"""One file per family of tactics for NVIDIA GPUs."""
