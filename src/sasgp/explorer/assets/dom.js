// Elements of the page, and numbers as text.

const $ = (id) => document.getElementById(id);
const grouped = (number) => number.toLocaleString("en-US");

function element(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

// A number on the scale of a column, which may be one of dates
function scaleText(value, column, n = 3) {
  if (Number.isNaN(value)) return "missing";
  return column.unit ? timeText(value, column.unit) : digits(value, n);
}

// A number with n significant digits, without an exponent if it is not too large or too small
function digits(value, n = 3) {
  if (value === 0 || !Number.isFinite(value)) return value === 0 ? "0" : "";
  const size = Math.abs(value);
  return size >= 1e6 || size < 1e-4 ? value.toExponential(n - 1) : String(Number(value.toPrecision(Math.max(n, Math.ceil(Math.log10(size))))));
}
