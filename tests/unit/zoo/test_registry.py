import re

import pytest

from hagane import zoo
from hagane.core.errors import ModelError


def test_names_are_unique():
    names = [model.name for model in zoo.models()]
    assert len(names) == len(set(names))


def test_every_fetched_model_is_pinned_by_version_and_hashes():
    for model in zoo.models():
        if isinstance(model.source, zoo.WheelFile):
            wheel = model.source.wheel
            assert re.fullmatch(r"[0-9a-f]{64}", model.source.sha256)
            assert re.fullmatch(r"[0-9a-f]{64}", wheel.sha256)
            assert re.fullmatch(r"\d+(\.\d+)+", wheel.version)


def test_every_model_states_a_permissive_licence_and_its_input():
    for model in zoo.models():
        assert model.licence in {"Apache-2.0", "MIT"}
        assert model.preprocessing


def test_info_finds_a_model_by_name():
    assert zoo.info("magika").source.wheel.package == "magika"


def test_an_unknown_name_is_an_error_that_names_the_nearest():
    with pytest.raises(ModelError) as caught:
        zoo.info("resnet_50")
    assert str(caught.value) == (
        "the zoo has no model named 'resnet_50'\n"
        "  nearest: resnet50\n"
        "  next:    hagane zoo list shows all names"
    )
