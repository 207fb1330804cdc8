"""Shows what was read: the picture with boxes, and beside it the text at the same places."""

from __future__ import annotations

from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont

from hagane.zoo.ocr import Line
from hagane.zoo.text_boxes import sides

_COLOURS = ((214, 64, 52), (28, 112, 184), (34, 139, 86), (150, 84, 170), (206, 122, 24))


def draw_reading(picture: Image.Image, lines: Sequence[Line]) -> Image.Image:
    """The picture with a box around each line, and a page of the same size with the texts."""
    sheet = Image.new("RGB", (picture.width * 2, picture.height), "white")
    sheet.paste(picture, (0, 0))
    draw = ImageDraw.Draw(sheet)
    for number, line in enumerate(lines):
        colour = _COLOURS[number % len(_COLOURS)]
        corners = [(float(x), float(y)) for x, y in line.corners]
        draw.polygon(corners, outline=colour, width=2)
        shifted = [(x + picture.width, y) for x, y in corners]
        draw.polygon(shifted, outline=tuple((255 * 2 + c) // 3 for c in colour), width=1)
        font = _fitting(draw, line.text, *sides(line.corners))
        centre = (sum(x for x, _ in shifted) / 4, sum(y for _, y in shifted) / 4)
        draw.text(centre, line.text, font=font, fill=colour, anchor="mm")
    return sheet


def _fitting(
    draw: ImageDraw.ImageDraw, text: str, width: float, height: float
) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Pillow's own font at the largest size that keeps the text within the box."""
    size = max(8.0, height * 0.8)
    wide = draw.textlength(text, font=ImageFont.load_default(size))
    return ImageFont.load_default(max(8.0, size * min(1.0, width / wide)) if wide else size)
