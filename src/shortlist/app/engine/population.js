// A population of calibration rows: sets of any coverage and any average size; see
// shortlist/predictors/population.py, whose numbers these are.

import {
  conformalRank, cumulated, markFirst, placeIn, roundHalfEven, roundedUp, sumOf,
} from "./numbers.js";
import { Posterior } from "./rows.js";

export const MAX_SIZE = 50; // the largest average size that can be asked for
const SIZES_FROM = 2000; // rows from which mean sizes are measured
const OUT = 2; // the score of a class beyond the largest number of a set; others are at most 1
const SLACK = 1e-12, POOL_SLACK = 1e-9; // in sums of weights
const PLACES = 2 ** 22; // entries that are sorted together with their values

/** What a row of each class weighs, where rows weigh 1 together; that of the heaviest if it has none. */
function classWeights(byClass, counts) {
  const counted = byClass.map((weight, index) => (counts[index] ? weight : 0));
  const total = sumOf(counted);
  const weights = Float64Array.from(counted, (weight, index) => (counts[index] ? weight / total / counts[index] : 0));
  const most = weights.reduce((high, weight) => Math.max(high, weight), 0);
  return weights.map((weight, index) => (counts[index] ? weight : most));
}

export class Population {
  /**
   * @param rows calibration rows
   * @param objects numbers of the rows of each object, one object after the other
   * @param rowPhotos number of rows of each of these objects
   * @param photos number of photos of new objects
   * @param importance how much each class counts, or null if each row counts the same
   * @param frequency how frequent the classes are, or null if as in the rows
   */
  constructor(rows, objects, rowPhotos, { photos = rowPhotos, importance = null, frequency = null } = {}) {
    Object.assign(this, { rows, rowPhotos, photos, importance, frequency });
    this.posterior = new Posterior(rows, importance, frequency);
    this.columns = this.posterior.columns;
    this.possible = new Uint8Array(rows.numClasses).fill(this.columns ? 0 : 1);
    if (this.columns) for (const index of this.columns) this.possible[index] = 1;
    this.objects = [];
    for (let start = 0; start < objects.length; start += rowPhotos) {
      const taken = objects.subarray(start, start + rowPhotos);
      if (this.possible[rows.target[taken[0]]]) this.objects.push(taken);
    }
    if (!this.objects.length) throw new Error("there must be at least 1 calibration row for it, got 0");
    this.size = this.objects.length;
    this.numClasses = this.columns ? this.columns.length : rows.numClasses;
    this.target = Int32Array.from(this.objects, (taken) => rows.target[taken[0]]);
    this.counts = new Float64Array(rows.numClasses);
    for (const index of this.target) this.counts[index] += 1;
    this.rowWeights = importance && classWeights(importance, this.counts);
    this.memory = new Map();
  }

  remembered(key, make) {
    if (!this.memory.has(key)) this.memory.set(key, make());
    return this.memory.get(key);
  }

  /** Number of classes that count and have no rows: the promise does not extend to them. */
  get withoutRows() {
    return this.importance ? this.importance.filter((weight, index) => weight > 0 && !this.counts[index]).length : 0;
  }

  kept(object) {
    return this.posterior.of(Array.from(object, (row) => this.rows.at(row)));
  }

  /** What decides about a new object, whose photos have these scores: fit and value for sizes of all classes. */
  values(scores) {
    const { fit, size, classes } = this.posterior.of(scores.map((photo) => this.rows.kept(photo)));
    const where = classes || this.columns;
    const spread = (values) => {
      if (!where) return values;
      const wide = new Float32Array(this.rows.numClasses);
      where.forEach((index, place) => { wide[index] = values[place]; });
      return wide;
    };
    const wide = spread(fit);
    return { fit: wide, size: size === fit ? wide : spread(size) };
  }

  /** Of the true class of each object: fit, value for sizes, and place from 1. */
  get truth() {
    return this.remembered("truth", () => {
      const fits = new Float32Array(this.size), sizes = new Float32Array(this.size), ranks = new Int32Array(this.size);
      const number = new Int32Array(this.rows.numClasses).fill(-1);
      if (this.columns) this.columns.forEach((index, place) => { number[index] = place; });
      this.objects.forEach((object, i) => {
        const { fit, size, classes } = this.kept(object), own = this.target[i];
        const place = classes ? classes.indexOf(own) : this.columns ? number[own] : own;
        fits[i] = place < 0 ? 0 : fit[place];
        sizes[i] = place < 0 ? 0 : size[place];
        ranks[i] = fits[i] > 0 ? fit.reduce((count, value) => count + (value >= fits[i]), 0) : this.numClasses;
      });
      const scores = fits.map((fit) => 1 - fit);
      const order = Uint32Array.from(scores, (_, i) => i); // ascending; equal scores by their class
      order.sort((a, b) => scores[a] - scores[b] || this.target[a] - this.target[b] || a - b);
      const weights = this.rowWeights;
      const reached = weights && cumulated(Float64Array.from(order, (i) => weights[this.target[i]]));
      return { fits, sizes, ranks, scores, order, sorted: Float32Array.from(order, (i) => scores[i]), reached };
    });
  }

  /** The largest score of each class that is in a set of a coverage. */
  thresholds(coverage, most = null) {
    return this.remembered(`coverage ${coverage} ${most}`, () => {
      if (!(coverage > 0 && coverage < 1)) throw new Error(`coverage must be above 0 and below 1, got ${coverage}`);
      return this.madeThresholds(coverage, most);
    });
  }

  madeThresholds(coverage, most) {
    const { ranks, scores: plain } = this.truth;
    const scores = most === null ? plain : plain.map((score, i) => (ranks[i] <= most ? score : OUT));
    const classes = this.rows.numClasses;
    if (!this.importance) {
      const rank = conformalRank(this.size, coverage);
      return new Float32Array(classes).fill(rank > this.size ? Infinity : scores.slice().sort()[rank - 1]);
    }
    const counted = this.importance.map((weight, index) => (this.counts[index] ? weight : 0));
    const total = sumOf(counted);
    const weights = counted.map((weight, index) => (this.counts[index] ? weight / total / this.counts[index] : 0));
    const order = Uint32Array.from(scores, (_, i) => i);
    order.sort((a, b) => scores[a] - scores[b] || this.target[a] - this.target[b] || a - b);
    const reached = cumulated(Float64Array.from(order, (i) => weights[this.target[i]]));
    const values = Float32Array.from(weights, (weight) => {
      const place = placeIn(reached, coverage + weight - SLACK);
      return place < order.length ? scores[order[place]] : Infinity;
    });
    const largest = values.reduce((high, value, index) => (this.counts[index] ? Math.max(high, value) : high), -Infinity);
    return values.map((value, index) => (this.counts[index] ? value : largest));
  }

  /** The set of a coverage, as marks of all classes. */
  setOfCoverage(values, coverage, { atLeast = 0, atMost = null } = {}) {
    const thresholds = this.thresholds(coverage, atMost);
    const ranks = atMost === null ? null : ranksOf(values.fit);
    const first = markFirst(values.fit, atLeast);
    return Uint8Array.from(values.fit, (fit, index) => Number(
      first[index] ||
        (this.possible[index] && Math.fround(1 - fit) <= thresholds[index] && (!ranks || ranks[index] <= atMost))));
  }

  /** The set of an average size. */
  setOfSize(values, size, { atLeast = 0, atMost = null } = {}) {
    const threshold = this.sizeThreshold(size, atLeast, atMost);
    const best = atMost === null ? null : markFirst(values.fit, atMost);
    const first = markFirst(values.fit, atLeast);
    return Uint8Array.from(values.size, (value, index) => Number(
      first[index] || (this.possible[index] && value >= threshold && (!best || best[index]))));
  }

  /** Above which coverage, and from which average size on, a class is in. */
  entersAt(values, index) {
    const score = Math.fround(1 - values.fit[index]), { sorted, reached } = this.truth;
    const place = placeIn(sorted, score);
    const coverage = this.importance
      ? Math.max((place ? reached[place - 1] : 0) - this.rowWeights[index] + SLACK, 0)
      : place / (this.size + 1);
    return { coverage, average: this.pool(0, null).entersAt(values.size[index]) };
  }

  /** Whether sets of at most so many classes can promise a coverage. */
  reaches(coverage, most) {
    return this.thresholds(coverage, most).every((threshold) => threshold < OUT);
  }

  /** Whether there are enough rows for a coverage: if not, sets have all classes. */
  isEnough(coverage) {
    return this.thresholds(coverage).some((threshold, index) => this.possible[index] && Number.isFinite(threshold));
  }

  get maxSize() {
    return Math.min(MAX_SIZE, this.numClasses - 1 / this.size);
  }

  checkSize(size, atLeast, atMost) {
    const low = Math.max(1 / this.size, atLeast);
    const high = atMost === null ? this.maxSize : Math.min(this.maxSize, atMost);
    if (!(size >= low && size <= high)) throw new Error(`size must be from ${low} to ${high}, got ${size}`);
  }

  sizeThreshold(size, atLeast, atMost) {
    this.checkSize(size, atLeast, atMost);
    return this.pool(atLeast, atMost).threshold(size - atLeast);
  }

  /** The mean size of the sets of each coverage, on at most 2,000 of the rows; null beyond the largest. */
  sizesAt(coverages) {
    const limits = coverages.map((coverage) => this.thresholds(coverage));
    const everything = limits.map((each) => each.every((threshold) => threshold === Infinity));
    const step = Math.ceil(this.size / SIZES_FROM), sums = new Float64Array(coverages.length);
    let total = 0;
    for (let i = 0; i < this.size; i += step) {
      const { fit, classes } = this.kept(this.objects[i]), where = classes || this.columns;
      const weight = this.objectWeights ? this.objectWeights[i] : 1;
      const dropped = classes ? this.numClasses - fit.length : 0;
      total += weight;
      limits.forEach((limit, level) => {
        let count = everything[level] ? dropped : 0;
        fit.forEach((value, place) => { count += Math.fround(1 - value) <= limit[where ? where[place] : place]; });
        sums[level] += weight * count;
      });
    }
    return Array.from(sums, (sum) => (sum / total <= MAX_SIZE || sum / total === this.numClasses ? sum / total : null));
  }

  /** The share of the rows whose class is in their set of an average size. */
  coverageAt(size, { atLeast = 0, atMost = null } = {}) {
    const threshold = this.sizeThreshold(size, atLeast, atMost), { sizes, ranks } = this.truth;
    return this.share((i) => (sizes[i] >= threshold && (atMost === null || ranks[i] <= atMost)) || ranks[i] <= atLeast);
  }

  /** The share of the rows whose class is one of the k best. */
  coverageOfTop(k) {
    return this.share((i) => this.truth.ranks[i] <= k);
  }

  share(isInside) {
    if (!this.importance) return this.objects.filter((_, i) => isInside(i)).length / this.size;
    let inside = 0, total = 0;
    this.target.forEach((index, i) => {
      total += this.rowWeights[index];
      if (isInside(i)) inside += this.rowWeights[index];
    });
    return inside / total;
  }

  /** How many objects of one weight tell as much about a share as these. */
  get effectiveSize() {
    if (!this.importance) return this.size;
    const weights = Float64Array.from(this.target, (index) => this.rowWeights[index]);
    return sumOf(weights) ** 2 / sumOf(weights.map((weight) => weight * weight));
  }

  /** What each object weighs for a mean size, on average 1; null if all weigh the same. */
  get objectWeights() {
    return this.remembered("object weights", () => {
      if (!this.frequency) return null;
      const byClass = classWeights(this.frequency, this.counts);
      const weights = Float64Array.from(this.target, (index) => byClass[index]), total = sumOf(weights);
      return weights.map((weight) => weight * (this.size / total));
    });
  }

  /** The values at ranks above "atLeast" up to "atMost" of all rows, the largest first. */
  pool(atLeast, atMost) {
    return this.remembered(`pool ${atLeast} ${atMost}`, () => {
      const gathered = new Gathered(this.size, this.objectWeights);
      this.objects.forEach((object, i) => {
        const { size } = this.kept(object);
        gathered.add(openValues(size, atLeast, atMost), i);
      });
      return gathered.pool();
    });
  }
}

/** The values of a row that may be in or out: of those between both bounds. */
function openValues(values, atLeast, atMost) {
  const most = atMost === null ? values.length : Math.min(atMost, values.length);
  if (most === values.length && !atLeast) return values;
  return values.slice().sort().reverse().subarray(Math.min(atLeast, most), most);
}

/** Collects the largest values of rows, and forgets those that no average size needs. */
class Gathered {
  constructor(rows, weights) {
    this.rows = rows;
    this.weights = weights;
    this.limit = MAX_SIZE * rows + (weights ? 2 * POOL_SLACK : 1);
    this.values = new Float32Array(0);
    this.owners = new Int32Array(0);
    this.parts = [];
    this.count = 0;
    this.floor = 0;
  }

  add(values, row) {
    const kept = values.filter((value) => value > this.floor || (value === this.floor && value > 0));
    this.parts.push([kept, row]);
    this.count += kept.length;
    if (this.count + this.values.length > Math.max(2 ** 18, 2 * this.limit + 2 ** 18) || this.count > PLACES / 2) this.cut();
  }

  /** Put all in order, the largest first, and drop what is beyond the limit. */
  cut() {
    const size = this.values.length + this.count;
    const values = new Float32Array(size), owners = new Int32Array(size);
    values.set(this.values);
    owners.set(this.owners);
    let end = this.values.length;
    for (const [kept, row] of this.parts) {
      values.set(kept, end);
      owners.fill(row, end, end + kept.length);
      end += kept.length;
    }
    // bits of positive numbers are in their order; with the place behind them, equal values keep theirs
    const bits = new Uint32Array(values.buffer), keys = new Float64Array(size);
    for (let i = 0; i < size; i += 1) keys[i] = (2 ** 31 - bits[i]) * PLACES + i;
    keys.sort();
    let enough = size, sum = 0;
    if (this.weights) {
      for (let i = 0; i < size; i += 1) {
        sum += this.weights[owners[keys[i] % PLACES]];
        if (sum > this.limit) { enough = i + 1; break; }
      }
    } else enough = Math.min(size, this.limit);
    this.values = new Float32Array(enough);
    this.owners = new Int32Array(enough);
    for (let i = 0; i < enough; i += 1) {
      this.values[i] = values[keys[i] % PLACES];
      this.owners[i] = owners[keys[i] % PLACES];
    }
    if (enough < size) this.floor = this.values[enough - 1];
    this.parts = [];
    this.count = 0;
  }

  pool() {
    this.cut();
    const { weights, owners } = this;
    return new Pool(this.values, weights && cumulated(Float64Array.from(owners, (row) => weights[row])), this.rows);
  }
}

/** The values of all rows, the largest first, and what their rows weigh up to each. */
class Pool {
  constructor(values, reached, rows) {
    Object.assign(this, { values, reached, rows });
  }

  /** The threshold at which so many values are in: midway to the next one, rounded up. */
  middle(budget) {
    if (budget === 0) return Infinity;
    const below = budget < this.values.length ? this.values[budget] : 0;
    return roundedUp((this.values[budget - 1] + below) / 2);
  }

  threshold(size) {
    const budget = this.reached
      ? placeIn(this.reached, size * this.rows + POOL_SLACK, { behind: true })
      : roundHalfEven(size * this.rows);
    return this.middle(Math.min(budget, this.values.length));
  }

  /** The smallest average size whose sets have a value; null beyond the largest. */
  entersAt(value) {
    // thresholds fall with the number of values, so that the first one that is not above is found by halving
    let low = 1, high = this.values.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.middle(middle) <= value) high = middle;
      else low = middle + 1;
    }
    if (low >= this.values.length) return null;
    if (this.reached) return (this.reached[low - 1] - POOL_SLACK) / this.rows;
    const size = (low - 0.5) / this.rows; // the smallest one that is rounded to so many values
    return roundHalfEven(size * this.rows) >= low ? size : (low - 0.5 + POOL_SLACK) / this.rows;
  }
}

/** The place of each class, from 1; equal ones count against a class. */
function ranksOf(fit) {
  const ascending = fit.slice().sort();
  return Int32Array.from(fit, (value) => fit.length - placeIn(ascending, value));
}
