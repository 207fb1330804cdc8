"""Prints the CUDA devices and exits 0, or prints why there is none and exits 1. Standard library only."""

import ctypes
import sys


def find_gpu() -> tuple[bool, str]:
    """Asks the CUDA driver itself, so that nothing has to be installed."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False, "no CUDA driver (libcuda.so.1) on this machine"
    status = driver.cuInit(0)
    if status != 0:
        return False, f"the CUDA driver answered {status} to cuInit"
    count = ctypes.c_int()
    driver.cuDeviceGetCount(ctypes.byref(count))
    if count.value == 0:
        return False, "the CUDA driver sees no device"
    return True, f"{count.value} CUDA device(s)"


if __name__ == "__main__":
    found, text = find_gpu()
    print(text)
    sys.exit(0 if found else 1)
