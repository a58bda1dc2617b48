// Elements of the page, numbers as text, and random numbers that are always the same.

const $ = (id) => document.getElementById(id);
const grouped = (number) => number.toLocaleString("en-US");

function element(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

// An element of an SVG picture
function shape(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
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

// Random numbers from 0 to 1, the same ones for the same seed: Lehmer's generator
function generator(seed = 1) {
  return () => (seed = (seed * 48271) % 2147483647) / 2147483647;
}
