// What a choice comes to: the sets that can be made, of which objects, and what is promised; see
// shortlist/model/choice.py, populations.py and resolving.py.

import { rowsNeeded } from "./numbers.js";
import { Population } from "./population.js";

const COMMON = 0.9; // a coverage whose number of rows is enough to measure sizes and shares on
const KEPT = 64; // choices and populations that are remembered

/** A map that forgets what was asked for longest ago. */
class Recent {
  constructor(most) {
    this.most = most;
    this.made = new Map();
  }

  get(key, make) {
    const value = this.made.has(key) ? this.made.get(key) : make();
    this.made.delete(key);
    this.made.set(key, value);
    if (this.made.size > this.most) this.made.delete(this.made.keys().next().value);
    return value;
  }
}

const NOTHING = {
  predictor: null, top: null, average: null, coverage: null, macro: false, place: null, group: null, photos: 1,
  at_least: 0, at_most: null,
};
const MAKERS = ["predictor", "top", "average", "coverage"];
const makersOf = (choice) => MAKERS.filter((name) => choice[name] !== null);
const keyOf = (choice) => JSON.stringify({ ...choice, place: choice.place && choice.place.key });

/** The size of lists of the best classes, of which so many are possible. */
const sizeOf = ({ top }, classes) => (classes === null ? top : Math.min(top, classes));

export const NO_PROMISE = {
  about: "nothing", level: null, asked: null, size: null, group: "", place: "", classes: null, rows: null,
  class_rows: null, left_out: 0, has_law: false, rows_also: "", measured: null, void: null,
  scope: { unknown: 0, photos: 1, calibrated_photos: null, column: "", value: "", joined: false, macro: false },
  lists_all: null, at_least: 0, at_most: null, share: null, share_rows: null,
};

export class Choices {
  /**
   * @param model numClasses, priors (c) or null, rows or null, predictors by name (a Map) with promise, choice and
   *   output, and the name of the default one
   */
  constructor(model) {
    this.model = model;
    this.resolved = new Recent(KEPT);
    this.populations = new Recent(KEPT);
  }

  /** Return a choice with nothing left open, what makes its sets, its promise and its population. */
  resolve(choice) {
    const whole = { ...NOTHING, ...choice };
    return this.resolved.get(keyOf(whole), () => this.made(whole));
  }

  made(choice) {
    const checked = this.completed(choice);
    this.checkObjects(checked);
    const maker = this.inOtherWords(checked);
    this.checkMaker(maker);
    const chosen = this.chosen(maker);
    this.checkSizes(maker, chosen);
    return { choice: checked, maker, chosen, promise: this.promise(maker, chosen, this.rowsAlso(checked.predictor)) };
  }

  completed(choice) {
    const makers = makersOf(choice);
    if (makers.length > 1) throw new Error(`at most one of predictor, top, average and coverage must be given, got ${makers.join(", ")}`);
    if (makers.length) return choice;
    if (!choice.macro && this.model.default !== null) return { ...choice, predictor: this.model.default };
    return { ...choice, top: Math.min(5, this.model.numClasses) };
  }

  checkObjects(choice) {
    if (choice.at_most !== null && choice.at_most < choice.at_least) {
      throw new Error(`at_most must be >= at_least (${choice.at_least}), got ${choice.at_most}`);
    }
    if (choice.macro && !this.model.priors) throw new Error("macro must be false: the model does not know how often each class occurs");
    if (choice.group && this.model.rows) this.model.rows.members(...choice.group);
  }

  /** A predictor in other words, for objects or sizes for which it was not calibrated. */
  inOtherWords(choice) {
    if (choice.predictor === null) return choice;
    const predictor = this.model.predictors.get(choice.predictor);
    if (!predictor) {
      throw new Error(`predictor must be one of ${[...this.model.predictors.keys()].join(", ") || "none"}, got '${choice.predictor}'`);
    }
    if (choice.macro) throw new Error("macro goes with top, average or coverage: a predictor has its own priors or none");
    const isSpecial = choice.place || choice.group || choice.at_least || choice.at_most || choice.photos > 1;
    const said = predictor.choice;
    if (!isSpecial || !this.model.rows || !said) return choice;
    if (said.top !== null && (choice.at_least || choice.at_most)) return choice;
    const { top, average, coverage, macro } = said, maker = { ...choice, predictor: null, top, average, coverage, macro };
    if (top !== null) return maker;
    return { ...maker, at_least: Math.max(choice.at_least, said.at_least), at_most: choice.at_most || said.at_most };
  }

  checkMaker(maker) {
    const [name] = makersOf(maker);
    if ((name === "predictor" || name === "top") && (maker.at_least || maker.at_most)) {
      throw new Error(`${maker.at_least ? "at_least" : "at_most"} goes with average or coverage, got it with ${name}`);
    }
    if (name === "predictor" && this.model.predictors.get(maker.predictor).output === null) {
      throw new Error(`predictor must be one whose sets the app has, got '${maker.predictor}'`);
    }
    if (name === "predictor" && (maker.place || maker.photos > 1)) {
      throw new Error(`predictor must be one that calibration rows can make for a place and several photos, got '${maker.predictor}'`);
    }
    if (maker.top !== null && !(maker.top >= 1 && maker.top <= this.model.numClasses)) {
      throw new Error(`top must be from 1 to ${this.model.numClasses}, got ${maker.top}`);
    }
    if ((name === "average" || name === "coverage") && !this.model.rows) {
      throw new Error(`${name} must not be given: the model kept nothing of its calibration rows`);
    }
  }

  /** The population of what makes sets. */
  chosen(maker) {
    if (maker.predictor === null) return this.populationOf(maker);
    const said = this.model.predictors.get(maker.predictor).choice;
    return this.populationOf({ ...maker, predictor: null, macro: Boolean(said && said.macro) });
  }

  /** How much each class counts, and how frequent it is; null if as in the rows. */
  weights(choice) {
    const frequency = choice.place && choice.place.weights;
    if (!choice.macro) return { importance: frequency, frequency };
    const occurs = frequency ? frequency.map((weight) => Number(weight > 0)) : new Float64Array(this.model.numClasses).fill(1);
    const number = occurs.reduce((sum, one) => sum + one, 0);
    return { importance: occurs.map((one) => one / number), frequency };
  }

  /** The population of a choice: fewer photos, or all groups, if too few rows are like it; null without rows. */
  populationOf(choice) {
    const { rows } = this.model;
    if (!rows || (!rows.priors && (choice.macro || choice.place))) return null;
    const { importance, frequency } = this.weights(choice);
    const needed = rowsNeeded(choice.coverage === null ? COMMON : choice.coverage);
    const count = (photos, group) => this.objectsOf(photos, group, importance).counted;
    let { group, photos } = choice;
    if (group && count(1, group) < needed) group = null;
    while (photos > 1 && count(photos, group) < needed) photos -= 1;
    if (!count(photos, group)) return null;
    const key = JSON.stringify([choice.place && choice.place.key, choice.macro, choice.photos, photos, group]);
    const population = this.populations.get(key, () =>
      new Population(rows, this.objectsOf(photos, group, importance).objects, photos, { photos: choice.photos, importance, frequency }));
    return { population, scope: this.scope(choice, group, photos), void: this.voidOf(choice, photos) };
  }

  objectsOf(photos, group, importance) {
    const { rows } = this.model;
    const objects = rows.objectsOf(photos, group ? rows.members(...group) : undefined);
    let counted = objects.length / photos;
    if (importance) {
      counted = 0;
      for (let start = 0; start < objects.length; start += photos) counted += importance[rows.target[objects[start]]] > 0;
    }
    return { objects, counted };
  }

  voidOf(choice, photos) {
    if (photos === choice.photos) return null;
    return this.model.rows.objects ? "few photos" : "photos";
  }

  scope(choice, group, photos) {
    const [column, value] = choice.group || ["", ""];
    return {
      unknown: choice.place ? choice.place.unknown : 0, photos: choice.photos,
      calibrated_photos: photos === choice.photos ? null : photos,
      column, value, joined: JSON.stringify(group) !== JSON.stringify(choice.group), macro: choice.macro,
    };
  }

  checkSizes(maker, chosen) {
    if (maker.average === null && maker.coverage === null) return;
    const [name] = makersOf(maker);
    if (!chosen) {
      const kind = name === "average" ? "an average size" : "a coverage";
      throw new Error(`place must have a class with calibration rows for lists of ${kind}, got none: choose top`);
    }
    if (maker.coverage !== null) {
      chosen.population.thresholds(maker.coverage);
      return;
    }
    const low = Math.max(1, maker.at_least), most = chosen.population.maxSize;
    const high = maker.at_most === null ? most : Math.min(most, maker.at_most);
    if (high < 1) throw new Error("average must be left out where 1 class is possible: choose top or coverage");
    if (!(maker.average >= low && maker.average <= high)) {
      const classes = chosen.population.numClasses;
      const few = classes <= maker.average ? ` (${classes} classes are possible)` : "";
      throw new Error(`average must be from ${low} to ${Number(high.toPrecision(6))}, got ${maker.average}${few}`);
    }
  }

  promise(maker, chosen, rowsAlso) {
    if (maker.predictor !== null) {
      const asked = maker.place ? "place" : maker.group ? "group" : maker.photos > 1 ? "photos" : null;
      return { ...this.model.predictors.get(maker.predictor).promise, void: asked };
    }
    if (!chosen) return { ...NO_PROMISE, size: sizeOf(maker, maker.place && maker.place.matched) };
    const { population } = chosen, bounds = { at_least: maker.at_least, at_most: maker.at_most };
    const facts = {
      ...NO_PROMISE, scope: chosen.scope, rows: population.size, void: chosen.void, at_most: maker.at_most,
      share_rows: population.effectiveSize,
    };
    if (maker.place) Object.assign(facts, { place: maker.place.shown, classes: maker.place.matched });
    if (maker.top !== null) return { ...facts, size: sizeOf(maker, population.numClasses), share: population.coverageOfTop(maker.top) };
    const inside = { atLeast: maker.at_least, atMost: maker.at_most };
    if (maker.average !== null) {
      return { ...facts, ...bounds, about: "size", size: maker.average, share: population.coverageAt(maker.average, inside) };
    }
    return this.coveragePromise(maker, population, { ...facts, ...bounds }, rowsAlso);
  }

  coveragePromise(maker, population, facts, rowsAlso) {
    const level = maker.coverage, most = maker.at_most === null ? population.numClasses : maker.at_most;
    const isCapped = most < population.numClasses && !population.reaches(level, most);
    return {
      ...facts, about: maker.macro ? "average class" : maker.place ? "place" : "rows", level, asked: level,
      has_law: !population.importance, left_out: population.withoutRows, lists_all: !population.isEnough(level),
      rows_also: rowsAlso, share: isCapped ? population.coverageOfTop(most) : null,
      void: isCapped ? "at most" : facts.void,
    };
  }

  /** What else the calibration rows served for: they are the same for all predictors. */
  rowsAlso(name) {
    const predictors = name === null ? [...this.model.predictors.values()] : [this.model.predictors.get(name)];
    return predictors.map((predictor) => predictor.promise.rows_also).find((text) => text) || "";
  }
}
