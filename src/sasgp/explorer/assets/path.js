// A path between two places, straight or where the decoder is certain, and the strip of what is decoded along it.

const CERTAINTY = 0.03; // cost of the most certain step, relative to the least certain: lower values make longer detours

// The cheapest route over a grid of standard deviations, by Dijkstra's algorithm. A step costs its length times the
// variance above the minimum, so that a detour through certain regions is cheaper than a straight uncertain line.
function cheapestRoute(grid, from, to) {
  const { n, lines, axes, sd } = grid;
  const width = [(axes[0][1] - axes[0][0]) / (n - 1), (axes[1][1] - axes[1][0]) / (lines - 1)];
  const cell = ([x, y]) => {
    const at = (v, q, count) => Math.min(Math.max(Math.round((v - axes[q][0]) / width[q]), 0), count - 1);
    return at(y, 1, lines) * n + at(x, 0, n);
  };
  let least = Infinity, most = 0;
  for (const s of sd) [least, most] = [Math.min(least, s * s), Math.max(most, s * s)];
  const price = (i) => CERTAINTY + (sd[i] * sd[i] - least) / (most - least || 1);

  const [start, goal] = [cell(from), cell(to)];
  const cost = new Float64Array(sd.length).fill(Infinity);
  const before = new Int32Array(sd.length).fill(-1);
  const heap = new Heap();
  cost[start] = 0;
  heap.push(0, start);
  while (heap.size) {
    const [spent, at] = heap.pop();
    if (at === goal) break;
    if (spent > cost[at]) continue;
    const [column, line] = [at % n, Math.floor(at / n)];
    for (let dy = -1; dy <= 1; dy++) {
      for (let dx = -1; dx <= 1; dx++) {
        if ((!dx && !dy) || column + dx < 0 || column + dx >= n || line + dy < 0 || line + dy >= lines) continue;
        const next = at + dy * n + dx;
        const total = spent + Math.hypot(dx * width[0], dy * width[1]) * 0.5 * (price(at) + price(next));
        if (total < cost[next]) {
          cost[next] = total;
          before[next] = at;
          heap.push(total, next);
        }
      }
    }
  }
  const route = [];
  for (let at = goal; at !== -1; at = before[at]) route.unshift([axes[0][0] + (at % n) * width[0], axes[1][0] + Math.floor(at / n) * width[1]]);
  route[0] = from;
  route[Math.max(route.length - 1, 1)] = to;
  return smoothed(route);
}

// Smooths the corners of the grid: each inner point is averaged with its neighbours, a few times
function smoothed(route) {
  for (let turn = 0; turn < 6; turn++) {
    route = route.map((p, i) => (i && i < route.length - 1 ? p.map((v, q) => (route[i - 1][q] + 2 * v + route[i + 1][q]) / 4) : p));
  }
  return route;
}

// Points at equal distances along a route
function resampled(route, count) {
  const lengths = [0];
  for (let i = 1; i < route.length; i++) lengths.push(lengths[i - 1] + Math.hypot(...route[i].map((v, q) => v - route[i - 1][q])));
  const total = lengths[lengths.length - 1];
  let piece = 1;
  return Array.from({ length: count }, (_, k) => {
    const at = (total * k) / (count - 1);
    while (piece < route.length - 1 && lengths[piece] < at) piece++;
    const share = (at - lengths[piece - 1]) / (lengths[piece] - lengths[piece - 1] || 1);
    return route[piece].map((v, q) => route[piece - 1][q] + share * (v - route[piece - 1][q]));
  });
}

class Heap {
  items = [];
  get size() { return this.items.length; }
  push(key, value) {
    const { items } = this;
    let at = items.push([key, value]) - 1;
    for (let up; at && items[(up = (at - 1) >> 1)][0] > items[at][0]; at = up) [items[up], items[at]] = [items[at], items[up]];
  }
  pop() {
    const { items } = this;
    const top = items[0];
    const last = items.pop();
    if (items.length) {
      items[0] = last;
      for (let at = 0; ; ) {
        let least = at;
        for (const down of [2 * at + 1, 2 * at + 2]) if (down < items.length && items[down][0] < items[least][0]) least = down;
        if (least === at) break;
        [items[at], items[least]] = [items[least], items[at]];
        at = least;
      }
    }
    return top;
  }
}

// Draws the strip: one frame per point, and below each a bar that shows its uncertainty
function drawStrip(canvas, frames, { page, table, sdRange }) {
  const ratio = 2; // sharp on high-resolution screens and in the exported picture
  const [gap, bars, text] = [4, 26, 14];
  let frame, left = 0;
  if (page.image) {
    const side = Math.max(64, page.image.width);
    frame = { width: side, height: Math.round((side * page.image.height) / page.image.width) };
  } else if (table) {
    left = 110;
    frame = { width: 62, height: table.length * 15 };
  } else {
    const named = page.features.length <= MAX_LINES;
    left = named ? 110 : 0;
    frame = { width: 40, height: named ? page.features.length * 15 : 200 };
  }
  const size = { width: left + frames.length * (frame.width + gap), height: frame.height + bars + text + 6 };
  Object.assign(canvas, { width: size.width * ratio, height: size.height * ratio });
  Object.assign(canvas.style, { width: `${size.width}px`, height: `${size.height}px` });
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.fillStyle = ink("paper");
  pen.fillRect(0, 0, size.width, size.height);
  pen.imageSmoothingEnabled = false;
  pen.font = "11px system-ui, sans-serif";
  if (left) {
    pen.fillStyle = ink("ink");
    page.features.forEach((name, d) => pen.fillText(shortened(pen, name, left - 8), 0, d * 15 + 11));
  }
  const picture = document.createElement("canvas");
  frames.forEach((decoded, i) => {
    const { mean, sd } = decoded;
    const x = left + i * (frame.width + gap);
    if (table) drawCells(pen, x, frame.width, table, decoded);
    else {
      if (page.image) drawImage(picture, mean, page.image);
      else drawColumn(picture, mean, page);
      pen.drawImage(picture, x, 0, frame.width, frame.height);
    }
    const high = Math.max(2, (bars - 2) * Math.min(1, sd / sdRange[1]));
    pen.fillStyle = ink("accent");
    pen.fillRect(x, frame.height + 4 + bars - high, frame.width, high);
    pen.fillStyle = ink("soft");
    pen.textAlign = "center";
    pen.fillText(sd.toPrecision(2), x + frame.width / 2, size.height - 2);
    pen.textAlign = "left";
  });
  return { left, width: frame.width + gap };
}

// A row of a table as a column of colours, each feature on its own scale
function drawColumn(canvas, row, page) {
  Object.assign(canvas, { width: 1, height: row.length });
  const picture = new ImageData(1, row.length);
  row.forEach((v, d) => picture.data.set([...cividis((v - page.low[d]) / (page.high[d] - page.low[d] || 1)), 255], 4 * d));
  canvas.getContext("2d").putImageData(picture, 0, 0);
}

// The cells of a decoded row in words: numbers on the colours of their scale, levels as strong as they are probable
function drawCells(pen, x, width, table, decoded) {
  pen.textAlign = "center";
  table.forEach((column, c) => {
    const found = column.read(decoded);
    let text, colour, strength = 1;
    if (column.levels) {
      [text, strength] = [column.text(found.code), found.shares[found.code]];
      colour = classColour({ classes: column.levels, others: 0 }, found.code);
    } else {
      text = column.text(found.value);
      colour = `rgb(${cividis(column.place(found.value)).map(Math.round).join()})`;
    }
    pen.globalAlpha = 0.1 + 0.4 * strength; // pale enough for text
    pen.fillStyle = colour;
    pen.fillRect(x, c * 15, width, 14);
    pen.globalAlpha = 1;
    pen.fillStyle = ink("ink");
    pen.fillText(shortened(pen, text, width - 4), x + width / 2, c * 15 + 11);
  });
  pen.textAlign = "left";
}

function shortened(pen, name, width) {
  if (pen.measureText(name).width <= width) return name;
  let letters = Array.from(name);
  while (letters.length && pen.measureText(`${letters.join("")}…`).width > width) letters.pop();
  return `${letters.join("")}…`;
}
