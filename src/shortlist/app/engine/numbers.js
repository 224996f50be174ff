// Numbers as NumPy and PyTorch round them, sorting, and the Beta distribution. Plain functions.

const FLOAT = new Float32Array(1);
const BITS = new Uint32Array(FLOAT.buffer);

/** The bits of the half-precision number that is nearest to a number; of two, the even one. */
export function halfBits(value) {
  FLOAT[0] = value;
  const bits = BITS[0], sign = (bits >>> 16) & 0x8000;
  const exponent = ((bits >>> 23) & 0xff) - 112;
  const mantissa = bits & 0x7fffff;
  if (exponent === 143) return sign | 0x7c00 | (mantissa ? 0x200 : 0);
  if (exponent >= 31) return sign | 0x7c00;
  if (exponent > 0) return sign + roundedShift((exponent << 23) | mantissa, 13);
  return exponent < -10 ? sign : sign + roundedShift(mantissa | 0x800000, 14 - exponent);
}

/** A whole number divided by a power of two; to the nearest, of two the even one. */
function roundedShift(number, by) {
  const kept = number >>> by, rest = number & ((1 << by) - 1), half = 1 << (by - 1);
  return rest > half || (rest === half && kept & 1) ? kept + 1 : kept;
}

/** The numbers of all half-precision bits. */
export const HALVES = Float32Array.from({ length: 65536 }, (_, bits) => {
  const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, mantissa = bits & 1023;
  if (exponent === 31) return mantissa ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + mantissa / 1024) : 2 ** -14 * (mantissa / 1024));
});

/** The nearest single-precision number that is not below a positive number. */
export function roundedUp(value) {
  FLOAT[0] = value;
  if (FLOAT[0] < value) BITS[0] += 1;
  return FLOAT[0];
}

/** The nearest whole number; of two, the even one. */
export function roundHalfEven(value) {
  const low = Math.floor(value), rest = value - low;
  return rest > 0.5 || (rest === 0.5 && low % 2 !== 0) ? low + 1 : low;
}

/** Log-probabilities of scores, in single precision; NaN where no score is a number. */
export function logSoftmax(scores) {
  let most = -Infinity, sum = 0;
  for (const score of scores) if (score > most) most = score;
  for (const score of scores) sum += Math.exp(score - most);
  const log = Math.fround(Math.log(sum));
  return scores.map((score) => Math.fround(score - most) - log);
}

/** Probabilities of scores, in the precision of the array that is given; 0 where nothing is possible. */
export function softmax(scores) {
  const shares = scores.slice();
  let most = -Infinity, sum = 0;
  for (const score of scores) if (score > most) most = score;
  if (most === -Infinity) return shares.fill(0);
  for (let index = 0; index < scores.length; index += 1) {
    const power = Math.exp(scores[index] - most);
    sum += power;
    shares[index] = power;
  }
  for (let index = 0; index < shares.length; index += 1) shares[index] /= sum;
  return shares;
}

/** The numbers of entries, the largest value first; of equal ones, the first. */
export function bestFirst(values) {
  const order = Uint32Array.from(values, (_, index) => index);
  return order.sort((a, b) => (values[a] === values[b] ? a - b : values[b] > values[a] ? 1 : -1));
}

/** Mark the k largest values; of equal ones, the first. */
export function markFirst(values, k) {
  const marked = new Uint8Array(values.length);
  if (k >= values.length) return marked.fill(1);
  if (k <= 0) return marked;
  const last = Float64Array.from(values).sort()[values.length - k];
  let missing = k;
  values.forEach((value, index) => { if (value > last) { marked[index] = 1; missing -= 1; } });
  for (let index = 0; missing > 0; index += 1) if (values[index] === last) { marked[index] = 1; missing -= 1; }
  return marked;
}

/** Where a value would be put into an ascending array: before equal ones, or behind them. */
export function placeIn(sorted, value, { behind = false } = {}) {
  let low = 0, high = sorted.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (behind ? sorted[middle] <= value : sorted[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Running sums. */
export function cumulated(values) {
  let sum = 0;
  return Float64Array.from(values, (value) => (sum += value));
}

export const sumOf = (values) => values.reduce((sum, value) => sum + value, 0);

// The Beta distribution, as in shortlist/_beta.py

const STIRLING = [1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360];

/** The logarithm of the gamma function of a number > 0. */
export function logGamma(x) {
  let shift = 0;
  for (; x < 15; x += 1) shift += Math.log(x);
  const square = 1 / (x * x);
  let series = 0, power = 1 / x;
  for (const factor of STIRLING) { series += factor * power; power *= square; }
  return (x - 0.5) * Math.log(x) - x + 0.5 * Math.log(2 * Math.PI) + series - shift;
}

function betaCdf(x, a, b) {
  if (x <= 0 || x >= 1) return x >= 1 ? 1 : 0;
  if (x > (a + 1) / (a + b + 2)) return 1 - betaCdf(1 - x, b, a);
  const front = logGamma(a + b) - logGamma(a) - logGamma(b) + a * Math.log(x) + b * Math.log1p(-x);
  return Math.min(1, (Math.exp(front) * fraction(x, a, b)) / a);
}

/** The continued fraction of the incomplete beta function. */
function fraction(x, a, b) {
  const notZero = (value) => (Math.abs(value) > 1e-300 ? value : 1e-300);
  let value = 1, numerator = 1, denominator = 0, change = 0;
  for (let m = 0; Math.abs(change - 1) > 1e-15 && m < 10 ** 6; m += 1) {
    const odd = (-(a + m) * (a + b + m) * x) / ((a + 2 * m) * (a + 2 * m + 1));
    const even = ((m + 1) * (b - m - 1) * x) / ((a + 2 * m + 1) * (a + 2 * m + 2));
    for (const term of [odd, even]) {
      denominator = 1 / notZero(1 + term * denominator);
      numerator = notZero(1 + term / numerator);
      change = numerator * denominator;
      value *= change;
    }
  }
  return 1 / value;
}

function betaQuantile(q, a, b) {
  let low = 0, high = 1;
  for (let step = 0; step < 52; step += 1) {
    const middle = (low + high) / 2;
    if (betaCdf(middle, a, b) < q) low = middle;
    else high = middle;
  }
  return (low + high) / 2;
}

/** Which of the sorted calibration scores is the threshold of a coverage. */
export const conformalRank = (rows, coverage) => Math.max(1, Math.ceil((rows + 1) * coverage - 1e-9));

/** The smallest number of calibration rows with which not every set holds all classes. */
export function rowsNeeded(coverage) {
  let rows = Math.max(1, Math.floor(coverage / (1 - coverage)) - 1);
  while (conformalRank(rows, coverage) > rows) rows += 1;
  return rows;
}

/** The range that holds the coverage of new rows for 95 of 100 sets of calibration rows. */
export function coverageRange(rows, coverage) {
  const k = conformalRank(rows, coverage);
  return k > rows ? [1, 1] : [0.025, 0.975].map((q) => betaQuantile(q, k, rows + 1 - k));
}

/** The exact 95 % interval of a share. */
export function clopperPearson(hits, rows) {
  const low = hits <= 0 ? 0 : betaQuantile((1 - 0.95) / 2, hits, rows - hits + 1);
  return [low, hits >= rows ? 1 : betaQuantile(1 - (1 - 0.95) / 2, hits + 1, rows - hits)];
}
