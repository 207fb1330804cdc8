import subprocess
import sys

import pytest

import hagane


def test_importing_the_package_loads_nothing_of_it():
    program = "import sys, hagane; print([m for m in sys.modules if m == 'numpy' or m.startswith('hagane.')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_public_names_are_listed_before_they_are_loaded():
    assert {"Dim", "build", "compare", "errors", "load"} <= set(dir(hagane))


def test_the_errors_are_at_hand():
    assert issubclass(hagane.errors.ModelError, hagane.errors.HaganeError)


def test_another_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'hagane' has no attribute 'buidl'"):
        _ = hagane.buidl
