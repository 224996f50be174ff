"""The options of a service as plain values, which each process opens for itself."""

import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shortlist.checklist import Checklist
from shortlist.index import ImageIndex
from shortlist.model import Model
from shortlist.releases import Releases, is_releases
from shortlist.serve.desk import FeedbackDesk
from shortlist.serve.keys import Keys
from shortlist.serve.limits import Limits
from shortlist.serve.metrics import Metrics
from shortlist.serve.places import read_places
from shortlist.serve.server import Follow
from shortlist.serve.service import Service


@dataclass(frozen=True)
class ServiceSource:
    """The options of a service. Another process can get them, and open its own service.

    Args:
        model: Folder of a saved model or a run; for :meth:`follow` also a folder of releases.
        index: Folder of an index of known images; by default ``index`` in the model's folder, if it is there.
        keys: File with the keys that are allowed, or ``None``.
        feedback: Folder of the store of people's answers, or its address.
        admin_keys: File with the keys by which people's data can be deleted over HTTP, or ``None``.
        audit: Share of the requests with a receipt that are drawn for the audit, in [0, 1].
        limits: Limits of requests, of each process.
        any_project: Whether any project of Pl@ntNet's API is taken as all classes.
        allow_urls: Hosts from which photos may be fetched.
        places: Folder of places, or ``None``; it is read again with each release.
        names: Checklist that people can search, or ``None``; it is read once.
        people: Who may answer: ``open`` (anybody) or ``invited`` (people with a personal link).
        app_answers: Whether people may answer to lists that an app made, which nobody can check.
        kind: What the model knows, such as ``"a plant"``, for the page; empty if it is not said.
        organs: What photos may show, such as ``leaf``, which the page asks.
        device: Device of the network.
        network: For a model whose network is the user's own code, the function that makes it.
        secret: Signs addresses of images; the same in all processes, which accept each other's addresses.
    """

    model: str
    index: str | None = None
    keys: str | None = None
    feedback: str = "feedback"
    admin_keys: str | None = None
    audit: float = 0.0
    limits: Limits = field(default_factory=Limits)
    any_project: bool = False
    allow_urls: tuple[str, ...] = ()
    places: str | None = None
    names: str | None = None
    people: str = "open"
    app_answers: bool = False
    kind: str = ""
    organs: tuple[str, ...] = ()
    device: str = "cpu"
    network: str | None = None
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    def open(self) -> Service:
        """Load model and index, and make a service that opens and closes its own store of answers."""
        return self._opened(
            Path(self.model), self.index, feedback=self.feedback, **self._keys(), **self._names()
        )

    def follow(self, desk: FeedbackDesk) -> Follow:
        """Return how to make the service, and if the model is a folder of releases, how to follow them.

        Args:
            desk: Store of people's answers, which is closed at the end.
        """
        shared = {"feedback": desk, "metrics": Metrics(), **self._keys(), **self._names()}
        if not is_releases(self.model):
            service = self._opened(Path(self.model), self.index, **shared)
            return Follow(lambda: service.version, lambda: service, desk.close)
        releases = Releases(self.model)

        def make() -> Service:
            current = releases.current()
            if current is None:
                raise ValueError(f"{releases.folder} has no current release")
            released_index = current.index if current.index and Path(current.index).is_dir() else None
            return self._opened(releases.model_path(current), self.index or released_index, **shared)

        def version() -> str:
            current = releases.current()
            return "" if current is None else f"{current.number} ({current.version})"

        return Follow(version, make, desk.close)

    def _keys(self) -> dict[str, Any]:
        return {"keys": Keys(self.keys, secret=self.secret), "admin_keys": Keys(self.admin_keys)}

    def _names(self) -> dict[str, Checklist]:
        if self.names is None:
            return {}
        checklist = Checklist.read(self.names)
        checklist.prepare()
        return {"names": checklist}

    def _opened(self, folder: Path, index: str | None, **parts: Any) -> Service:
        model = Model.load(folder, network=self.network, device=self.device)
        if index is None and (folder / "index").is_dir():
            index = str(folder / "index")
        opened_index = None if index is None else ImageIndex.open(index, model=model)
        names = ("audit", "limits", "any_project", "allow_urls", "people", "app_answers", "kind", "organs")
        options = {name: getattr(self, name) for name in names}
        places = () if self.places is None else read_places(self.places)
        return Service(model, source=folder, index=opened_index, places=places, **options, **parts)
