// Photos in a row that a finger or the wheel moves; with a mouse, two buttons do.

import { make, words } from "./common.js";

const EDGE = 8; // pixels that are not worth a button

/** Put a list of photos between buttons that move it; they are shown only where there is more to see. */
export function swipe(list) {
  const move = (way) => list.scrollBy({ left: way * 0.8 * list.clientWidth });
  const button = (way, text, label) => {
    const made = make("button", { type: "button", className: way < 0 ? "back" : "onward", textContent: text, "@aria-label": label });
    made.addEventListener("click", () => move(way));
    return made;
  };
  const [back, onward] = [button(-1, "‹", words.photos_before), button(1, "›", words.photos_after)];
  const show = () => {
    back.hidden = list.scrollLeft < EDGE;
    onward.hidden = list.scrollLeft + list.clientWidth > list.scrollWidth - EDGE;
  };
  list.addEventListener("scroll", show, { passive: true });
  list.addEventListener("load", show, true);
  new ResizeObserver(show).observe(list);
  return make("div", { className: "swipe" }, list, back, onward);
}
