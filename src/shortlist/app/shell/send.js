// The one way of the page's requests, in an app: a worker answers them, and answers of people are kept here.

import { keep } from "./kept.js";
import { worker } from "./start.js";

const waiting = new Map();
let last = 0, broken = null; // what a worker said that could not be started
worker.addEventListener("message", ({ data: { number, status, content } }) => {
  waiting.get(number)?.(new Response(JSON.stringify(content), { status }));
  waiting.delete(number);
});
worker.addEventListener("error", ({ message }) => {
  const content = JSON.stringify({ error: { code: "internal", message: message || "The engine cannot be started." } });
  broken = () => new Response(content, { status: 500 });
  for (const done of waiting.values()) done(broken());
  waiting.clear();
});

/** Send a request of the page. */
export async function send(path, { headers = {}, body = null } = {}) {
  const language = headers["Accept-Language"] || document.documentElement.lang;
  if (path.startsWith("/?")) return fetch(pageOf(new URLSearchParams(path.slice(2)).get("lang")));
  if (path === "/v1/feedback") return keep(body);
  if (broken) return broken();
  const photos = body ? body.getAll("images") : [];
  return new Promise((done) => {
    waiting.set((last += 1), done);
    worker.postMessage({ number: last, path, language, photos });
  });
}

/** The file of the page in a language. */
function pageOf(language) {
  const options = [...document.querySelectorAll("#language option")].map((option) => option.value);
  return new URL(options.includes(language) ? `./${language}.html` : "./index.html", import.meta.url);
}

// the language of the browser, at the first start
try {
  if (!localStorage.getItem("shortlist-language")) {
    const codes = [...document.querySelectorAll("#language option")].map((option) => option.value);
    const wanted = navigator.languages.map((code) => code.toLowerCase().split("-")[0]);
    const best = wanted.find((code) => codes.includes(code));
    if (best) localStorage.setItem("shortlist-language", best);
  }
} catch {
  // the browser keeps nothing
}

if ("serviceWorker" in navigator) {
  navigator.serviceWorker.register(new URL("./sw.js", import.meta.url)).catch(() => {});
}
