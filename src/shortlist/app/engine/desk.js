// Answers in the forms of /v1, as a server gives them: requests come in as addresses, plain values go out.

import { Lists, LONG } from "./lists.js";
import { nextPhoto } from "./next_photo.js";
import { modelOf, placeOf, placeOfClasses } from "./reading.js";
import { Sentences, shareRange, spreadOf } from "./sentences.js";

const COVERAGES = [0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.92, 0.94, 0.95, 0.96, 0.97, 0.98, 0.99, 0.995, 0.999];
const SIZES = [1, 1.5, 2, 3, 5, 7, 10, 15, 20, 30, 50];
const LANGUAGE = "en";
const FEW = 20; // examples below which a class is rare
const NUMBERS = ["top", "average", "coverage", "at_least", "at_most"];

/** A refusal with the status of HTTP. */
export class Refusal extends Error {
  constructor(status, code, message) {
    super(message);
    Object.assign(this, { status, code });
  }
}

const bad = (message) => new Refusal(422, "bad_parameter", message.endsWith(".") ? message : `${message}.`);
const rounded = (value) => Math.round(value * 1e6) / 1e6;
const fourDigits = (value) => Math.round(value * 1e4) / 1e4;

/** Text as it is searched for: small letters without accents, one blank between words. Vowel signs are no accents. */
function folded(text) {
  const apart = text.replaceAll("×", " ").toLowerCase().replaceAll("ß", "ss").replaceAll("ς", "σ").normalize("NFKD");
  return apart.replace(/\p{Mn}/gu, "").split(/\s+/).filter((word) => word).join(" ");
}

/** The available language that is wanted most, by the header Accept-Language or a code; null if none is there. */
export function bestLanguage(wanted, available) {
  const codes = wanted.split(",").map((part) => {
    const [code, quality] = part.split(";");
    return { code: code.trim().toLowerCase().replaceAll("_", "-"), weight: quality ? Number(quality.split("=")[1]) || 0 : 1 };
  });
  for (const { code } of codes.filter(({ code, weight }) => code && weight > 0).sort((a, b) => b.weight - a.weight)) {
    const [primary] = code.split("-");
    const match = [code, primary].find((key) => available.includes(key)) || available.find((key) => key.split("-")[0] === primary);
    if (match) return match;
  }
  return null;
}

export class Desk {
  /**
   * @param files lists (lists.json), app (app.json), words (by language), rows (bytes or null), and known: images of
   *   the index (examples, similar), or null
   * @param look function from photos to what the network gives of each
   */
  constructor({ lists, app, words, rows, known = null }, look) {
    Object.assign(this, { app, words, look, known, classes: lists.classes });
    this.model = modelOf(lists, rows);
    this.lists = new Lists(this.model);
    this.named = { name: app.name, version: app.version };
    this.ids = new Map(this.classes.ids.map((id, index) => [id, index]));
    this.places = new Map(app.places.map((place) => [place.name, { ...place, place: placeOf(place, this.model.numClasses) }]));
    this.levels = Object.entries(this.classes.parents).map(([level, column]) => ({ level, column, kinds: new Set(column).size }))
      .sort((a, b) => b.kinds - a.kinds);
  }

  /** Make what the first list would wait for. */
  prepare() {
    if (this.model.rows && this.model.priors) this.resolve({ coverage: 0.9, at_least: 1 }).chosen.population.pool(0, null);
  }

  /** Answer a request; photos are those of its form. */
  async answer(path, { language = LANGUAGE, photos = [] } = {}) {
    const { pathname, searchParams: options } = new URL(path, "http://app");
    const wanted = options.get("lang") || language;
    const rest = (start) => decodeURIComponent(pathname.slice(start.length));
    if (pathname === "/v1/identify") return this.identify(options, wanted, photos);
    if (pathname === "/v1/ladder") return this.ladder(options, wanted);
    if (pathname === "/v1/places") return { places: this.app.places.map((place) => this.placeForm(place, wanted)) };
    if (pathname === "/v1/classes") return this.search(options, wanted);
    if (pathname.startsWith("/v1/classes/")) return this.oneClass(rest("/v1/classes/"), wanted);
    if (pathname === "/v1/model") return { ...this.app.card, index: this.known && { images: this.known.size }, feedback: null };
    throw new Refusal(404, "not_found", "There is nothing at this address.");
  }

  sentences(wanted) {
    const language = bestLanguage(wanted, [...Object.keys(this.words)]) || LANGUAGE;
    return new Sentences(this.words[language], language);
  }

  /** Which objects options choose. */
  scopeOf(options) {
    const [group, organ] = [options.get("group"), options.get("organ")];
    if (group !== null && organ !== null) throw bad("At most one of group and organ must be given.");
    const [column, ...value] = (group ?? "").split(":");
    if (group && !(column && value.join(":"))) throw bad(`group must be COLUMN:VALUE, such as organ:leaf, got '${group.slice(0, 80)}'`);
    return {
      group: group ? [column, value.join(":")] : organ ? ["organ", organ] : null,
      macro: options.get("macro") === "true", place: this.placeOfRequest(options),
    };
  }

  placeOfRequest(options) {
    const name = options.get("place"), listed = options.getAll("classes");
    if (name === null && !listed.length) return null;
    if (name !== null && listed.length) throw bad("At most one of place and classes must be given.");
    if (name !== null) {
      const named = this.places.get(name);
      if (!named) throw new Refusal(422, "unknown_place", `place must be one of this app, got '${name.slice(0, 80)}'.`);
      return named.place;
    }
    const unknown = listed.find((id) => !this.ids.has(id));
    if (unknown !== undefined) throw bad(`classes must be ids of the model's classes, got '${unknown.slice(0, 80)}'`);
    return placeOfClasses(listed.map((id) => this.ids.get(id)), this.model.numClasses);
  }

  resolve(choice) {
    try {
      return this.lists.choices.resolve(choice);
    } catch (error) {
      throw bad(error.message);
    }
  }

  async identify(options, language, photos) {
    if (!photos.length) throw new Refusal(400, "no_images", "The form must have at least one file as 'images', got none.");
    const choice = { ...this.scopeOf(options), predictor: options.get("predictor") };
    for (const name of NUMBERS) {
      const text = options.get(name);
      if (text !== null && !Number.isFinite(Number(text))) throw bad(`${name} must be a number, got '${text.slice(0, 80)}'`);
      if (text !== null) choice[name] = Number(text);
    }
    const limit = Number(options.get("limit") ?? 20), related = Number(options.get("related_images") ?? 0);
    const outputs = await this.look(photos);
    this.resolve({ ...choice, photos: outputs.length });
    const listed = this.lists.list(outputs.map(({ scores }) => scores), choice, { limit, atLeast: limit, outputs });
    return this.written(listed, { outputs, related, language, receipt: options.get("receipt") === "true" });
  }

  /** An answer as plain values, with names and sentences in a language. */
  written(listed, { outputs, related, language, receipt }) {
    const said = this.sentences(language), { members, mass, choice, promise, novelty } = listed;
    const isSure = members.length > 0 && members.length <= Math.max(LONG, choice.top || 0) && mass >= 0.5;
    const status = novelty?.novel ? "novel" : isSure ? "ok" : "not_confident";
    const content = {
      status,
      candidates: listed.candidates.map(({ index, ...candidate }) => ({
        ...this.classForm(index, language), ...candidate,
        related_images: this.known && related ? this.known.similar(outputs, index, related) : [],
      })),
      set_size: members.length, set_probability: rounded(Math.min(mass, 1)), choice: choiceForm(choice),
      promise: promiseForm(this.promiseAt(promise, choice.place, language), said), common_ancestor: this.ancestor(members),
      next_photo: novelty?.novel ? null : this.nextPhoto(listed, said),
      renormalized: Boolean(choice.place), nodes: null,
      novelty: novelty && { ...novelty, p_value: null, ...(this.app.novelty ? { level: this.app.novelty.level } : {}) },
      images: outputs.length, model: this.named,
    };
    if (receipt) Object.assign(content, { receipt: this.receipt(content, promise, outputs), audit: false });
    return content;
  }

  /** What an answer to this list needs later: what was shown, of which photos, by which model. */
  receipt(content, promise, outputs) {
    const choice = Object.fromEntries(Object.entries(content.choice).filter(([, value]) => ![null, false, 0].includes(value)));
    if (promise.level !== null && promise.void === null && promise.about === "rows") choice.promised = promise.level;
    return JSON.stringify({
      images: outputs.map(({ sha256 }) => sha256), choice, model: this.app.version, status: content.status,
      shown: content.candidates.map(({ id, probability, in_set }) => [id, rounded(probability), in_set]),
    });
  }

  /** The photo that would tell the two best candidates of the set apart, if any. */
  nextPhoto({ candidates, choice }, said) {
    const pair = candidates.filter((candidate) => candidate.in_set).slice(0, 2).map(({ index }) => index).sort((a, b) => a - b);
    const [column, organ] = choice.group || ["", ""];
    const photo = pair.length < 2 ? null : nextPhoto(this.model.rows, pair, column === "organ" ? organ : null);
    if (!photo) return null;
    const shares = { told_apart: fourDigits(photo.told_apart), told_apart_now: fourDigits(photo.told_apart_now) };
    const words = said.nextPhoto(photo, ...pair.map((index) => this.classes.names[index]));
    return { ...photo, ...shares, classes: pair.map((index) => this.classes.ids[index]), words };
  }

  ancestor(members) {
    if (members.length < 2) return null;
    for (const { level, column } of this.levels) {
      const names = new Set(members.map((index) => column[index])), [name] = names;
      if (names.size === 1 && name) return { level, name, classes: column.filter((other) => other === name).length };
    }
    return null;
  }

  ladder(options, language) {
    const scope = { ...this.scopeOf(options), photos: Number(options.get("photos") ?? 1) };
    if (!this.model.priors || !this.resolve({ ...scope, top: 1 }).chosen) return null;
    const { promise, chosen: { population } } = this.resolve({ ...scope, coverage: 0.9 });
    const named = this.promiseAt(promise, scope.place, language), said = this.sentences(language);
    const surest = new Map(); // of coverages with the same lists, the surest is kept
    population.sizesAt(COVERAGES).forEach((size, level) => {
      if (size !== null && size >= 1 && size < population.numClasses) surest.set(size, COVERAGES[level]);
    });
    return {
      rows: population.size, words: said.ladder(named), scope: said.scopeWords(named),
      coverage: Array.from(surest, ([size, coverage]) => ({ coverage, average_size: size })),
      average: SIZES.filter((size) => size <= population.maxSize).map((average) => ({ average, share: population.coverageAt(average) })),
      top: [1, 2, 3, 5, 10, 20].filter((k) => k <= population.numClasses).map((top) => ({ top, share: population.coverageOfTop(top) })),
    };
  }

  /** A promise with the title of its place in a language. */
  promiseAt(promise, place, language) {
    const named = place && this.places.get(place.name);
    return named ? { ...promise, place: this.placeForm(named, language).title } : promise;
  }

  placeForm({ name, title, titles, matched, unknown, unknown_names }, language) {
    const key = bestLanguage(language, Object.keys(titles));
    return { name, title: titles[key] || titles[LANGUAGE] || title, titles, classes: matched, unknown, unknown_names };
  }

  classForm(index, language) {
    const { names, ids, parents, counts, common_names: common } = this.classes;
    const key = bestLanguage(language, Object.keys(common || {}));
    return {
      id: ids[index], name: names[index], author: this.app.authors[index],
      parents: Object.fromEntries(Object.entries(parents).map(([level, column]) => [level, column[index]]).filter(([, name]) => name)),
      rare: counts.length > 0 && counts[index] < FEW, common_names: key ? common[key][index] : [],
    };
  }

  countedForm(index, language) {
    return { ...this.classForm(index, language), count: this.classes.counts.length ? this.classes.counts[index] : null };
  }

  search(options, language) {
    const wanted = folded((options.get("search") || "").slice(0, 200)).split(" ").filter((word) => word);
    const limit = Number(options.get("limit") ?? 50), offset = Number(options.get("offset") ?? 0), all = [];
    this.searched ??= this.app.search.map(folded);
    this.searched.forEach((text, index) => wanted.every((word) => text.includes(word)) && all.push(index));
    return { total: all.length, classes: all.slice(offset, offset + limit).map((index) => this.countedForm(index, language)) };
  }

  oneClass(id, language) {
    const index = this.ids.get(id.normalize("NFC"));
    if (index === undefined) throw new Refusal(404, "unknown_class", "The model has no class of this id.");
    return { ...this.countedForm(index, language), example_images: this.known ? this.known.examples(index) : [] };
  }
}

function choiceForm({ predictor, top, average, coverage, macro, at_least, at_most, place, group }) {
  return { predictor, top, average, coverage, macro, at_least, at_most, place: place && place.name, group: group && group.join(":") };
}

function promiseForm(promise, said) {
  const { void: reason, ...content } = promise;
  return {
    ...content, spread: spreadOf(promise), share_range: shareRange(promise), words: said.promise(promise),
    holds: promise.level !== null && reason === null, why_not: said.whyNot(promise),
  };
}
