// The first script of an app: the engine begins to load while the page is still read.

export const worker = new Worker(new URL("./engine/worker.js", import.meta.url), { type: "module" });
