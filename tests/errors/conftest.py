from pathlib import Path

import onnx
import pytest

from hagane import api
from tests.unit.cli.calling import Call, caller
from tests.unit.cli.tiny_models import dense


@pytest.fixture
def hagane(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs the command line: hagane("build", ...)."""
    return caller(monkeypatch, capsys)


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """y = relu(x W + b), x: f32[batch, 4]."""
    path = tmp_path_factory.mktemp("errors") / "dense.onnx"
    onnx.save(dense(), path)
    return path


@pytest.fixture(scope="session")
def engine(model: Path) -> Path:
    """The engine of `model`, built once; don't change it."""
    path = model.with_suffix(".hgn")
    api.build(model).save(path)
    return path
