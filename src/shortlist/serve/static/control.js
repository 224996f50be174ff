// The control: how long or how sure lists are, for which place and photos. It knows no photos and no answers.

import { localized, names, say, settingWords, stepsOf, valueOf } from "./list.js";

const KINDS = ["sure", "about", "exactly"];

/**
 * Make the control work.
 * @param facts what the page knows of the model
 * @param at function from an id to its element
 * @param fetched function from an address to what the server answers there
 * @param remembered function from a name, and a new value if there is one, to what the browser remembers
 * @param moved called while the slider moves
 * @param changed called when lists must be asked for anew
 */
export function listControl(facts, { at, fetched, remembered, moved, changed }) {
  const { words } = facts;
  const slider = at("slider"), macro = at("macro"), place = at("place"), group = at("group");
  const labels = () => ({ sure: words.kind_sure, about: words.kind_about, exactly: words.kind_exactly });
  const wanted = { sure: facts.level, about: 5, exactly: 5 };
  const ladders = new Map([["photos=1", facts.ladder]]);
  let chosen = "sure", kind = chosen, steps = {}, ladder = facts.ladder;

  /** Which objects lists are for, as options of the server. */
  function scope() {
    const options = new URLSearchParams();
    if (place?.value) options.set("place", place.value);
    if (group?.value) options.set("group", group.value);
    if (macro.checked) options.set("macro", "true");
    return options;
  }

  const step = () => steps[kind][Number(slider.value)];

  /** What lists are made of now, as options of the server. */
  function options() {
    const { coverage, average, top, most } = step();
    const chosen = coverage ? { coverage, at_least: 1 } : average ? { average, at_least: 1, at_most: most } : { top };
    return new URLSearchParams([...Object.entries(chosen), ...scope()]).toString();
  }

  /** The step of a kind that is wanted, or the next one above it. */
  const stepOf = (name) => steps[name].find((one) => valueOf(one) >= wanted[name] - 1e-9) || steps[name].at(-1);

  /** Put the slider to the step that is wanted. */
  function placeSlider() {
    slider.max = String(steps[kind].length - 1);
    slider.value = String(steps[kind].indexOf(stepOf(kind)));
    at("track").hidden = steps[kind].length < 2;
  }

  /** Take the steps of a ladder; of kinds without a step, none can be chosen. */
  function take(found) {
    ladder = found;
    steps = Object.fromEntries(KINDS.map((name) => [name, stepsOf(ladder, name, facts.classes)]));
    for (const name of KINDS) at(`kind-${name}`).disabled = !steps[name].length;
    kind = steps[chosen].length ? chosen : KINDS.find((name) => steps[name].length);
    at(`kind-${kind}`).checked = true;
    placeSlider();
  }

  /** Ask the server what the steps mean for objects with so many photos, if that is not known yet. */
  async function prepare(photos) {
    const asked = scope();
    asked.set("photos", String(photos));
    const key = asked.toString();
    if (!ladders.has(key)) ladders.set(key, await fetched(`/v1/ladder?${key}`));
    take(ladders.get(key));
  }

  /** Forget what the server said in another language. */
  function forget() {
    ladders.clear();
    ladders.set("photos=1", facts.ladder);
  }

  /** Show what the control says now. */
  function show() {
    for (const name of KINDS) {
      const number = steps[name].length ? valueOf(stepOf(name)) : wanted[name];
      const value = name === "sure" ? Math.round(1000 * number) / 10 : number;
      at(`words-${name}`).textContent = say(labels()[name], { value: localized(value), names: names(number, words) });
    }
    const said = [settingWords(step(), words), macro.checked && step().coverage ? words.at_macro : "", ladder?.scope || ""];
    at("setting").textContent = said.filter((text) => text).join(" ");
    slider.setAttribute("aria-valuetext", at("setting").textContent);
    at("most").textContent = kind === "sure" ? words.surer : words.more;
  }

  slider.addEventListener("input", () => {
    wanted[kind] = valueOf(step());
    show();
    moved();
  });
  slider.addEventListener("change", () => kind !== "sure" && changed());
  for (const name of KINDS) {
    at(`kind-${name}`).addEventListener("change", () => {
      kind = chosen = name;
      placeSlider();
      changed();
    });
  }
  macro.addEventListener("change", changed);
  group?.addEventListener("change", changed);
  place?.addEventListener("change", () => {
    remembered("shortlist-place", place.value);
    changed();
  });
  const before = remembered("shortlist-place");
  if (place && [...place.options].some((one) => one.value === before)) place.value = before;
  take(facts.ladder);
  return { step, options, prepare, show, forget, scope: () => scope().toString() };
}
