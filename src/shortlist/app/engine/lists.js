// From scores to lists with their promise: the engine of an app without a server, as shortlist/model/listing.py
// does it. It knows no page, no network and no language.

import { bestFirst, logSoftmax, markFirst, softmax, sumOf } from "./numbers.js";
import { Choices } from "./choices.js";
import { placeOffset } from "./rows.js";

export const LONG = 20; // a set of more classes than this says that the model does not know

export class Lists {
  constructor(model) {
    this.model = model;
    this.choices = new Choices(model);
  }

  /**
   * The list of one object.
   * @param scores of each of its photos (c), as many as choice.photos
   * @param choice what makes the set
   * @param outputs what else the network gave of the photos: sets of predictors, and whether they are strangers
   */
  list(scores, choice, { limit = null, atLeast = 0, outputs = null } = {}) {
    const resolved = this.choices.resolve({ ...choice, photos: scores.length });
    const { maker, promise, chosen } = resolved;
    const population = chosen && chosen.population, values = population && population.values(scores);
    const { shown, here, order } = this.ordered(scores, maker);
    const isIn = this.set(maker, order, population, values, outputs).map((mark, index) => mark & (order[index] > -Infinity));
    const members = Array.from(isIn.keys()).filter((index) => isIn[index]);
    const probabilities = softmax(maker.place ? here : shown);
    const candidates = this.picked(isIn, order, atLeast, limit).map(({ index, top }) => ({
      index, probability: probabilities[index], in_set: Boolean(isIn[index]),
      enters_at: { top, ...(population ? population.entersAt(values, index) : { coverage: null, average: null }) },
    }));
    const mass = sumOf(members.map((index) => probabilities[index]));
    return { candidates, members, mass, choice: resolved.choice, promise, novelty: novelty(outputs) };
  }

  /** The scores that are shown, those at the place of a choice, and those by which a list is in order. */
  ordered(scores, maker) {
    let mean = Float32Array.from(scores[0]);
    if (scores.length > 1) {
      const logs = scores.map((photo) => logSoftmax(Float32Array.from(photo)));
      mean = mean.map((_, index) => logs.reduce((sum, photo) => Math.fround(sum + photo[index]), 0) / logs.length);
    }
    const { importance, frequency } = this.choices.weights(maker);
    const shift = (weights) => {
      if (!this.model.priors) return weights.map((weight) => (weight ? 0 : -Infinity));
      return placeOffset(weights, this.model.priors);
    };
    const add = (values, offset) => values.map((value, index) => value + Math.fround(offset[index]));
    const here = maker.place ? add(mean, shift(frequency)) : mean;
    const shown = this.model.shown ? add(mean, this.model.shown) : mean;
    return { shown, here, order: maker.macro ? add(mean, shift(importance)) : here };
  }

  set(maker, order, population, values, outputs) {
    if (maker.predictor !== null) return Uint8Array.from(outputs[0].sets.get(maker.predictor));
    if (maker.top !== null) return markFirst(order, Math.min(maker.top, order.length));
    const bounds = { atLeast: maker.at_least, atMost: maker.at_most };
    return maker.coverage !== null
      ? population.setOfCoverage(values, maker.coverage, bounds)
      : population.setOfSize(values, maker.average, bounds);
  }

  /** The classes to list, the best first, with their places among all; those of the set go first to a limit. */
  picked(isIn, order, atLeast, limit) {
    const ranked = Array.from(bestFirst(order), (index, place) => ({ index, top: place + 1 }));
    const listed = ranked.filter(({ index, top }) => order[index] > -Infinity && (isIn[index] || top <= atLeast));
    if (limit === null || listed.length <= limit) return listed;
    const members = listed.filter(({ index }) => isIn[index]).slice(0, limit);
    const others = listed.filter(({ index }) => !isIn[index]).slice(0, limit - members.length);
    return [...members, ...others].sort((a, b) => a.top - b.top);
  }
}

/** Whether an object is of no known class: if each photo is flagged. */
function novelty(outputs) {
  if (!outputs || outputs[0].novel === undefined) return null;
  return { novel: outputs.every((photo) => photo.novel) };
}
