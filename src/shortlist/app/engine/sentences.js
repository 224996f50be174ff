// What is said of a promise, in the words of shortlist/_strings; see shortlist/sentences.py and _spoken.py.

import { clopperPearson, conformalRank, coverageRange } from "./numbers.js";

const ONE_BELOW_TWO = ["fr", "pt"];
const MANY = 500; // photos from which on a decimal of a percentage means something
const UNITS = ["each class", "each cluster"];

/** A number with so many decimals, as Python writes it: of two, the even one. */
function decimals(value, digits) {
  const isTie = digits ? Math.abs(value * 4) % 2 === 1 : Math.abs(value * 2) % 2 === 1;
  if (!isTie) return value.toFixed(digits);
  const scale = 10 ** digits, low = Math.floor(value * scale);
  return ((low % 2 === 0 ? low : low + 1) / scale).toFixed(digits);
}

/** A number with 6 digits at most, as Python's format g. */
function general(value) {
  const [digits, exponent] = value.toExponential(5).split("e");
  if (Number(exponent) >= -4 && Number(exponent) < 6) return String(Number(value.toPrecision(6)));
  return `${Number(digits)}e${exponent[0]}${exponent.slice(1).padStart(2, "0")}`;
}

/** Sentences of a language: "words" is the content of its file. */
export class Sentences {
  constructor(words, language) {
    this.words = words.promise;
    this.all = words;
    this.language = language;
  }

  /** Fill the places {name} of a sentence. */
  say(sentence, values) {
    return sentence.replace(/\{(\w+)\}/g, (whole, name) => (Object.hasOwn(values, name) ? String(values[name]) : whole));
  }

  number(text) {
    const signs = this.all.number;
    return text.replace(/[,.]/g, (sign) => (sign === "," ? signs.thousands : signs.decimal));
  }

  count = (number) => this.number(String(number).replace(/\B(?=(\d{3})+$)/g, ","));
  percent = (share) => this.number(general(100 * share));
  isSingular = (number) => (ONE_BELOW_TWO.includes(this.language) ? number >= 0 && number < 2 : number === 1);

  share(value, rows) {
    const text = decimals(100 * value, Number(rows >= MANY));
    return this.number(Number(text) === 100 && value < 1 - 1e-9 ? decimals(Math.floor(1000 * value) / 10, 1) : text);
  }

  end(value, rows, isUpper) {
    const digits = Number(rows >= MANY), scale = 10 ** digits;
    const whole = isUpper ? Math.ceil(100 * value * scale - 1e-9) : Math.floor(100 * value * scale + 1e-9);
    return this.number(decimals(whole / scale, digits));
  }

  fact = (text) => (Object.hasOwn(this.all.page.photo_facts, text) ? this.all.page.photo_facts[text] : text);
  classes = (number) => this.say(this.words[this.isSingular(number) ? "one_class" : "many_classes"], { count: this.number(general(number)) });

  photos(number, ofObjects) {
    return this.say(this.words[(ofObjects ? "object" : "photo") + (number === 1 ? "" : "s")], { count: this.count(number) });
  }

  /** All of a promise: what it is, where it comes from, and what was measured. */
  promise(promise) {
    const said = [...this.what(promise), ...this.scope(promise), ...this.bounds(promise)];
    return [...said, ...this.calibration(promise), ...this.measured(promise)].join(" ");
  }

  /** Which photo would tell two candidates apart, and how often it did. */
  nextPhoto(photo, first, second) {
    const then = decimals(100 * photo.told_apart, 0), now = decimals(100 * photo.told_apart_now, 0);
    return this.say(this.all.next_photo, { organ: this.fact(photo.organ), first, second, then, now });
  }

  /** Why a promise is not about a list; null if it is, or if nothing is promised. */
  whyNot = (promise) => (promise.void === null || promise.level === null ? null : this.words.void[promise.void]);

  /** What may be promised at a step of a control, for what a promise is about. */
  ladder = (promise) => this.say(this.words.ladder, { rows: this.photos(promise.rows || 0, isOfObjects(promise)) });

  /** Which objects a promise is about, and which not; nothing if it is about all photos. */
  scopeWords(promise) {
    const words = this.words.scope, said = [], objects = this.objects(promise);
    if (promise.classes !== null) said.push(this.say(words[promise.classes === 1 ? "place_one" : "place"], this.about(promise)));
    if (objects) said.push(this.say(words.about_objects, { objects }));
    return [...said, ...this.joined(promise)].join(" ");
  }

  about(promise) {
    const levels = this.all.page.levels, place = promise.place || this.words.place;
    return {
      place, of_place: promise.classes === null ? "" : this.say(this.words.of_place, { place }),
      group: (Object.hasOwn(levels, promise.group) ? levels[promise.group] : promise.group) || this.words.group,
      classes: this.count(promise.classes || 0),
      objects: this.objects(promise) || this.words.all_objects,
    };
  }

  objects({ scope }) {
    const photos = scope.calibrated_photos || scope.photos, hasColumn = scope.column !== "" && !scope.joined;
    if (photos === 1 && !hasColumn) return "";
    const kind = photos > 1 && hasColumn ? "both" : hasColumn ? "column" : "photos";
    return this.say(this.words[`objects_${kind}`], { count: photos, column: this.fact(scope.column), value: this.fact(scope.value) });
  }

  what(promise) {
    const { words } = this, asked = promise.asked === null ? null : this.percent(promise.asked);
    if (promise.level !== null) {
      const values = { level: this.percent(promise.level), ...this.about(promise) };
      if (promise.void === "at most") return [this.say(words.capped, { most: this.classes(promise.at_most || 0), ...values })];
      const more = asked === null || promise.asked === promise.level ? [] : [this.say(words.asked_more, { asked })];
      const key = promise.about === "place" && promise.classes === 1 ? "place_one" : promise.about;
      return [this.say(words.level[key], values), ...more];
    }
    if (promise.about === "probabilities" && asked !== null) return [this.say(words.if_right, { asked })];
    if (promise.about === "size") return [this.say(words.average_size, { size: this.classes(promise.size || 0) }), words.nothing];
    if (asked !== null) return [words.nothing, this.say(words.asked, { asked })];
    return [...(promise.size === null ? [] : [this.say(words.fixed_size, { size: this.classes(promise.size) })]), words.nothing];
  }

  /** That all photos count together, if too few are like those that the promise was asked for. */
  joined({ scope }) {
    if (!scope.joined) return [];
    return [this.say(this.words.scope.joined, { column: this.fact(scope.column), value: this.fact(scope.value) })];
  }

  scope(promise) {
    const words = this.words.scope, said = [];
    if (promise.level === null || promise.void === "at most") return this.joined(promise);
    const counts = { classes: promise.about === "place" ? 0 : promise.classes, unknown: promise.scope.unknown };
    for (const [name, count] of Object.entries(counts)) {
      if (count) said.push(this.say(words[count === 1 ? `${name}_one` : name], { ...this.about(promise), count: this.count(count) }));
    }
    const objects = this.objects(promise);
    if (objects && !["rows", "node"].includes(promise.about)) said.push(this.say(words.objects, { objects }));
    return [...said, ...this.joined(promise)];
  }

  bounds(promise) {
    const isFew = promise.classes !== null && promise.classes <= (promise.at_most || 0);
    const said = promise.at_most !== null && !isFew && promise.void !== "at most"
      ? [this.say(this.words.at_most, { most: this.classes(promise.at_most) })] : [];
    if (promise.share === null) return said;
    const rows = promise.rows || 0, [low, high] = shareRange(promise) || [0, 1];
    const values = { ...this.about(promise), rows: this.counted(promise, rows), share: this.share(promise.share, rows) };
    Object.assign(values, { low: this.end(low, rows, false), high: this.end(high, rows, true) });
    const plain = promise.classes === null ? "share" : "share_place";
    return [...said, this.say(this.words[promise.scope.macro ? "share_macro" : plain], values)];
  }

  counted(promise, rows) {
    const objects = this.objects(promise);
    return rows === 1 || !objects ? this.photos(rows, isOfObjects(promise)) : `${this.count(rows)} ${objects}`;
  }

  calibration(promise) {
    const { words } = this;
    if (promise.rows === null || promise.about === "nothing") return [];
    const said = this.spread(promise), isByUnit = UNITS.includes(promise.about), unit = this.unit(promise);
    if (promise.void === "at most") return said; // nothing is promised
    if (promise.class_rows !== null) {
      const [least, median] = promise.class_rows.map(this.count);
      said.push(this.say(words.units, { unit, least, median }));
    }
    if (isByUnit && promise.class_rows === null) {
      said.push(this.say(words[promise.left_out ? "few_nothing" : "few_all_classes"], { unit }));
    } else if (promise.left_out) {
      const lack = isByUnit ? "left_out_few" : "left_out_none";
      const values = { count: this.count(promise.left_out), objects: this.objects(promise) || words.any_photos };
      said.push(this.say(words[promise.left_out === 1 ? `${lack}_one` : lack], values));
    }
    if (promise.rows_also) said.push(this.say(words.also, { also: this.also(promise.rows_also) }));
    return said;
  }

  also(text) {
    const did = this.words.also_did;
    const parts = text.split(/, | and /).map((part) => (Object.hasOwn(did, part) ? did[part] : part));
    return parts.length > 1 ? [parts.slice(0, -1).join(", "), parts.at(-1)].join(this.words.also_and) : parts[0];
  }

  unit = (promise) => this.words[promise.about === "each cluster" ? "unit_cluster" : "unit_class"];

  spread(promise) {
    const { words } = this, rows = lawRows(promise);
    const plain = this.say(words.calibrated, { rows: this.photos(promise.rows, isOfObjects(promise)) });
    const isUnknown = UNITS.includes(promise.about) && promise.class_rows === null;
    if (promise.level === null || promise.void === "at most" || isUnknown) return [plain];
    const everything = this.say(words.all_classes, this.about(promise));
    if (promise.lists_all) return [plain, everything];
    if (rows === null) return [plain, words.no_spread];
    if (conformalRank(rows, promise.level) > rows) return [plain, everything];
    const [low, high] = coverageRange(rows, promise.level);
    const smallest = promise.class_rows === null ? "" : this.say(words.smallest, { unit: this.unit(promise) });
    const ends = { low: this.end(low, rows, false), high: this.end(high, rows, true), smallest };
    return [this.say(words.spread, { rows: this.photos(promise.rows, isOfObjects(promise)), ...ends })];
  }

  measured(promise) {
    const { words } = this, measured = promise.measured;
    if (!measured) return [];
    const { rows, low, high } = measured;
    const interval = low === null || high === null ? ""
      : this.say(words.measured_interval, { low: this.end(low, rows, false), high: this.end(high, rows, true) });
    const text = this.say(words.measured, {
      rows: this.photos(rows, false), others: promise.left_out ? words.measured_others : "",
      votes: promise.about === "vote" ? words.measured_votes : "", coverage: this.share(measured.coverage, rows),
      interval, size: this.number(decimals(measured.mean_size, 1)),
    });
    const hasLaw = measured.p_value !== null;
    if (hasLaw && measured.p_value < 0.025) return [text, words[promise.about === "each class" ? "below_class" : "below"]];
    return promise.level !== null && measured.coverage < promise.level && hasLaw ? [text, words.chance] : [text];
  }
}

const isOfObjects = ({ scope }) => (scope.calibrated_photos || scope.photos) > 1;

/** Number of rows whose choice decides the spread, if its law is known. */
function lawRows(promise) {
  if (!promise.has_law) return null;
  if (!UNITS.includes(promise.about)) return promise.rows;
  return promise.class_rows === null ? null : promise.class_rows[0];
}

/** The range that holds the coverage for 95 of 100 sets of as many calibration rows; null if no law is known. */
export function spreadOf(promise) {
  const rows = lawRows(promise);
  return rows === null || promise.level === null ? null : coverageRange(rows, promise.level);
}

/** The exact 95 % interval of the measured share; null if none was measured. */
export function shareRange(promise) {
  const rows = promise.share_rows || promise.rows;
  return promise.share === null || !rows ? null : clopperPearson(Math.min(promise.share, 1) * rows, rows);
}
