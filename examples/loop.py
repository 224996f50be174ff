"""From people's answers to the next model, over HTTP, on glyphs; draws docs/loop.svg.

A model from a few images of 13 classes serves. People answer through the real API, over several rounds: a
person gives a photo with an answer, others get it from the review route and vote. Votes are aggregated,
data grow, models are trained again, pass a gate, and are released; the server follows. 3 of 16 classes are
new: the first model does not know them, and people propose their names. It runs once for each way to decide
who counts.

Of 100 names, 30 are of one attacker, who gives the same wrong class under each of them. 15 are careless and
take the first class of the list. 55 are honest, and know a class with a probability drawn from Beta(5, 2)
for each of them; if they do not know, half say so, and half take a class of the list by its probability.
Those who know but do not see their class in the list name it half of the time, and else say "none of
these". 10 honest people are invited, where anybody is. What is reviewed first depends on when the server
orders what waits, so that two runs differ. `--short` is the version of the tests.
"""

import argparse
import hashlib
import io
import json
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch
import uvicorn
from PIL import Image
from torch import Tensor, nn

from shortlist import ClassTable, Model, Preprocessing
from shortlist.compare.frozen import look_at, read_frozen_images
from shortlist.compare.gate import judge_release
from shortlist.curation.build import apply_plan
from shortlist.curation.grow import plan_growth
from shortlist.curation.votes import aggregate_votes
from shortlist.datasets.glyphs import glyphs
from shortlist.feedback import FeedbackStore, invite
from shortlist.feedback.export import write_photos, write_votes
from shortlist.feedback.store import read_events
from shortlist.feedback.votes import collect_votes
from shortlist.inputs.benchmarks import BENCHMARK_FORMAT
from shortlist.inputs.folders import class_folders, images_below
from shortlist.models.spec import NetworkSpec, build_network
from shortlist.predictors import AdaptingThreshold, Conformal, ShrinkingThreshold, TopK
from shortlist.releases import Releases
from shortlist.scores import PriorRecord, ScoreMap
from shortlist.serve.app import make_app
from shortlist.serve.desk import FeedbackDesk
from shortlist.serve.following import Following, Served
from shortlist.serve.limits import Limits
from shortlist.serve.service import Service

MEAN, STD = 47 / 255, 86 / 255  # of glyphs
PREPARE = Preprocessing(height=32, width=32, resize=32, mean=(47 / 255,), std=(86 / 255,), color="L")
COVERAGE = 0.9


@dataclass(frozen=True)
class Size:
    """How much is done."""

    classes: int = 16
    new_classes: int = 3  # of these, which the first model does not know
    seed_images: int = 3  # of each class, to begin with
    calibration_images: int = 300
    test_images: int = 300
    rounds: int = 4
    observations: int = 50  # of each round
    votes: int = 5  # for each observation, on average
    people: int = 100
    invited: int = 10
    steps: int = 100  # of training, with 64 images each
    seed: int = 0  # of people, photos and training


SHORT = Size(
    classes=8,
    new_classes=2,
    calibration_images=100,
    test_images=80,
    rounds=2,
    observations=40,
    people=40,
    invited=8,
    steps=40,
)


@dataclass(frozen=True)
class Arm:
    """Who counts, and how.

    Args:
        rule: Rule of votes.
        min_voters: People who must give a valid label, or one who is invited.
        people: ``open`` (anybody answers) or ``invited``.
        has_invited: Whether anybody has a personal link.
    """

    rule: str = "confirmed"
    min_voters: int = 2
    people: str = "open"
    has_invited: bool = True


ARMS = {
    "two voters, or one of 10 invited (default)": Arm(),
    "one voter": Arm(min_voters=1, has_invited=False),
    "invited people alone": Arm(people="invited"),
}


@dataclass(frozen=True)
class Person:
    """A name under which somebody answers."""

    name: str
    kind: str
    skill: float

    def answer(self, true: str, shown: dict[str, float], wrong: str, rng: Any) -> tuple[str, str]:
        """Return the verb, and the name of the class that is meant, or an empty one."""
        if self.kind == "careless":
            return "confirm", next(iter(shown))
        if self.kind == "attacker":
            return "other_class", wrong
        if rng.random() < self.skill:
            if true in shown:
                return "confirm", true
            return ("other_class", true) if rng.random() < 0.5 else ("none_of_these", "")
        if rng.random() < 0.5:
            return "do_not_know", ""
        weights = np.asarray(list(shown.values()))
        return "confirm", str(rng.choice(list(shown), p=weights / weights.sum()))


def make_people(size: Size, rng: Any) -> list[Person]:
    """Draw the names; the last ones are of honest people, who are invited where somebody is."""
    attackers, careless = round(0.3 * size.people), round(0.15 * size.people)
    kinds = ["attacker"] * attackers + ["careless"] * careless
    kinds += ["honest"] * (size.people - len(kinds))
    return [Person(f"person-{i}", kind, float(rng.beta(5, 2))) for i, kind in enumerate(kinds)]


@dataclass(frozen=True)
class World:
    """What nobody in the loop knows: all images with their classes."""

    names: tuple[str, ...]
    new: frozenset[str]  # classes that the first model does not know
    pool: list[tuple[bytes, str]]  # photos that people will take
    stream: tuple[Tensor, Tensor]  # rows that nobody is asked about, for the thresholds
    test: tuple[Tensor, Tensor]  # rows of all classes, new ones too, that no model has seen


def png(pixels: Tensor) -> bytes:
    """Return a glyph as a PNG file."""
    file = io.BytesIO()
    Image.fromarray(pixels[0].numpy()).save(file, "PNG")
    return file.getvalue()


def make_world(size: Size, folder: Path) -> World:
    """Write the first images, of old classes: a few to learn from, some to calibrate, frozen test images."""
    data = glyphs(max_classes=size.classes, train_images=max(1000, 3 * size.rounds * size.observations))
    names = [id.replace("+", "") for id in data.class_table.ids]
    new = {names[i] for i in range(len(names) - 1, 0, -(len(names) // size.new_classes))[: size.new_classes]}
    splits: tuple[Any, Any, Any] = (data.train, data.val, data.test)
    inputs, targets = ([getattr(part, name) for part in splits] for name in ("inputs", "targets"))
    images: dict[str, dict[str, Any]] = {}
    used: set[int] = set()

    def write(part: str, place: int, rows: list[int]) -> None:
        for row in rows:
            name = names[int(targets[place][row])]
            file = folder / part / name / f"{part}-{row}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            content = png(inputs[place][row])
            file.write_bytes(content)
            entry = {"class": name, "split": part, "source": str(file)}
            entry |= {"observation": f"{part}-{row}", "sha256": hashlib.sha256(content).hexdigest()}
            images[str(file.relative_to(folder))] = entry

    files = [png(pixels) for pixels in inputs[0]]
    seen = {hashlib.sha256(file).hexdigest() for file in files}  # small glyphs of two faces may be the same
    hashed = [hashlib.sha256(png(pixels)).hexdigest() for pixels in inputs[2]]
    test = [row for row, digest in enumerate(hashed) if digest not in seen]
    old = [index for index, name in enumerate(names) if name not in new]
    for index in old:
        rows = (targets[0] == index).nonzero().squeeze(1)[: size.seed_images].tolist()
        used |= set(rows)
        write("train", 0, rows)
    for part, place, number in (("val", 1, size.calibration_images), ("test", 2, size.test_images)):
        hashed = [hashlib.sha256(png(pixels)).hexdigest() for pixels in inputs[place]]
        rows = [row for row, digest in enumerate(hashed) if digest not in seen and targets[place][row] in old]
        seen |= {hashed[row] for row in rows[:number]}
        write(part, place, rows[:number])
    content = {"format": BENCHMARK_FORMAT, "options": {}, "images": images}
    (folder / "metadata.json").write_text(json.dumps(content))
    ClassTable([names[index] for index in old]).save(folder / "class_table.json")
    order = (
        np.random.default_rng([size.seed, 1])
        .permutation([row for row in range(len(files)) if row not in used])
        .tolist()
    )
    pool = [(files[row], names[int(targets[0][row])]) for row in order]
    rest = order[size.rounds * size.observations :]
    parts = (inputs[0][rest], targets[0][rest]), (inputs[2][test], targets[2][test])
    return World(tuple(names), frozenset(new), pool, *parts)


def read_part(folder: Path, part: str, table: ClassTable) -> tuple[Tensor, Tensor]:
    """Read the images of a part of a benchmark."""
    number = {name: i for i, name in enumerate(table.ids)}
    images, targets = [], []
    for name in class_folders(folder / part):
        for path in images_below(folder / part / name):
            images.append(torch.from_numpy(np.array(Image.open(path).convert("L"))))
            targets.append(number[name])
    inputs = (torch.stack(images)[:, None].float() / 255 - MEAN) / STD
    return inputs, torch.tensor(targets)


def train_model(folder: Path, size: Size) -> Model:
    """Train on a benchmark, calibrate on its validation images, and return the finished model."""
    torch.manual_seed(size.seed)
    table = ClassTable.load(folder / "class_table.json")
    inputs, target = read_part(folder, "train", table)
    counts = target.bincount(minlength=len(table)).tolist()
    table = ClassTable(table.names, table.ids, counts=tuple(max(1, count) for count in counts))
    spec = NetworkSpec(name="small_cnn", num_classes=len(table), input_shape=(1, 32, 32))
    network = build_network(spec)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=size.steps)
    for _ in range(size.steps):
        rows = torch.randint(len(inputs), (64,))
        moved = torch.roll(inputs[rows], tuple(torch.randint(-2, 3, (2,)).tolist()), dims=(2, 3))
        loss = nn.functional.cross_entropy(network(moved), target[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    network.eval()
    score_map = ScoreMap(len(table), contains=PriorRecord.training(table.class_counts))
    inputs, target = read_part(folder, "val", table)
    scores = Model.from_parts(network, table, score_map=score_map).scores(inputs).clone()
    predictors = {"conformal90": Conformal(coverage=COVERAGE).calibrate(scores, target), "top5": TopK(5)}
    return Model.from_parts(
        network,
        table,
        preprocessing=PREPARE,
        score_map=score_map,
        predictors=predictors,
        spec=spec,
        about={"name": "glyphs"},
    )


@contextmanager
def serving(place: Releases, store: Path, people: str) -> Iterator[str]:
    """Serve the current release at a free port, and follow it; gives the address."""
    desk = FeedbackDesk(store)

    def make() -> Served:
        release = place.current()
        assert release is not None
        folder = place.model_path(release)
        limits = Limits(answer_rate=0)  # all people are on this machine
        service = Service(Model.load(folder), source=folder, feedback=desk, people=people, limits=limits)
        return Served(service, make_app(service))

    def version() -> str:
        release = place.current()
        return "" if release is None else str(release.number)

    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    following = Following(version, make, close=desk.close, every=0.1)
    server = uvicorn.Server(
        uvicorn.Config(following, log_config=None, access_log=False, timeout_keep_alive=60)
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(60)
        listening.close()


class Crowd:
    """People before the server, who give photos and review those of others.

    Args:
        client: Client of the server.
        people: The names.
        links: Tokens of the personal links, by name.
        size: How much they do.
        rng: What is drawn.
    """

    def __init__(
        self, client: httpx.Client, people: list[Person], links: dict[str, str], size: Size, rng: Any
    ) -> None:
        self._client = client
        self._people, self._links, self._size, self._rng = people, links, size, rng
        activity = 1 / np.arange(1, len(people) + 1) ** 0.5
        self._activity = activity[rng.permutation(len(people))]
        self.truth: dict[str, str] = {}  # the true class of each observation

    def take_photos(self, photos: list[tuple[bytes, str]], model: Model, names: tuple[str, ...]) -> None:
        """Give photos, each with an answer; then review, as often as there are votes for them on average."""
        for photo, true in photos:
            person, files = self._somebody(), {"images": ("photo.png", photo, "image/png")}
            path = "/v1/identify?predictor=conformal90&receipt=true"
            answer = self._send(person, "POST", path, files=files)
            event = self._said(person, true, answer["candidates"], model, names)
            event |= {"receipt": answer["receipt"], "consent": True}
            form = {"event": ("event", json.dumps(event).encode(), "application/json")}
            made = self._send(person, "POST", "/v1/feedback", files=form | files)
            self.truth[made["observation"]] = true
        for _ in range((self._size.votes - 1) * len(photos)):
            person = self._somebody()
            waits = self._send(person, "GET", "/v1/review/next")["observation"]
            if waits is not None:
                true = self.truth[waits["id"]]
                event = self._said(person, true, waits["candidates"], model, names)
                self._send(person, "POST", f"/v1/observations/{waits['id']}/votes", json=event)

    def _somebody(self) -> Person:
        share = self._activity / self._activity.sum()
        return self._people[int(self._rng.choice(len(self._people), p=share))]

    def _said(
        self, person: Person, true: str, listed: list[Any], model: Model, names: tuple[str, ...]
    ) -> dict[str, Any]:
        """Return what a person says about a list; a class that the model does not know is proposed."""
        inside = [candidate for candidate in listed if candidate["in_set"]] or listed[:5]
        shown = {candidate["id"]: candidate["probability"] for candidate in inside}
        wrong = names[(names.index(true) + 1) % len(names)]
        verb, name = person.answer(true, shown, wrong, self._rng)
        if verb == "other_class" and name not in model.classes.ids:
            return {"verb": "new_name", "name": name, "person": person.name}
        return {"verb": verb, "person": person.name} | ({"class_id": name} if name else {})

    def _send(self, person: Person, method: str, path: str, **content: Any) -> Any:
        """Send a request of a person, who has a link or only a name; again, if the connection breaks."""
        link = self._links.get(person.name)
        headers = {"x-person": person.name} if link is None else {"x-person-token": link}
        for _ in range(5):
            with suppress(httpx.TransportError):
                answer = self._client.request(method, path, headers=headers, **content)
                return answer.raise_for_status().json()
        raise RuntimeError(f"the server does not answer to {path}")


def grow(
    store: Path, folder: Path, first: Path, arm: Arm, truth: dict[str, str], world: World
) -> dict[str, float]:
    """Make the next benchmark from the first one and all votes; return what the votes are worth."""
    exported = collect_votes(read_events(store))
    names = ("item", "user", "label", "author")
    columns = [[getattr(vote, name) for vote in exported.votes] for name in names]
    options: dict[str, Any] = {"rule": arm.rule, "theta": 2.0, "min_agreement": 0.5}
    options |= {"min_voters": arm.min_voters}
    labels = aggregate_votes(*columns, invited=[vote.invited for vote in exported.votes], **options)
    folder.mkdir(parents=True)
    write_votes(folder / "votes.csv", exported.votes)
    write_photos(folder / "photos.csv", exported.photos, store)
    files = {"votes": folder / "votes.csv", "images": folder / "photos.csv"}
    # calibration images never come from people's answers: no new photo is held out
    apply_plan(plan_growth(first, **files, held_out=0.0, **options), folder / "data")
    items, texts = labels.items[labels.valid].tolist(), labels.labels[labels.valid].tolist()
    valid = {item: label.removeprefix("!new:") for item, label in zip(items, texts, strict=True)}
    wrong = sum(truth[item] != label for item, label in valid.items())
    new = sum(truth[item] == label and label in world.new for item, label in valid.items())
    return {"valid": len(valid), "wrong": wrong, "new valid": new, "items": len(labels.items)}


def hashes(folder: Path) -> set[str]:
    """Return the SHA-256 of all images below a folder."""
    return {hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*.png")}


def measure(model: Model, frozen: Path, world: World) -> dict[str, float]:
    """Return top-5, macro top-5 and coverage on the frozen test images, and what is known beyond them."""
    results = look_at(model, read_frozen_images(frozen)).results
    top, sets = results.scores.topk[5], results.sets["conformal90"]
    found = {"top5": top.micro.value, "macro top5": top.macro.value, "coverage": sets.coverage.micro.value}
    found |= {"top1": results.scores.topk[1].micro.value, "size": sets.size.micro.value}
    inputs, target = world.test
    scores = scores_of(model, inputs)
    column = columns_of(model, world)[target]
    is_listed = (scores.topk(5).indices == column[:, None]).any(1)
    covered = model.predictors["conformal90"](scores).gather(1, column.clamp(min=0)[:, None]).squeeze(1)
    is_new = torch.tensor([name in world.new for name in world.names])[target]
    found |= {"new top5": is_listed[is_new].double().mean(), "classes": len(model.classes)}
    found["coverage of all"] = (covered & (column >= 0)).double().mean()
    found["coverage of new"] = (covered & (column >= 0))[is_new].double().mean()
    return {name: float(value or 0.0) for name, value in found.items()}


def scores_of(model: Model, inputs: Tensor) -> Tensor:
    """Return the scores of glyphs."""
    return torch.cat([model.scores((part.float() / 255 - MEAN) / STD) for part in inputs.split(500)])


def columns_of(model: Model, world: World) -> Tensor:
    """Return the index of each class of the world in a model, or -1."""
    number = {id: index for index, id in enumerate(model.classes.ids)}
    return torch.tensor([number.get(name, -1) for name in world.names])


def run_loop(size: Size, folder: Path, world: World, first: Path, arm: Arm) -> list[dict[str, Any]]:
    """Run all rounds with one way to decide who counts; return what each brought."""
    rng = np.random.default_rng([size.seed, 7])
    place, store = Releases(folder / "releases"), folder / "feedback"
    people, model = make_people(size, rng), train_model(first, size)
    model.save(folder / "model-0")
    place.add(folder / "model-0", who="loop", data=str(first), frozen=str(first))
    frozen, nothing = hashes(first / "test"), {"valid": 0, "wrong": 0, "new valid": 0, "items": 0}
    rounds = [{"round": 0, **nothing, "released": True, **measure(model, first, world)}]
    FeedbackStore(store).close()
    names = [person.name for person in people[-size.invited :]] if arm.has_invited else []
    if arm.people == "invited":
        people = people[-size.invited :]
    with serving(place, store, arm.people) as address, httpx.Client(base_url=address, timeout=120) as client:
        crowd = Crowd(client, people, {name: invite(store, name) for name in names}, size, rng)
        for number in range(1, size.rounds + 1):
            photos = world.pool[(number - 1) * size.observations : number * size.observations]
            release = place.current()
            assert release is not None
            served = Model.load(place.model_path(release))
            crowd.take_photos(photos, served, world.names)
            labels = grow(store, folder / f"round-{number}", first, arm, crowd.truth, world)
            data = folder / f"round-{number}" / "data"
            assert hashes(data / "test") == frozen and not frozen & (
                hashes(data / "train") | hashes(data / "val")
            )
            model = train_model(data, size)
            verdict = judge_release(model, served, first)
            if verdict.passed:
                model.save(folder / f"model-{number}")
                checks = {check.name: check.words for check in verdict.checks}
                place.add(
                    folder / f"model-{number}", who="loop", data=str(data), frozen=str(first), checks=checks
                )
                _wait_for(address, place)
            found = {"round": number, **labels, "released": verdict.passed, **measure(model, first, world)}
            found["failed"] = [check.name for check in verdict.failed]
            rounds.append(found)
            print(arm, {k: round(v, 3) if isinstance(v, float) else v for k, v in found.items()}, flush=True)
    return rounds


def _wait_for(address: str, place: Releases) -> None:
    """Wait until the server has the new release."""
    release = place.current()
    assert release is not None
    for _ in range(600):
        if httpx.get(f"{address}/v1/model", timeout=60).json()["version"] == release.version:
            return
        time.sleep(0.05)
    raise RuntimeError("the server does not follow the release")


def thresholds(
    model: Model, world: World, seed: int, replies: int = 5000
) -> dict[str, list[tuple[int, float]]]:
    """Follow the coverage of thresholds that learn from confirmed lists.

    The true class is seen only if it was listed. Three ways: the semi-bandit rule, the adapting rule, and the
    naive one, which takes the conformal quantile of the last 500 confirmed scores. The coverage is that of
    the threshold over all rows of the stream; for the adapting rule, which promises no more, the share of
    hits so far.
    """
    rows, target = world.stream
    target = columns_of(model, world)[target]
    rows, target = rows[target >= 0], target[target >= 0]
    scores = scores_of(model, rows)
    strange = 1 - model.probabilities(scores).gather(1, target[:, None]).squeeze(1).double()
    drawn = torch.randint(len(strange), (replies,), generator=torch.Generator().manual_seed(seed))
    shrinking, adapting = ShrinkingThreshold(coverage=COVERAGE), AdaptingThreshold(coverage=COVERAGE)
    start = float(strange.quantile(0.95))  # a first threshold from labeled rows
    naive, seen = start, []
    found: dict[str, list[tuple[int, float]]] = {"semi-bandit": [], "adapting": [], "naive": []}
    for turn, row in enumerate(drawn.tolist()):
        score = float(strange[row])
        shrinking.observe(score if score <= shrinking.threshold else None)
        adapting.observe(hit=score <= adapting.threshold)
        if score <= naive:
            seen.append(score)
            last = torch.tensor(seen[-500:], dtype=torch.float64)
            if len(last) >= 50:
                rank = min(len(last), int(np.ceil((len(last) + 1) * COVERAGE)))
                naive = float(last.sort().values[rank - 1])
        if turn % 50 == 49:
            for name, threshold in (("semi-bandit", shrinking.threshold), ("naive", naive)):
                found[name].append((turn + 1, float((strange <= threshold).double().mean())))
            found["adapting"].append((turn + 1, 1 - adapting.misses / adapting.rounds))
    return found


def draw(
    arms: dict[str, list[dict[str, Any]]], curves: dict[str, list[tuple[int, float]]], path: Path
) -> None:
    """Draw rounds against what they brought, and the coverage of the thresholds."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, 4, figsize=(14, 6), layout="constrained")
    panels = {
        "top5": "top-5",
        "macro top5": "top-5, mean over classes",
        "coverage": "coverage, 90 % promised",
        "new top5": "top-5 of new species",
        "valid": "valid labels",
        "wrong": "valid labels that are wrong",
        "classes": "classes that the model knows",
    }
    for place, (name, title) in zip(axes.flat, panels.items(), strict=False):
        for arm, rounds in arms.items():
            scale = 1 if name in ("valid", "wrong", "classes") else 100
            numbers = [one["round"] for one in rounds]
            place.plot(numbers, [scale * one[name] for one in rounds], "o-", ms=3, label=arm)
        place.set_title(title, fontsize=10)
        place.set_xlabel("round")
        if name == "coverage":
            place.axhline(100 * COVERAGE, color="gray", lw=0.8, ls="--")
    last = axes.flat[7]
    for name, points in curves.items():
        last.plot([turn for turn, _ in points], [100 * share for _, share in points], label=name)
    last.axhline(100 * COVERAGE, color="gray", lw=0.8, ls="--")
    last.set_title("coverage, from confirmed lists alone", fontsize=10)
    last.set_xlabel("replies")
    axes.flat[0].legend(fontsize=7)
    last.legend(fontsize=8)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Run the loop in each way, and print and draw what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="folder for all files; a temporary one if left out")
    parser.add_argument("--figure", type=Path, help="file for the figure (.svg)")
    parser.add_argument("--results", type=Path, help="file for the numbers (.json)")
    parser.add_argument("--seed", type=int, default=0, help="of people, photos and training")
    parser.add_argument("--short", action="store_true", help="two rounds of a small version")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    size = replace(SHORT if options.short else Size(), seed=options.seed)
    folder = options.out or Path(tempfile.mkdtemp())
    world = make_world(size, folder / "first")
    arms = {
        name: run_loop(size, folder / str(number), world, folder / "first", arm)
        for number, (name, arm) in enumerate(ARMS.items())
    }
    last = Releases(folder / "0" / "releases")
    release = last.current()
    assert release is not None
    curves = thresholds(Model.load(last.model_path(release)), world, size.seed)
    found = {"rounds": arms, "thresholds": curves}
    if options.figure is not None:
        draw(arms, curves, options.figure)
    if options.results is not None:
        options.results.write_text(json.dumps(found, indent=1) + "\n")
    for name, points in curves.items():
        shares = [100 * share for _, share in points]
        print(f"{name}: coverage {shares[-1]:.1f} % at the end, lowest {min(shares):.1f} %")
    if options.out is None:
        shutil.rmtree(folder)
    return found


if __name__ == "__main__":
    main()
