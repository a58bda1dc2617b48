// Colours: six of Okabe and Ito's, which colour-blind readers can tell apart and which are visible on white, and four
// more that differ from them. With three shapes, ten colours make thirty classes.

const PALETTE = [
  "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#332288", "#882255", "#8DB600", "#7A5C3E",
];
const DARK_PALETTE = [
  "#3D9BE0", "#E69F00", "#1FBF92", "#F0732A", "#DD93BC", "#9AD8FA", "#9585F0", "#C75B84", "#C6DC5A", "#B89B7A",
];
const SHAPES = ["circle", "triangle-up", "diamond"];
const OTHERS = "#808080";
const CIVIDIS = ["#00224E", "#123570", "#3B496C", "#575D6D", "#707173", "#8A8678", "#A59C74", "#C3B369", "#E1CC55", "#FEE838"];

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
  return (isDark() ? DARK_PALETTE : PALETTE)[code % PALETTE.length];
}

function classShape(code) {
  return SHAPES[Math.floor(code / PALETTE.length) % SHAPES.length];
}

// The colour [r, g, b] of a number between 0 and 1
function cividis(t) {
  const place = Math.min(Math.max(t, 0), 1) * (CIVIDIS.length - 1);
  const cell = Math.min(Math.floor(place), CIVIDIS.length - 2);
  const channel = (i, from) => parseInt(CIVIDIS[i].slice(from, from + 2), 16);
  return [1, 3, 5].map((from) => channel(cell, from) + (place - cell) * (channel(cell + 1, from) - channel(cell, from)));
}
