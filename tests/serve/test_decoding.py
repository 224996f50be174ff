"""Where an image is decoded makes no difference."""

import asyncio

import pytest
import torch

from shortlist.serve import decoding
from shortlist.serve.decoding import Decoder
from shortlist.serve.limits import Limits
from shortlist.serve.refusals import BadImage
from tests.serve.parts import picture, png


def test_small_requests_and_others_give_the_same(model, monkeypatch):
    decoder = Decoder(model, Limits())
    contents = [png(1), b"no image", png(2, (300, 200)), b"", png(3, (9, 7)), png(4, (300, 300))]
    expected = model.prepare([picture(1), picture(2, (300, 200)), picture(3, (9, 7)), picture(4, (300, 300))])
    for small_pixels in (1 << 16, 0, 1 << 30):  # some at once, none, all
        monkeypatch.setattr(decoding, "_SMALL_PIXELS", small_pixels)
        found = asyncio.run(decoder.each(contents))
        bad = [(i, one.code, one.image) for i, one in enumerate(found) if isinstance(one, BadImage)]
        assert bad == [(1, "unknown_format", 1), (3, "empty_image", 3)]
        pixels = torch.cat([one for one in found if not isinstance(one, BadImage)])
        assert pixels.dtype == torch.uint8
        torch.testing.assert_close(model.preprocessing.normalized(pixels), expected, rtol=0, atol=0)
    with pytest.raises(BadImage):
        asyncio.run(decoder.object(contents))
    decoder.close()
