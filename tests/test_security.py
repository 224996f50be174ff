"""SECURITY.md: every number in it is that of the code."""

import re
from pathlib import Path

from shortlist import _messages
from shortlist._store import json as _json, yaml as _yaml
from shortlist.feedback.store import MAX_BYTES
from shortlist.serve import forms, limits
from shortlist.serve.decoding import FORMATS
from shortlist.serve.limits import Limits

PAGE = Path(__file__).parents[1] / "SECURITY.md"
L = Limits()


def size(number: int) -> str:
    """Return bytes as the page writes them."""
    power = max(power for power in range(4) if number >= 1024**power)
    assert number % 1024**power == 0
    return f"{number // 1024**power} {('bytes', 'kB', 'MB', 'GB')[power]}"


SENTENCES = [
    f"at most {_yaml.MAX_BYTES // 10**6} MB, {_yaml.MAX_DEPTH} levels and {_yaml.MAX_NODES:,} values",
    f"at most {_json.MAX_DEPTH} levels |",
    f"decoded by Pillow, in {L.decoders} threads",
    f"{FORMATS[0]}, {FORMATS[1]} and WebP alone, by content; {size(L.image_bytes)};",
    f"{L.pixels // 10**6} million pixels, read from its head before a pixel is decoded",
    f"; {L.decode_seconds:g} s. Pillow",
    f"cut to {forms._NAME} characters",
    f"{size(L.request_bytes)} each, {size(L.held_bytes)} all together;",
    f"at most {limits.MAX_IMAGES} files ({L.batch_images} in a batch)",
    f"{L.request_pixels // 10**6:,} million pixels in a request, {L.client_pixels // 10**6:,} million of one",
    f"at most {100 * limits.SHARE:g} % of what all share",
    f"{limits.SILENT_SECONDS:g} s and {size(limits.HEAD_BYTES)} for the head of a request, "
    f"{limits.SILENT_SECONDS:g} s to take the rest of an answer; {limits.CONNECTIONS:,} connections",
    f"{L.body_seconds:g} s; {L.requests} requests and {L.queue} images at a time",
    f"{L.answer_rate} answers, votes and observations a minute (`--answer-rate`), then 429",
    f"{size(limits.FEEDBACK_BYTES)} without photos",
    f"the store is full at {size(MAX_BYTES)}",
    f"the bytes of a photo that is sent, {L.body_seconds:g} s for all",
    f"one line of at most {_messages.MAX_MESSAGE:,} characters",
]
NO_LIMITS = (  # numbers that are no limits of ours: versions, codes, names
    *("my_package2", "torch 2.6", "CVE-2025-32434", "SHA-256", "/v2", "with 403", "then 503"),
    *("exit code 2", "SHORTLIST_DEBUG=1"),
)


def test_every_number_of_the_page_is_that_of_the_code():
    text = PAGE.read_text()
    for sentence in SENTENCES:
        assert sentence in text, sentence
        text = text.replace(sentence, "")
    for words in NO_LIMITS:
        assert words in text, words
        text = text.replace(words, "")
    assert re.findall(r".*\d.*", text) == []


def test_every_limit_of_the_server_is_on_the_page():
    """But for those that only say how it works: how large its batches are, and how long one waits."""
    told = {"image_bytes", "request_bytes", "held_bytes", "pixels", "request_pixels", "client_pixels"}
    told |= {"decode_seconds", "decoders", "requests", "queue", "body_seconds", "batch_images", "rate"}
    told |= {"answer_rate"}
    assert set(vars(L)) == told | {"batch", "wait"} and "`--rate`" in PAGE.read_text()
