from pathlib import Path

import numpy as np
import pytest
import typer

from hagane.cli.arguments import check_dims, load_inputs, one_of, parse_dims, parse_shapes
from hagane.core.dims import Dim


def test_shapes_are_numbers_names_and_ranges():
    shapes = parse_shapes(["image=1:8:64x3xHx224", "a=b=2", "scalar="])
    assert shapes == {
        "image": (Dim("image_d0", min=1, max=64, opt=8), 3, "H", 224),
        "a=b": (2,),
        "scalar": (),
    }


def test_names_that_are_no_identifiers_get_one():
    (dim,) = parse_shapes(["0/in=1:2:3"])["0/in"]
    assert dim.name == "d_0_in_d0"


@pytest.mark.parametrize("text", ["1x3", "in=1x-3", "in=1:8", "in=8:4:2", "=3", "in=1xx3"])
def test_wrong_shapes(text: str):
    with pytest.raises(typer.BadParameter, match="--shapes"):
        parse_shapes([text])


def test_a_shape_given_twice():
    with pytest.raises(typer.BadParameter, match="twice"):
        parse_shapes(["x=1", "x=2"])


def test_dims():
    assert parse_dims(["batch=4", "T=16"]) == {"batch": 4, "T": 16}
    assert parse_dims(None) == {}
    with pytest.raises(typer.BadParameter, match="--dim 'batch'"):
        parse_dims(["batch"])


def test_unknown_dims_are_refused():
    assert check_dims({"T": 3}, ["T", "B"]) == {"T": 3}
    with pytest.raises(typer.BadParameter, match="no dim X; it has B, T"):
        check_dims({"X": 3}, ["T", "B"])
    with pytest.raises(typer.BadParameter, match="all its shapes are constant"):
        check_dims({"X": 3}, [])


def test_one_of():
    assert one_of("a", "b")("a") == "a"
    with pytest.raises(typer.BadParameter, match="'c' is unknown; use a or b"):
        one_of("a", "b")("c")


def test_inputs_from_npy_and_npz(tmp_path: Path):
    one, two = np.arange(3.0), np.ones((2, 2), np.float32)
    np.save(tmp_path / "one.npy", one)
    np.savez(tmp_path / "both.npz", one=one, two=two)
    assert np.array_equal(load_inputs([f"a=b={tmp_path}/one.npy"])["a=b"], one)
    both = load_inputs([f"{tmp_path}/both.npz"])
    assert sorted(both) == ["one", "two"] and np.array_equal(both["two"], two)


def test_inputs_that_cannot_be_read(tmp_path: Path):
    np.save(tmp_path / "one.npy", np.arange(3.0))
    (tmp_path / "empty.npy").write_bytes(b"")
    (tmp_path / "text.npy").write_text("3 4 5")
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    for name in ("missing", "empty", "text", "objects"):
        with pytest.raises(typer.BadParameter, match="can't read"):
            load_inputs([f"x={tmp_path}/{name}.npy"])
    with pytest.raises(typer.BadParameter, match=r"name=file\.npy"):
        load_inputs([f"{tmp_path}/one.npy"])
