// What the page says about itself: its heading, the notices above the plot, and the notes at the bottom.

function describe(app) {
  const { page, decoder } = app;
  document.title = $("title").textContent = page.title;
  $("title").title = page.title;
  const size = decoder instanceof ExactDecoder ? ` · ${grouped(decoder.S)} positions` : "";
  $("about").textContent = `${page.model} · ${grouped(page.n_points)} points · ${grouped(page.n_features)} ${page.table ? "columns" : "features"} · ${app.Q} latent dimension${app.Q > 1 ? "s" : ""}${size}`;
  const notes = [];
  if (decoder instanceof ExactDecoder) {
    const { mean, sd } = page.decoder.error;
    notes.push(`The page computes mean and standard deviation from the model's positions, with the same formulas as predict. Numbers are rounded to keep this file small, which changes the results by at most ${digits(Math.max(mean, sd), 1)} of ${page.table ? "a column's standard deviation" : "the data's range"}, measured at 256 points.`);
  } else {
    const cells = page.decoder.cells.join(" × ");
    const where = app.Q > 2 ? " The grid covers z0 and z1, with the other dimensions at 0." : "";
    notice(`The browser cannot compute this model's decoder: ${page.decoder.why}. Decoded values are interpolated linearly on a grid of ${cells} points computed beforehand. They are close to what predict returns, but not the same.${where}`);
  }
  if (!app.plot.webgl) {
    const shown = app.n > CANVAS_POINTS ? ` Only ${grouped(CANVAS_POINTS)} of ${grouped(app.n)} points are shown.` : "";
    notice(`This browser has no WebGL, or it is switched off, so points are drawn more slowly.${shown} Everything else works. To draw all points fast, switch on hardware acceleration or open the page in another browser.`);
  }
  if (app.n < page.n_points) notes.push(`${grouped(app.n)} of ${grouped(page.n_points)} points are shown, chosen at random. Selections contain only these.`);
  if (app.observed.n) {
    const which = `${grouped(app.observed.n)} of ${grouped(page.n_points)} rows`;
    notes.push(`The nearest observation is searched among ${which}, which this file contains${page.image ? " in 256 shades" : ""}.`);
  }
  if (page.n_columns_left_out) notes.push(`${grouped(page.n_columns_left_out)} columns of the data ${page.table ? "cannot be chosen for colouring" : "are coloured by what is decoded"}, because this file would become too large with their values.`);
  const alike = decoder.relative.every((s) => Math.abs(s - 1) < 1e-6);
  let spread = alike ? "It is the same for every feature." : "Features differ by constant factors; the page shows the mean over features.";
  if (decoder.varies) spread = "Features differ, and not by the same factors everywhere; the page shows the mean over features.";
  if (app.table) {
    spread = "Each column has been brought to the spread of a standard normal distribution for it, so 1 means that nothing is known; the page shows the mean over columns.";
    notes.push(`The interval of a number holds ${100 * page.table.interval.share} % of new values. A missing cell is imputed by what is decoded at the latents of its row.`);
  }
  notes.push(`The background shows the standard deviation of a new observation, including the noise. ${spread}`);
  if (app.geometry) notes.push("The volume is √det G of the metric G that the decoder expects in the data. Where it is large, a small step changes the decoded row, or its uncertainty, a lot. The shortest path in the data avoids such places.");
  notes.push("This page needs no network and sends no data.");
  $("notes").replaceChildren(...notes.map((text) => element("li", { textContent: text })));
  $("hint").textContent = HINTS.look;
}

// The scale of the background
function showScale(app) {
  const { fog } = app.plot;
  if (!fog?.range) return $("scale").replaceChildren();
  const ramp = element("span", { className: "ramp" });
  const isVolume = fog === app.plot.fogs.volume;
  const [low, high] = fog.range.map((v) => digits(isVolume ? 10 ** v : v));
  $("scale").replaceChildren(element("span", { id: "sd-scale" }, isVolume ? "volume " : "predictive sd ", low, ramp, high));
}

function notice(text) {
  $("notices").append(element("p", { className: "notice", textContent: text }));
}
