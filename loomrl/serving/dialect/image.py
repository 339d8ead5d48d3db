"""Pictures in requests: base64 of PNG or JPEG files, and never an address to fetch."""

import base64
import binascii
from io import BytesIO

from loomrl.picture import LARGEST, fault
from loomrl.serving.dialect.fields import invalid

MOST_JPEG_PIXELS = 1 << 21
"""Pixels of one JPEG file: they are decoded here, and kept as PNG."""
TYPES = ("image/png", "image/jpeg")


def from_url(url: str, where: str) -> bytes:
    """The PNG file of a data URL."""
    head, comma, text = url.partition(",")
    if not head.startswith("data:") or not comma:
        raise invalid(where, f"{url[:40]!r} is no data: URL. Pictures are not fetched: send their bytes.")
    if not head.endswith(";base64"):
        raise invalid(where, "the data: URL is not base64.")
    return from_base64(text, head.removeprefix("data:").removesuffix(";base64"), where)


def from_base64(text: str, media_type: str, where: str) -> bytes:
    """The PNG file of a picture."""
    if media_type not in TYPES:
        raise invalid(where, f"{media_type[:40]!r} is not supported. Supported: {', '.join(TYPES)}.")
    if len(text) > LARGEST * 4 // 3 + 4:
        raise invalid(where, f"the picture has more than {LARGEST} bytes.")
    try:
        picture = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise invalid(where, f"the base64 is damaged: {error}.") from None
    if media_type == "image/jpeg":
        picture = _png_of(picture, where)
    if reason := fault(picture):
        raise invalid(where, f"{reason}.")
    return picture


def _png_of(jpeg: bytes, where: str) -> bytes:
    try:
        from PIL import Image
    except ImportError:
        raise invalid(where, "JPEG needs Pillow here (pip install 'loomrl[vision]'): send PNG.") from None
    try:
        with Image.open(BytesIO(jpeg), formats=["JPEG"]) as image:
            if image.width * image.height > MOST_JPEG_PIXELS:
                raise invalid(where, f"{image.width}x{image.height} pixels are more than {MOST_JPEG_PIXELS}.")
            made = BytesIO()
            image.convert("RGB").save(made, "PNG", compress_level=1)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise invalid(where, f"the JPEG file cannot be read: {error}.") from None
    return made.getvalue()
