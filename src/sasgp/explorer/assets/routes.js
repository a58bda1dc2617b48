// Routes between two places: where the decoder is certain, and points along any route.

const CERTAINTY = 0.03; // cost of the most certain step, relative to the least certain: lower values make longer detours

// The cheapest route over a grid of standard deviations, by Dijkstra's algorithm. A step costs its length times the
// variance above the minimum, so that a detour through certain regions is cheaper than a straight uncertain line.
function cheapestRoute(grid, from, to) {
  const { n, lines, axes, values: sd } = grid;
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

// Points at equal distances along a route, in the latent space or by the lengths of its pieces
function resampled(route, count, pieces = null) {
  const lengths = [0];
  for (let i = 1; i < route.length; i++) lengths.push(lengths[i - 1] + (pieces?.[i - 1] ?? Math.hypot(...route[i].map((v, q) => v - route[i - 1][q]))));
  const total = lengths[lengths.length - 1];
  let piece = 1;
  return Array.from({ length: count }, (_, k) => {
    const at = (total * k) / (count - 1);
    while (piece < route.length - 1 && lengths[piece] < at) piece++;
    const share = (at - lengths[piece - 1]) / (lengths[piece] - lengths[piece - 1] || 1);
    return Array.from(route[piece], (v, q) => route[piece - 1][q] + share * (v - route[piece - 1][q]));
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
