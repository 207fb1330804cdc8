import numpy as np
import pytest
from PIL import Image, ImageDraw

from hagane.zoo.ocr import (
    characters_of,
    cut_line,
    decode,
    detector_input,
    read_picture,
    recogniser_input,
)
from hagane.zoo.ocr_picture import draw_reading


@pytest.mark.parametrize(
    ("size", "shape"),
    [((640, 320), (320, 640)), ((100, 50), (64, 96)), ((5, 5), (32, 32)), ((3000, 1000), (320, 960))],
)
def test_the_detector_gets_sides_of_multiples_of_32(size: tuple[int, int], shape: tuple[int, int]):
    array = detector_input(Image.new("RGB", size, "white"))
    assert array.shape == (1, 3, *shape)
    assert array.dtype == np.float32 and array.flags.c_contiguous


def test_channels_are_blue_green_red_from_minus_one_to_one():
    array = detector_input(Image.new("RGB", (32, 32), (255, 0, 51)))
    np.testing.assert_allclose(array[0, :, 0, 0], [-0.6, -1, 1], atol=1e-6)


def test_lines_have_the_height_that_the_recogniser_wants():
    assert recogniser_input(Image.new("RGB", (200, 24))).shape == (1, 3, 48, 400)


def test_cutting_a_turned_line_makes_it_upright():
    picture = Image.new("RGB", (60, 40), "white")
    ImageDraw.Draw(picture).rectangle((20, 5, 29, 34), fill="black")
    corners = np.array([[30.0, 5.0], [30.0, 35.0], [20.0, 35.0], [20.0, 5.0]])
    line = np.asarray(cut_line(picture, corners))
    assert line.shape == (10, 30, 3)
    assert line.max() < 60


def test_tall_boxes_are_turned():
    corners = np.array([[0.0, 0.0], [10.0, 0.0], [10.0, 40.0], [0.0, 40.0]])
    assert cut_line(Image.new("RGB", (60, 60)), corners).size == (40, 10)


def test_decoding_drops_repeats_and_blanks():
    characters = characters_of({"character": "a\nb"})
    assert characters == ["", "a", "b", " "]
    steps = [1, 1, 0, 1, 2, 2, 3, 0, 0, 2]
    classes = np.full((len(steps), 4), 0.1, np.float32)
    classes[range(len(steps)), steps] = 0.7
    assert decode(classes, characters) == ("aab b", pytest.approx(0.7))
    assert decode(classes[7:9], characters) == ("", 0.0)


def test_reading_with_stand_ins_for_the_models():
    picture = Image.new("RGB", (64, 64), "white")

    def detect(feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        probability = np.zeros((1, 1, 64, 64), np.float32)
        probability[0, 0, 10:20, 8:50] = 1
        return {"map": probability}

    def recognise(feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        assert feed["x"].shape[2] == 48
        return {"classes": np.eye(4, dtype=np.float32)[None, [1, 0, 2]]}

    reading = read_picture(picture, detect, recognise, ["", "H", "i", " "])
    assert [(line.text, line.confidence) for line in reading.lines] == [("Hi", 1.0)]
    assert len(reading.recogniser_feeds) == 1
    sheet = draw_reading(picture, reading.lines)
    assert sheet.size == (128, 64)
    assert len(np.unique(np.asarray(sheet.convert("L"))[:, 64:])) > 2  # the text is there
