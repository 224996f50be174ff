"""What people say about lists: a log of events on disk, and what is made of it."""

from shortlist.feedback._database import FeedbackError
from shortlist.feedback._invited import InviteError
from shortlist.feedback._writer import Erased, FullError, Kept, OwnerError, SameRequestError, StuckError
from shortlist.feedback.darwin_core import LICENSES
from shortlist.feedback.doctor import examine_store
from shortlist.feedback.drift import find_drift
from shortlist.feedback.event import NEW_NAME, OBSERVE, VERBS, Event, Shown, observation_of
from shortlist.feedback.export import photo_files, write_photos, write_votes
from shortlist.feedback.location import COARSE, Location
from shortlist.feedback.observations import Observation, observation_id, owns, read_observation
from shortlist.feedback.occurrences import export_archive
from shortlist.feedback.people import Person, admit, invite, list_people, read_token, revoke
from shortlist.feedback.review import Waiting, review_queue, waiting_observations, waiting_proposals
from shortlist.feedback.store import (
    FeedbackStore,
    answers_by_item,
    copies_in,
    is_address,
    is_store,
    last_answers,
    photos_of,
    read_manifest,
    stats_of,
)
from shortlist.feedback.votes import Photo, Vote, each_vote

__all__ = ["VERBS", "Erased", "Event", "FeedbackError", "FeedbackStore", "Kept", "Shown"]
