// Where points are dense: contours, and the names of clusters at their places. Both are of a density on a grid, a
// histogram that is blurred, for each class or for all points.

const CELLS = 128; // along the longer side of the points
const SHARES = { classes: [0.5, 0.9], all: [0.25, 0.5, 0.75, 0.95] }; // of the points, which lie inside a contour
const CLUSTER = { share: 0.6, least: 0.25 }; // inside this contour, a part with at least so much of a class has its name

class Density {
  constructor(plot) { this.plot = plot; }

  // One density per class, or one for all points. Kept until the plane or the column changes
  groups() {
    const { app } = this.plot;
    const { column } = app;
    const key = app.axes.join();
    if (this.key === key && this.column === column) return this.found;
    const rows = Array.from({ length: column?.classes?.length ?? 1 }, () => []);
    for (let i = 0; i < app.n; i++) rows[column?.classes ? column.codes[i] : 0].push(i);
    const [x, y] = [this.plot.home(0), this.plot.home(1)];
    const unit = Math.max(x[1] - x[0], y[1] - y[0]) / CELLS;
    const box = { low: [x[0] - 12 * unit, y[0] - 12 * unit], unit };
    box.size = [x, y].map(([low, high]) => Math.ceil((high - low) / unit) + 24);
    Object.assign(this, { key, column });
    this.found = rows.map((index, code) => ({ code, index, ...this.of(index, box) })).filter(({ index }) => index.length);
    return this.found;
  }

  // The density of some points: { values [lines, n], box, cells: the cell of each point }
  of(index, box) {
    const { plot } = this;
    const [n, lines] = box.size;
    const counts = new Float32Array(n * lines);
    const cells = index.map((i) => {
      const [cx, cy] = [plot.x(i), plot.y(i)].map((v, q) => Math.floor((v - box.low[q]) / box.unit));
      return cy * n + cx;
    });
    for (const cell of cells) counts[cell] += 1;
    const spread = (value) => {
      const mean = index.reduce((total, i) => total + value(i), 0) / index.length;
      return Math.sqrt(index.reduce((total, i) => total + (value(i) - mean) ** 2, 0) / index.length);
    };
    // A little less than what Scott's rule says for two dimensions, σ n^(−1/6), because few classes are a single heap
    const width = 0.4 * (spread((i) => plot.x(i)) + spread((i) => plot.y(i))) * index.length ** (-1 / 6);
    return { values: blurred(counts, n, lines, Math.min(Math.max(width / box.unit, 2), 4)), box, cells };
  }

  isShown({ code }) { return !this.plot.hidden.has(code); }

  drawContours(pen) {
    const { app, viewport } = this.plot;
    const classes = app.column?.classes;
    for (const group of this.groups().filter((one) => this.isShown(one))) {
      group.lines ??= SHARES[classes ? "classes" : "all"].map((share) => contour(group, threshold(group, share)));
      const [ex, ey] = viewport.toScreen(0, 0);
      const matrix = new DOMMatrix([1 / viewport.unit[0], 0, 0, -1 / viewport.unit[1], ex, ey]);
      group.lines.forEach((line, k) => {
        const path = new Path2D();
        path.addPath(line, matrix);
        for (const [colour, width] of [[ink("paper"), 3.4], [classes ? classColour(app.column, group.code) : ink("ink"), 1.6]]) {
          Object.assign(pen, { strokeStyle: colour, lineWidth: k && classes ? 0.7 * width : width, lineJoin: "round", globalAlpha: colour === ink("paper") ? 0.7 : 1 });
          pen.stroke(path);
        }
      });
    }
    pen.globalAlpha = 1;
  }

  // Labels that would cover another are moved a little, or left out
  drawLabels(pen) {
    const { app, viewport } = this.plot;
    pen.font = "600 13px system-ui, sans-serif";
    Object.assign(pen, { textAlign: "center", textBaseline: "middle", lineJoin: "round", lineWidth: 4 });
    const taken = [];
    this.labelled = [];
    for (const { text, at, code } of this.clusters()) {
      const [x, y] = viewport.toScreen(...at);
      const half = pen.measureText(text).width / 2 + 3;
      const free = [0, -17, 17, -34, 34].map((shift) => [x - half, y + shift - 9, x + half, y + shift + 9]).find((box) =>
        !taken.some((other) => box[0] < other[2] && other[0] < box[2] && box[1] < other[3] && other[1] < box[3]));
      if (!free) continue;
      taken.push(free);
      this.labelled.push(text);
      pen.strokeStyle = ink("paper");
      pen.fillStyle = app.column?.classes ? mixed(classColour(app.column, code), ink("ink"), 0.45) : ink("ink");
      pen.strokeText(text, x, (free[1] + free[3]) / 2);
      pen.fillText(text, x, (free[1] + free[3]) / 2);
    }
    pen.textBaseline = "alphabetic";
  }

  // The names of clusters and their places, the largest first
  clusters() {
    const { app } = this.plot;
    const { column } = app;
    const found = this.groups().filter((one) => this.isShown(one)).flatMap((group) => {
      group.parts ??= parts(group, threshold(group, CLUSTER.share)).filter(({ index }) => index.length >= CLUSTER.least * CLUSTER.share * group.index.length * (column?.classes ? 1 : 0.2));
      return group.parts.map(({ index, at }) => {
        const known = index.map((i) => column?.values?.[i]).filter(Number.isFinite);
        let text = `${grouped(index.length)} points`;
        if (column?.classes) text = column.classes[group.code];
        else if (known.length) text = scaleText(known.reduce((a, b) => a + b) / known.length, column);
        return { text: text.length > 30 ? `${text.slice(0, 29)}…` : text, at, code: group.code, size: index.length };
      });
    });
    return found.sort((a, b) => b.size - a.size);
  }
}

// A histogram blurred by a Gaussian of this many cells
function blurred(counts, n, lines, width) {
  const reach = Math.ceil(3 * width);
  const weights = Array.from({ length: 2 * reach + 1 }, (_, k) => Math.exp(-0.5 * ((k - reach) / width) ** 2));
  const pass = (from, count, stride, others, step) => {
    const to = new Float32Array(from.length);
    for (let other = 0; other < others; other++) {
      for (let i = 0; i < count; i++) {
        const value = from[other * step + i * stride];
        if (!value) continue;
        for (let k = Math.max(-reach, -i); k <= Math.min(reach, count - 1 - i); k++) to[other * step + (i + k) * stride] += value * weights[k + reach];
      }
    }
    return to;
  };
  return pass(pass(counts, n, 1, lines, n), lines, n, n, 1);
}

// The density above which this share of the points lies
function threshold({ values, cells }, share) {
  const at = Float32Array.from(cells, (cell) => values[cell]).sort();
  return at[Math.floor((1 - share) * (at.length - 1))];
}

// The lines where a density is `level`, by marching squares: in each square of four cells at most two pieces, which join
// pieces of the neighbouring squares at the edges that they share
function contour({ values, box }, level) {
  const [n, lines] = box.size;
  const joined = new Map(); // edge → the edges that a piece leads to; an edge is twice its cell, plus 1 if it is upright
  const join = (a, b) => {
    for (const [from, to] of [[a, b], [b, a]]) joined.has(from) ? joined.get(from).push(to) : joined.set(from, [to]);
  };
  for (let cy = 0; cy + 1 < lines; cy++) {
    for (let cx = 0; cx + 1 < n; cx++) {
      const at = cy * n + cx;
      const above = [values[at] >= level, values[at + 1] >= level, values[at + n + 1] >= level, values[at + n] >= level];
      const crossed = [2 * at, 2 * (at + 1) + 1, 2 * (at + n), 2 * at + 1].filter((_, k) => above[k] !== above[(k + 1) % 4]);
      for (let k = 0; k < crossed.length; k += 2) join(crossed[k], crossed[k + 1]);
    }
  }
  const place = (edge) => {
    const at = edge >> 1;
    const next = edge & 1 ? at + n : at + 1;
    const t = (level - values[at]) / (values[next] - values[at]);
    const [cx, cy] = [(at % n) + (edge & 1 ? 0 : t), Math.floor(at / n) + (edge & 1 ? t : 0)];
    return [box.low[0] + (cx + 0.5) * box.unit, box.low[1] + (cy + 0.5) * box.unit];
  };
  const path = new Path2D();
  for (const start of joined.keys()) {
    if (!joined.get(start).length) continue;
    path.moveTo(...place(start));
    for (let edge = start; joined.get(edge).length; ) {
      const next = joined.get(edge).pop();
      joined.get(next).splice(joined.get(next).indexOf(edge), 1);
      path.lineTo(...place(next));
      edge = next;
    }
  }
  return path;
}

// The connected parts where a density is at least `level`: their points, and their densest place
function parts({ values, box, index, cells }, level) {
  const n = box.size[0];
  const part = new Int32Array(values.length).fill(-1);
  const found = [];
  for (let start = 0; start < values.length; start++) {
    if (part[start] >= 0 || values[start] < level) continue;
    const stack = [start];
    let best = start;
    part[start] = found.length;
    while (stack.length) {
      const cell = stack.pop();
      if (values[cell] > values[best]) best = cell;
      for (const next of [cell - 1, cell + 1, cell - n, cell + n]) {
        if (part[next] === -1 && values[next] >= level) stack.push(next), (part[next] = found.length);
      }
    }
    found.push({ index: [], at: [box.low[0] + ((best % n) + 0.5) * box.unit, box.low[1] + (Math.floor(best / n) + 0.5) * box.unit] });
  }
  cells.forEach((cell, k) => found[part[cell]]?.index.push(index[k]));
  return found;
}
