// Colours: those of the pictures, from `sasgp/data/palette.py`. With three shapes, ten colours make thirty classes.

const COLOURS = { light: [], dark: [], scale: [] }; // read from the page; the scale as [r, g, b]
const OTHERS = "#808080";
const SHAPES = 3; // circle, triangle, diamond

const darkQuery = matchMedia("(prefers-color-scheme: dark)");

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : darkQuery.matches;
}

// A colour from the variables of page.css
function ink(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function classColour(column, code) {
  if (!column || !column.classes) return ink("accent");
  if (code >= column.classes.length - column.others) return OTHERS; // rare or missing
  const palette = COLOURS[isDark() ? "dark" : "light"];
  return palette[code % palette.length];
}

// 0, 1 or 2
function classShape(code) {
  return Math.floor(code / COLOURS.light.length) % SHAPES;
}

// #rrggbb as [r, g, b]
function rgb(hex) {
  return [1, 3, 5].map((from) => parseInt(hex.slice(from, from + 2), 16));
}

// The colour [r, g, b] of a number between 0 and 1
function shade(t) {
  const { scale } = COLOURS;
  const place = Math.min(Math.max(t, 0), 1) * (scale.length - 1);
  const cell = Math.min(Math.floor(place), scale.length - 2);
  const [low, high] = [scale[cell], scale[cell + 1]];
  return low.map((v, c) => v + (place - cell) * (high[c] - v));
}

// This share of one colour in another
function mixed(colour, other, share) {
  const [a, b] = [rgb(colour), rgb(other)];
  return `rgb(${a.map((v, c) => Math.round(share * v + (1 - share) * b[c])).join()})`;
}
