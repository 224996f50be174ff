"""Where an image is decoded makes no difference."""

import asyncio
import struct
import time
import zlib

import pytest
import torch

from shortlist.serve import decoding
from shortlist.serve.decoding import Decoder
from shortlist.serve.limits import Admission, Held, Limits
from shortlist.serve.refusals import BadImage
from tests.serve.parts import picture, png
from tests.serve.test_bad_uploads import chunk, png_of_size, text_bomb


def held(client: str = "a", limits: Limits | None = None) -> Held:
    return Held(Admission(limits or Limits()), client)


def test_small_requests_and_others_give_the_same(model, monkeypatch):
    decoder = Decoder(model, Limits())
    contents = [png(1), b"no image", png(2, (300, 200)), b"", png(3, (9, 7)), png(4, (300, 300))]
    expected = model.prepare([picture(1), picture(2, (300, 200)), picture(3, (9, 7)), picture(4, (300, 300))])
    for small_pixels in (1 << 16, 0, 1 << 30):  # some at once, none, all
        monkeypatch.setattr(decoding, "_SMALL_PIXELS", small_pixels)
        found = asyncio.run(decoder.each(contents, held()))
        bad = [(i, one.code, one.image) for i, one in enumerate(found) if isinstance(one, BadImage)]
        assert bad == [(1, "unknown_format", 1), (3, "empty_image", 3)]
        pixels = torch.cat([one for one in found if not isinstance(one, BadImage)])
        assert pixels.dtype == torch.uint8
        torch.testing.assert_close(model.preprocessing.normalized(pixels), expected, rtol=0, atol=0)
    with pytest.raises(BadImage):
        asyncio.run(decoder.object(contents, held()))
    decoder.close()


@pytest.mark.errors
def test_small_files_that_hold_much_are_no_work_for_the_thread_of_http(model):
    """Pixels that go on for 100 MB behind 64 x 64 of them, a comment of 100 MB, a very large size."""
    long_rows = zlib.compress(bytes(100_000_000), 9)
    head = struct.pack(">IIBBBBB", 64, 64, 8, 0, 0, 0, 0)
    endless = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", long_rows) + chunk(b"IEND", b"")
    decoder = Decoder(model, Limits())
    for content in (endless, text_bomb(), png_of_size(7000, 7000)):
        used = time.thread_time()
        found = decoder._small([content], f"{len(content)}")
        assert time.thread_time() - used < 0.1  # to unpack 100 MB takes 0.2 s or more
        assert found == [None] or isinstance(found[0], BadImage | torch.Tensor)
    decoder.close()


def test_who_sent_small_files_that_take_long_waits_his_turn_afterwards(model, monkeypatch):
    clock = iter(range(1000))  # every look at the clock is a second later: all is slow
    decoder, inline = Decoder(model, Limits()), []
    monkeypatch.setattr(decoding.time, "thread_time", lambda: next(clock))
    monkeypatch.setattr(decoding, "_SLOW_REQUESTS", 2)
    monkeypatch.setattr(decoding, "_SLOW_CLIENTS", 2)

    def small(client: str) -> None:
        inline.append((client, [result is not None for result in decoder._small([png(), png()], client)]))

    for client in "aaabaa":
        small(client)
    decoded, threads = [True, False], [False, False]  # the rest of a slow request is for the threads too
    wanted = [("a", decoded), ("a", threads), ("a", threads), ("b", decoded), ("a", decoded), ("a", threads)]
    assert inline == wanted
    for client in "cdef":
        small(client)
    assert len(decoder._slow) <= 3
    decoder.close()
