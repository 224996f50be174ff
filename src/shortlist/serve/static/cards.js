// A candidate of a list: names, parents, probability, and known photos that are compared with one's own.

import { facts, make, words } from "./common.js";
import { chance, compareButton, compareWith, knownWords } from "./compare.js";
import { say } from "./list.js";
import { swipe } from "./swipe.js";

/**
 * Make the card of a candidate.
 * @param candidate as the server gives it
 * @param options "inSet" and "isChosen" of the card; "photo": the picture that known photos are compared with, as
 *   {url, caption}; "confirm": what the button does, or null if there is none; "key": the key that does it;
 *   "comparable": whether there is another candidate to compare it with
 */
export function candidateCard(candidate, { inSet, isChosen, photo, confirm, key = null, comparable = false }) {
  const parents = facts.levels.filter((level) => !facts.alike.includes(level)).map((level) => candidate.parents[level]);
  const unlike = [...new Set(parents)].filter((name) => name && name !== candidate.name);
  const button = confirm && make("button", {
    type: "button", className: "confirm", textContent: words.confirm,
    "@aria-label": say(words.confirm_label, { name: candidate.name }),
  }, key && make("kbd", { textContent: key, "@aria-hidden": "true" }));
  button?.addEventListener("click", confirm);
  const pick = comparable ? compareButton(candidate, { photo, confirm }) : null;
  return make(
    "li", { className: `candidate${inSet ? "" : " outside"}${isChosen ? " chosen" : ""}`, tabIndex: -1 },
    make("div", { className: "head" }, make("h3", { dir: "auto", textContent: candidate.name }),
      candidate.rare ? make("span", { className: "badge", textContent: words.rare }) : null),
    candidate.common_names.length ? make("p", { className: "common", dir: "auto", textContent: candidate.common_names.slice(0, 3).join(", ") }) : null,
    unlike.length ? make("p", { className: "parents", dir: "auto", textContent: unlike.join(" · ") }) : null,
    chance(candidate),
    relatedImages(candidate, photo),
    isChosen ? make("p", { className: "mark", textContent: words.your_answer }) : null,
    button || pick ? make("p", { className: "buttons" }, button, pick) : null,
  );
}

function relatedImages(candidate, photo) {
  if (!candidate.related_images.length) return null;
  const list = make("ul", { className: "related" });
  for (const image of candidate.related_images) {
    const button = make("button", { type: "button", title: words.compare },
      make("img", { src: image.thumbnail, alt: knownWords(image, candidate), loading: "lazy" }));
    button.addEventListener("click", () => compareWith(photo(), image, candidate));
    list.append(make("li", {}, button));
  }
  return swipe(list);
}
