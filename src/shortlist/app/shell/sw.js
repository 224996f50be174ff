// Keeps all files of the app, so that it starts without a network. A new version is fetched whole, and is used from
// the next start on. A file that is not of this version, as while a folder is being copied, stops it: the browser
// tries again later.

const VERSION = "{{ version }}";
const FILES = {{ files }}; // with their hashes
const PREFIX = `shortlist ${new URL("./", self.location).pathname} `;
const NAME = PREFIX + VERSION;
const address = (name) => new URL(name, self.location).href;
const ALL = new Map(Object.keys(FILES).map((name) => [address(name), address(name)]));
ALL.set(address("./"), address("index.html"));

async function fill() {
  const cache = await caches.open(NAME);
  await Promise.all(Object.entries(FILES).map(async ([name, integrity]) => {
    const url = address(name), response = await fetch(url, { cache: "no-cache", integrity });
    if (!response.ok) throw new Error(`${url}: HTTP ${response.status}`);
    // a copy: browsers start no page from a response that was redirected, as hosts do with index.html
    await cache.put(url, new Response(response.body, { headers: response.headers }));
  }));
}

async function forgetOthers() {
  const names = await caches.keys();
  await Promise.all(names.filter((name) => name.startsWith(PREFIX) && name !== NAME).map((name) => caches.delete(name)));
  await self.clients.claim();
}

async function answer(request) {
  const url = request.url.split(/[?#]/)[0], cache = await caches.open(NAME);
  return (await cache.match(ALL.get(url))) || fetch(request);
}

self.addEventListener("install", (event) => event.waitUntil(fill()));
self.addEventListener("activate", (event) => event.waitUntil(forgetOthers()));
self.addEventListener("fetch", (event) => {
  if (event.request.method === "GET" && ALL.has(event.request.url.split(/[?#]/)[0])) event.respondWith(answer(event.request));
});
