"""Goldens are accepted by people, never by CI."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def test_ci_refuses_to_bless():
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--bless",
        "--collect-only",
        "-q",
        "tests/golden/test_bless.py",
    ]
    result = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"CI": "true"}, capture_output=True, text=True, check=False
    )
    assert result.returncode == 4
    assert "--bless is refused in CI" in result.stderr
