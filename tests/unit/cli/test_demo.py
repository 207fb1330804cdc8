"""The demo reads its picture: the models are fetched, and their engines built unless the cache has them."""

from pathlib import Path

import pytest
from PIL import Image

from tests.unit.cli.calling import Call

LINES = [
    "HAGANE STREET",
    "Platform 4",
    "Trains to the coast",
    "CORNER CAFE",
    "2 x Coffee",
    "7.40",
    "1 x Sandwich 6.85",
    "1 x Tea",
    "3.10",
    "Total: $17.35",
]


@pytest.mark.models
@pytest.mark.slow
def test_the_demo_reads_its_picture(hagane: Call, tmp_path: Path):
    output = tmp_path / "read.png"
    found = hagane("demo", "--output", output, "--threads", "2", "--json").json
    assert [line["text"] for line in found["lines"]] == LINES
    assert min(line["confidence"] for line in found["lines"]) > 0.9
    assert found["detect_ms"] > 0 and found["recognise_ms"] > 0
    assert set(found["peers"]) == {"ppocrv6_det_small", "ppocrv6_rec_small"}
    assert Image.open(output).size == (1280, 320)

    # a turned picture of another size, with the same engines
    picture = Image.open(Path("hagane/cli/assets/demo.png")).convert("RGB")
    picture.rotate(7, Image.Resampling.BICUBIC, expand=True, fillcolor="white").save(tmp_path / "turned.png")
    outcome = hagane("demo", "--image", tmp_path / "turned.png", "--output", output)
    assert outcome.status == 0
    for line in LINES:
        assert f"\n{line} " in outcome.out
    assert outcome.out.splitlines()[-1] == f"wrote {output}"
