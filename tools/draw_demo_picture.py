"""Draws the picture that `hagane demo` reads: a sign and a receipt. Needs Pillow and the DejaVu fonts.

    python tools/draw_demo_picture.py hagane/cli/assets/demo.png

DejaVu is freely licensed, and pictures of text set in it carry no licence of their own. Debian has it as
fonts-dejavu-core.
"""

import sys

from PIL import Image, ImageDraw, ImageFont

WIDTH, HEIGHT = 640, 320
STEEL_BLUE = (38, 70, 96)
SKY = (214, 226, 232)
PAPER = (250, 247, 238)
INK = (34, 34, 38)
AMBER = (246, 190, 62)


def font(name: str, size: int) -> ImageFont.FreeTypeFont:
    """A DejaVu font by its file name, from the system's font folders."""
    return ImageFont.truetype(f"{name}.ttf", size)


def draw_sign(draw: ImageDraw.ImageDraw) -> None:
    """A station's sign, on two poles."""
    for x in (58, 262):
        draw.rectangle((x, 150, x + 8, HEIGHT), fill=(96, 104, 110))
    draw.rounded_rectangle((24, 36, 304, 190), radius=12, fill=STEEL_BLUE, outline="white", width=4)
    draw.text((164, 78), "HAGANE STREET", font=font("DejaVuSans-Bold", 26), fill="white", anchor="mm")
    draw.text((164, 118), "Platform 4", font=font("DejaVuSans", 27), fill="white", anchor="mm")
    draw.text((164, 156), "Trains to the coast", font=font("DejaVuSans", 23), fill=AMBER, anchor="mm")


def draw_receipt(draw: ImageDraw.ImageDraw) -> None:
    """A receipt with a torn lower edge."""
    teeth = [(x, 292 if i % 2 else 284) for i, x in enumerate(range(344, 617, 8))]
    draw.polygon([(344, 24), (616, 24), *reversed(teeth)], fill=PAPER, outline=(200, 196, 184))
    draw.text((480, 56), "CORNER CAFE", font=font("DejaVuSans-Bold", 27), fill=INK, anchor="mm")
    body = font("DejaVuSansMono", 21)
    for y, line in ((104, "2 x Coffee   7.40"), (142, "1 x Sandwich 6.85"), (180, "1 x Tea      3.10")):
        draw.text((480, y), line, font=body, fill=INK, anchor="mm")
    draw.line((366, 208, 594, 208), fill=INK, width=2)
    draw.text((480, 238), "Total: $17.35", font=font("DejaVuSans-Bold", 28), fill=INK, anchor="mm")


def draw_picture() -> Image.Image:
    """The whole picture."""
    picture = Image.new("RGB", (WIDTH, HEIGHT), SKY)
    draw = ImageDraw.Draw(picture)
    draw.rectangle((0, 268, WIDTH, HEIGHT), fill=(150, 158, 150))
    draw_sign(draw)
    draw_receipt(draw)
    return picture


if __name__ == "__main__":
    draw_picture().save(sys.argv[1], optimize=True)
