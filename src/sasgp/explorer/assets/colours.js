// Colours: of Okabe and Ito's, made for colour-blind eyes, the six that can be seen on paper, then four more that stay
// apart from them. Three shapes make thirty classes of ten colours.

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

// A variable of page.css, so that a colour is written once
function ink(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function classColour(column, code) {
  if (!column || !column.classes) return ink("accent");
  if (column.others && code === column.classes.length - 1) return OTHERS;
  return (isDark() ? DARK_PALETTE : PALETTE)[code % PALETTE.length];
}

function classShape(code) {
  return SHAPES[Math.floor(code / PALETTE.length) % SHAPES.length];
}

// A number between 0 and 1 as [r, g, b] of the scale
function cividis(t) {
  const place = Math.min(Math.max(t, 0), 1) * (CIVIDIS.length - 1);
  const cell = Math.min(Math.floor(place), CIVIDIS.length - 2);
  const channel = (i, from) => parseInt(CIVIDIS[i].slice(from, from + 2), 16);
  return [1, 3, 5].map((from) => channel(cell, from) + (place - cell) * (channel(cell + 1, from) - channel(cell, from)));
}
