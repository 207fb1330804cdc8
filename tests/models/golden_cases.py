"""The real models, each with its golden outputs, the task it must get right, and inputs of other sizes.

A case doesn't know what runs the model: its task is handed a run callable (a dict of inputs in, a dict of
outputs out), so the same table serves engines, the interpreter and ONNX Runtime. Models come from the zoo,
from tests/data, or from the folder `shared` beside the checkout, which isn't part of the project.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from hagane import zoo

Feed = dict[str, np.ndarray]
Run = Callable[[Feed], Feed]

_ROOT = Path(__file__).resolve().parents[2]
_DATA = _ROOT / "tests" / "data"
_SHARED = _ROOT.parent / "shared" / "models"
_RNG_SEED = 7


@dataclass(frozen=True)
class GoldenCase:
    """A model with what it must compute.

    source: `zoo:NAME`, `data:FILE` (in tests/data) or `shared:FILE`; so is `golden`, an .npz file with the
    arrays `in__<input>` and `out__<output>`; the outputs are ONNX Runtime's with all optimisation off.
    task: runs the model and returns the answer to the model's task, which `expected` equals.
    variants: makers of inputs with other batch sizes or lengths; empty where all dims are constant.
    """

    name: str
    source: str
    golden: str
    task: Callable[[Run], object]
    expected: object
    variants: tuple[Callable[[], Feed], ...] = ()

    def model_path(self) -> Path:
        """The model's file; skips the test where the shared folder lacks it, and fails it if a pull fails."""
        return locate(self.source)

    def golden_arrays(self) -> tuple[Feed, Feed]:
        """The golden inputs and outputs, by name."""
        with np.load(locate(self.golden)) as arrays:
            feed = {key.removeprefix("in__"): arrays[key] for key in arrays if key.startswith("in__")}
            outputs = {key.removeprefix("out__"): arrays[key] for key in arrays if key.startswith("out__")}
        return feed, outputs


def locate(source: str) -> Path:
    """The path behind `zoo:NAME`, `data:FILE` or `shared:FILE`."""
    kind, _, name = source.partition(":")
    if kind == "zoo":
        return zoo.pull(name)
    path = {"data": _DATA, "shared": _SHARED}[kind] / name
    if kind == "shared" and not path.is_file():
        pytest.skip(f"{name} is in the shared folder, which isn't beside this checkout")
    return path


@cache
def _golden(name: str) -> tuple[Feed, Feed]:
    return next(case for case in CASES if case.name == name).golden_arrays()


def _input(name: str, key: str) -> np.ndarray:
    """A golden input of that case."""
    return _golden(name)[0][key]


def _on_golden(name: str, answer: Callable[[Feed], object]) -> Callable[[Run], object]:
    """The task of answering a question about the outputs for the golden input."""
    return lambda run: answer(run(_golden(name)[0]))


def _only(outputs: Feed) -> np.ndarray:
    (value,) = outputs.values()
    return value


# -- pictures -----------------------------------------------------------------


def _class_and_tenths(outputs: Feed) -> tuple[int, float]:
    """The most likely class and its probability, rounded to tenths."""
    logits = _only(outputs)[0].astype(np.float64)
    odds = np.exp(logits - logits.max())
    return int(logits.argmax()), round(float(odds.max() / odds.sum()), 1)


def _views(name: str, count: int) -> Feed:
    """The golden picture [1, 3, H, W]: mirrored, shifted, dimmed ... as a batch."""
    picture = _input(name, "image")
    views = [picture, picture[..., ::-1], np.roll(picture, 31, -1), picture * 0.7, picture[..., ::-1, :]]
    return {"image": np.concatenate(views[:count]).astype(np.float32)}


def _text_rows(outputs: Feed) -> tuple[list[int], float]:
    """The first rows of each band that holds text and of each gap after it, and the share of text pixels."""
    mask = _only(outputs)[0, 0] > 0.3
    edges = np.flatnonzero(np.diff(np.pad(mask.any(axis=1).astype(int), 1)))
    return edges.tolist(), round(float(mask.mean()) * 100, 1)


def _det_small() -> Feed:
    return {"x": _input("ppocrv6_det_small", "x")[:, :, 32:128, :320]}


def _det_stacked() -> Feed:
    """Two pictures of 320x448: the lines twice below each other, and the same upside down."""
    picture = _input("ppocrv6_det_small", "x")[..., :448]
    tall = np.concatenate([picture, picture], axis=2)
    return {"x": np.concatenate([tall, tall[:, :, ::-1, ::-1]])}


@cache
def _characters() -> list[str]:
    """The classes of the recogniser: blank, the dictionary in the model's metadata, space."""
    model = onnx.load(locate("zoo:ppocrv6_rec_small"))
    text = next(entry.value for entry in model.metadata_props if entry.key == "character")
    return ["", *text.splitlines(), " "]


def _ctc_text(outputs: Feed) -> str:
    """Greedy CTC: drop repeats, then blanks."""
    ids = _only(outputs)[0].argmax(axis=1)
    kept = ids[np.concatenate([[True], ids[1:] != ids[:-1]])]
    return "".join(_characters()[i] for i in kept)


def _rec_narrow() -> Feed:
    return {"x": _input("ppocrv6_rec_small", "x")[..., :317]}


def _rec_batch() -> Feed:
    line = _input("ppocrv6_rec_small", "x")
    return {"x": np.concatenate([line[..., i : i + 200] for i in (0, 90, 240)])}


def _direction(run: Run) -> list[bool]:
    """Whether the golden line, and the same turned around, are seen as turned."""
    line = _input("ppocr_cls_v2", "x")
    turned = line[:, :, ::-1, ::-1]
    return [bool(_only(run({"x": np.ascontiguousarray(x)}))[0].argmax()) for x in (line, turned)]


def _cls_batch(count: int) -> Feed:
    line = _input("ppocr_cls_v2", "x")
    return {"x": np.concatenate([line if i % 2 else line[:, :, ::-1, ::-1] for i in range(count)])}


def _person(outputs: Feed) -> tuple[int, bool, bool]:
    """The whole percents of the picture that are person, and whether the corner and the middle are."""
    mask = _only(outputs)[0, :, :, 0]
    return int((mask > 0.5).mean() * 100), bool(mask[0, 0] > 0.5), bool(mask[128, 128] > 0.5)


def _best_face(outputs: Feed) -> tuple[float, list[int]]:
    """The score of the best face, in tenths, and the whole pixels of its box: left, top, right, bottom."""
    heat, size, offset = (outputs[name][0] for name in ("537", "538", "539"))
    y, x = np.unravel_index(heat[0].argmax(), heat[0].shape)
    height, width = np.exp(size[:, y, x].astype(np.float64)) * 4
    middle_y, middle_x = (np.array([y, x]) + offset[:, y, x] + 0.5) * 4
    box = [middle_x - width / 2, middle_y - height / 2, middle_x + width / 2, middle_y + height / 2]
    return round(float(heat.max()), 1), [int(side) for side in box]


def _face_crop() -> Feed:
    return {"input.1": _input("centerface", "input.1")[:, :, :256, 96:480]}


def _face_batch() -> Feed:
    crop = _input("centerface", "input.1")[:, :, :320, 64:384]
    return {"input.1": np.concatenate([crop, crop[..., ::-1]])}


def _fidelity(run: Run) -> tuple[list[int], int]:
    """The size of the enlarged picture, and how well its average keeps the small one, in whole decibels."""
    small = _input("esrgan_slim_x2", "image")
    large = _only(run({"image": small}))
    _, height, width, _ = small.shape
    averaged = large.reshape(1, height, 2, width, 2, 3).mean(axis=(2, 4))
    return list(large.shape), int(10 * np.log10(255.0**2 / np.mean((averaged - small) ** 2)))


def _enlarge(count: int, height: int, width: int) -> Feed:
    small = _input("esrgan_slim_x2", "image")
    return {"image": np.concatenate([small[:, i : i + height, i : i + width] for i in range(count)])}


# -- sound --------------------------------------------------------------------

_SPEECH_FROM, _SPEECH_TO = 39, 93  # the first and last of the recording's 125 chunks with speech


def _chunks() -> np.ndarray:
    """A recording of 4 s at 16 kHz as f32[125, 576]: each row is 512 samples after 64 of the row before."""
    return _input("silero_vad_sequence", "input")


def _speech_range(chances: np.ndarray) -> tuple[int, int, int]:
    """The number of chunks with speech, and the first and last of them."""
    speech = np.flatnonzero(chances > 0.5)
    return len(speech), int(speech[0]), int(speech[-1])


def _listen(with_rate: bool) -> Callable[[Run], object]:
    """The task of hearing where speech is, chunk after chunk, with the state fed back."""

    def task(run: Run) -> object:
        state = np.zeros((2, 1, 128), np.float32)
        chances = []
        for chunk in _chunks():
            feed = {"input": chunk[None], "state": state}
            if with_rate:
                feed["sr"] = np.array(16000, np.int64)
            outputs = run(feed)
            state = outputs["stateN"]
            chances.append(float(outputs["output"][0, 0]))
        return _speech_range(np.array(chances))

    return task


def _voices(rate: int, *chunk_numbers: int) -> Feed:
    """One chunk for each voice of a batch, with a state that isn't zero."""
    step = 16000 // rate
    state = np.random.default_rng(_RNG_SEED).uniform(-0.5, 0.5, (2, len(chunk_numbers), 128))
    return {
        "input": np.ascontiguousarray(_chunks()[list(chunk_numbers), ::step]),
        "state": state.astype(np.float32),
        "sr": np.array(rate, np.int64),
    }


def _recording(first: int, last: int) -> Feed:
    zeros = np.zeros((1, 1, 128), np.float32)
    return {"input": _chunks()[first:last], "h": zeros, "c": zeros}


def _tones(frequencies: list[float], num_samples: int, rate: float) -> np.ndarray:
    """Notes sounding together, each with two overtones, at an even loudness."""
    time = np.arange(num_samples) / rate
    waves = [
        np.sin(2 * np.pi * frequency * k * time) / k**1.5 for frequency in frequencies for k in (1, 2, 3)
    ]
    return (0.2 / len(frequencies) * np.sum(waves, axis=0)).astype(np.float32)


def _loudest_notes(outputs: Feed) -> list[int]:
    """The three MIDI notes that sound most; 21 is the lowest key of a piano."""
    notes = outputs["StatefulPartitionedCall:1"][0].mean(axis=0)
    return sorted(int(key) + 21 for key in notes.argsort()[-3:])


def _chords(*chords: list[float]) -> Feed:
    sounds = [_tones(chord, 43844, 22050.0) for chord in chords]
    return {"serving_default_input_2:0": np.stack(sounds)[..., None]}


def _pitch(outputs: Feed) -> tuple[int, bool]:
    """The median pitch in whole hertz, and whether the model is sure of it."""
    return round(float(np.median(outputs["pitch"]))), bool(np.median(outputs["confidence"]) > 0.9)


def _voice(frequency: float, num_samples: int) -> Feed:
    return {
        "audio": _tones([frequency], num_samples, 16000.0)[None],
        "fmin": np.array(46.875, np.float32),
        "fmax": np.array(2093.75, np.float32),
    }


# -- bytes, words, tables -----------------------------------------------------

_PYTHON = '''"""Tides at the stations of a coast."""

import csv
from collections import defaultdict


def heights(path):
    """The heights by station, in metres."""
    found = defaultdict(list)
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            found[row["station"]].append(float(row["height"]))
    return found


def highest(path):
    return {station: max(values) for station, values in heights(path).items()}


if __name__ == "__main__":
    for station, height in sorted(highest("tides.csv").items()):
        print(f"{station:>20} {height:6.2f}")
'''
_HTML = "<!DOCTYPE html>\n<html>\n<head><title>Tides</title></head>\n<body>\n<h1>Tides</h1>\n" + (
    '<p class="row">High water at <b>06:12</b></p>\n' * 20
)
_JSON = json.dumps(
    {"stations": [{"id": i, "name": f"station {i}", "height": i / 8} for i in range(40)]}, indent=1
)
_FILE_TYPES = {"python": 143, "json": 87, "html": 71}


def _file_bytes(*contents: bytes) -> Feed:
    """The first and the last 1024 bytes of each file, stripped, padded with 256: i32[N, 2048]."""
    rows = np.full((len(contents), 2048), 256, np.int32)
    for row, content in zip(rows, contents, strict=True):
        head, tail = content[:4096].lstrip()[:1024], content[-4096:].rstrip()[-1024:]
        row[: len(head)] = list(head)
        row[2048 - len(tail) :] = list(tail)
    return {"bytes": rows}


def _known_files() -> Feed:
    return _file_bytes(_PYTHON.encode(), _JSON.encode(), _HTML.encode())


def _many_files() -> Feed:
    return _file_bytes(*[(_HTML + _JSON)[i * 150 :].encode() for i in range(7)])


# WordPiece ids between [CLS] and [SEP] of: "a man is eating a plate of pasta in the kitchen", "someone is
# having a meal at home", "the train to the coast leaves at nine every evening", "the stock market fell
# sharply after the central bank raised interest rates on monday morning".
_EATING = [101, 1037, 2158, 2003, 5983, 1037, 5127, 1997, 24857, 1999, 1996, 3829, 102]
_MEAL = [101, 2619, 2003, 2383, 1037, 7954, 2012, 2188, 102]
_TRAIN = [101, 1996, 3345, 2000, 1996, 3023, 3727, 2012, 3157, 2296, 3944, 102]
_STOCKS = [101, 1996, 4518, 3006, 3062, 9249, 2044, 1996, 2430, 2924, 2992, 3037, 6165, 2006, 6928, 2851, 102]


def _sentences(*sentences: list[int]) -> Feed:
    """Sentences padded to the longest, with their mask."""
    width = max(len(ids) for ids in sentences)
    padded = np.array([ids + [0] * (width - len(ids)) for ids in sentences], np.int64)
    return {
        "input_ids": padded,
        "attention_mask": (padded != 0).astype(np.int64),
        "token_type_ids": np.zeros_like(padded),
    }


def _similarities(run: Run) -> list[float]:
    """The cosine of the meaning of "eating" to that of "meal" and of "stocks", in tenths."""
    feed = _sentences(_EATING, _MEAL, _STOCKS)
    mask = feed["attention_mask"][..., None]
    means = (_only(run(feed)) * mask).sum(axis=1) / mask.sum(axis=1)
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    return [round(float(means[0] @ means[i]), 1) for i in (1, 2)]


def _roughness(outputs: Feed) -> tuple[float, float]:
    """The spread of the heights and the mean step from row to row: small steps mean terrain, not noise."""
    heights = _only(outputs)[0, 0]
    return round(float(heights.std()), 2), round(float(np.abs(np.diff(heights, axis=0)).mean()), 3)


def _noises(*difficulties: float) -> Feed:
    rng = np.random.default_rng(_RNG_SEED)
    count = len(difficulties)
    return {
        "noisy": (80 * rng.standard_normal((count, 1, 128, 128))).astype(np.float32),
        "sigma": np.full(count, 80, np.float32),
        "difficulty": np.array(difficulties, np.float32),
    }


def _best_film(outputs: Feed) -> tuple[int, float]:
    """The row with the best rating, and the mean of the ratings."""
    ratings = _only(outputs)
    return int(ratings.argmax()), round(float(ratings.mean()), 2)


def _some_ratings(first: int, last: int) -> Feed:
    return {name: array[first:last] for name, array in _golden("movielens_dlrm")[0].items()}


def _case(
    name: str, source: str, task: Callable[[Run], object], expected: object, *variants: Any
) -> GoldenCase:
    golden = f"data:golden/{name}.npz" if name != "movielens_dlrm" else f"shared:golden/{name}.npz"
    return GoldenCase(name, source, golden, task, expected, variants)


def _classifier(name: str, file: str) -> GoldenCase:
    tiger_cat = (282, 0.4)
    variants = (lambda: _views(name, 2), lambda: _views(name, 5))
    return _case(name, f"shared:exported/{file}", _on_golden(name, _class_and_tenths), tiger_cat, *variants)


def _detector_of_speech(name: str, *variants: Any, with_rate: bool = True) -> GoldenCase:
    expected = (_SPEECH_TO - _SPEECH_FROM + 1, _SPEECH_FROM, _SPEECH_TO)
    return _case(name, f"zoo:{name}", _listen(with_rate), expected, *variants)


CASES: tuple[GoldenCase, ...] = (
    _classifier("efficientnet_lite0", "efficientnet-lite0.ts17.onnx"),
    _classifier("efficientnet_lite0_dynamo", "efficientnet-lite0.dynamo.onnx"),
    _case(
        "ppocrv6_det_small",
        "zoo:ppocrv6_det_small",
        _on_golden("ppocrv6_det_small", _text_rows),
        ([45, 59, 93, 108], 7.5),
        _det_small,
        _det_stacked,
    ),
    _case(
        "ppocrv6_rec_small",
        "zoo:ppocrv6_rec_small",
        _on_golden("ppocrv6_rec_small", _ctc_text),
        "Total due: $1,250.00",
        _rec_narrow,
        _rec_batch,
    ),
    _case(
        "ppocr_cls_v2",
        "zoo:ppocr_cls_v2",
        _direction,
        [False, True],
        lambda: _cls_batch(2),
        lambda: _cls_batch(6),
    ),
    _case(
        "selfie_segmentation",
        "data:models/selfie_segmentation.onnx",
        _on_golden("selfie_segmentation", _person),
        (54, False, True),
    ),
    _case(
        "centerface",
        "shared:exported/centerface-dyn.onnx",
        _on_golden("centerface", _best_face),
        (0.9, [181, 58, 269, 177]),
        _face_crop,
        _face_batch,
    ),
    _detector_of_speech("silero_vad", lambda: _voices(16000, 50, 3), lambda: _voices(8000, 60, 10, 90)),
    _detector_of_speech(
        "silero_vad_16k_op15", lambda: _voices(16000, 50, 3), lambda: _voices(16000, 60, 10, 90, 70)
    ),
    _detector_of_speech(
        "silero_vad_op18_ifless", lambda: _voices(16000, 50, 3), lambda: _voices(8000, 60, 10, 90)
    ),
    _detector_of_speech("silero_vad_openvino_16k", with_rate=False),
    _case(
        "silero_vad_sequence",
        "zoo:silero_vad_sequence",
        lambda run: _speech_range(run(_recording(0, 125))["speech_probs"]),
        (_SPEECH_TO - _SPEECH_FROM + 1, _SPEECH_FROM, _SPEECH_TO),
        lambda: _recording(30, 71),
        lambda: _recording(50, 51),
    ),
    _case(
        "magika",
        "zoo:magika",
        lambda run: _only(run(_known_files())).argmax(axis=1).tolist(),
        [_FILE_TYPES[kind] for kind in ("python", "json", "html")],
        _known_files,
        _many_files,
    ),
    _case(
        "basic_pitch",
        "zoo:basic_pitch",
        _on_golden("basic_pitch", _loudest_notes),
        [60, 64, 67],
        lambda: _chords([220.0, 261.63, 329.63], [440.0]),
        lambda: _chords([196.0], [293.66, 369.99, 440.0], [98.0, 1046.5]),
    ),
    _case(
        "swift_f0",
        "zoo:swift_f0",
        _on_golden("swift_f0", _pitch),
        (220, True),
        lambda: _voice(330.0, 8000),
        lambda: _voice(523.0, 23456),
    ),
    _case(
        "minilm_l6_int8w",
        "zoo:minilm_l6_int8w",
        _similarities,
        [0.5, 0.0],
        lambda: _sentences(_TRAIN),
        lambda: _sentences(_EATING, _STOCKS, _MEAL),
    ),
    _case(
        "terrain_diffusion_unet",
        "zoo:terrain_diffusion_unet",
        _on_golden("terrain_diffusion_unet", _roughness),
        (0.24, 0.028),
        lambda: _noises(20.0, 95.0),
        lambda: _noises(1.0, 50.0, 100.0),
    ),
    _case(
        "esrgan_slim_x2",
        "data:models/esrgan-slim-x2.onnx",
        _fidelity,
        ([1, 160, 160, 3], 37),
        lambda: _enlarge(1, 48, 64),
        lambda: _enlarge(2, 33, 57),
    ),
    _case(
        "movielens_dlrm",
        "shared:exported/movielens-dlrm.onnx",
        _on_golden("movielens_dlrm", _best_film),
        (81, 3.56),
        lambda: _some_ratings(0, 1),
        lambda: _some_ratings(100, 137),
    ),
)
