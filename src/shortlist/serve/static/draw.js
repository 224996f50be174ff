// A canvas to draw a character on: light strokes on a dark ground, as the glyphs are.

const WIDTH = 20;

/** Make a canvas drawable; `drawn` is called when a stroke has ended. */
export function drawable(canvas, drawn) {
  const context = canvas.getContext("2d");
  let last = null;
  const clear = () => {
    context.fillStyle = "#101010";
    context.fillRect(0, 0, canvas.width, canvas.height);
  };
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [
      ((event.clientX - box.left) * canvas.width) / box.width,
      ((event.clientY - box.top) * canvas.height) / box.height,
    ];
  };
  const line = (from, to) => {
    context.strokeStyle = "#f0f0f0";
    context.lineWidth = WIDTH;
    context.lineCap = "round";
    context.lineJoin = "round";
    context.beginPath();
    context.moveTo(...from);
    context.lineTo(...to);
    context.stroke();
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    last = place(event);
    line(last, last);
    event.preventDefault();
  });
  canvas.addEventListener("pointermove", (event) => {
    if (last === null) return;
    const now = place(event);
    line(last, now);
    last = now;
  });
  for (const end of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(end, () => {
      if (last === null) return;
      last = null;
      drawn();
    });
  }
  clear();
  return { clear, picture: () => new Promise((done) => canvas.toBlob(done, "image/png")) };
}
