"""PNG files as bytes: checks and facts without decoding them."""

import base64
import binascii
import hashlib
import struct
import zlib

import numpy as np
from numpy.typing import NDArray

SIGNATURE = b"\x89PNG\r\n\x1a\n"
LARGEST = 4 << 20
"""Bytes of one picture."""
MOST = 16
"""Pictures in one message."""
MOST_PIXELS = 1 << 24
"""Pixels of one picture: bounds the decompressed size of a small file."""
URL = "data:image/png;base64,"

_SIZE = struct.Struct(">II")
_LONG = struct.Struct(">I")


def fault(picture: object) -> str:
    """The reason why a picture cannot be sent in a message; empty if it can."""
    if not isinstance(picture, bytes):
        return f"{type(picture).__name__} {picture!r:.40} is no bytes"
    if len(picture) > LARGEST:
        return f"{len(picture)} bytes are more than {LARGEST}"
    if not picture.startswith(SIGNATURE) or len(picture) < 33 or picture[12:16] != b"IHDR":
        return f"{picture[:8]!r} begins no PNG file"
    width, height = size_of(picture)
    if not 0 < width * height <= MOST_PIXELS:
        return f"{width}x{height} pixels are none, or more than {MOST_PIXELS}"
    return ""


def size_of(picture: bytes) -> tuple[int, int]:
    """Width and height, from the header."""
    width, height = _SIZE.unpack_from(picture, 16)
    return int(width), int(height)


def to_png(rgb: NDArray[np.uint8]) -> bytes:
    """The PNG file of rows of pixels with red, green and blue: [height, width, 3]."""
    height, width, _ = rgb.shape
    lines = b"".join(b"\0" + row.tobytes() for row in np.ascontiguousarray(rgb, np.uint8))
    header = _SIZE.pack(width, height) + bytes((8, 2, 0, 0, 0))
    return SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(lines)) + _chunk(b"IEND", b"")


def _chunk(name: bytes, data: bytes) -> bytes:
    return _LONG.pack(len(data)) + name + data + _LONG.pack(zlib.crc32(name + data))


def digest(picture: bytes) -> str:
    """SHA-256 of the file, in hexadecimal, equal in every process."""
    return hashlib.sha256(picture).hexdigest()


def label(picture: bytes) -> str:
    """A text that replaces a picture."""
    if fault(picture):
        return f"[no picture: {fault(picture)}]"
    width, height = size_of(picture)
    return f"[picture {width}x{height} {digest(picture)[:8]}]"


def to_url(picture: bytes) -> str:
    """The picture as a data URL, for servers of OpenAI's dialect."""
    return URL + base64.b64encode(picture).decode()


def from_url(url: str) -> bytes:
    """The picture of `to_url`; ValueError for any other URL."""
    if not url.startswith(URL):
        raise ValueError(f"{url[:40]!r} is no data URL of a PNG file")
    try:
        return base64.b64decode(url[len(URL) :], validate=True)
    except binascii.Error as error:
        raise ValueError(f"the data URL is damaged: {error}") from None
