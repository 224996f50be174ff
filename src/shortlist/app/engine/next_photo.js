// Which photo to take next: the organ whose photos tell the two best candidates apart; see
// shortlist/model/next_photo.py.

import { logGamma, roundHalfEven } from "./numbers.js";

const ORGAN = "organ";
const LEVEL = 0.05; // how often an organ may be named that helps no more than another
const FEWEST = 5; // objects of each of the two classes
const DROPPED = -1e30;

const logWays = (all, chosen) => logGamma(all + 1) - logGamma(chosen + 1) - logGamma(all - chosen + 1);
const sum = ([first, second]) => first + second;
const toldApart = ({ wrong, objects }) => (1 - wrong[0] / objects[0] + (1 - wrong[1] / objects[1])) / 2;

/** The photo that was measured to tell the classes of a pair apart, for the organ at hand if that is known; or null. */
export function nextPhoto(rows, pair, organ) {
  const group = rows?.groups.get(ORGAN);
  if (!group) return null;
  const { codes, names } = group, atHand = names.indexOf(organ);
  const tried = names.filter((name) => name && name !== organ);
  let best = null;
  for (const name of tried) {
    const code = names.indexOf(name);
    const photos = confusions(rows, pair, (row) => codes[row] === code);
    const others = confusions(rows, pair, (row) => (atHand < 0 ? codes[row] !== code : codes[row] === atHand));
    if (Math.min(...photos.objects, ...others.objects) < FEWEST) continue;
    const share = toldApart(photos);
    if (isBetter(photos, others, LEVEL / tried.length) && (!best || share > best.told_apart)) {
      best = { organ: name, told_apart: share, told_apart_now: toldApart(others), objects: sum(photos.objects) };
    }
  }
  return best;
}

/** How many objects of each of two classes there are, and how many are taken for the other one. */
function confusions(rows, pair, isMember) {
  const objects = [0, 0], wrong = [0, 0];
  for (const row of rows.objectsOf(1, (each) => pair.includes(rows.target[each]) && isMember(each))) {
    const { logP, classes } = rows.at(row), place = rows.target[row] === pair[0] ? 0 : 1;
    const [own, other] = [pair[place], pair[1 - place]].map((index) => {
      const where = classes ? classes.indexOf(index) : index;
      return where < 0 ? DROPPED : logP[where];
    });
    objects[place] += 1;
    wrong[place] += (1 - Math.sign(own - other)) / 2; // half an error where both were dropped
  }
  return { objects, wrong };
}

/** Whether two classes are confused less often, in no class more often, and not by chance. */
function isBetter(photos, others, level) {
  const isWorse = (place) => photos.wrong[place] * others.objects[place] > others.wrong[place] * photos.objects[place];
  if (isWorse(0) || isWorse(1)) return false;
  const wrong = [photos, others].map((each) => roundHalfEven(sum(each.wrong)));
  return chanceOfFewer(...wrong, sum(photos.objects), sum(others.objects)) < level;
}

/** The chance of so few of all errors among "number" of all objects, by Fisher's exact test. */
function chanceOfFewer(wrong, wrongOthers, number, others) {
  const errors = wrong + wrongOthers, total = number + others;
  let chance = 0;
  for (let k = Math.max(0, errors - others); k <= wrong; k += 1) {
    chance += Math.exp(logWays(errors, k) + logWays(total - errors, number - k) - logWays(total, number));
  }
  return chance;
}
