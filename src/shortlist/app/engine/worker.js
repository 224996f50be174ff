// The worker of an app: it loads the model, looks at photos, and answers requests as a server would.

const PIXELS = 50_000_000; // of a photo, as for a server
const SMALL = 4_000_000; // bytes of a network that runs as fast as it is, so that nobody waits until it is rewritten
const at = (name) => new URL(`../${name}`, import.meta.url).href;

async function bytes(name) {
  const response = await fetch(at(name));
  if (!response.ok) throw new Error(`${name}: HTTP ${response.status}`);
  return response.arrayBuffer();
}

const json = async (name) => JSON.parse(new TextDecoder().decode(await bytes(name)));

// all that is needed is asked for at once
const runtime = import("../runtime/ort.wasm.min.js");
const opening = opened();
const ready = start();
for (const part of [opening, ready]) part.catch(() => {}); // each request says it

/** The network, which is ready to look at photos. */
async function opened() {
  const model = bytes("model/model.onnx"), ort = await runtime;
  ort.env.wasm.numThreads = 1;
  ort.env.wasm.wasmPaths = { mjs: at("runtime/ort-wasm-simd-threaded.js"), wasm: at("runtime/ort-wasm-simd-threaded.wasm") };
  const content = await model, level = content.byteLength < SMALL ? "disabled" : "all";
  return ort.InferenceSession.create(content, { graphOptimizationLevel: level });
}

async function start() {
  const files = ["model/lists.json", "app.json", "words.json"].map(json);
  const [{ Desk }, { Known }, lists, app, words] = await Promise.all([import("./desk.js"), import("./known.js"), ...files]);
  const rows = lists.rows && (await bytes(`model/${lists.rows.file}`));
  const known = app.known && new Known(await json("known.json"), await bytes("known.bin"));
  const desk = new Desk({ lists, app, words, rows, known }, async (photos) => looked(photos, await opening, lists));
  desk.prepare(); // while the network is compiled
  await opening;
  return desk;
}

const refusal = (status, code, message) => Object.assign(new Error(message), { status, code });
const notAnImage = () => refusal(415, "not_an_image", "This is not an image in JPEG, PNG or WebP format.");

/** Whether a file is of a format that servers take, to which answers with photos are sent later. */
function isKnown(content) {
  const start = String.fromCharCode(...new Uint8Array(content, 0, Math.min(12, content.byteLength)));
  return ["\xff\xd8\xff", "\x89PNG"].some((mark) => start.startsWith(mark)) || /^RIFF.{4}WEBP/s.test(start);
}

/** What the network gives of each photo; one photo, sent twice, tells no more. */
async function looked(photos, network, lists) {
  const outputs = new Map();
  for (const photo of photos) {
    const content = await photo.arrayBuffer(), sha256 = await digest(content);
    const key = sha256 ?? outputs.size;
    if (!isKnown(content)) throw notAnImage();
    if (!outputs.has(key)) outputs.set(key, { sha256, ...(await oneLook(photo, network, lists)) });
  }
  return [...outputs.values()];
}

/** The SHA-256 of a photo in hexadecimal digits; null where the page is not from a safe address. */
async function digest(content) {
  if (!crypto.subtle) return null;
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", content));
  return Array.from(hash, (one) => one.toString(16).padStart(2, "0")).join("");
}

async function oneLook(photo, network, lists) {
  const picture = await decoded(photo);
  const given = await network.run({ [lists.input.name]: picture }), data = (name) => given[name]?.data;
  const scores = data("scores");
  // as for a server: of an unusable photo there is no list
  if (!scores.every((score) => score < Infinity) || !scores.some((score) => score > -Infinity)) {
    throw refusal(422, "bad_scores", "Scores of the network must be finite for each photo, got NaN or infinity.");
  }
  const sets = new Map(lists.predictors.filter(({ output }) => output).map(({ name, output }) => [name, data(output)]));
  const output = { scores, sets, features: data("features") };
  return given.novel ? { ...output, novel: Boolean(data("novel")[0]) } : output;
}

/** A photo as the model takes it: RGB, upright, without a color profile. */
async function decoded(photo) {
  const options = { imageOrientation: "from-image", premultiplyAlpha: "none", colorSpaceConversion: "none" };
  const bitmap = await createImageBitmap(photo, options).catch(() => {
    throw notAnImage();
  });
  const { width, height } = bitmap;
  if (width * height > PIXELS) throw refusal(413, "too_many_pixels", `An image has more than ${PIXELS} pixels.`);
  const data = pixelsOf(bitmap);
  bitmap.close();
  const rgb = new Uint8Array(3 * width * height);
  for (let from = 0, to = 0; from < data.length; from += 4) {
    rgb[to++] = data[from];
    rgb[to++] = data[from + 1];
    rgb[to++] = data[from + 2];
  }
  return new (await runtime).Tensor("uint8", rgb, [height, width, 3]);
}

/** Red, green, blue and opacity of each pixel. */
function pixelsOf(bitmap) {
  const { width, height } = bitmap, context = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
  context.drawImage(bitmap, 0, 0);
  const { data } = context.getImageData(0, 0, width, height);
  for (let place = 3; place < data.length; place += 4) if (data[place] < 255) return hiddenColors(bitmap) ?? data;
  return data;
}

/** The same with the colors of what is transparent, which a canvas forgets and a texture keeps; null if there is none. */
function hiddenColors(bitmap) {
  const { width, height } = bitmap, gl = new OffscreenCanvas(1, 1).getContext("webgl");
  if (!gl || Math.max(width, height) > gl.getParameter(gl.MAX_TEXTURE_SIZE)) return null;
  const texture = gl.createTexture(), data = new Uint8Array(4 * width * height);
  gl.bindTexture(gl.TEXTURE_2D, texture);
  gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA, gl.RGBA, gl.UNSIGNED_BYTE, bitmap);
  gl.bindFramebuffer(gl.FRAMEBUFFER, gl.createFramebuffer());
  gl.framebufferTexture2D(gl.FRAMEBUFFER, gl.COLOR_ATTACHMENT0, gl.TEXTURE_2D, texture, 0);
  gl.readPixels(0, 0, width, height, gl.RGBA, gl.UNSIGNED_BYTE, data);
  const isRead = gl.getError() === gl.NO_ERROR;
  gl.getExtension("WEBGL_lose_context")?.loseContext();
  return isRead ? data : null;
}

let last = Promise.resolve(); // one request at a time: the network is busy with it

addEventListener("message", ({ data: { number, path, language, photos } }) => {
  last = last.then(async () => {
    try {
      const start = performance.now(), content = await (await ready).answer(path, { language, photos });
      if (path.startsWith("/v1/identify")) content.seconds = Math.round(performance.now() - start) / 1000;
      postMessage({ number, status: 200, content });
    } catch (error) {
      const { status = 500, code = "internal", message } = error;
      postMessage({ number, status, content: { error: { code, message } } });
    }
  });
});
