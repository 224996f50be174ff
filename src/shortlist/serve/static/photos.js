// One's own photos, large, and example photos for those who have none at hand.

import { aboutPhotos } from "./about.js";
import { at, facts, fetched, make, words } from "./common.js";
import { say } from "./list.js";
import { swipe } from "./swipe.js";

/**
 * Make the part of the page with photos.
 * @param taken called with an example photo {blob, url, example} that a person taps
 * @param removed called with the place of a photo that a person takes away
 */
export function ownPhotos({ taken, removed }) {
  const about = aboutPhotos();

  function item(photo, index, isAsked) {
    const number = index + 1;
    const image = make("img", { src: photo.url, alt: say(words.your_photo, { number }) });
    const remove = make("button", {
      type: "button", className: "remove", textContent: "×", "@aria-label": say(words.remove, { number }),
    });
    remove.addEventListener("click", () => removed(index));
    return make("li", {}, make("div", {}, image, remove), isAsked ? about.organs(photo, number) : null);
  }

  /** Show photos; "isAsked": whether a person may still say what each shows. */
  function show(photos, isAsked) {
    const isDrawing = photos.some((photo) => photo.drawn); // it is on the canvas
    const shown = isDrawing ? [] : photos;
    const list = make("ul", { id: "photos" }, ...shown.map((photo, index) => item(photo, index, isAsked)));
    at("photos-row").replaceChildren(swipe(list));
    at("drop").classList.toggle("slim", shown.length > 0);
    at("choose").textContent = shown.length ? words.add_photo : words.choose;
    at("again").hidden = !shown.length;
    at("examples").hidden = photos.length > 0 || !at("example-list").childElementCount;
    at("control").hidden = !photos.length;
  }

  /** Ask for a photo of some classes, to try the page with. */
  async function showExamples() {
    const key = at("key");
    if (!facts.examples.length || (key && !key.value)) return;
    const classes = await Promise.all(facts.examples.map((id) => fetched(`/v1/classes/${encodeURIComponent(id)}`).catch(() => null)));
    const items = classes.filter((one) => one?.example_images.length).map((one) => example(one, one.example_images[0]));
    at("example-list").replaceChildren(...items);
    at("examples").hidden = !items.length || at("control").hidden === false;
  }

  function example({ name }, { thumbnail }) {
    const image = make("img", { src: thumbnail, alt: say(words.known_photo, { name }) });
    const button = make("button", { type: "button" }, image);
    button.addEventListener("click", async () => {
      if (!image.naturalWidth) return; // it is not there yet
      const canvas = make("canvas", { width: image.naturalWidth, height: image.naturalHeight });
      canvas.getContext("2d").drawImage(image, 0, 0);
      const blob = await new Promise((done) => canvas.toBlob(done, "image/png"));
      taken({ blob, url: URL.createObjectURL(blob), example: true });
    });
    return make("li", {}, button);
  }

  return { about, show, showExamples };
}
