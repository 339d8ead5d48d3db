"""Pillow draws the pictures: no smoothing and one way to compress, so that the same scene is the same file."""

from io import BytesIO
from math import cos, pi, sin
from typing import TYPE_CHECKING, Any

from loomrl.envs.multimodal.scene import Shape, ShapeLook, ShapeScene
from loomrl.errors import ConfigError

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

RGB = {
    "red": (220, 30, 30),
    "green": (30, 150, 50),
    "blue": (40, 70, 225),
    "yellow": (240, 215, 20),
    "orange": (245, 130, 10),
    "purple": (135, 40, 175),
    "pink": (250, 140, 195),
    "black": (15, 15, 15),
    "grey": (150, 150, 150),
    "pale": (222, 222, 222),
    "dark": (0, 0, 0),
    "white": (255, 255, 255),
    "cool": (232, 240, 250),
    "fresh": (238, 246, 232),
    "warm": (248, 238, 228),
}
INK = {name: number for number, name in enumerate(RGB)}
"""Pictures have a palette: they are small, and quick to compress."""
BACKGROUNDS = ("white", "cool", "fresh", "warm")
LARGE = 0.4
SMALL = 0.22
"""Radius of a shape, in cells."""

Point = tuple[float, float]


def new_canvas(width: int, height: int, colour: str = "white") -> tuple[Any, "ImageDraw"]:
    """An image of one colour, and what draws on it."""
    try:
        from PIL import Image, ImageDraw
    except ImportError as error:
        raise ConfigError(f"Multimodal draws with Pillow ({error}). Install: pip install 'loomrl[vision]'.") from None
    image = Image.new("P", (width, height), INK[colour])
    image.putpalette([part for rgb in RGB.values() for part in rgb])
    return image, ImageDraw.Draw(image)


def png(image: Any) -> bytes:
    """The image as a file."""
    file = BytesIO()
    image.save(file, "PNG", compress_level=6)
    return file.getvalue()


def black(width: int, height: int) -> bytes:
    """A picture that shows nothing."""
    return png(new_canvas(width, height, "dark")[0])


def draw_scene(scene: ShapeScene) -> bytes:
    """The scene as a picture."""
    image, pen = new_canvas(scene.pixels, scene.pixels, BACKGROUNDS[scene.tinted])
    for shape in scene.shapes:
        _draw_shape(pen, scene, shape)
    if scene.striped:
        for at in range(scene.pixels // 14, 2 * scene.pixels, scene.pixels // 7):
            pen.line([(at, 0), (0, at)], fill=INK["grey"])
    return png(image)


def _draw_shape(pen: "ImageDraw", scene: ShapeScene, shape: Shape) -> None:
    cell = scene.pixels / scene.side
    x, y = (shape.cell[1] + 0.5) * cell, (shape.cell[0] + 0.5) * cell
    if shape.before is None:
        _draw(pen, shape.look, (x, y), cell * (SMALL if shape.small else LARGE))
        return
    _draw(pen, shape.look, (x - cell * 0.1, y - cell * 0.1), cell * 0.36)
    _draw(pen, shape.before, (x + cell * 0.16, y + cell * 0.16), cell * 0.28)


def _draw(pen: "ImageDraw", look: ShapeLook, centre: Point, radius: float) -> None:
    x, y = centre
    colour = INK[look.colour]
    if look.kind == "circle":
        pen.ellipse([x - radius, y - radius, x + radius, y + radius], fill=colour)
        return
    pen.polygon([(x + radius * right, y + radius * down) for right, down in OUTLINES[look.kind]], fill=colour)


def _around(corners: int, *, inner: float = 1.0) -> tuple[Point, ...]:
    """Points around the centre from the top on; every other one at the inner radius."""
    angles = [2 * pi * corner / corners for corner in range(corners)]
    lengths = [inner if corner % 2 else 1.0 for corner in range(corners)]
    return tuple((length * sin(angle), -length * cos(angle)) for angle, length in zip(angles, lengths, strict=True))


OUTLINES: dict[str, tuple[Point, ...]] = {
    "square": ((-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)),
    "triangle": ((0.0, -1.0), (1.0, 0.85), (-1.0, 0.85)),
    "diamond": ((0.0, -1.1), (0.7, 0.0), (0.0, 1.1), (-0.7, 0.0)),
    "star": _around(10, inner=0.42),
    "cross": tuple(
        (0.33 * a, 0.33 * b)
        for a, b in (
            *((-1, -3), (1, -3), (1, -1), (3, -1), (3, 1), (1, 1)),
            *((1, 3), (-1, 3), (-1, 1), (-3, 1), (-3, -1), (-1, -1)),
        )
    ),
}
"""Corners, in radii from the centre."""
