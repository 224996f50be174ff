// What the pages share: elements, requests, what the browser remembers, who the person is, the language.

import { send } from "./send.js";

export const facts = JSON.parse(document.getElementById("facts").textContent);
export const { words } = facts;
export const at = (id) => document.getElementById(id);

/** Make an element: with properties, attributes after "@", and children. */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("@")) element.setAttribute(name.slice(1), value);
    else element[name] = value;
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** Ask the server; "asPerson" says who asks. */
export async function fetched(path, { asPerson = false, ...options } = {}) {
  const headers = { "Accept-Language": document.documentElement.lang, ...(options.headers || {}) };
  const key = at("key");
  if (key && key.value) headers["X-API-Key"] = key.value;
  const token = remembered("shortlist-token");
  if (token) headers["X-Person-Token"] = token;
  else if (asPerson) headers["X-Person"] = encodeURIComponent(personName());
  let response;
  try {
    response = await send(path, { ...options, headers });
  } catch {
    throw new Error(words.offline);
  }
  const content = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(content.error ? content.error.message : `HTTP ${response.status}`);
  return content;
}

/** What the browser remembers under a name, after a new value is put there if one is given. */
export function remembered(name, value = null) {
  try {
    if (value !== null) localStorage.setItem(name, value);
    return localStorage.getItem(name);
  } catch {
    return null; // the browser keeps nothing
  }
}

export function randomName() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (one) => one.toString(16).padStart(2, "0")).join("");
}

const unkept = `page-${randomName()}`; // of a browser that keeps nothing: until the page is left
/** A name that says nothing about the person, so that one person counts once. */
export const personName = () => remembered("shortlist-person") || remembered("shortlist-person", unkept) || unkept;

// a personal link has a token, by which the server knows the person on any device; an empty one forgets it
function takeLink() {
  const link = /^#person=([\w-]*)$/.exec(location.hash);
  if (!link) return;
  remembered("shortlist-token", link[1]);
  history.replaceState(null, "", location.pathname + location.search);
}
takeLink();
addEventListener("hashchange", takeLink);

/** Say everything in another language: the texts of the page, which the server has, and what depends on them. */
async function speak(code, spoken) {
  const response = await send(`${document.body.dataset.path}?lang=${encodeURIComponent(code)}`).catch(() => null);
  if (!response?.ok) return;
  const other = new DOMParser().parseFromString(await response.text(), "text/html");
  const { words: said, ...more } = JSON.parse(other.getElementById("facts").textContent);
  Object.assign(words, said);
  Object.assign(facts, more, { words });
  document.documentElement.lang = other.documentElement.lang;
  document.title = other.title;
  const pairs = (selector, take) => {
    const theirs = other.querySelectorAll(selector);
    document.querySelectorAll(selector).forEach((element, place) => take(element, theirs[place]));
  };
  pairs("[data-said]", (element, their) => (element.textContent = their.textContent));
  pairs("[data-said-label]", (element, their) => {
    for (const name of ["aria-label", "placeholder"]) {
      if (their.hasAttribute(name)) element.setAttribute(name, their.getAttribute(name));
    }
  });
  at("language").value = document.documentElement.lang;
  spoken();
}

/** Let the person choose the language, and remember it; "spoken" is called when it has changed. Returns whether it will. */
export function languageChoice(spoken) {
  at("language").addEventListener("change", () => speak(remembered("shortlist-language", at("language").value), spoken));
  const before = remembered("shortlist-language");
  if (!before || before === document.documentElement.lang) return false;
  speak(before, spoken);
  return true;
}

// words in the place of pictures that cannot be shown; pixels of small ones, which are enlarged, stay sharp
document.addEventListener("error", ({ target }) => {
  if (target.tagName === "IMG") target.replaceWith(make("span", { className: "no-picture", textContent: words.no_picture }));
}, true);
document.addEventListener("load", ({ target }) => {
  if (target.tagName === "IMG") target.classList.toggle("small", target.naturalWidth <= 64);
}, true);
