// A canvas to draw a character on. What is sent is drawn again as the embedded glyphs are: light on dark gray,
// in the middle, its longer side half of the picture, whatever the place and the size that a person chose.

const WIDTH = 20;
const SHOWN = { ground: "#101010", ink: "#f0f0f0" };
const SENT = { ground: "#262626", ink: "#c4c4c4", side: 0.53 };

function paint(canvas, strokes, colors, move, width) {
  const context = canvas.getContext("2d");
  context.fillStyle = colors.ground;
  context.fillRect(0, 0, canvas.width, canvas.height);
  Object.assign(context, { strokeStyle: colors.ink, lineWidth: width, lineCap: "round", lineJoin: "round" });
  for (const stroke of strokes) {
    context.beginPath();
    context.moveTo(...move(stroke[0]));
    for (const point of stroke) context.lineTo(...move(point));
    context.stroke();
  }
}

/** How to move and scale points so that they lie in the middle of a canvas, in the size of a glyph. */
function fitting(canvas, strokes) {
  const [xs, ys] = [0, 1].map((axis) => strokes.flat().map((point) => point[axis]));
  const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const longest = Math.max(right - left, bottom - top) + WIDTH;
  const scale = Math.min(1.5, (SENT.side * canvas.width) / longest);
  const move = ([x, y]) => [
    canvas.width / 2 + scale * (x - (left + right) / 2),
    canvas.height / 2 + scale * (y - (top + bottom) / 2),
  ];
  return { move, width: Math.max(0.7, scale) * WIDTH };
}

/** Make a canvas drawable; `drawn` is called when a stroke has ended. */
export function drawable(canvas, drawn) {
  let strokes = [];
  let drawing = false;
  const show = () => paint(canvas, strokes, SHOWN, (point) => point, WIDTH);
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [
      ((event.clientX - box.left) * canvas.width) / box.width,
      ((event.clientY - box.top) * canvas.height) / box.height,
    ];
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    drawing = true;
    strokes.push([place(event)]);
    show();
    event.preventDefault();
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!drawing) return;
    strokes.at(-1).push(place(event));
    show();
  });
  for (const end of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(end, () => {
      if (drawing) drawn();
      drawing = false;
    });
  }
  show();
  return {
    clear: () => {
      strokes = [];
      show();
    },
    picture: () => {
      const sent = document.createElement("canvas");
      sent.width = canvas.width;
      sent.height = canvas.height;
      const { move, width } = fitting(sent, strokes);
      paint(sent, strokes, SENT, move, width);
      return new Promise((done) => sent.toBlob(done, "image/png"));
    },
  };
}
