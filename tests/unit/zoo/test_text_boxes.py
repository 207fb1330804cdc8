import numpy as np
import pytest

from hagane.zoo.text_boxes import (
    BOX_THRESHOLD,
    Box,
    components,
    convex_hull,
    grow,
    reading_order,
    sides,
    smallest_rectangle,
    text_boxes,
)


def rectangle(left: float, top: float, right: float, bottom: float) -> Box:
    return Box(np.array([[left, top], [right, top], [right, bottom], [left, bottom]]), 1.0)


def test_components_are_joined_across_corners_and_bends():
    mask = np.array([[1, 0, 1, 0, 0], [1, 0, 1, 0, 1], [1, 1, 1, 0, 0], [0, 0, 0, 1, 0]], bool)
    found = sorted(sorted(zip(r.tolist(), c.tolist(), strict=True)) for r, c in components(mask))
    assert found == [
        [(0, 0), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1), (2, 2), (3, 3)],
        [(1, 4)],
    ]


@pytest.mark.parametrize("seed", range(5))
def test_components_cover_the_mask_once(seed: int):
    mask = np.random.default_rng(seed).random((23, 31)) < 0.4
    count = np.zeros(mask.shape, int)
    for rows, columns in components(mask):
        count[rows, columns] += 1
    assert np.array_equal(count, mask.astype(int))


def test_no_components():
    assert list(components(np.zeros((3, 3), bool))) == []


def test_hull_of_a_square_with_points_inside():
    points = np.array([[0, 0], [4, 0], [4, 4], [0, 4], [2, 2], [1, 3], [2, 0]], float)
    assert sorted(map(tuple, convex_hull(points))) == [(0, 0), (0, 4), (4, 0), (4, 4)]


@pytest.mark.parametrize("degrees", [0, 7, 30, -20])
def test_the_smallest_rectangle_of_a_turned_one(degrees: float):
    angle = np.deg2rad(degrees)
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    corners = np.array([[0, 0], [60, 0], [60, 12], [0, 12]], float) @ turn
    inside = np.random.default_rng(1).random((50, 2)) * [60, 12] @ turn
    found = smallest_rectangle(np.concatenate([inside, corners]))
    np.testing.assert_allclose(found, corners, atol=1e-9)
    np.testing.assert_allclose(sides(found), (60, 12))


def test_rectangles_of_degenerate_points():
    assert sides(smallest_rectangle(np.array([[3.0, 4.0]]))) == (0, 0)
    assert sides(smallest_rectangle(np.array([[0.0, 0.0], [3.0, 4.0]]))) == pytest.approx((5, 0))


def test_growing_moves_each_side():
    grown = grow(rectangle(10, 10, 30, 20).corners, 2)
    assert grown.tolist() == [[8, 8], [32, 8], [32, 22], [8, 22]]


def test_boxes_of_a_map():
    probability = np.zeros((60, 100), np.float32)
    probability[10:16, 5:45] = 0.9
    probability[40:46, 50:90] = BOX_THRESHOLD - 0.1  # text that is too unsure
    probability[30:31, 5:90] = 0.9  # a line, too thin for text
    (box,) = text_boxes(probability)
    assert box.score == pytest.approx(0.9)
    width, height = sides(box.corners)
    assert width > 40 and 6 < height < 20
    assert box.corners.mean(axis=0).tolist() == [24.5, 12.5]


def test_reading_order_goes_through_blocks_line_by_line():
    sign = [rectangle(10, 10, 90, 20), rectangle(10, 24, 60, 34)]
    receipt = [rectangle(200, 5, 290, 15), rectangle(200, 20, 230, 30), rectangle(245, 21, 290, 31)]
    assert reading_order([receipt[2], sign[1], receipt[0], sign[0], receipt[1]]) == sign + receipt


def test_no_boxes():
    assert text_boxes(np.zeros((32, 32), np.float32)) == []
