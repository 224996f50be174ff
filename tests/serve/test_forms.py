"""Forms: what is put together by another library is taken apart again."""

import asyncio

import httpx
import pytest
from hypothesis import given, strategies as st

from shortlist.serve.forms import in_time, parse_form
from shortlist.serve.limits import Limits
from shortlist.serve.refusals import Refusal

LIMITS = Limits()
names = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters='"\\'), max_size=20)
contents = st.one_of(st.binary(max_size=200), st.sampled_from([b"\r\n--b", b"--b--", b"\r\n", b"\r\n\r\n"]))


@given(st.lists(st.tuples(names.filter(bool), contents), min_size=1, max_size=5), st.lists(names, max_size=3))
def test_a_form_gives_back_what_was_put_in(files, organs):
    request = httpx.Request(
        "POST",
        "http://x/",
        files=[("images", (name, content)) for name, content in files],
        data={"organs": organs},
    )
    boundary = request.headers["content-type"].split("boundary=")[1].encode()
    form = parse_form(request.read(), boundary, LIMITS, max_files=5)
    assert [(u.name, u.content) for u in form.files["images"]] == files
    assert form.fields.get("organs", []) == organs


@given(st.binary(max_size=300))
def test_any_bytes_are_a_form_or_are_refused(body):
    for content in (body, b"--b\r\n" + body, b"--b\r\nContent-Disposition: form-data; name=a\r\n\r\n" + body):
        try:
            parse_form(content, b"b", LIMITS, max_files=2)
        except Refusal as refused:
            assert refused.status in (400, 413)


def test_very_many_parts_are_refused_after_the_first_few():
    part = b'--b\r\nContent-Disposition: form-data; name="images"; filename="a"\r\n\r\n\r\n'
    with pytest.raises(Refusal) as refused:
        parse_form(part * 100_000 + b"--b--\r\n", b"b", LIMITS, max_files=5)
    assert (refused.value.status, refused.value.code) == (413, "too_many_images")


def test_work_that_takes_too_long_is_stopped_and_other_cancellations_pass():
    async def run():
        with pytest.raises(TimeoutError):
            await in_time(asyncio.sleep(60), 0.01)
        assert await in_time(asyncio.sleep(0, "done"), 60) == "done"
        task = asyncio.create_task(in_time(asyncio.sleep(60), 60))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
