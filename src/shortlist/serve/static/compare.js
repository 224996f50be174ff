// The dialog that compares: a known photo with one's own, or two candidates with each other.

import { at, make, words } from "./common.js";
import { percent, say } from "./list.js";
import { swipe } from "./swipe.js";

let picked = null; // the first of two candidates

/** The bar of a probability, with the number in words for those who do not see it. */
export function chance({ probability }) {
  const value = percent(probability, words);
  const bar = make("span", { className: "bar", "@aria-hidden": "true" }, make("span"));
  bar.firstChild.style.width = `${Math.max(1, 100 * probability)}%`;
  return make("p", { className: "chance" }, bar,
    make("span", { className: "hidden-words", textContent: say(words.probability, { value }) }),
    make("span", { "@aria-hidden": "true", textContent: value }));
}

/** What a known photo shows, for those who do not see it. */
export const knownWords = ({ author }, { name }) => say(author ? words.known_photo_by : words.known_photo, { name, author });

const figure = (src, alt, text) => make("figure", {}, make("img", { src, alt }), make("figcaption", { dir: "auto", textContent: text }));
const factsOf = (image, first) => [first, image.organ, image.date, image.license].filter((text) => text).join(" · ");

function show(title, className, ...parts) {
  at("compare-title").textContent = title;
  at("pair").className = className;
  at("pair").replaceChildren(...parts);
  at("compare").showModal();
}

/** Compare a known photo of a candidate with one's own. */
export function compareWith({ url, caption }, image, candidate) {
  const alt = knownWords(image, candidate);
  show(words.compare, "", figure(url, caption, caption), figure(image.thumbnail, alt, factsOf(image, alt)));
}

/** The button that picks a candidate; the second that is picked is compared with the first. */
export function compareButton(candidate, { photo, confirm }) {
  const one = { candidate, photo, confirm };
  const button = make("button", { type: "button", className: "pick", textContent: words.compare_two,
    "@aria-label": say(words.compare_two_label, { name: candidate.name }),
    "@aria-pressed": String(picked?.candidate.id === candidate.id) });
  button.addEventListener("click", () => {
    if (!picked) pick(one);
    else if (picked.candidate.id === candidate.id) forgetPick();
    else showTwo(picked, one);
    if (picked) button.setAttribute("aria-pressed", "true");
  });
  return button;
}

function pick(one) {
  picked = one;
  at("picked").hidden = false;
  at("picked-words").textContent = say(words.compare_pick, { name: one.candidate.name });
}

/** Forget the candidate that waits for a second. */
export function forgetPick() {
  picked = null;
  at("picked").hidden = true;
  at("picked-words").textContent = "";
  for (const button of document.querySelectorAll("button.pick")) button.setAttribute("aria-pressed", "false");
}

function showTwo(...pair) {
  const { url, caption } = pair[0].photo();
  show(words.compare_two_title, "two", figure(url, caption, caption), ...pair.map(side));
}

function side({ candidate, confirm }) {
  const photos = make("ul", { tabIndex: 0, "@aria-label": say(words.known_photo, { name: candidate.name }) },
    ...candidate.related_images.map((image) => make("li", {}, figure(image.thumbnail, knownWords(image, candidate), factsOf(image, image.author)))));
  const button = confirm && make("button", { type: "button", className: "confirm", textContent: words.confirm,
    "@aria-label": say(words.confirm_label, { name: candidate.name }) });
  button?.addEventListener("click", () => {
    at("compare").close();
    confirm();
  });
  return make("section", {}, make("h3", { dir: "auto", textContent: candidate.name }),
    make("p", { className: "common", dir: "auto", textContent: candidate.common_names.slice(0, 1).join("") }),
    chance(candidate), candidate.related_images.length ? swipe(photos) : null, button && make("p", {}, button));
}

at("compare-close").addEventListener("click", () => at("compare").close());
at("compare").addEventListener("close", forgetPick);
at("compare").addEventListener("click", (event) => event.target === at("compare") && at("compare").close()); // beside it
at("picked-cancel").addEventListener("click", forgetPick);
