"""Runs engines: sessions, devices, memory, profiler. Never imports a compiler."""
