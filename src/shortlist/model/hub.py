"""A model on the Hugging Face hub: pushed as one commit, pulled file by file and checked by its manifest."""

import os
import re
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, TypeVar

from torch import nn

from shortlist.model.card import PAGE
from shortlist.model.files import ModelError, model_folder, read_manifest

M = TypeVar("M", bound="OnHub")
_PREFIX, _REPO = "hf:", r"[\w\-.]+/[\w\-.]+"
# of a stranger's repository nothing else is fetched: no code, no pickles
_FILES = (
    "model.json",
    PAGE,
    "*.json",
    "*.safetensors",
    "*.svg",
    "predictors/*.json",
    "predictors/*.safetensors",
)
_OURS = re.compile(r"(predictors/)?[\w.\-]+\.(json|safetensors|svg)|README\.md")


class OnHub(ABC):
    """What can be pushed to the Hugging Face hub and made from what is there."""

    @abstractmethod
    def save(self, folder: str | Path) -> None:
        """Save it to a new folder."""

    @staticmethod
    @abstractmethod
    def load(path: str | Path, *, network: Any = None, device: Any = "cpu") -> Any:
        """Load it from a folder."""

    def push_to_hub(
        self,
        repo_id: str,
        *,
        private: bool | None = None,
        revision: str | None = None,
        token: str | None = None,
        message: str = "A model of shortlist",
    ) -> str:
        """Push the model to the Hugging Face hub, as one commit with its card.

        The repository is made if there is none. Files of a model that was there before are removed.
        Needs ``pip install 'shortlist[hub]'``.

        Args:
            repo_id: Repository, ``"user/name"``.
            private: Whether a new repository is private; the account's default if ``None``.
            revision: Branch to push to; ``main`` if ``None``.
            token: Token of the hub; the one that ``hf auth login`` keeps if ``None``.
            message: Message of the commit.

        Returns:
            The id of the commit: ``from_pretrained(..., revision=...)`` pins it.
        """
        check_repo(repo_id)
        with tempfile.TemporaryDirectory() as folder:
            self.save(Path(folder) / "model")
            return push_folder(
                Path(folder) / "model",
                repo_id,
                private=private,
                revision=revision,
                token=token,
                message=message,
            )

    @classmethod
    def from_pretrained(
        cls: type[M],
        source: str | Path,
        *,
        revision: str | None = None,
        token: str | None = None,
        network: nn.Module | str | None = None,
        device: Any = "cpu",
    ) -> M:
        """Open a model of the Hugging Face hub, or of a folder. Code that is named in it is never run.

        Every file is checked against the model's own manifest. Files of the hub are kept in
        ``$SHORTLIST_CACHE``, or ``~/.cache/shortlist``, below ``hub``.

        Args:
            source: ``"hf:user/name"``, or a folder as :meth:`load` takes it.
            revision: Branch, tag or commit of the repository; ``main`` if ``None``.
            token: Token of the hub, for private repositories.
            network: Network of your own, as for :meth:`load`.
            device: Device to load the model to.

        Raises:
            ModelError: If the repository holds no model, or a file is missing, damaged or changed.
        """
        return cls.load(local_copy(source, revision=revision, token=token), network=network, device=device)


def check_repo(repo_id: str) -> None:
    """Require the name of a repository."""
    if not re.fullmatch(_REPO, repo_id):
        raise ValueError(f"repo_id must be of the form user/name, got {repo_id!r}")


def push_folder(
    folder: str | Path,
    repo_id: str,
    *,
    private: bool | None,
    revision: str | None,
    token: str | None,
    message: str,
) -> str:
    """Push a saved model as one commit, and return the id of the commit."""
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi

    check_repo(repo_id)
    folder = model_folder(folder)
    api = HfApi(token=token, library_name="shortlist")
    api.create_repo(repo_id, private=private, exist_ok=True)
    if revision is not None:
        api.create_branch(repo_id, branch=revision, exist_ok=True)
    new = ["model.json", *read_manifest(folder)]
    old = api.list_repo_files(repo_id, revision=revision)
    operations: list[Any] = [CommitOperationAdd(name, folder / name) for name in new]
    operations += [CommitOperationDelete(name) for name in old if _OURS.fullmatch(name) and name not in new]
    return api.create_commit(repo_id, operations, commit_message=message, revision=revision).oid


def local_copy(source: str | Path, *, revision: str | None = None, token: str | None = None) -> Path:
    """Return the folder of a model; one of the hub is fetched first, if it is not here already."""
    if not str(source).startswith(_PREFIX):
        if revision is not None:
            raise ValueError(f"revision goes with a repository such as hf:user/name, got {str(source)!r}")
        if not Path(source).exists() and re.fullmatch(_REPO, str(source)):
            raise ModelError(f"{source} is no folder: a model of the hub is hf:{source}")
        return Path(source)
    repo_id = str(source)[len(_PREFIX) :]
    check_repo(repo_id)
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    try:
        commit = HfApi(token=token, library_name="shortlist").model_info(repo_id, revision=revision).sha
        cache = Path(os.environ.get("SHORTLIST_CACHE") or Path.home() / ".cache" / "shortlist")
        folder = cache / "hub" / repo_id.replace("/", "--") / str(commit)
        # real files: a model is never read through a link
        snapshot_download(
            repo_id, revision=commit, local_dir=folder, allow_patterns=list(_FILES), token=token
        )
    except HfHubHTTPError as error:
        raise ModelError(f"{source} cannot be fetched: {' '.join(str(error).split())[:300]}") from error
    if not (folder / "model.json").is_file():
        raise ModelError(f"{source} holds no model of shortlist: it has no model.json")
    return folder
