"""Pictures in messages: what may travel, what stands for it in text, and how it goes to servers."""

import struct
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from loomrl.errors import EpisodeError
from loomrl.gym.facade import as_text
from loomrl.gym.guard import check_observation
from loomrl.picture import LARGEST, MOST, fault, from_url, label, size_of, to_png, to_url
from loomrl.types import Message


def png(width=2, height=3):
    return to_png(np.arange(height * width * 3).astype(np.uint8).reshape(height, width, 3))


def test_a_drawn_picture_is_what_another_reader_reads():
    image = Image.open(BytesIO(png(5, 4))).convert("RGB")
    assert np.array_equal(np.asarray(image).reshape(-1), np.arange(60))


def test_a_picture_is_no_fault():
    assert fault(png()) == ""
    assert size_of(png(2, 3)) == (2, 3)
    assert check_observation((Message("user", "?", (png(),)),), origin="reset()")


@pytest.mark.parametrize(
    ("images", "says"),
    [
        ((b"GIF89a" + bytes(60),), "no PNG"),
        ((b"\x89PNG\r\n\x1a\n",), "no PNG"),
        ((png() + bytes(LARGEST),), "more than"),
        ((png()[:16] + struct.pack(">II", 1 << 16, 1 << 16) + png()[24:],), "pixels"),
        (("a.png",), "no bytes"),
        ([png()], "a tuple of PNG files"),
        ((png(),) * (MOST + 1), "are allowed"),
    ],
)
def test_what_is_no_picture_is_refused_by_name(images, says):
    with pytest.raises(EpisodeError, match=says):
        check_observation((Message("user", "?", images),), origin="reset()")


def test_text_has_a_line_for_a_picture_that_tells_pictures_apart():
    shown = as_text((Message("user", "What is it?", (png(2, 3),)),))
    assert shown == f"{label(png(2, 3))}\nWhat is it?"
    assert "2x3" in shown
    assert label(png(2, 3)) != label(png(3, 2))
    assert Message("user", "plain").text == "plain"


def test_data_urls_bring_pictures_back():
    assert from_url(to_url(png())) == png()
    for wrong in ("http://host/a.png", "data:image/png;base64,!", "data:image/gif;base64,AAAA"):
        with pytest.raises(ValueError, match="data URL"):
            from_url(wrong)
