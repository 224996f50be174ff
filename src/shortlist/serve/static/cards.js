// A candidate of a list: names, parents, probability, and known photos that are compared with one's own.

import { at, facts, make, words } from "./common.js";
import { percent, say } from "./list.js";

/**
 * Make the card of a candidate.
 * @param candidate as the server gives it
 * @param options "inSet" and "isChosen" of the card; "photo": the picture that known photos are compared with, as
 *   {url, caption}; "confirm": what the button does, or null if there is none; "key": the key that does it
 */
export function candidateCard(candidate, { inSet, isChosen, photo, confirm, key = null }) {
  const value = percent(candidate.probability, words);
  const bar = make("span", { className: "bar", "@aria-hidden": "true" }, make("span"));
  bar.firstChild.style.width = `${Math.max(1, 100 * candidate.probability)}%`;
  const parents = facts.levels.map((level) => candidate.parents[level]);
  const unlike = [...new Set(parents)].filter((name) => name && name !== candidate.name);
  const button = confirm && make("button", {
    type: "button", className: "confirm", textContent: words.confirm,
    "@aria-label": say(words.confirm_label, { name: candidate.name }),
  }, key && make("kbd", { textContent: key, "@aria-hidden": "true" }));
  button?.addEventListener("click", confirm);
  return make(
    "li", { className: `candidate${inSet ? "" : " outside"}${isChosen ? " chosen" : ""}`, tabIndex: -1 },
    make("div", { className: "head" }, make("h3", { dir: "auto", textContent: candidate.name }),
      candidate.rare ? make("span", { className: "badge", textContent: words.rare }) : null),
    candidate.common_names.length ? make("p", { className: "common", dir: "auto", textContent: candidate.common_names.slice(0, 3).join(", ") }) : null,
    unlike.length ? make("p", { className: "parents", dir: "auto", textContent: unlike.join(" · ") }) : null,
    make("p", { className: "chance" }, bar,
      make("span", { className: "hidden-words", textContent: say(words.probability, { value }) }),
      make("span", { "@aria-hidden": "true", textContent: value })),
    relatedImages(candidate, photo),
    isChosen ? make("p", { className: "mark", textContent: words.your_answer }) : null,
    button && make("p", {}, button),
  );
}

function relatedImages(candidate, photo) {
  if (!candidate.related_images.length) return null;
  const list = make("ul", { className: "related" });
  for (const image of candidate.related_images) {
    const known = image.author ? words.known_photo_by : words.known_photo;
    const alt = say(known, { name: candidate.name, author: image.author });
    const button = make("button", { type: "button", title: words.compare },
      make("img", { src: image.thumbnail, alt, loading: "lazy" }));
    button.addEventListener("click", () => compareWith(photo(), image, alt));
    list.append(make("li", {}, button));
  }
  return list;
}

function compareWith({ url, caption }, image, alt) {
  const figure = (src, name, text) =>
    make("figure", {}, make("img", { src, alt: name }), make("figcaption", { textContent: text }));
  const about = [alt, image.organ, image.date, image.license].filter((text) => text).join(" · ");
  at("pair").replaceChildren(figure(url, caption, caption), figure(image.thumbnail, alt, about));
  at("compare").showModal();
}

at("compare-close").addEventListener("click", () => at("compare").close());
