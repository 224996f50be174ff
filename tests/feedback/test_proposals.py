"""Names that people propose: votes for classes to come."""

import pytest

from shortlist.feedback import Event, FeedbackStore, Shown
from shortlist.feedback.review import review_queue, waiting_proposals
from shortlist.feedback.votes import collect_votes


def event(number: int, **more) -> Event:
    return Event(request=f"request {number}", **{"verb": "confirm", "images": ("0" * 64,)} | more)


def stored(folder, said: list[Event]):
    with FeedbackStore(folder) as store:
        for one in said:
            store.add(one)
    return folder


def test_a_proposed_name_is_a_vote_for_a_class_to_come(tmp_path):
    shown = (Shown("ash", 0.6, True),)
    named = {"verb": "new_name", "status": "novel", "shown": shown, "observation": "o1"}
    said = [event(i, person=f"p{i}", **named, label=" Tilia  ×  europaea ") for i in range(3)]
    said += [event(3, person="p3", **named | {"observation": "o2"}, label="Tilia × europaea")]
    said += [event(4, person="p4", **named | {"observation": "o2"}, label="Salix")]
    said += [
        event(5, person="p5", verb="confirm", label="ash", observation="o2", status="novel", shown=shown)
    ]
    said += [event(6, person="p6", label="oak", observation="o3", status="novel", shown=shown)]
    votes = collect_votes(said)
    assert [vote.label for vote in votes.votes] == [
        *["!new:Tilia × europaea"] * 4, "!new:Salix", "ash",
    ]  # fmt: skip
    assert dict(votes.left_out) == {
        "flagged, until somebody else has looked": 1
    }  # nobody proposed a name for o3
    store = stored(tmp_path / "store", said)
    assert waiting_proposals(store) == [("Tilia × europaea", 2, 1), ("Salix", 1, 0)]
    assert waiting_proposals(store, theta=9.0) == [("Tilia × europaea", 2, 0), ("Salix", 1, 0)]


def test_proposals_that_differ_in_case_alone_are_one_in_the_review_too(tmp_path):
    """As for data grow, which would make a class of them: nothing of it waits for a look."""
    named = {"verb": "new_name", "observation": "o1"}
    other = {"observation": "o2", "images": ("1" * 64,)}
    names = ("Mentha aquatica", "mentha aquatica", "Mentha Aquatica", "Mentha aquatica")
    said = [event(i, person=f"p{i}", label=name, **named) for i, name in enumerate(names)]
    said += [event(9, person="p9", label="MENTHA AQUATICA", **named | other)]
    store = stored(tmp_path / "store", said)
    assert waiting_proposals(store) == [("Mentha aquatica", 2, 1)]
    assert [one.item for one in review_queue(store)] == ["o2"]


@pytest.mark.errors
@pytest.mark.parametrize("name", ["", "  ", "a\nb", "a\x00b", "x" * 201, "!bad_image", "\ud800"])
def test_a_proposed_name_is_bounded(name):
    with pytest.raises(ValueError, match=r"(label|name) must"):
        event(0, verb="new_name", label=name)
    assert event(0, verb="new_name", label="é" * 200).label == "é" * 200
