// Search names of an app under node: prints, for each text, the ids of the classes that are found.
import { pathToFileURL } from "node:url";

const [engine, asked] = process.argv.slice(2);
const { Desk } = await import(pathToFileURL(`${engine}/desk.js`).href);
const { names, texts } = JSON.parse(asked);
const column = { names, ids: names, parents: {}, counts: [], common_names: {} };
const lists = { classes: column, priors: null, shown: null, predictors: [], default: null };
const desk = new Desk({ lists, app: { places: [], authors: names, search: names }, words: { en: {} }, rows: null }, null);
const answers = texts.map((text) => desk.answer(`/v1/classes?search=${encodeURIComponent(text)}`));
console.log(JSON.stringify((await Promise.all(answers)).map(({ classes }) => classes.map(({ id }) => id))));
