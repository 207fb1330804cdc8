"""Reading text with the zoo's PP-OCR models: what goes into them and what comes out, with NumPy and Pillow.

Knows nothing of what runs the models: it is handed run callables.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from PIL import Image

from hagane.zoo.text_boxes import Array, sides, text_boxes

Run = Callable[[dict[str, Array]], Mapping[str, Array]]

LONGEST_SIDE = 960  # pixels: PP-OCR's own limit; larger pictures are scaled down
SIDE_MULTIPLE = 32  # the detector halves its input five times
LINE_HEIGHT = 48
MAX_LINE_WIDTH = 3200
TALL = 1.5  # a box this much taller than wide holds text that runs downwards


@dataclass(frozen=True)
class Line:
    """A line of text. corners: f64[4, 2] as x and y in the picture, clockwise from the text's upper left."""

    text: str
    confidence: float
    corners: Array


@dataclass
class Reading:
    """The lines of a picture, what the models were fed with, and the seconds that each took."""

    lines: list[Line] = field(default_factory=list)
    detector_feed: dict[str, Array] = field(default_factory=dict)
    recogniser_feeds: list[dict[str, Array]] = field(default_factory=list)
    detect_s: float = 0.0
    recognise_s: float = 0.0


def read_picture(picture: Image.Image, detect: Run, recognise: Run, characters: list[str]) -> Reading:
    """Finds the lines of text in an RGB picture and reads each."""
    reading = Reading()
    reading.detector_feed = {"x": detector_input(picture)}
    start = time.perf_counter()
    (probability,) = detect(reading.detector_feed).values()
    reading.detect_s = time.perf_counter() - start
    height, width = probability.shape[-2:]
    scale = np.array([picture.width / width, picture.height / height])
    for box in text_boxes(probability[0, 0]):
        corners = np.clip(box.corners * scale, 0, [picture.width, picture.height])
        feed = {"x": recogniser_input(cut_line(picture, corners))}
        start = time.perf_counter()
        (classes,) = recognise(feed).values()
        reading.recognise_s += time.perf_counter() - start
        text, confidence = decode(classes[0], characters)
        if text.strip():
            reading.lines.append(Line(text, confidence, corners))
            reading.recogniser_feeds.append(feed)
    return reading


def detector_input(picture: Image.Image) -> Array:
    """A picture as f32[1, 3, H, W], its sides scaled to multiples of 32."""
    scale = min(1.0, LONGEST_SIDE / max(picture.size))
    tiles = [max(1, round(side * scale / SIDE_MULTIPLE)) for side in picture.size]
    width, height = (count * SIDE_MULTIPLE for count in tiles)
    return _normalised(picture.resize((width, height), Image.Resampling.BILINEAR))


def recogniser_input(line: Image.Image) -> Array:
    """A cut-out line as f32[1, 3, 48, W]."""
    width = min(MAX_LINE_WIDTH, max(SIDE_MULTIPLE, round(line.width * LINE_HEIGHT / line.height)))
    return _normalised(line.resize((width, LINE_HEIGHT), Image.Resampling.BILINEAR))


def _normalised(picture: Image.Image) -> Array:
    """BGR, scaled to -1 .. 1, channels first, as a batch of one."""
    pixels = np.asarray(picture.convert("RGB"), np.float32)[..., ::-1]
    return np.ascontiguousarray(((pixels / 255 - 0.5) / 0.5).transpose(2, 0, 1)[None])


def cut_line(picture: Image.Image, corners: Array) -> Image.Image:
    """The part of the picture within a turned box, upright."""
    width, height = (max(1, round(side)) for side in sides(corners))
    top_left, top_right, bottom_right, bottom_left = (tuple(map(float, c)) for c in corners)
    quad = (*top_left, *bottom_left, *bottom_right, *top_right)
    line = picture.transform((width, height), Image.Transform.QUAD, quad, Image.Resampling.BICUBIC)
    return line.transpose(Image.Transpose.ROTATE_90) if height > width * TALL else line


def characters_of(metadata: Mapping[str, str]) -> list[str]:
    """The classes of the recogniser: blank, the dictionary in the model's metadata, space."""
    return ["", *metadata["character"].splitlines(), " "]


def decode(classes: Array, characters: list[str]) -> tuple[str, float]:
    """Greedy CTC over f32[T, C]: drop repeats, then blanks. The confidence is the mean over kept classes."""
    ids = classes.argmax(axis=1)
    kept = (ids != 0) & np.concatenate([[True], ids[1:] != ids[:-1]])
    if not kept.any():
        return "", 0.0
    return "".join(characters[i] for i in ids[kept]), float(classes.max(axis=1)[kept].mean())
