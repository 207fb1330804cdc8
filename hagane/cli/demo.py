"""hagane demo: reads the text in a picture."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from hagane import zoo
from hagane.api import load
from hagane.cli.arguments import Json, Threads, num_threads
from hagane.cli.opening import require_file
from hagane.cli.output import show_json, show_table
from hagane.cli.progress import building
from hagane.core.errors import ModelError, RunError
from hagane.debug.duel import duel

NAME = "demo"
EXAMPLE = "hagane demo --image photo.jpg --output read.png"
DETECTOR, RECOGNISER = "ppocrv6_det_small", "ppocrv6_rec_small"
PICTURE = Path(__file__).parent / "assets" / "demo.png"
REPEATS = 3


@dataclass
class _Report:
    """What was read and how long it took; milliseconds unless named otherwise."""

    lines: list[dict[str, Any]] = field(default_factory=list)
    build_s: dict[str, float] = field(default_factory=dict)
    detect_ms: float = 0.0
    recognise_ms: float = 0.0
    peers: dict[str, dict[str, float]] = field(default_factory=dict)


def command(
    image: Annotated[Path, typer.Option(help="the picture to read")] = PICTURE,
    output: Annotated[Path, typer.Option(help="the picture to write, with boxes and text")] = Path(
        "demo-out.png"
    ),
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Reads the text in a picture with two engines built from PP-OCRv6, and shows the speed."""
    if find_spec("PIL") is None:
        raise RunError(
            "reading pictures needs pillow, which is not installed", next_step="pip install 'hagane[demo]'"
        )
    picture = _open_picture(image)
    count = num_threads(threads)
    say: Callable[[str], None] = (lambda text: None) if json else print
    report = _Report()
    models = {name: zoo.pull(name) for name in (DETECTOR, RECOGNISER)}
    engines = {name: _engine(model, report, say) for name, model in models.items()}
    feeds = _read(picture, engines, count, output, report)
    if find_spec("onnxruntime") is not None:
        say("measuring beside ONNX Runtime ...")
        for name, feed in feeds.items():
            sides = [("hagane", str(engines[name])), ("onnxruntime", str(models[name]))]
            report.peers[name] = {
                t.kind: t.min_us / 1e3 for t in duel(sides, feed, threads=count, seconds=1.5, blocks=3)
            }
    if json:
        show_json(vars(report) | {"picture": str(image), "written": str(output), "threads": count})
    else:
        _show(report, output, count)


def _open_picture(path: Path) -> Any:
    from PIL import Image, UnidentifiedImageError

    try:
        return Image.open(require_file(path)).convert("RGB")
    except (UnidentifiedImageError, OSError) as error:
        raise ModelError(f"{path} can't be read as a picture", next_step="give a PNG or JPEG file") from error


def _engine(model: Path, report: _Report, say: Callable[[str], None]) -> Path:
    """The model's engine in the cache, built by the first demo with best guesses, without measuring."""
    from hagane.build.cache import cached_engine, place_in_cache
    from hagane.build.options import BuildOptions

    folder = zoo.cache_folder() / "engines"
    start = time.perf_counter()
    with building(model) as progress:
        options = BuildOptions(verify="off", progress=progress)  # the text that it reads is the check
        if not place_in_cache(model, folder, options).is_file():
            say(f"building {model.stem}, once ...")
        engine = cached_engine(model, folder, options)
    report.build_s[model.stem] = time.perf_counter() - start
    return engine


def _read(
    picture: Any, engines: dict[str, Path], threads: int, output: Path, report: _Report
) -> dict[str, Any]:
    """Reads several times, fills in the report, writes the picture; returns a feed for each model."""
    ocr = import_module("hagane.zoo.ocr")
    with (
        load(engines[DETECTOR], threads=threads) as detector,
        load(engines[RECOGNISER], threads=threads) as reader,
    ):
        characters = ocr.characters_of(reader.metadata)
        readings = [ocr.read_picture(picture, detector.run, reader.run, characters) for _ in range(REPEATS)]
    reading = readings[-1]
    report.detect_ms = statistics.median(r.detect_s for r in readings) * 1e3
    report.recognise_ms = statistics.median(r.recognise_s for r in readings) * 1e3
    report.lines = [
        {"text": n.text, "confidence": round(n.confidence, 4), "corners": n.corners.round(1).tolist()}
        for n in reading.lines
    ]
    try:
        import_module("hagane.zoo.ocr_picture").draw_reading(picture, reading.lines).save(output)
    except (OSError, ValueError) as error:
        raise RunError(
            f"can't write {output}: {error}", next_step="name a .png file with --output"
        ) from error
    feeds = {DETECTOR: reading.detector_feed}
    if reading.recogniser_feeds:
        feeds[RECOGNISER] = max(reading.recogniser_feeds, key=lambda feed: feed["x"].shape[-1])
    return feeds


def _show(report: _Report, output: Path, threads: int) -> None:
    print()
    show_table(("text", ">confidence"), [(n["text"], f"{n['confidence']:.2f}") for n in report.lines])
    print()
    stages = [(f"build {name}", f"{seconds:.2f} s") for name, seconds in report.build_s.items()]
    stages += [
        ("detect", f"{report.detect_ms:.1f} ms"),
        (f"recognise {len(report.lines)} lines", f"{report.recognise_ms:.1f} ms"),
    ]
    show_table(("stage", ">time"), stages)
    if report.peers:
        print()
        rows = [
            (name, f"{t['hagane']:.2f}", f"{t['onnxruntime']:.2f}", f"{t['onnxruntime'] / t['hagane']:.2f}x")
            for name, t in report.peers.items()
        ]
        show_table((f"one call, {threads} threads", ">hagane ms", ">ONNX Runtime ms", ">speed-up"), rows)
    print(f"\nwrote {output}")
