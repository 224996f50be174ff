"""What people say about lists: a log of events on disk, and what is made of it."""

from shortlist.feedback.event import VERBS, Event, Shown
from shortlist.feedback.store import Erased, FeedbackError, FeedbackStore, Kept

__all__ = ["VERBS", "Erased", "Event", "FeedbackError", "FeedbackStore", "Kept", "Shown"]
