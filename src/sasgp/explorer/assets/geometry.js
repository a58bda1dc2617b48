// Distances that are measured in the data. The decoder's function f is Gaussian, with mean m and covariance s_d² c for
// feature d, so that with W = Σ_d s_d²
//   E‖f(z) − f(z′)‖² = ‖m(z) − m(z′)‖² + W (c(z, z) + c(z′, z′) − 2 c(z, z′))          c(z, z′) = k(z, z′) − a(z)·a(z′)
// where a(z) = T k(Z, z). For near points this is (z − z′)ᵀ G (z − z′), and G(z) = JᵀJ + W (∂∂′k − ∂aᵀ∂a) is the metric.
// Derivatives of the kernel are central differences; those of m and a follow from them, because both are linear in k.

const PIECES = 24; // of a shortest path
const NEIGHBOURS = 10; // of a position in the graph where the path starts
const MOST_NODES = 400;
const ROUNDS = 40;

class Geometry {
  // Null if the decoder is a grid, or its kernel has no derivatives
  static of(decoder, packed) {
    return decoder instanceof ExactDecoder && isSmooth(packed.kernel) ? new Geometry(decoder, packed.kernel) : null;
  }

  constructor(decoder, kernel) {
    Object.assign(this, { decoder, Q: decoder.Q, D: decoder.mean.length });
    this.weight = decoder.relative.reduce((total, s) => total + (s * decoder.unit) ** 2, 0); // W
    this.steps = Array.from({ length: this.Q }, (_, q) => 1e-3 * lengthscale(kernel, q));
  }

  // m and a at a point
  at(z) {
    const { decoder } = this;
    const n = decoder.covariances(z);
    return { z, m: this.mean(decoder.k, decoder.near, n), a: this.times(decoder.k, decoder.near, n) };
  }

  // Σ_s k_s α_s, without the constant mean
  mean(k, near, n) {
    const { D } = this;
    const m = new Float64Array(D);
    for (let i = 0; i < n; i++) {
      const [weight, row] = [k[near[i]], near[i] * D];
      for (let d = 0; d < D; d++) m[d] += weight * this.decoder.alpha[row + d];
    }
    return m;
  }

  // T k, where T is a lower triangle
  times(k, near, n) {
    const { root, S } = this.decoder;
    const a = new Float64Array(S);
    for (let i = n ? near[0] : S, at = (i * (i + 1)) / 2, end = 0; i < S; at += ++i) {
      while (end < n && near[end] <= i) end++;
      let v = 0;
      for (let j = 0; j < end; j++) v += root[at + near[j]] * k[near[j]];
      a[i] = v;
    }
    return a;
  }

  moved(z, q, step) {
    const there = Float64Array.from(z);
    there[q] += step;
    return there;
  }

  // Derivatives of m and a by each dimension, and of them the metric G [Q, Q]
  derivatives(z) {
    const { decoder, Q, steps } = this;
    const parts = steps.map((h, q) => {
      const slope = new Float64Array(decoder.S);
      decoder.covariances(this.moved(z, q, -h));
      slope.set(decoder.k);
      decoder.covariances(this.moved(z, q, h));
      let largest = 0, n = 0;
      for (let s = 0; s < slope.length; s++) {
        slope[s] = (decoder.k[s] - slope[s]) / (2 * h);
        largest = Math.max(largest, Math.abs(slope[s]));
      }
      const near = new Int32Array(slope.length);
      for (let s = 0; s < slope.length; s++) if (Math.abs(slope[s]) > 1e-12 * largest) near[n++] = s;
      return { J: this.mean(slope, near, n), da: this.times(slope, near, n) };
    });
    const G = new Float64Array(Q * Q);
    for (let q = 0; q < Q; q++) {
      for (let r = q; r < Q; r++) {
        const function_ = dot(parts[q].J, parts[r].J);
        const doubt = Math.max(this.mixedSlope(z, q, r) - dot(parts[q].da, parts[r].da), q === r ? 0 : -Infinity);
        G[q * Q + r] = G[r * Q + q] = function_ + this.weight * doubt;
      }
    }
    return { parts, G };
  }

  // ∂²k(z, z′)/∂z_q ∂z′_r at z′ = z
  mixedSlope(z, q, r) {
    const k = (a, b) => this.decoder.kernel(this.moved(z, q, a), this.moved(z, r, b), 0);
    const [h, g] = [this.steps[q], this.steps[r]];
    return (k(h, g) - k(h, -g) - k(-h, g) + k(-h, -g)) / (4 * h * g);
  }

  // √det G
  volume(z) {
    return Math.sqrt(Math.max(determinant(this.derivatives(z).G, this.Q), 0));
  }

  // E‖f − f′‖² of two points, given m and a there
  squared(one, other) {
    const { kernel } = this.decoder;
    let distance = 0, doubt = kernel(one.z, one.z, 0) + kernel(other.z, other.z, 0) - 2 * kernel(one.z, other.z, 0);
    for (let d = 0; d < this.D; d++) distance += (one.m[d] - other.m[d]) ** 2;
    for (let s = 0; s < one.a.length; s++) doubt -= (one.a[s] - other.a[s]) ** 2;
    return distance + this.weight * Math.max(doubt, 0);
  }

  length(route) {
    const found = route.map((z) => this.at(Float64Array.from(z)));
    return found.slice(1).map((one, i) => Math.sqrt(this.squared(found[i], one)));
  }

  // ---------------------------------------------------------------------------------------------- shortest paths

  // m and a at positions of the decoder, the nodes of the graph
  async nodes(wanted) {
    if (this.known) return this.known;
    const { Z, S } = this.decoder;
    const every = Math.ceil(S / MOST_NODES);
    const pause = breaks();
    const found = [];
    for (let s = 0; s < S; s += every) {
      found.push(this.at(Z.slice(s * this.Q, (s + 1) * this.Q)));
      if (pause.due()) {
        await pause.now();
        if (!wanted()) return null;
      }
    }
    return (this.known = found);
  }

  // The shortest path from one point to another: over the graph of positions, and then as little energy as possible.
  // Null if no longer wanted
  async shortest(from, to, wanted) {
    const nodes = await this.nodes(wanted);
    if (!nodes) return null;
    const straight = resampled([from, to], PIECES + 1);
    const start = resampled(smoothed(this.graphRoute(nodes, from, to)), PIECES + 1);
    const size = (route) => this.length(route).reduce((a, b) => a + b, 0);
    let best = null, least = Infinity;
    for (const route of size(start) < size(straight) ? [start] : [straight, start]) {
      const found = await this.relaxed(route, wanted);
      if (!found) return null;
      if (size(found) < least) [best, least] = [found, size(found)];
    }
    return least < size(straight) ? best : straight;
  }

  graphRoute(nodes, from, to) {
    const all = [this.at(Float64Array.from(from)), ...nodes, this.at(Float64Array.from(to))];
    const costs = all.map(() => Infinity);
    const before = all.map(() => -1);
    const heap = new Heap();
    costs[0] = 0;
    heap.push(0, 0);
    const apart = (i, j) => all[i].z.reduce((total, v, q) => total + (v - all[j].z[q]) ** 2, 0);
    while (heap.size) {
      const [spent, at] = heap.pop();
      if (at === all.length - 1) break;
      if (spent > costs[at]) continue;
      const near = all.map((_, j) => [apart(at, j), j]).sort((a, b) => a[0] - b[0]).slice(1, NEIGHBOURS + 1).map(([, j]) => j);
      for (const next of new Set([...near, all.length - 1])) { // the end can always be reached
        const total = spent + Math.sqrt(this.squared(all[at], all[next]));
        if (total < costs[next]) {
          costs[next] = total;
          before[next] = at;
          heap.push(total, next);
        }
      }
    }
    const route = [];
    for (let at = all.length - 1; at !== -1; at = before[at]) route.unshift(Array.from(all[at].z));
    return route;
  }

  // The route with its inner points moved until its energy Σ E‖f_i − f_{i+1}‖² is least. A step solves for the points as if
  // the metric of each piece were constant, and is halved until it helps
  async relaxed(route, wanted) {
    const { Q } = this;
    let points = route.map((z) => this.at(Float64Array.from(z)));
    const energy = (some) => some.slice(1).reduce((total, one, i) => total + this.squared(some[i], one), 0);
    let value = energy(points);
    const pause = breaks();
    for (let round = 0; round < ROUNDS; round++) {
      const slopes = [];
      for (const point of points) {
        slopes.push(this.derivatives(point.z));
        if (pause.due()) {
          await pause.now();
          if (!wanted()) return null;
        }
      }
      const inner = points.length - 2;
      const gradient = new Float64Array(inner * Q);
      for (let i = 1; i <= inner; i++) gradient.set(this.gradient(points, slopes, i), (i - 1) * Q);
      const step = solved(slopes.map(({ G }) => G), gradient, Q);
      let size = 1, found = null;
      for (; size > 1e-3; size /= 2) {
        found = points.map((point, i) => (i && i <= inner ? this.at(point.z.map((v, q) => v - size * step[(i - 1) * Q + q])) : point));
        if (energy(found) < value) break;
      }
      if (size <= 1e-3) break;
      const [before, after] = [value, energy(found)];
      [points, value] = [found, after];
      if (before - after < 1e-5 * before) break;
    }
    return points.map(({ z }) => Array.from(z));
  }

  // Of the energy, by the point i:  Σ_j 2 J·(m_i − m_j) + W (∂c_ii − 2 ∂c_ij)  over its neighbours j
  gradient(points, slopes, i) {
    const { kernel } = this.decoder;
    const { z, m, a } = points[i];
    return slopes[i].parts.map(({ J, da }, q) => {
      const h = this.steps[q];
      const [up, down] = [this.moved(z, q, h), this.moved(z, q, -h)];
      let slope = 0;
      for (const other of [points[i - 1], points[i + 1]]) {
        let mean = 0, doubt = (kernel(up, up, 0) - kernel(down, down, 0) - 2 * (kernel(up, other.z, 0) - kernel(down, other.z, 0))) / (2 * h);
        for (let d = 0; d < m.length; d++) mean += J[d] * (m[d] - other.m[d]);
        for (let s = 0; s < a.length; s++) doubt -= 2 * da[s] * (a[s] - other.a[s]);
        slope += 2 * mean + this.weight * doubt;
      }
      return slope;
    });
  }
}

const dot = (a, b) => a.reduce((total, v, i) => total + v * b[i], 0);

function isSmooth(node) {
  return node.parts ? node.parts.every(isSmooth) : !(node.kind === "matern" && node.nu === 0.5);
}

// The shortest scale on which a kernel changes along dimension q
function lengthscale(node, q) {
  if (node.parts) return Math.min(...node.parts.map((part) => lengthscale(part, q)));
  const at = (node.dims ?? []).indexOf(q);
  if (at < 0 || !node.lengthscale) return 1;
  return node.kind === "periodic" ? Math.min(1, Math.sqrt(node.lengthscale[at])) * node.period[at] / Math.PI : node.lengthscale[at];
}

// By elimination, of a matrix [n, n] that is symmetric and positive
function determinant(matrix, n) {
  const A = Float64Array.from(matrix);
  let product = 1;
  for (let i = 0; i < n; i++) {
    product *= A[i * n + i];
    for (let j = i + 1; j < n; j++) {
      const factor = A[j * n + i] / A[i * n + i] || 0;
      for (let k = i; k < n; k++) A[j * n + k] -= factor * A[i * n + k];
    }
  }
  return product;
}

// x in H x = g, where H is the second derivative of Σ (z_i − z_{i+1})ᵀ G (z_i − z_{i+1}) by the inner points, and G of a piece
// is the mean over its ends. H is a band around the diagonal, so that elimination stays in it
function solved(metrics, g, Q) {
  const size = g.length;
  const H = Array.from({ length: size }, () => new Float64Array(size));
  const x = Float64Array.from(g);
  for (let piece = 0; piece + 1 < metrics.length; piece++) {
    for (let q = 0; q < Q; q++) {
      for (let r = 0; r < Q; r++) {
        const value = metrics[piece][q * Q + r] + metrics[piece + 1][q * Q + r]; // 2 · mean
        const [i, j] = [(piece - 1) * Q, piece * Q]; // the two ends, of which the first and the last do not move
        if (i >= 0) H[i + q][i + r] += value;
        if (j < size) H[j + q][j + r] += value;
        if (i >= 0 && j < size) {
          H[i + q][j + r] -= value;
          H[j + q][i + r] -= value;
        }
      }
    }
  }
  for (let i = 0; i < size; i++) H[i][i] *= 1 + 1e-9;
  const band = 2 * Q;
  for (let i = 0; i < size; i++) {
    for (let j = i + 1; j < Math.min(i + band, size); j++) {
      const factor = H[j][i] / H[i][i] || 0;
      for (let k = i; k < Math.min(i + band, size); k++) H[j][k] -= factor * H[i][k];
      x[j] -= factor * x[i];
    }
  }
  for (let i = size - 1; i >= 0; i--) {
    for (let k = i + 1; k < Math.min(i + band, size); k++) x[i] -= H[i][k] * x[k];
    x[i] = x[i] / H[i][i] || 0;
  }
  return x;
}
