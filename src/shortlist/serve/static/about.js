// What is known of photos: what each shows, license, author, date and place. The browser remembers license and author.

import { at, facts, make, remembered, words } from "./common.js";
import { say } from "./list.js";

const PLACE = /^(-?\d{1,2}(?:\.\d+)?)\s*[,;\s]\s*(-?\d{1,3}(?:\.\d+)?)$/;

/** Make the part of the page where a person says it. */
export function aboutPhotos() {
  /** The buttons of a photo for what it shows: one tap says it, another tap takes it back. */
  function organs(photo, number) {
    if (!facts.organs.length) return null;
    const group = make("div", { className: "organs", "@role": "group", "@aria-label": say(words.organ_of, { number }) });
    for (const organ of facts.organs) {
      const button = make("button", { type: "button", textContent: words.photo_facts[organ] || organ });
      button.dataset.organ = organ;
      button.addEventListener("click", () => {
        photo.organ = photo.organ === organ ? "" : organ;
        mark();
      });
      group.append(button);
    }
    const mark = () => {
      for (const button of group.children) button.setAttribute("aria-pressed", String(button.dataset.organ === photo.organ));
    };
    mark();
    return group;
  }

  /** Show what is asked: all of it only where photos may be kept. */
  function show(isAsked, consent) {
    at("kept").hidden = !isAsked;
    at("about").hidden = !isAsked || !consent;
  }

  /** What is sent with the photos; null if something is not as it must be, which is then said. */
  function known(photos, consent) {
    const content = { organs: photos.some((photo) => photo.organ) ? photos.map((photo) => photo.organ || "") : [] };
    if (!consent) return content;
    const where = at("where").value.trim();
    const [, latitude, longitude] = (PLACE.exec(where) || []).map(Number);
    const isPlace = Math.abs(latitude) <= 90 && Math.abs(longitude) <= 180;
    at("where").setAttribute("aria-invalid", String(where !== "" && !isPlace));
    at("where-bad").textContent = where === "" || isPlace ? "" : words.where_bad;
    if (where && !isPlace) {
      at("about").open = true;
      at("where").focus();
      return null;
    }
    remembered("shortlist-license", at("license").value); // it was asked
    return { ...content, license: at("license").value, author: at("author").value.trim(), date: at("date").value,
      location: where ? { latitude, longitude } : null };
  }

  for (const name of ["license", "author"]) {
    const before = remembered(`shortlist-${name}`);
    if (before !== null) at(name).value = before;
    at(name).addEventListener("change", () => remembered(`shortlist-${name}`, at(name).value));
  }
  at("where").addEventListener("input", () => (at("where-bad").textContent = ""));
  at("kept").open = remembered("shortlist-consent") === null;
  at("about").open = remembered("shortlist-license") === null; // it is asked once
  return { organs, show, known };
}
