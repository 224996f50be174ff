// People's answers, which the browser keeps until they are sent to a server or saved as a file.

const at = (id) => document.getElementById(id);
const word = (name) => at(`app-word-${name}`).textContent;
const facts = JSON.parse(at("facts").textContent);
const place = new URL("./", import.meta.url).pathname; // another app of this address has its own answers
const MOST = 20_000; // bytes of a message that are shown
const REFUSED = [409, 413, 415, 422]; // of one answer, such as for a photo in another format: others may be taken

const database = new Promise((done, failed) => {
  const opening = indexedDB.open(`shortlist ${place}`, 2);
  opening.onupgradeneeded = ({ oldVersion }) => {
    const isThere = oldVersion === 1, { result, transaction } = opening;
    const store = isThere ? transaction.objectStore("answers") : result.createObjectStore("answers", { keyPath: "id" });
    store.createIndex("sent", "sent"); // only of what was sent: an index leaves null out
  };
  opening.onsuccess = () => done(opening.result);
  opening.onerror = () => failed(opening.error);
});
database.catch(() => {}); // each use says it

async function inStore(mode, use) {
  const transaction = (await database).transaction("answers", mode, { durability: "strict" });
  const request = use(transaction.objectStore("answers"));
  return new Promise((done, failed) => {
    transaction.oncomplete = () => done(request.result);
    transaction.onerror = transaction.onabort = () => failed(transaction.error);
  });
}

// answers with photos are large: one at a time is read
const answerOf = (id) => inStore("readonly", (store) => store.get(id));
const allIds = () => inStore("readonly", (store) => store.getAllKeys());

async function waitingIds() {
  const sent = new Set(await inStore("readonly", (store) => store.index("sent").getAllKeys()));
  return (await allIds()).filter((id) => !sent.has(id));
}

/** Keep an answer of a form as the page sends it; the same is kept once. */
export async function keep(form) {
  try {
    const { receipt, ...event } = JSON.parse(await form.get("event").text());
    const listed = JSON.parse(receipt);
    if (listed.images.some((image) => !image)) throw new Error(word("unsafe"));
    const photos = await Promise.all(form.getAll("images").map((photo) => photo.arrayBuffer()));
    const answer = { ...event, listed, photos, time: new Date().toISOString(), sent: null };
    const isThere = (await allIds()).includes(event.id);
    if (!isThere) await inStore("readwrite", (store) => store.add(answer));
    navigator.storage?.persist?.();
    show();
    return new Response(JSON.stringify({ kept: true, new: !isThere }), { status: 201 });
  } catch (error) {
    return new Response(JSON.stringify({ error: { code: "not_kept", message: error.message } }), { status: 507 });
  }
}

// What is done with them

const fill = (sentence, values) => sentence.replace(/\{(\w+)\}/g, (all, name) => (Object.hasOwn(values, name) ? values[name] : all));
const say = (name, values = {}) => { at("app-status").textContent = fill(word(name), values); };

async function show() {
  const [{ length: count }, { length: waiting }] = await Promise.all([allIds(), waitingIds()]).catch(() => [[], []]);
  at("app-count").textContent = fill(word("count"), { count, waiting });
  for (const id of ["app-save", "app-forget"]) at(id).disabled = !count;
  at("app-send").disabled = !waiting;
}

const remembered = (name) => {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
};

const remember = (name, value) => {
  try {
    localStorage.setItem(name, value);
  } catch {
    // the browser keeps nothing
  }
};

const bodyOf = ({ photos, time, sent, ...event }) => event;

/** Send what was not sent yet; each has a name by which the server records it once. A refused answer stops no other. */
async function sendAll() {
  const server = at("app-server").value.trim().replace(/\/+$/, "");
  if (!server || !at("app-server").reportValidity()) return at("app-server").focus();
  if (!at("app-server").readOnly) remember("shortlist-server", server);
  const token = remembered("shortlist-token"), headers = token ? { "X-Person-Token": token } : {};
  let sent = 0, refused = null;
  say("sending");
  for (const id of await waitingIds()) {
    const answer = await answerOf(id);
    if (!answer) continue; // it was forgotten meanwhile, such as in another tab
    const form = new FormData();
    form.append("event", new Blob([JSON.stringify(bodyOf(answer))], { type: "application/json" }));
    answer.photos.forEach((photo, index) => form.append("images", new Blob([photo]), `photo-${index + 1}`));
    const { why, status } = await sendOne(`${server}/v1/feedback`, form, headers);
    if (why && !REFUSED.includes(status)) return say("failed", { sent, why });
    if (why) {
      refused ??= why;
      continue;
    }
    await inStore("readwrite", (store) => markSent(store, id));
    sent += 1;
    await show();
  }
  if (refused) say("failed", { sent, why: refused });
  else say("sent", { sent });
}

/** Mark an answer as sent, if it was not forgotten meanwhile, such as in another tab. */
function markSent(store, id) {
  const asked = store.get(id);
  asked.onsuccess = () => asked.result && store.put({ ...asked.result, sent: new Date().toISOString() });
  return asked;
}

/** Send a form, and return why it was not taken, nothing if it was, with the status of a response. */
async function sendOne(address, form, headers) {
  try {
    const response = await fetch(address, { method: "POST", body: form, headers });
    const { ok, status } = response, content = ok ? null : await response.json().catch(() => null);
    return { status, why: ok ? null : String(content?.error?.message || `HTTP ${status}`).slice(0, MOST) };
  } catch {
    return { why: word("unreachable") };
  }
}

const base64 = (buffer) => {
  let text = "";
  const all = new Uint8Array(buffer);
  for (let start = 0; start < all.length; start += 32768) text += String.fromCharCode(...all.subarray(start, start + 32768));
  return btoa(text);
};

/** Save all as a file, which "shortlist feedback import" takes. No text has all photos: it would be too long. */
async function save() {
  const parts = [];
  for (const id of await allIds()) {
    const answer = await answerOf(id);
    if (!answer) continue;
    const text = JSON.stringify({ ...bodyOf(answer), time: answer.time, photos: answer.photos.map(base64) });
    parts.push(new Blob([parts.length ? "," : "", text]));
  }
  const file = new Blob(['{"format":"shortlist answers 1","answers":[', ...parts, "]}"], { type: "application/json" });
  const link = document.createElement("a");
  link.href = URL.createObjectURL(file);
  link.download = "answers.json";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

async function forget() {
  if (!confirm(word("confirm"))) return;
  await inStore("readwrite", (store) => store.clear());
  say("forgotten");
  show();
}

at("app-server").value = facts.server || remembered("shortlist-server") || "";
const failed = (error) => say("failed", { sent: 0, why: error.message });
at("app-send").addEventListener("click", () => sendAll().catch(failed));
at("app-save").addEventListener("click", () => save().catch(failed));
at("app-forget").addEventListener("click", () => forget().catch(failed));
new MutationObserver(show).observe(document.documentElement, { attributeFilter: ["lang"] });
show();
