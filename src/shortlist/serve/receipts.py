"""Receipts: what a list was, signed by the server that made it, for the person's answer that comes later.

The server keeps nothing of a list. Who wants to answer to it sends the receipt back, and the log has the list
as it was shown, with its probabilities, also after a restart or with another model.
"""

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Sequence
from typing import Any

from shortlist.serve.answer_form import choice_form
from shortlist.serve.exchange import Answer

MAX_RECEIPT = 100_000  # characters; 100 classes with long names have fewer
_SIGNATURE = 32


class Signing:
    """What the receipt of a list needs, and whether the list is drawn for the audit.

    Args:
        images: SHA-256 of the photos.
        secret: What signs; without it there are lists, but neither receipts nor an audit.
        share: Share of the requests that are drawn for the audit.
    """

    def __init__(self, images: Sequence[str], secret: bytes | None, share: float) -> None:
        self._images, self._secret = images, secret
        self.audit = secret is not None and _is_audited(images, secret, share)

    def receipt(self, answer: Answer, *, model: str, flags: Sequence[str] = ()) -> dict[str, Any]:
        """Return the receipt of a list as text, if there can be one, whether it is audited, and all flags."""
        more = {"audit": self.audit, "flags": all_flags(flags, answer.status)}
        if self._secret is None:
            return {"receipt": None, **more}
        content = _content(answer, self._images, model=model, audit=self.audit) | {"flags": list(flags)}
        return {"receipt": _written(content, self._secret), **more}


def all_flags(flags: Sequence[str], status: str) -> list[str]:
    """Return what is said to people: what may be wrong with photos, and ``stranger`` by the status."""
    return [*flags, *["stranger"] * (status == "novel")]


def _content(answer: Answer, images: Sequence[str], *, model: str, audit: bool = False) -> dict[str, Any]:
    """Return what a receipt says: photos, list, choice, status and model.

    The choice has what was ``promised`` over all rows together, if the promise is about this list.
    """
    listed = answer.listed
    choice = {name: value for name, value in choice_form(listed.choice).items() if value not in (None, False)}
    if listed.promise.holds and listed.promise.about == "rows":
        choice["promised"] = listed.promise.level
    return {
        "images": list(images),
        "shown": [[c.id, round(c.probability or 0.0, 6), c.in_set] for c in listed],
        "choice": choice,
        "model": model,
        "status": answer.status,
        "audit": audit,
    }


def _is_audited(images: Sequence[str], secret: bytes, share: float) -> bool:
    """Whether photos are drawn for the audit: at random, but the same each time that they are sent."""
    drawn = _signed("audit".join(sorted(images)).encode(), secret)
    return int.from_bytes(drawn[:8], "big") / 2**64 < share


def _written(content: dict[str, Any], secret: bytes) -> str:
    """Return a receipt as text, which nobody without the secret can make."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(_signed(text, secret) + text).decode()


def read_receipt(receipt: str, secret: bytes) -> dict[str, Any]:
    """Return what a receipt says.

    Raises:
        ValueError: If it was not made with this secret.
    """
    try:
        content = base64.b64decode(receipt.encode(), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError):
        content = b""
    signature, text = content[:_SIGNATURE], content[_SIGNATURE:]
    if not hmac.compare_digest(signature, _signed(text, secret)):
        raise ValueError("receipt must be one that this server gave out with a list")
    return json.loads(text)


def _signed(text: bytes, secret: bytes) -> bytes:
    return hmac.new(secret, text, hashlib.sha256).digest()
