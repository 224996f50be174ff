// Run the engine's pure part under node: a model and questions come in as JSON, lists go out.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [engine, folder] = process.argv.slice(2);
const load = (name) => import(pathToFileURL(`${engine}/${name}`).href);
const { nextPhoto } = await load("next_photo.js");
const { Lists } = await load("lists.js");
const { modelOf, placeOf, placeOfClasses } = await load("reading.js");
const { Sentences } = await load("sentences.js");
const read = (name) => JSON.parse(readFileSync(`${folder}/${name}`, "utf8"));
const [description, asked, words] = [read("lists.json"), read("asked.json"), read("words.json")];
const bytes = description.rows && readFileSync(`${folder}/${description.rows.file}`);
const model = modelOf(description, bytes && bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength));
const lists = new Lists(model);
const answers = asked.map(({ choice, place, classes, scores, sets, limit, language, pair, organ }) => {
  if (pair) {
    const photo = nextPhoto(model.rows, pair, organ), names = pair.map((index) => description.classes.names[index]);
    return photo && { ...photo, words: new Sentences(words[language], language).nextPhoto(photo, ...names) };
  }
  const wanted = { ...choice };
  if (place) wanted.place = placeOf(place, model.numClasses);
  if (classes) wanted.place = placeOfClasses(classes, model.numClasses);
  try {
    const outputs = (number) => sets && [{ sets: new Map(Object.entries(sets[number])) }];
    const made = scores.map((photos, number) => lists.list(photos, wanted, { atLeast: limit, limit, outputs: outputs(number) }));
    const said = new Sentences(words[language], language);
    const resolved = lists.choices.resolve({ ...wanted, photos: scores[0].length });
    const margins = scores.map((photos) => {
      const { maker, chosen } = resolved;
      if (!chosen || maker.predictor !== null) return null;
      const { fit, size } = chosen.population.values(photos), values = Array.from(maker.coverage === null ? size : fit);
      if (maker.top !== null) return null;
      const limits = maker.coverage === null
        ? values.map(() => chosen.population.sizeThreshold(maker.average, maker.at_least, maker.at_most))
        : Array.from(chosen.population.thresholds(maker.coverage, maker.at_most), (threshold) => 1 - threshold);
      return values.map((value, index) => value - limits[index]);
    });
    const promise = { ...resolved.promise, words: said.promise(resolved.promise), why_not: said.whyNot(resolved.promise), scope_words: said.scopeWords(resolved.promise) };
    return { lists: made, promise, margins };
  } catch (error) {
    return { error: error.message };
  }
});
console.log(JSON.stringify(answers));
