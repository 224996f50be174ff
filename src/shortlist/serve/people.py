"""Find the person behind a request: somebody with a personal link, or anybody under a free name."""

from urllib.parse import unquote

from starlette.requests import Request

from shortlist._bounds import check_choice
from shortlist._text import check_distinct, composed
from shortlist.feedback import FeedbackError, InviteError, admit, is_store, read_token
from shortlist.serve.desk import FeedbackDesk
from shortlist.serve.keys import Keys
from shortlist.serve.limits import RateLimit
from shortlist.serve.refusals import Refusal

PEOPLE = ("open", "invited")
"""Who may answer: anybody, or people with a personal link."""


class Door:
    """Finds the person behind a request.

    Args:
        people: One of :data:`PEOPLE`.
        keys: The keys of clients.
        desk: The store that invites people.
        answer_rate: Answers per minute of one person or client; 0 for any number.
    """

    def __init__(self, people: str, keys: Keys, desk: FeedbackDesk, answer_rate: int) -> None:
        check_choice("people", people, PEOPLE)
        self._rate = RateLimit(answer_rate, what="answers")
        self._only_invited, self._keys, self._desk = people == "invited", keys, desk

    def writer(self, request: Request, client: str, name: str | None) -> tuple[str, str]:
        """Return the person who sends an answer, and the key to record it with; count it for the rate.

        The rate of answers is that of an invited person on all devices, and of a client for other people.

        Raises:
            Refusal: With 403, as :meth:`person_of`, or with 429, if there are too many answers.
        """
        person, key = self.person_of(request, client, name)
        self._rate.take(f"person {person}" if request.headers.get("x-person-token") else client)
        return person, key

    def person_of(self, request: Request, client: str, name: str | None) -> tuple[str, str]:
        """Return the person of a request, and the key to record the person's answers with.

        The header ``X-Person-Token`` may have the token of a personal link. Then it says who the person is,
        and ``name`` does not count. Whether the link is still valid is checked by the store with each answer.

        Raises:
            Refusal: With 403, if the token is of another store, or if it is needed and missing.
        """
        if token := request.headers.get("x-person-token", ""):
            try:
                return read_token(self._desk.store.secret, token)
            except ValueError:
                raise refused_link() from None
        if self._only_invited:
            words = "Only invited people may answer here: open your personal link, or ask for one."
            raise Refusal(403, "not_invited", words)
        return composed(name or ""), client if self._keys.needed else ""

    def reader(self, request: Request, client: str) -> tuple[str, str]:
        """Return the person who asks, and the key that the store has recorded for the person.

        Without a personal link, the header ``X-Person`` has the name, percent-encoded.

        Raises:
            Refusal: With 403, if the person may not use the name.
        """
        name = composed(unquote(request.headers.get("x-person", "")))
        try:
            check_distinct("X-Person", name)
        except ValueError as error:
            raise Refusal(422, "bad_feedback", f"{error}.") from None
        if not name and not request.headers.get("x-person-token"):
            return "", ""  # somebody who only looks
        person, key = self.person_of(request, client, name)
        try:
            return person, admit(self._desk.location, person, key) if is_store(self._desk.location) else key
        except InviteError:
            raise refused_link() from None
        except (FeedbackError, OSError):
            raise Refusal(507, "log_failed", "The store of answers failed: see the server's log.") from None


def refused_link() -> Refusal:
    """Return the refusal of an invited person's name without a link, and of a link that is not valid."""
    words = "This name belongs to an invited person: open the personal link again, or ask for a new one."
    return Refusal(403, "bad_link", words)
