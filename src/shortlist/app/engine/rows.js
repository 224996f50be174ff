// The calibration rows that a model kept, and the posterior of objects in a population; see
// shortlist/predictors/calibration_rows.py and _posterior.py, whose numbers these are.

import { HALVES, halfBits, logSoftmax, markFirst, softmax, sumOf } from "./numbers.js";

const LOWEST = -1e30; // above -Infinity, which is for what is chosen already

/** The logarithm that turns posteriors under priors into those where classes have these weights. */
export function placeOffset(weights, priors) {
  return Float64Array.from(weights, (weight, index) =>
    priors[index] > 0 ? Math.log(weight) - Math.log(priors[index]) : -Infinity);
}

export class Rows {
  /**
   * @param parts target (n), logP as bits of half precision (n, width), classes (n, width) or null, width,
   *   numClasses, priors (c) or null, frequencies (c) or null, objects (n) numbers of the objects or null, and
   *   groups: a Map from a column to { codes, names }
   */
  constructor(parts) {
    Object.assign(this, parts);
    this.size = this.target.length;
    this.logPriors = this.priors && Float32Array.from(this.priors, Math.log);
  }

  /** One kept row: log-posteriors, and their classes if not all are kept. */
  at(row) {
    const logP = new Float64Array(this.width), start = row * this.width;
    for (let place = 0; place < this.width; place += 1) logP[place] = HALVES[this.logP[start + place]];
    return { logP, classes: this.classes && this.classes.subarray(start, start + this.width) };
  }

  /** Do to new scores what was done to the kept ones: round, and drop all but the best classes. */
  kept(scores) {
    const all = logSoftmax(Float32Array.from(scores)).map((value) => HALVES[halfBits(value)]);
    if (this.width === this.numClasses) return { logP: Float64Array.from(all), classes: null };
    const { logPriors, width } = this;
    const chosen = markFirst(all, logPriors ? width - Math.floor(width / 2) : width);
    if (logPriors) {
      const over = all.map((value, index) => (chosen[index] ? -Infinity : Math.max(LOWEST, value - logPriors[index])));
      markFirst(over, Math.floor(width / 2)).forEach((marked, index) => { chosen[index] |= marked; });
    }
    const classes = Int32Array.from({ length: all.length }, (_, index) => index).filter((index) => chosen[index]);
    return { logP: Float64Array.from(classes, (index) => all[index]), classes };
  }

  /** Which rows have a value in a column. */
  members(column, value) {
    const group = this.groups.get(column);
    if (!group) {
      throw new Error(`group must be of a column of the calibration rows (${[...this.groups.keys()].join(", ") || "none"}), got '${column}'`);
    }
    const code = group.names.indexOf(value);
    if (code < 0) throw new Error(`group must be one of ${group.names.join(", ") || "none"} (${column}), got '${value}'`);
    return (row) => group.codes[row] === code;
  }

  /** The first rows of each object with at least so many photos, one object after the other. */
  objectsOf(photos, isMember = () => true) {
    const rows = Int32Array.from({ length: this.size }, (_, row) => row).filter(isMember);
    if (!this.objects) return photos === 1 ? rows : new Int32Array(0);
    const taken = [];
    for (let start = 0; start < rows.length;) {
      let end = start + 1;
      while (end < rows.length && this.objects[rows[end]] === this.objects[rows[start]]) end += 1;
      if (end - start >= photos) taken.push(...rows.subarray(start, start + photos));
      start = end;
    }
    return Int32Array.from(taken);
  }
}

/** The posterior in a population, of kept rows and of new ones. */
export class Posterior {
  constructor(rows, importance, frequency) {
    this.numClasses = rows.numClasses;
    this.columns = this.offset = this.ratio = null;
    if (!importance) return;
    if (!rows.priors) throw new Error("place must not be given: nobody knows which priors the model's scores contain");
    this.offset = placeOffset(importance, rows.priors);
    const inside = Int32Array.from(importance.keys()).filter((index) => this.offset[index] > -Infinity);
    if (inside.length < importance.length) this.columns = inside;
    const asThere = frequency || rows.frequencies || rows.priors;
    if (asThere.some((share, index) => share !== importance[index])) {
      this.ratio = new Float64Array(importance.length);
      for (const index of inside) this.ratio[index] = asThere[index] / importance[index];
    }
  }

  /** Fit and value for sizes of an object of some kept photos, and their classes if they are not the columns. */
  of(photos) {
    let { logP, classes } = photos[0];
    if (photos.length > 1) {
      logP = this.fused(photos);
      classes = null;
    } else if (!classes && this.columns) {
      logP = Float64Array.from(this.columns, (index) => logP[index]);
    }
    const where = classes || this.columns;
    if (this.offset) logP = logP.map((value, place) => value + this.offset[where ? where[place] : place]);
    const fit = softmax(logP), rounded = Float32Array.from(fit);
    if (!this.ratio) return { fit: rounded, size: rounded, classes };
    const total = sumOf(fit.map((value, place) => value * this.ratio[where ? where[place] : place]));
    return { fit: rounded, size: Float32Array.from(fit, (value) => (total > 0 ? value / total : 0)), classes };
  }

  /** The mean log-posteriors of photos; a class that no photo keeps is ruled out. */
  fused(photos) {
    const mean = new Float64Array(this.numClasses);
    const seen = new Uint8Array(this.numClasses).fill(photos[0].classes ? 0 : 1);
    for (const { logP, classes } of photos) {
      if (!classes) {
        logP.forEach((value, index) => { mean[index] += value; });
        continue;
      }
      const left = Math.max(1e-7, 1 - logP.reduce((sum, value) => sum + Math.exp(value), 0));
      const wide = new Float64Array(this.numClasses).fill(Math.log(left / (this.numClasses - logP.length)));
      classes.forEach((index, place) => { wide[index] = logP[place]; seen[index] = 1; });
      wide.forEach((value, index) => { mean[index] += value; });
    }
    const fused = mean.map((value, index) => (seen[index] ? value / photos.length : -Infinity));
    return this.columns ? Float64Array.from(this.columns, (index) => fused[index]) : fused;
  }
}
