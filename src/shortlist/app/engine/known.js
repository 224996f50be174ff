// Known images of each class, packed in one file: similar ones by an exact search inside a class.

import { HALVES } from "./numbers.js";

const UNKNOWN = { author: "", license: "", source: "", date: "", organ: "" };

export class Known {
  /** @param content known.json: dimension, images [class, bytes, facts], and the bytes of known.bin */
  constructor({ dimension, images }, buffer) {
    this.dimension = dimension;
    this.size = images.length;
    this.byClass = new Map();
    this.addresses = new Map();
    let end = 2 * dimension * images.length;
    this.vectors = new Uint16Array(buffer, 0, dimension * images.length);
    images.forEach(([index, bytes, facts], number) => {
      const jpeg = new Uint8Array(buffer, end, bytes);
      end += bytes;
      if (!this.byClass.has(index)) this.byClass.set(index, []);
      this.byClass.get(index).push({ number, jpeg, facts });
    });
  }

  address({ number, jpeg }) {
    if (!this.addresses.has(number)) {
      this.addresses.set(number, URL.createObjectURL(new Blob([jpeg], { type: "image/jpeg" })));
    }
    return this.addresses.get(number);
  }

  form(image, similarity) {
    const about = { ...UNKNOWN, ...image.facts };
    return { id: String(image.number), similarity: Math.round(similarity * 1e6) / 1e6, thumbnail: this.address(image), ...about };
  }

  examples(index) {
    return (this.byClass.get(index) || []).map((image) => this.form(image, 1));
  }

  /** The images of a class that are most like photos; those of the file's order if there are no features. */
  similar(outputs, index, limit) {
    const queries = outputs.map(({ features }) => features && unit(features)).filter((features) => features);
    const images = (this.byClass.get(index) || []).map((image) => ({ image, similarity: this.similarity(queries, image) }));
    images.sort((a, b) => b.similarity - a.similarity);
    return images.slice(0, limit).map(({ image, similarity }) => this.form(image, similarity));
  }

  similarity(queries, { number }) {
    const start = number * this.dimension;
    return Math.max(queries.length ? -1 : 0, ...queries.map((query) => {
      const sum = query.reduce((total, value, place) => total + value * HALVES[this.vectors[start + place]], 0);
      return Math.min(1, Math.max(-1, sum));
    }));
  }
}

function unit(features) {
  const length = Math.sqrt(features.reduce((sum, value) => sum + value * value, 0)) || 1;
  return Float32Array.from(features, (value) => value / length);
}
