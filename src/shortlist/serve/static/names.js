// The search of another name: classes of the model, names of the server's checklist, or a name that nobody knows yet.

import { at, facts, fetched, make, words } from "./common.js";
import { say } from "./list.js";

/**
 * Make the field "search" offer names in the list "found".
 * @param reply function of the verb, the words, the id of the class and the proposed name
 */
export function nameSearch(reply) {
  let searching = 0;

  async function search() {
    const text = at("search").value.trim();
    const number = ++searching;
    if (text.length < 2) {
      at("found").replaceChildren();
      return;
    }
    const [answer, checklist] = await Promise.all([
      fetched(`/v1/classes?limit=8&search=${encodeURIComponent(text)}`).catch(() => null),
      facts.checklist ? fetched(`/v1/names?limit=6&q=${encodeURIComponent(text)}`).catch(() => null) : null,
    ]);
    if (number !== searching || !answer) return;
    const items = answer.classes.map((one) => choice(spoken(one), () => reply("other_class", one.name, one.id)));
    const ids = new Set(answer.classes.map((one) => one.id));
    for (const taxon of checklist?.names || []) {
      if (taxon.class_id === null) {
        items.push(choice(say(words.propose, { name: spoken(taxon) }), () => reply("new_name", taxon.name, null, taxon.name)));
      } else if (!ids.has(taxon.class_id)) {
        items.push(choice(spoken(taxon), () => reply("other_class", taxon.name, taxon.class_id)));
      }
    }
    if (!items.length) items.push(make("li", { textContent: words.search_none }));
    const names = [...answer.classes, ...(checklist?.names || [])].map((one) => one.name.toLowerCase());
    if (!names.includes(text.toLowerCase())) {
      items.push(choice(say(words.propose, { name: text }), () => reply("new_name", text, null, text)));
    }
    at("found").replaceChildren(...items);
  }

  function choice(label, send) {
    const button = make("button", { type: "button", dir: "auto", textContent: label });
    button.addEventListener("click", () => {
      clear();
      send();
    });
    return make("li", {}, button);
  }

  /** Forget what was searched. */
  function clear() {
    searching += 1;
    at("search").value = "";
    at("found").replaceChildren();
  }

  at("search").addEventListener("input", search);
  return clear;
}

const spoken = (one) => [one.name, ...one.common_names.slice(0, 1)].join(" · ");
