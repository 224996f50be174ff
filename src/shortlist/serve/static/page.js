// The page: photos in, the short list out, redrawn as the control moves; people's answers to the server.

import { candidateCard } from "./cards.js";
import { at, facts, fetched, languageChoice, make, personName, randomName, remembered, words } from "./common.js";
import { forgetPick } from "./compare.js";
import { listControl } from "./control.js";
import { drawable } from "./draw.js";
import { auditWords, flagWords, isIn, isOne, nodesWords, percent, say, sharedParent } from "./list.js";
import { nameSearch } from "./names.js";
import { ownPhotos } from "./photos.js";
import { showLink } from "./share.js";

const photos = ownPhotos({ taken: takeExample, removed: removePhoto });
const { about } = photos;
const control = listControl(facts, { at, fetched, remembered, moved: showList, changed });

// what is shown now: the photos, the answer of the server, what was asked for, and with which options first
let current = nothingYet();
let request = 0; // answers to requests before the last one are not shown
const earlier = [];

// "said" is the person's answer: the class, if it names one, the words, and the observation if others may see it
function nothingYet() {
  return { photos: [], answer: null, asked: null, first: null, said: null, open: false };
}

// Photos

function addPhotos(files) {
  const images = [...files].filter((file) => file.type === "" || file.type.startsWith("image/"));
  if (!images.length) return;
  if (isExample() || (current.answer && current.said)) startAgain();
  const room = facts.max_images - current.photos.length;
  const taken = images.slice(0, room).map((blob) => ({ blob, url: URL.createObjectURL(blob) }));
  current.photos.push(...taken);
  at("messages").replaceChildren();
  identify().then(() => {
    if (images.length > room) message(say(words.too_many, { max: facts.max_images }), "note");
  });
}

/** Show the list of an example photo; people's answers are about their own photos, so there is none to give. */
function takeExample(photo) {
  if (current.photos.length) startAgain();
  current.photos.push(photo);
  identify();
}

const isExample = () => current.photos.some((photo) => photo.example);

function removePhoto(index) {
  current.photos.splice(index, 1);
  if (current.photos.length) identify();
  else startAgain();
}

const showPhotos = () => photos.show(current.photos, !current.said && !isExample());

function startAgain() {
  keepForLater();
  clearTimeout(pause);
  request += 1;
  current = nothingYet();
  at("status").textContent = words.nothing_yet;
  pad?.clear();
  showPhotos();
  showList();
}

// The list

/** Ask for the list again, or only for what the control means, after a change of the control. */
function changed() {
  if (current.photos.length) identify(current.first);
  else control.prepare(1).then(showList, (error) => (at("status").textContent = say(words.failed, { why: error.message })));
}

/** Ask for the list of the photos; "first" are the options with which they were seen first, if they were. */
async function identify(first = null) {
  const number = ++request;
  showPhotos();
  const form = new FormData();
  current.photos.forEach((photo, index) => form.append("images", photo.blob, `photo-${index + 1}`));
  const related = facts.index ? facts.related_images : 0;
  at("status").textContent = words.waiting;
  at("result").setAttribute("aria-busy", "true");
  try {
    await control.prepare(current.photos.length);
    if (number !== request) return;
    const options = control.options();
    const asked = { options, step: control.step(), scope: control.scope() };
    const path = `/v1/identify?${options}&limit=60&related_images=${related}&receipt=true`;
    const answer = await fetched(path, { method: "POST", body: form });
    if (number !== request) return;
    forgetPick();
    Object.assign(current, { answer, asked, first: first || options, said: null, open: false, reply: null });
    showList();
    const show = () => bringIntoView(at("candidates").querySelector("h3") || at("status"));
    if (current.photos[0].drawn) pause = setTimeout(show, 1500); // unless there is another stroke
    else show();
  } catch (error) {
    if (number !== request) return;
    Object.assign(current, { answer: null, asked: null, first: null });
    showList();
    at("status").textContent = say(words.failed, { why: error.message });
    bringIntoView(at("status"));
  } finally {
    if (number === request) at("result").removeAttribute("aria-busy");
  }
}

/** Scroll until an element of the result is on the screen, with the control above it if both fit. */
function bringIntoView(element) {
  const box = element.getBoundingClientRect();
  if (box.top >= 0 && box.bottom <= window.innerHeight) return;
  const fits = box.bottom - at("result").getBoundingClientRect().top <= window.innerHeight;
  (fits ? at("result") : element).scrollIntoView({ block: "start" });
}

/** Whether the person may answer to the list. */
const isAsked = () => Boolean(current.answer && !current.said && !isExample());

function message(text, kind) {
  at("messages").append(make("p", { className: kind, textContent: text }));
}

function showList() {
  control.show();
  const answer = current.answer;
  at("messages").replaceChildren();
  at("answer").hidden = !isAsked();
  at("consent").hidden = !answer || isExample();
  about.show(isAsked(), at("consent-yes").checked);
  showLink(current.said?.observation);
  at("thanks").textContent = current.said ? saidWords(current.said) : "";
  at("less-likely").hidden = true;
  at("promise").hidden = !answer;
  if (!answer) {
    at("candidates").replaceChildren();
    return;
  }
  const { asked } = current;
  const isSame = asked.scope === control.scope();
  // a surer list, or a shorter one, is drawn without a new answer
  const step = asked.step.coverage && isSame && control.step().coverage ? control.step() : asked.step;
  const isListed = step.coverage ? (candidate) => isIn(candidate, step) : (candidate) => candidate.in_set;
  const inside = answer.candidates.filter(isListed);
  const others = answer.candidates.filter((candidate) => !isListed(candidate));
  const best = inside.length ? inside : others.slice(0, 1);
  showWords(answer, step, inside, best[0]);
  const shown = current.open ? [...best, ...others.filter((other) => !best.includes(other))] : best;
  at("candidates").replaceChildren(...shown.map((one) => candidateItem(one, inside.includes(one), shown.length > 1)));
  at("candidates").className = shown.length > 6 || current.said ? "compact" : "";
  const left = Math.min(10, answer.candidates.length - best.length);
  at("less-likely").hidden = current.open || left < 1;
  at("less-likely").textContent = say(isOne(left) ? words.less_likely_one : words.less_likely, { count: left });
}

const saidWords = (said) =>
  said.words === null ? words.asked_others : `${words.thanks} ${say(words.you_said, { answer: said.words })}`;

function showWords(answer, step, inside, first) {
  const count = inside.length;
  at("promise-words").textContent = answer.promise.words;
  const found = count === 0 ? words.found_none : count === 1 ? words.found_one : words.found_many;
  const best = first ? { name: first.name, value: percent(first.probability, words) } : {};
  at("status").textContent = say(found, { count, ...best });
  if (answer.status === "novel") message(words.novel, "warning");
  if (answer.flags?.length) message(flagWords(answer.flags, words), "note");
  const isNow = step.coverage === current.asked.step.coverage;
  if (answer.status === "not_confident" && isNow) message(words.not_confident, "warning");
  const parent = sharedParent(inside, facts.levels);
  if (parent) message(say(facts.alike.includes(parent.level) ? words.all_alike : words.all_share,
    { count, ...parent, level: words.levels[parent.level] || parent.level }), "sure");
  const sure = nodesWords(answer.nodes, words);
  if (sure) message(sure, "sure");
  if (count > 1 && answer.next_photo) message(answer.next_photo.words, "sure");
  if (step.coverage && !(isNow && current.asked.options === current.first)) message(words.moved, "note");
  else if (answer.promise.why_not) message(say(words.not_about_this, { why: answer.promise.why_not }), "note");
  const left = answer.set_size - Math.max(count, 1); // the best name is there in any case
  if (isNow && left > 0) message(say(isOne(left) ? words.more_in_set_one : words.more_in_set, { count: left }), "note");
}

function candidateItem(candidate, inSet, comparable) {
  const confirm = !isAsked() ? null : () => reply("confirm", candidate.name, candidate.id);
  const photo = () => ({ url: current.photos[0].url, caption: say(words.your_photo, { number: "" }).trim() });
  return candidateCard(candidate, { inSet, isChosen: current.said?.id === candidate.id, photo, confirm, comparable });
}

// People's answers

/** Send what a person says, or an observation without an answer, for others to name. */
async function reply(verb, said, classId = null, name = null) {
  const isObservation = verb === "observe";
  const consent = at("consent-yes").checked;
  if (isObservation && !consent) {
    at("thanks").textContent = words.ask_consent;
    at("consent-yes").focus();
    return;
  }
  const allowed = consent || at("consent-no").checked ? consent : null; // null: what was allowed before stays
  const known = about.known(current.photos, consent);
  if (!known) return;
  const shown = current.answer.candidates.filter((one) => one.in_set).map((one) => one.id);
  current.reply ||= randomName(); // the same if it is sent again
  const content = { id: `${current.reply}-${allowed}-${verb}-${name ?? classId}`.slice(0, 500), person: personName(),
    receipt: current.answer.receipt, consent: allowed, about: known };
  if (!isObservation) Object.assign(content, { verb, class_id: classId, name, shown: shown.slice(0, 100) });
  const form = new FormData();
  form.append("event", new Blob([JSON.stringify(content)], { type: "application/json" }));
  if (consent) current.photos.forEach((photo, index) => form.append("images", photo.blob, `photo-${index + 1}`));
  try {
    const { observation, flags } = await fetched(isObservation ? "/v1/observations" : "/v1/feedback", { method: "POST", body: form });
    current.answer.flags = flags;
    current.said = { id: classId, words: said, observation: consent ? observation : null };
    showPhotos();
    showList();
    document.querySelector("li.chosen")?.focus(); // which also brings it into view; the button is gone
  } catch (error) {
    at("thanks").textContent = say(words.not_kept, { why: error.message });
  }
}

nameSearch(reply);

// Earlier on this visit

function keepForLater() {
  if (!current.answer) return;
  if (!earlier.includes(current)) earlier.unshift(current);
  earlier.splice(12);
  const items = earlier.map((one) => {
    const first = one.answer.candidates[0];
    const name = first ? first.name : words.no_name;
    const button = make("button", { type: "button", "@aria-label": say(words.history_item, { name }) },
      make("img", { src: one.photos[0].url, alt: "" }), make("span", { dir: "auto", textContent: name }));
    button.addEventListener("click", () => {
      keepForLater();
      request += 1;
      current = one;
      showPhotos();
      showList();
      at("result").scrollIntoView({ block: "start" });
    });
    return make("li", {}, button);
  });
  at("earlier").replaceChildren(...items);
  at("history").hidden = false;
}

// What people's answers tell about the model

async function showAudit() {
  const key = at("key");
  if (key && !key.value) return;
  const model = await fetched("/v1/model").catch(() => null);
  const found = model && model.feedback;
  at("audit").textContent = found ? auditWords(found, words) : "";
}

/** Say again what depends on the language. */
function spoken() {
  if (!current.photos.length) at("status").textContent = words.nothing_yet;
  showPhotos();
  control.forget();
  if (current.said) showList();
  else changed();
  showAudit();
  photos.showExamples();
}

// What people do

const pad = at("canvas") && drawable(at("canvas"), drawn);
let pause = null; // after a stroke
function drawn() {
  clearTimeout(pause);
  pause = setTimeout(async () => {
    if (current.said || current.photos.some((photo) => !photo.drawn)) startLike();
    const blob = await pad.picture();
    current.photos = [{ blob, url: URL.createObjectURL(blob), drawn: true }];
    identify();
  }, 500);
}

/** Begin anew, with the drawing kept. */
function startLike() {
  keepForLater();
  current = nothingYet();
}

at("canvas")?.addEventListener("pointerdown", () => clearTimeout(pause));
at("clear")?.addEventListener("click", startAgain);
at("choose").addEventListener("click", () => at("files").click());
at("camera").addEventListener("click", () => at("shot").click());
for (const id of ["files", "shot"]) {
  at(id).addEventListener("change", (event) => {
    addPhotos(event.target.files);
    event.target.value = "";
  });
}
at("again").addEventListener("click", startAgain);
at("less-likely").addEventListener("click", () => {
  current.open = true;
  showList();
});
for (const button of document.querySelectorAll("[data-verb]")) {
  button.addEventListener("click", () => reply(button.dataset.verb, button.textContent));
}
for (const choice of [at("consent-yes"), at("consent-no")]) {
  choice.checked = choice.value === remembered("shortlist-consent");
  choice.addEventListener("change", () => {
    remembered("shortlist-consent", choice.value);
    about.show(isAsked(), at("consent-yes").checked);
    if (!current.said) at("thanks").textContent = "";
  });
}
at("ask-others").addEventListener("click", () => reply("observe", null));
document.addEventListener("paste", (event) => addPhotos(event.clipboardData.files));
for (const name of ["dragenter", "dragover"]) {
  document.addEventListener(name, (event) => {
    event.preventDefault();
    at("drop").classList.add("over");
  });
}
for (const name of ["dragleave", "drop"]) {
  document.addEventListener(name, () => at("drop").classList.remove("over"));
}
document.addEventListener("drop", (event) => {
  event.preventDefault();
  addPhotos(event.dataTransfer.files);
});

showList();
if (!languageChoice(spoken) && control.scope()) changed(); // a place that is remembered
at("key")?.addEventListener("change", () => {
  showAudit();
  photos.showExamples();
});
showAudit();
showPhotos();
photos.showExamples();
