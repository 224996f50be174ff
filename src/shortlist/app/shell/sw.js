// Keeps all files of the app, so that it starts without a network. A new version is fetched whole, and is used from
// the next start on.

const VERSION = "{{ version }}";
const FILES = {{ files }};
const PREFIX = `shortlist ${new URL("./", self.location).pathname} `;
const NAME = PREFIX + VERSION;
const address = (name) => new URL(name, self.location).href;
const ALL = new Map(FILES.map((name) => [address(name), address(name)]));
ALL.set(address("./"), address("index.html"));

async function fill() {
  const cache = await caches.open(NAME);
  await Promise.all([...new Set(ALL.values())].map(async (url) => {
    const response = await fetch(url, { cache: "no-cache" });
    if (!response.ok) throw new Error(`${url}: HTTP ${response.status}`);
    await cache.put(url, response);
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
