// Columns of a table: what the mean m and the standard deviation s of scores say in the user's units. The formulas are
// those of `sasgp/data/columns`. All columns have the same methods:
//   read({ mean, sds }) → { value, low, high } of numbers, { code, shares } of levels: [L], or [L + 1] with any other level
//   sample(scores, { mean, sds }) → a number or a code        text(value) → what a person reads

const LOG_ROOT_TAU = 0.5 * Math.log(2 * Math.PI);

// log Φ(x). Near 0, Φ(x) = ½ + φ(x) (x + x³/3 + x⁵/(3·5) + …); in the tail, Φ(−x) = φ(x) / (x + 1/(x + 2/(x + …)))
function logNormalCdf(x) {
  if (x < -3) {
    let tail = -x;
    for (let k = 80; k > 0; k--) tail = -x + k / tail;
    return -0.5 * x * x - LOG_ROOT_TAU - Math.log(tail);
  }
  if (x > 3) return Math.log1p(-Math.exp(logNormalCdf(-x)));
  let term = x, total = x;
  for (let k = 3; k < 120; k += 2) total += term *= (x * x) / k;
  return Math.log(0.5 + Math.exp(-0.5 * x * x - LOG_ROOT_TAU) * total);
}

const normalCdf = (x) => Math.exp(logNormalCdf(x));

// Φ(high) − Φ(low), on the side where it does not cancel
const normalMass = (low, high) => (low > 0 ? normalCdf(-low) - normalCdf(-high) : normalCdf(high) - normalCdf(low));

const largest = (values) => values.reduce((best, v, i) => (v > values[best] ? i : best), 0);

// Values → scores, u = (h(x) − centre) / width and then g(u), whose slope is linear between the knots
class MonotoneMap {
  constructor(packed) {
    Object.assign(this, packed);
    this.heights = [this.offset]; // of g at the knots
    for (let k = 1; k < this.knots.length; k++) {
      this.heights.push(this.heights[k - 1] + 0.5 * (this.slopes[k] + this.slopes[k - 1]) * (this.knots[k] - this.knots[k - 1]));
    }
  }

  // u, on which the page places values: linear, logarithmic or in between
  standard(x) {
    if (this.base === "log") x = Math.log(Math.max(x, Number.MIN_VALUE));
    if (this.base === "asinh") x = Math.asinh((x - this.origin) / this.unit);
    return (x - this.centre) / this.width;
  }

  inverse(score) {
    const { base, knots, slopes, heights } = this;
    let u = score;
    if (knots.length) {
      let k = knots.length - 1;
      while (k && heights[k] > score) k--;
      const inside = score >= heights[0] && k < knots.length - 1;
      const curve = inside ? (slopes[k + 1] - slopes[k]) / (knots[k + 1] - knots[k]) : 0;
      const rise = score - heights[k];
      // ½ q δ² + v δ = r          δ = 2 r / (v + √(v² + 2 q r))
      u = knots[k] + (2 * rise) / (slopes[k] + Math.sqrt(Math.max(slopes[k] ** 2 + 2 * curve * rise, 0)));
    }
    const v = this.centre + this.width * u;
    if (base === "identity") return v;
    const bounded = Math.min(Math.max(v, -700), 700);
    return base === "log" ? Math.exp(bounded) : this.origin + this.unit * Math.sinh(bounded);
  }
}

// ---------------------------------------------------------------------------------------------------- numbers as text

// Seconds since 1970 as a date, a date with a time, a time of day, or a duration
function timeText(seconds, unit, exact = false) {
  const two = (n) => String(n).padStart(2, "0");
  if (unit === "duration" || unit === "time") {
    const whole = Math.floor(Math.abs(seconds));
    const clock = [Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60, whole % 60].map(two).join(":");
    return unit === "time" ? clock : `${seconds < 0 ? "-" : ""}${Math.floor(whole / 86400)} days ${clock}`;
  }
  const text = new Date(1000 * Math.min(Math.max(seconds, -8.64e12), 8.64e12)).toISOString();
  const day = text.slice(0, text.indexOf("T"));
  const clock = text.slice(day.length + 1, -1);
  if (unit === "date") return day;
  return exact ? `${day}T${clock.replace(/\.000$/, "")}` : `${day} ${clock.slice(0, 5)}`;
}

// A number of a column that reaches from low to high: decimals that matter there, and hardly any for whole numbers
function numberText(value, { low, high, whole, unit, map }) {
  if (Number.isNaN(value)) return "missing";
  if (unit) return timeText(value, unit === "datetime" && high - low > 10 * 86400 ? "date" : unit);
  const size = Math.abs(value);
  const range = high - low || Math.abs(high) || 1;
  let decimals = Math.max(0, -Math.floor(Math.log10(range / 200)));
  if (whole) decimals = value % 1 === 0 ? 0 : size < 10 || range < 20 ? Math.min(decimals, 1) : 0;
  else if (map && map.base !== "identity" && size > 0) decimals = Math.max(0, 2 - Math.floor(Math.log10(size)));
  if (size >= 1e7 || decimals > 8) return digits(value);
  const text = value.toFixed(decimals);
  return /^-0[.0]*$/.test(text) ? text.slice(1) : text;
}

// A number as the user wrote it
function ownText(value, column) {
  if (Number.isNaN(value)) return "missing";
  return column.unit ? timeText(value, column.unit) : String(Number(value.toPrecision(7)));
}

// ---------------------------------------------------------------------------------------------------- kinds of columns

class NumberColumn {
  constructor(packed, table) {
    Object.assign(this, packed, { map: new MonotoneMap(packed.map), table });
  }

  valueAt(score) {
    return Math.min(Math.max(this.map.inverse(score), this.least ?? -Infinity), this.most ?? Infinity);
  }

  // E[x] by Gauss–Hermite quadrature, and quantiles
  read({ mean, sds }) {
    const { nodes, weights, interval } = this.table;
    const [m, s] = [mean[this.start], sds[this.start]];
    const value = nodes.reduce((total, t, i) => total + weights[i] * this.valueAt(m + s * t), 0);
    return { value, low: this.valueAt(m - interval.deviations * s), high: this.valueAt(m + interval.deviations * s) };
  }

  sample(scores) {
    const value = this.valueAt(scores[this.start]);
    return this.whole ? Math.round(value) : value;
  }

  text(value) { return numberText(value, this); }
  own(value) { return ownText(value, this); }

  // Between the least and the greatest value of the data, as a share
  place(value) {
    const [low, high, at] = [this.low, this.high, value].map((x) => this.map.standard(x));
    return high > low ? (at - low) / (high - low) : 0.5 + (at - low);
  }
}

// Levels in an order, as intervals of a score
class IntervalColumn {
  constructor(packed, table) {
    Object.assign(this, packed, { table });
  }

  // P(v) = Φ((b − m)/s) − Φ((a − m)/s)
  shares({ mean, sds }) {
    const ends = [-Infinity, ...this.cuts, Infinity].map((cut) => (cut - mean[this.start]) / sds[this.start]);
    return ends.slice(1).map((high, i) => normalMass(ends[i], high));
  }

  quantile({ mean, sds }, share) {
    return this.cuts.filter((cut) => normalCdf((cut - mean[this.start]) / sds[this.start]) < share).length;
  }

  sample(scores) {
    return this.cuts.filter((cut) => cut < scores[this.start]).length;
  }
}

// 0, 1, 2, …
class CountColumn extends IntervalColumn {
  read(decoded) {
    const value = this.shares(decoded).reduce((total, p, count) => total + p * count, 0);
    const tail = (1 - this.table.interval.share) / 2;
    return { value, low: this.quantile(decoded, tail), high: this.quantile(decoded, 1 - tail) };
  }

  text(value) { return numberText(value, this); }
  own(value) { return ownText(value, this); }

  place(value) {
    return this.high > this.low ? (value - this.low) / (this.high - this.low) : 0.5 + (value - this.low);
  }
}

class LevelColumn extends IntervalColumn {
  read(decoded) {
    const shares = this.shares(decoded);
    return { shares, code: this.type === "scale" ? this.quantile(decoded, 0.5) : largest(shares) };
  }

  text(code) { return Number.isNaN(code) ? "missing" : this.levels[code] ?? "any other"; }
  own(code) { return this.text(code); }
}

// Levels without an order, each with a score of its own
class CategoryColumn extends LevelColumn {
  logs({ mean, sds }) {
    const found = this.cuts.map((cut, i) => logNormalCdf((mean[this.start + i] - cut) / sds[this.start + i]));
    found.push(this.other);
    const most = Math.max(...found);
    const total = most + Math.log(found.reduce((sum, log) => sum + Math.exp(log - most), 0));
    return found.map((log) => log - total);
  }

  shares(decoded) {
    return this.logs(decoded).map(Math.exp);
  }

  read(decoded) {
    const shares = this.shares(decoded);
    return { shares, code: largest(shares.slice(0, -1)) };
  }

  // The scores may say yes to several levels, or to none, so that the level is drawn anew
  sample(scores, decoded) {
    return largest(this.logs(decoded).slice(0, -1).map((log) => log - Math.log(-Math.log(1 - Math.random()))));
  }
}

const COLUMNS = { number: NumberColumn, count: CountColumn, scale: LevelColumn, choice: LevelColumn, category: CategoryColumn };

function readTable(table) {
  return table && table.columns.map((column) => new COLUMNS[column.type](column, table));
}
