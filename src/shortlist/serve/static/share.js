// A link to an observation, which others open to see its photos and to name it.

import { at, words } from "./common.js";

/** Show the link to an observation; hide it if there is none. */
export function showLink(id) {
  at("share").hidden = !id;
  at("share-done").textContent = "";
  at("share-link").value = id ? new URL(`/review#observation=${encodeURIComponent(id)}`, location.href).href : "";
}

async function share() {
  const url = at("share-link").value;
  try {
    if (navigator.share && matchMedia("(pointer: coarse)").matches) await navigator.share({ url });
    else {
      await navigator.clipboard.writeText(url);
      at("share-done").textContent = words.share_copied;
    }
  } catch {
    at("share-link").select(); // a browser that does not let the page copy lets the person do it
  }
}

at("share-send").addEventListener("click", share);
