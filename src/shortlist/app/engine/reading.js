// The files of an exported model, as the engine uses them. Texts in them are of strangers: they stay data.

import { Rows } from "./rows.js";
import { halfBits } from "./numbers.js";

const KINDS = {
  F64: Float64Array, F32: Float32Array, F16: Uint16Array, I64: BigInt64Array, I32: Int32Array, I16: Int16Array,
  U8: Uint8Array, I8: Int8Array,
};

/** The tensors of a safetensors file by name, with their shapes. */
export function tensorsOf(buffer) {
  const length = Number(new DataView(buffer).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  const tensors = new Map();
  for (const [name, { dtype, shape, data_offsets: [begin, end] }] of Object.entries(header).filter(([name]) => name !== "__metadata__")) {
    // a copy, since the data need not begin where such numbers can
    tensors.set(name, { dtype, shape, data: new KINDS[dtype](buffer.slice(8 + length + begin, 8 + length + end)) });
  }
  return tensors;
}

/** Calibration rows of a file. */
export function rowsOf(buffer) {
  const tensors = tensorsOf(buffer), data = (name) => tensors.get(name)?.data ?? null;
  const about = JSON.parse(new TextDecoder().decode(data("about")));
  const { dtype, shape, data: logP } = tensors.get("log_p");
  const numbers = data("observation"), groups = new Map();
  for (const [column, names] of Object.entries(about.groups)) {
    groups.set(column, { names, codes: Int32Array.from(data(`group.${column}`), Number) });
  }
  let object = 0; // rows of one object follow each other
  const objects = numbers && Int32Array.from(numbers, (number, row) => (row && number !== numbers[row - 1] ? (object += 1) : object));
  return new Rows({
    target: Int32Array.from(data("target"), Number), width: shape[1], numClasses: about.num_classes,
    logP: dtype === "F16" ? logP : Uint16Array.from(logP, halfBits), classes: data("classes"), priors: data("priors"),
    frequencies: data("frequencies"), objects, groups,
  });
}

/** What the engine needs to know of a model: from lists.json, and the bytes of its rows if it has any. */
export function modelOf(lists, rowsBuffer) {
  const vector = (values) => values && Float64Array.from(values);
  return {
    numClasses: lists.classes.names.length, priors: vector(lists.priors), shown: vector(lists.shown),
    rows: rowsBuffer ? rowsOf(rowsBuffer) : null, default: lists.default,
    predictors: new Map(lists.predictors.map((predictor) => [predictor.name, predictor])),
  };
}

/** A place: how often each class occurs there, from its pairs of a class and a weight. */
export function placeOf({ name, shown, matched, unknown, weights }, numClasses) {
  const dense = new Float64Array(numClasses);
  for (const [index, weight] of weights) dense[index] = weight;
  return { key: `named ${name}`, name, shown, matched, unknown, weights: dense };
}

/** The place where these classes occur, equally often. */
export function placeOfClasses(indices, numClasses) {
  const dense = new Float64Array(numClasses), distinct = [...new Set(indices)].sort((a, b) => a - b);
  for (const index of distinct) dense[index] = 1 / distinct.length;
  return { key: `listed ${distinct.join(" ")}`, name: "", shown: "", matched: distinct.length, unknown: 0, weights: dense };
}
