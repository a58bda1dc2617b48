// The background: a quantity of the decoder on a grid in the plane that is shown, as shades.

const SLICE = 8; // milliseconds of computing before the browser may handle input
const COARSE = 32; // cells along each axis of the first, coarse grid
const FINE = 80;
const PATIENCE = 6000; // milliseconds that the fine grid may take

// Values on a grid in the plane, computed in time slices: value(z) → number. Null if no longer wanted.
async function computeGrid(value, pointAt, axes, n, lines, wanted) {
  const values = new Float32Array(n * lines);
  const pause = breaks();
  for (let i = 0; i < values.length; i++) {
    const at = ([low, high], place, count) => low + ((high - low) * place) / Math.max(1, count - 1);
    values[i] = value(pointAt(at(axes[0], i % n, n), lines > 1 ? at(axes[1], Math.floor(i / n), lines) : 0));
    if (pause.due()) {
      await pause.now();
      if (!wanted()) return null;
    }
  }
  return { n, lines, axes: axes.map((axis) => [...axis]), values };
}

// Breaks in a long computation, in which the browser handles input
function breaks() {
  let until = performance.now() + SLICE;
  return {
    due: () => performance.now() > until,
    now: async () => {
      await new Promise((resume) => setTimeout(resume));
      until = performance.now() + SLICE;
    },
  };
}

// Least and greatest value. At least a fifth of the greatest apart, so that small differences look small
function shadeRange(values) {
  let low = Infinity, high = -Infinity;
  for (const v of values) if (Number.isFinite(v)) [low, high] = [Math.min(low, v), Math.max(high, v)];
  return [low, low + Math.max(high - low, 0.2 * Math.abs(high))];
}

// The same for logarithms to base 10: at least half of one apart
function decades(values) {
  const known = Array.from(values).filter(Number.isFinite);
  const low = Math.min(...known);
  return [low, Math.max(...known, low + 0.5)];
}

// Shades of a grid as a small canvas, one pixel per value; the first line is at the bottom
function shaded({ n, lines, values }, [low, high]) {
  const [from, to] = ["certain", "uncertain"].map((name) => rgb(ink(name)));
  const picture = new ImageData(n, lines);
  for (let i = 0; i < values.length; i++) {
    const share = Math.min(Math.max((values[i] - low) / (high - low || 1), 0), 1);
    const at = 4 * ((lines - 1 - Math.floor(i / n)) * n + (i % n));
    for (let c = 0; c < 3; c++) picture.data[at + c] = from[c] + share * (to[c] - from[c]);
    picture.data[at + 3] = 255;
  }
  const canvas = element("canvas", { width: n, height: lines });
  canvas.getContext("2d").putImageData(picture, 0, 0);
  return canvas;
}

function drawShades(pen, picture, { n, lines, axes }, viewport) {
  const half = [0.5 / (n - 1), 0.5 / Math.max(lines - 1, 1)].map((share, q) => share * (axes[q] ? axes[q][1] - axes[q][0] : 0));
  const [left, bottom] = viewport.toScreen(axes[0][0] - half[0], lines > 1 ? axes[1][0] - half[1] : 0);
  const [right, top] = viewport.toScreen(axes[0][1] + half[0], lines > 1 ? axes[1][1] + half[1] : 0);
  pen.imageSmoothingQuality = "high";
  if (lines > 1) pen.drawImage(picture, left, top, right - left, bottom - top);
  else pen.drawImage(picture, left, 0, right - left, viewport.size[1]);
}
