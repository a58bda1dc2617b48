// The decoder: what `predict` returns at z, from the same numbers. Both kinds have the same methods:
//   decode(z) → { mean, sds, smooth: Float64Array [D], sd }        sd(z) → number        feature(z, d) → the mean of one
// `sds` are the standard deviations of the features with noise, `smooth` without it; `sd` is the mean of `sds`.
// `varies` says whether features differ by more than constant factors.

// The tree of a kernel as a function (z, Z, at) → k(z, Z[at … at + Q]). `kernel.py` has the same formulas.
function compile(node) {
  if (node.kind === "constant") return () => node.value;
  if (node.kind === "sum" || node.kind === "product") {
    const parts = node.parts.map(compile);
    if (node.kind === "sum") return (z, Z, at) => parts.reduce((total, k) => total + k(z, Z, at), 0);
    return (z, Z, at) => parts.reduce((total, k) => total * k(z, Z, at), 1);
  }
  const { dims, lengthscale, variance, period } = node;
  const sum = (term) => (z, Z, at) => {
    let total = 0;
    for (let i = 0; i < dims.length; i++) total += term(z[dims[i]], Z[at + dims[i]], i);
    return total;
  };
  const r2 = lengthscale && sum((a, b, i) => ((a - b) / lengthscale[i]) ** 2);
  switch (node.kind) {
    case "linear": return sum((a, b, i) => variance[i] * a * b);
    case "polynomial": {
      const dot = sum((a, b) => a * b);
      return (z, Z, at) => (dot(z, Z, at) + node.offset) ** node.power;
    }
    case "periodic": {
      const sines = sum((a, b, i) => Math.sin((Math.PI * (a - b)) / period[i]) ** 2 / lengthscale[i]);
      return (z, Z, at) => Math.exp(-2 * sines(z, Z, at));
    }
    case "rbf": return (z, Z, at) => Math.exp(-r2(z, Z, at) / 2);
    case "rq": return (z, Z, at) => (1 + r2(z, Z, at) / (2 * node.alpha)) ** -node.alpha;
    case "cosine": return (z, Z, at) => Math.cos(Math.PI * Math.sqrt(r2(z, Z, at)));
    case "matern": {
      const polynomial = { 0.5: () => 1, 1.5: (s) => 1 + s, 2.5: (s) => 1 + s + (s * s) / 3 }[node.nu];
      return (z, Z, at) => {
        const s = Math.sqrt(2 * node.nu * r2(z, Z, at));
        return polynomial(s) * Math.exp(-s);
      };
    }
  }
  throw new Error(`the kernel ${node.kind} is unknown`);
}

class Decoder {
  async readScales(packed) {
    const scales = await unpack(packed.scales);
    this.unit = scales.reduce((total, s) => total + s, 0) / scales.length;
    this.relative = scales.map((s) => s / this.unit);
    return this;
  }

  spread(sd) {
    return Float64Array.from(this.relative, (s) => s * sd);
  }
}

const average = (values) => values.reduce((total, v) => total + v, 0) / values.length;

// σ²_d(z) = (Σ_u w_u v_ud + b g_d) / (Σ_u w_u + b), with the normalised Gaussians w_u of `local_noise.py`
class LocalNoise {
  static async read(packed, U, Q) {
    const noise = new LocalNoise();
    Object.assign(noise, { U, Q, width: packed.width, weight: packed.weight });
    noise.far = (await unpack(packed.far)).map((s) => s * s); // [D]
    noise.v = Float64Array.from(await unpack(packed.root), (s) => s * s); // [S, D]
    return noise;
  }

  at(z) {
    const { U, Q, v, far, width } = this;
    const D = far.length;
    const found = far.map((g) => this.weight * g);
    let total = this.weight;
    for (let u = 0, row = 0; row < v.length; u += Q, row += D) {
      let squared = 0;
      for (let q = 0; q < Q; q++) squared += ((z[q] - U[u + q]) / width[q]) ** 2;
      const w = Math.exp(-squared / 2);
      if (w < 1e-13 * total) continue;
      total += w;
      for (let d = 0; d < D; d++) found[d] += w * v[row + d];
    }
    return found.map((value) => value / total);
  }
}

class ExactDecoder extends Decoder {
  static async read(packed, Q) {
    const decoder = await new ExactDecoder().readScales(packed);
    decoder.Q = Q;
    decoder.kernel = compile(packed.kernel);
    decoder.noise = packed.noise; // in units of the scales, as the function's variance
    decoder.mean = await unpack(packed.mean); // [D]
    decoder.Z = Float64Array.from(await unpack(packed.Z)); // [S, Q]
    decoder.alpha = await unpack(packed.alpha); // [S, D]
    decoder.root = await unpack(packed.root); // lower triangle, row by row
    decoder.S = decoder.Z.length / Q;
    decoder.local = packed.local && (await LocalNoise.read(packed.local, decoder.Z, Q));
    decoder.varies = Boolean(decoder.local);
    const scale = packed.root.row_scale;
    for (let i = 0, at = 0; scale && i < decoder.S; i++) {
      for (let j = 0; j <= i; j++) decoder.root[at++] *= scale[i];
    }
    decoder.k = new Float64Array(decoder.S);
    decoder.near = new Int32Array(decoder.S);
    return decoder;
  }

  // k(z, Z_S), and the indices where it is not negligible: skipping the others saves most of the work.
  covariances(z) {
    let largest = 0;
    for (let s = 0; s < this.S; s++) {
      this.k[s] = this.kernel(z, this.Z, s * this.Q);
      largest = Math.max(largest, Math.abs(this.k[s]));
    }
    let n = 0;
    for (let s = 0; s < this.S; s++) if (Math.abs(this.k[s]) > 1e-13 * largest) this.near[n++] = s;
    return n;
  }

  // c_f = k(z, z) − ‖T k_S‖²
  variance(z, n) {
    const { k, near, root, S } = this;
    let explained = 0;
    for (let i = n ? near[0] : S, at = (i * (i + 1)) / 2, end = 0; i < S; at += ++i) {
      while (end < n && near[end] <= i) end++;
      let v = 0;
      for (let a = 0; a < end; a++) v += root[at + near[a]] * k[near[a]];
      explained += v * v;
    }
    return Math.max(0, this.kernel(z, z, 0) - explained);
  }

  // √((c_f + σ²) s_d²)          or          √(c_f s_d² + σ²_d(z))
  deviations(z, c) {
    if (!this.local) return this.spread(this.unit * Math.sqrt(c + this.noise));
    return this.local.at(z).map((noise, d) => Math.sqrt(c * (this.unit * this.relative[d]) ** 2 + noise));
  }

  sd(z) {
    const c = this.variance(z, this.covariances(z));
    return this.local ? average(this.deviations(z, c)) : this.unit * Math.sqrt(c + this.noise);
  }

  // m_d alone
  feature(z, d) {
    const n = this.covariances(z);
    const D = this.mean.length;
    let value = this.mean[d];
    for (let a = 0; a < n; a++) value += this.k[this.near[a]] * this.alpha[this.near[a] * D + d];
    return value;
  }

  // m = mean + k_S α
  decode(z) {
    const n = this.covariances(z);
    const D = this.mean.length;
    const decoded = Float64Array.from(this.mean);
    for (let a = 0; a < n; a++) {
      const weight = this.k[this.near[a]];
      const row = this.near[a] * D;
      for (let d = 0; d < D; d++) decoded[d] += weight * this.alpha[row + d];
    }
    const c = this.variance(z, n);
    const sds = this.deviations(z, c);
    return { mean: decoded, sds, smooth: this.spread(this.unit * Math.sqrt(c)), sd: average(sds) };
  }
}

// Linear interpolation on a grid over the first one or two dimensions. Outside the grid, the value at its edge.
class GridDecoder extends Decoder {
  static async read(packed) {
    const decoder = await new GridDecoder().readScales(packed);
    Object.assign(decoder, { cells: packed.cells, axes: packed.axes, varies: Boolean(packed.sds) });
    decoder.centre = await unpack(packed.centre);
    decoder.means = await unpack(packed.mean);
    decoder.sdAt = await unpack(packed.sd);
    decoder.sdsAt = packed.sds && (await unpack(packed.sds));
    return decoder;
  }

  corners(z) {
    let corners = [[0, 1]];
    this.axes.forEach(([low, high], dim) => {
      const last = this.cells[dim] - 1;
      const place = Math.min(Math.max(((z[dim] - low) / (high - low)) * last, 0), last);
      const cell = Math.min(Math.floor(place), last - 1);
      const stride = dim ? this.cells[0] : 1;
      corners = corners.flatMap(([at, weight]) => [
        [at + cell * stride, weight * (1 - (place - cell))],
        [at + (cell + 1) * stride, weight * (place - cell)],
      ]);
    });
    return corners;
  }

  sd(z) {
    return this.corners(z).reduce((total, [at, weight]) => total + weight * this.sdAt[at], 0);
  }

  feature(z, d) {
    const D = this.centre.length;
    return this.corners(z).reduce((total, [at, weight]) => total + weight * this.means[at * D + d], this.centre[d]);
  }

  decode(z) {
    const D = this.centre.length;
    const sd = this.sd(z);
    const decoded = Float64Array.from(this.centre);
    const sds = this.varies ? new Float64Array(D) : this.spread(sd);
    for (const [at, weight] of this.corners(z)) {
      for (let d = 0; d < D; d++) {
        decoded[d] += weight * this.means[at * D + d];
        if (this.varies) sds[d] += weight * this.sdsAt[at * D + d];
      }
    }
    return { mean: decoded, sds, smooth: sds, sd }; // the grid does not tell the noise apart
  }
}
