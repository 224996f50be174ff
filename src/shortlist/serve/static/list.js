// What a list is at a place of the control: plain functions, without the page.

/** Fill the places {name} of a sentence. */
export function say(sentence, values = {}) {
  return sentence.replace(/\{(\w+)\}/g, (all, name) => (name in values ? String(values[name]) : all));
}

const language = () => document.documentElement.lang;

/** Whether a noun after a number is in the singular, in the language of the page. */
export const isOne = (count) => new Intl.PluralRules(language()).select(count) === "one";

/** A number as the language of the page writes it. */
export const localized = (number) => number.toLocaleString(language());

/** The steps of a kind of lists: coverages that are promised, or numbers of names, on average or in each list. */
export function stepsOf(ladder, kind, classes) {
  if (kind === "exactly") return ladder?.top || [1, 2, 3, 5, 10, 20].filter((k) => k <= classes).map((top) => ({ top }));
  if (!ladder) return [];
  if (kind === "sure") return ladder.coverage.map((step) => ({ coverage: step.coverage, size: step.average_size }));
  const sizes = ladder.average.map((step) => step.average).filter((size) => size >= 2 && size <= 20);
  return sizes.map((average) => ({ average, most: 2 * average }));
}

/** The number that a step stands for. */
export const valueOf = (step) => step.coverage || step.average || step.top;

/** Whether a candidate is in the list of a coverage; see "From fewer to surer" in the documentation of the server. */
export function isIn(candidate, step) {
  const enters = candidate.enters_at;
  return enters.coverage !== null && enters.coverage < step.coverage;
}

/** The parent that two or more candidates share, the most specific first. */
export function sharedParent(candidates, levels) {
  if (candidates.length < 2) return null;
  for (const level of levels) {
    const name = candidates[0].parents[level];
    if (name && candidates.every((candidate) => candidate.parents[level] === name)) return { level, name };
  }
  return null;
}

/** What a taxonomy predictor is sure of: a few groups of names, with its promise if that is about this answer. */
export function nodesWords(found, words) {
  if (!found || !found.nodes.length) return null;
  if (found.nodes.some((node) => node.level === "root")) return words.sure_of_nothing;
  // single names beside a list of more would read as "it is this one"; the list has them
  if (found.nodes.every((node) => node.size === 1)) return null;
  const groups = found.nodes.map((node) => (node.size === 1 ? node.name
    : say(words.group, { name: node.name, level: words.levels[node.level] || node.level, names: names(node.size, words) })));
  const said = say(words.sure_of, { groups: groups.join(", ") });
  const { holds, level } = found.promise;
  return holds ? `${said} ${say(words.sure_of_promise, { share: localized(Math.round(1000 * level) / 10) })}` : said;
}

/** A probability without false precision. */
export function percent(probability, words) {
  if (probability < 0.01) return words.percent_small;
  if (probability > 0.99) return words.percent_large;
  return say(words.percent, { value: Math.round(100 * probability) });
}

/** A number of names, to a digit where it is small. */
export function names(count, words) {
  const shown = count < 10 ? Math.round(10 * count) / 10 : Math.round(count);
  return say(isOne(shown) ? words.names_one : words.names_many, { count: localized(shown) });
}

/** What the control promises at a step. */
export function settingWords(step, words) {
  if (step.top) return say(words.at_top, { names: names(step.top, words) });
  if (step.average) return say(words.at_average, { names: names(step.average, words), most: localized(step.most) });
  const share = localized(Math.round(1000 * step.coverage) / 10);
  return say(words.at_coverage, { share, size: names(step.size, words) });
}

/** What the audit of this model's lists found, beside what was promised, and whether photos have changed. */
export function auditWords(found, words) {
  const share = (value) => localized(Math.round(1000 * value) / 10);
  const said = found.audited
    ? [say(words.audit, { count: localized(found.audited), share: share(found.coverage), low: share(found.low), high: share(found.high) })]
    : [say(words.audit_none, { count: localized(found.lists) })];
  if (found.audited && found.promised !== null) said.push(say(words.audit_promised, { share: share(found.promised) }));
  if (found.is_below) said.push(words.audit_below);
  if (found.has_shifted) said.push(words.shifted);
  return said.join(" ");
}

/** Why an observation waits until others have looked. */
export const flagWords = (flags, words) => say(words.flagged, { flags: flags.map((flag) => words.flags[flag]).join(", ") });
