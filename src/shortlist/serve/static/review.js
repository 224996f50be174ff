// Review: observations of others, one at a time; what people said is shown after one's own answer.

import { candidateCard } from "./cards.js";
import { at, facts, fetched, languageChoice, make, personName, randomName, remembered, words } from "./common.js";
import { forgetPick } from "./compare.js";
import { flagWords, isOne, localized, say } from "./list.js";
import { nameSearch } from "./names.js";

const MOST_SKIPPED = 200;
const LATER = 20000; // milliseconds
const LINKED = 8; // candidates of a linked observation that get known photos
const OPEN = 5; // candidates that are shown at first if the set has fewer

let current = null; // the observation
let said = null; // what the person said about it, with what all said, once it is kept
let waiting = 0;
let open = false; // whether all candidates are shown
let turn = 0; // answers to requests before the last one are not shown
let later = null; // when nothing waits
let skipped = []; // observations that the person wants to see later
const clearSearch = nameSearch(vote);

async function next() {
  const number = ++turn;
  clearSearch();
  forgetPick();
  if (linked()) history.replaceState(null, "", location.pathname + location.search);
  at("trouble").textContent = "";
  at("status").textContent = words.waiting;
  const options = new URLSearchParams({ related_images: facts.index ? facts.related_images : 0 });
  for (const id of skipped.slice(-MOST_SKIPPED)) options.append("skip", id);
  try {
    const answer = await fetched(`/v1/review/next?${options}`, { asPerson: true });
    if (number !== turn) return;
    current = answer.observation && { ...answer.observation, request: randomName() };
    [waiting, said, open] = [answer.waiting, null, false];
    show();
    clearTimeout(later);
    if (!current) later = setTimeout(lookAgain, LATER);
    if (current) at("observation-title").focus({ preventScroll: true });
    at("review").scrollIntoView({ block: "start" });
  } catch (error) {
    if (number === turn) at("status").textContent = say(words.failed, { why: error.message });
  }
}

/** The observation that the address names, if it names one. */
const linked = () => /^#observation=([\w-]+)$/.exec(location.hash)?.[1];

/** Show the observation of a link, with what people said where the person may see that; or what waits. */
async function begin() {
  const id = linked();
  if (!id) return next();
  const number = ++turn;
  try {
    const seen = await fetched(`/v1/observations/${id}`, { asPerson: true });
    await addKnownPhotos(seen.candidates.slice(0, LINKED));
    if (number !== turn) return null;
    current = { ...seen, request: randomName() };
    [open, waiting] = [false, 0];
    said = seen.votes && { key: seen.vote && keyOf(seen.vote), spoken: seen.vote && (seen.vote.name || verbWords(seen.vote.verb)), votes: seen.votes };
    show();
    at("status").textContent = seen.own ? words.shared_own : words.shared_open;
  } catch (error) {
    if (number === turn) at("status").textContent = say(words.failed, { why: error.message });
  }
  return null;
}

async function addKnownPhotos(candidates) {
  if (!facts.index) return;
  await Promise.all(candidates.map(async (candidate) => {
    const known = await fetched(`/v1/classes/${encodeURIComponent(candidate.id)}`).catch(() => null);
    candidate.related_images = known?.example_images.slice(0, facts.related_images) || [];
  }));
}

/** Ask again while nothing waits: others go on. */
function lookAgain() {
  if (document.hidden) later = setTimeout(lookAgain, LATER);
  else next();
}

/** Send a vote, and show what all people said; a later vote takes the place of the one before. */
async function vote(verb, spoken, classId = null, name = null) {
  if (!current) return;
  const number = ++turn;
  const observation = current;
  name = name && name.split(/\s+/).filter((word) => word).join(" ").normalize("NFC"); // as the store keeps it
  const content = { verb, class_id: classId, name, person: personName(),
    id: `${observation.request}-${verb}-${name ?? classId}`.slice(0, 500) };
  const headers = { "Content-Type": "application/json" };
  const path = `/v1/observations/${encodeURIComponent(observation.id)}`;
  try {
    await fetched(`${path}/votes`, { method: "POST", body: JSON.stringify(content), headers });
    const { votes } = await fetched(path, { asPerson: true }).catch(() => ({ votes: null }));
    if (number !== turn) return;
    said = { key: keyOf({ verb, class_id: classId, name }), spoken, votes: votes || [] };
    clearSearch();
    show();
    at("next").focus();
  } catch (error) {
    if (number === turn) at("trouble").textContent = say(words.not_kept, { why: error.message });
  }
}

function skip() {
  if (!current) return;
  if (!said) skipped.push(current.id);
  next();
}

/** What a vote is for, whether it was a tap on the list or a name that was searched. */
const keyOf = (one) => (["confirm", "other_class", "new_name"].includes(one.verb) ? `${one.class_id === null ? "new" : "class"} ${one.class_id ?? one.name}` : one.verb);

// What is shown

function show() {
  at("status").textContent = current ? countWords(waiting, words.review_waiting_one, words.review_waiting) : words.review_none;
  at("skipped").hidden = Boolean(current) || !skipped.length;
  for (const id of ["observation", "list"]) at(id).hidden = !current;
  if (!current) return;
  at("pictures").replaceChildren(...current.photos.map(picture));
  at("known").textContent = knownWords().join(" · ");
  const inside = current.candidates.filter((candidate) => candidate.in_set);
  const best = open ? current.candidates : inside.length ? inside : current.candidates.slice(0, OPEN);
  const left = current.candidates.length - best.length;
  at("candidates").replaceChildren(...best.map((one, index) => card(one, index, best.length > 1)));
  at("candidates").className = best.length > 6 ? "compact" : "";
  at("less-likely").hidden = left < 1 || Boolean(said);
  at("less-likely").textContent = say(isOne(left) ? words.less_likely_one : words.less_likely, { count: left });
  at("answer").hidden = Boolean(said);
  at("said").hidden = !said;
  if (said) showSaid();
}

const countWords = (count, one, many) => say(isOne(count) ? one : many, { count: localized(count) });

function picture(photo, index) {
  const organ = photo.organ ? words.photo_facts[photo.organ] || photo.organ : "";
  const alt = say(words.photo_number, { number: index + 1 });
  return make("li", {}, make("figure", {}, make("img", { src: photo.address, alt }),
    organ ? make("figcaption", { dir: "auto", textContent: organ }) : null));
}

function knownWords() {
  const { location: place, date, author, license, flags } = current;
  const where = place && say(words.place_about, { latitude: localized(place.latitude), longitude: localized(place.longitude),
    km: localized(Math.max(1, Math.round((place.uncertainty || 0) / 1000))) });
  return [date, where, author, license, flags.length ? flagWords(flags, words) : ""].filter((text) => text);
}

function card(candidate, index, comparable) {
  const confirm = said ? null : () => vote("confirm", candidate.name, candidate.id);
  const isChosen = said?.key === keyOf({ verb: "confirm", class_id: candidate.id });
  const photo = () => ({ url: current.photos[0]?.address || "", caption: say(words.photo_number, { number: 1 }) });
  return candidateCard(candidate, { inSet: candidate.in_set, isChosen, photo, confirm, key: index < 9 ? String(index + 1) : null, comparable });
}

/** Show how many people said what; what is not the person's own word can be agreed with. */
function showSaid() {
  at("own").textContent = said.spoken ? `${words.thanks} ${say(words.you_said, { answer: said.spoken })}` : "";
  const groups = new Map();
  for (const one of said.votes) {
    const group = groups.get(keyOf(one)) || { ...one, people: 0 };
    group.people += one.people;
    groups.set(keyOf(one), group);
  }
  const most = Math.max(1, ...[...groups.values()].map((group) => group.people));
  const items = [...groups].sort(([, a], [, b]) => b.people - a.people).map(([key, group]) => saidItem(key, group, most));
  at("votes").replaceChildren(...items);
}

function saidItem(key, group, most) {
  const isNew = group.verb === "new_name";
  const spoken = group.name || verbWords(group.verb);
  const bar = make("span", { className: "bar", "@aria-hidden": "true" }, make("span"));
  bar.firstChild.style.width = `${(100 * group.people) / most}%`;
  const isOwn = key === said.key;
  const agree = isOwn || !group.name ? null : make("button", {
    type: "button", textContent: words.agree, "@aria-label": say(words.agree_label, { name: spoken }),
  });
  agree?.addEventListener("click", () =>
    vote(isNew ? "new_name" : "other_class", spoken, isNew ? null : group.class_id, isNew ? group.name : null));
  return make("li", { className: isOwn ? "chosen" : "" },
    make("div", { className: "head" }, make("strong", { dir: "auto", textContent: spoken }),
      isNew ? make("span", { className: "badge", textContent: words.new_name }) : null),
    make("p", { className: "chance" }, bar, make("span", { textContent: countWords(group.people, words.people_one, words.people_many) })),
    isOwn ? make("p", { className: "mark", textContent: words.your_answer }) : null,
    agree && make("p", {}, agree));
}

const verbWords = (verb) => document.querySelector(`[data-verb="${verb}"] [data-said]`)?.textContent || verb;

// What people do

for (const button of document.querySelectorAll("[data-verb]")) {
  button.addEventListener("click", () => vote(button.dataset.verb, verbWords(button.dataset.verb)));
}
at("skip").addEventListener("click", skip);
at("next").addEventListener("click", next);
at("skipped").addEventListener("click", () => {
  skipped = [];
  next();
});
at("less-likely").addEventListener("click", () => {
  open = true;
  show();
});

// single keys do what buttons do, where nothing is typed; a person can turn them off
at("keys").checked = remembered("shortlist-keys") !== "off";
at("keys").addEventListener("change", () => remembered("shortlist-keys", at("keys").checked ? "on" : "off"));
const VERBS = { 0: "none_of_these", b: "bad_image", k: "not_this_kind", "?": "do_not_know" };

document.addEventListener("keydown", (event) => {
  const { key, ctrlKey, altKey, metaKey, repeat, target } = event;
  const isTyping = target.closest?.("input:not([type=checkbox]), select, textarea, dialog");
  if (!at("keys").checked || ctrlKey || altKey || metaKey || repeat || isTyping || at("compare").open || !current) return;
  const press = () => {
    if (key === "ArrowRight") return said ? at("next") : at("skip");
    if (said) return null;
    if (/^[1-9]$/.test(key)) return at("candidates").children[Number(key) - 1]?.querySelector("button.confirm");
    const verb = VERBS[key.toLowerCase()];
    return verb && document.querySelector(`[data-verb="${verb}"]`);
  };
  const pressed = press();
  if (!pressed && !(key === "/" && !said)) return;
  event.preventDefault();
  if (pressed) pressed.click();
  else at("search").focus();
});

function spoken() {
  if (current || at("status").textContent) show();
}

languageChoice(spoken);
at("key")?.addEventListener("change", begin);
addEventListener("hashchange", () => linked() && begin());
if (!at("key")) begin();
