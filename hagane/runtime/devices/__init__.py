"""What is particular to each kind of device: code mapping, threads, memory."""
