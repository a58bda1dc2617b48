// A box to type in, with a list of what was found below it. Arrow keys move in the list, Enter chooses, Escape closes it.
// find(text) → { hits: [{ text, note, choose }], more }, where `more` counts the hits that are left out.

class Picker {
  constructor(input, list, find, { rest = () => "" } = {}) {
    Object.assign(this, { input, list, find, rest, hits: [], at: -1 });
    input.addEventListener("input", () => this.open(input.value));
    input.addEventListener("focus", () => {
      input.select();
      this.open("");
    });
    input.addEventListener("click", () => this.list.hidden && this.open(""));
    input.addEventListener("blur", () => this.close());
    input.addEventListener("keydown", (event) => this.key(event));
    list.addEventListener("pointerdown", (event) => event.preventDefault()); // which would take the focus away
    list.addEventListener("click", (event) => {
      const option = event.target.closest("[role=option]");
      if (option) this.choose(Number(option.dataset.at));
    });
    this.close();
  }

  open(text) {
    const { hits, more } = this.find(text);
    this.hits = hits;
    this.list.replaceChildren(...hits.map((hit, i) => {
      const option = element("li", { id: `${this.list.id}-${i}` }, element("span", { className: "name", textContent: hit.text, title: hit.text }), element("span", { className: "note", textContent: hit.note ?? "" }));
      option.setAttribute("role", "option");
      option.dataset.at = i;
      return option;
    }));
    if (more) this.list.append(element("li", { className: "more", textContent: `and ${grouped(more)} more` }));
    if (!hits.length && text) this.list.append(element("li", { className: "more", textContent: "nothing found" }));
    this.list.hidden = !this.list.children.length;
    this.input.setAttribute("aria-expanded", String(!this.list.hidden));
    this.mark(hits.length && text ? 0 : -1);
  }

  close() {
    this.list.hidden = true;
    this.input.setAttribute("aria-expanded", "false");
    this.input.removeAttribute("aria-activedescendant");
    this.input.value = this.rest();
  }

  mark(at) {
    this.at = at;
    [...this.list.children].forEach((option, i) => option.setAttribute("aria-selected", String(i === at)));
    this.list.children[at]?.scrollIntoView({ block: "nearest" });
    if (at >= 0) this.input.setAttribute("aria-activedescendant", `${this.list.id}-${at}`);
    else this.input.removeAttribute("aria-activedescendant");
  }

  choose(at) {
    const hit = this.hits[at];
    if (!hit) return;
    this.close();
    this.input.blur();
    hit.choose();
  }

  key(event) {
    const last = this.hits.length - 1;
    const to = { ArrowDown: Math.min(this.at + 1, last), ArrowUp: Math.max(this.at - 1, 0), PageDown: Math.min(this.at + 8, last), PageUp: Math.max(this.at - 8, 0) }[event.key];
    if (to !== undefined) {
      if (this.list.hidden) this.open("");
      else this.mark(to);
    } else if (event.key === "Enter") this.choose(Math.max(this.at, 0));
    else if (event.key === "Escape") {
      if (this.list.hidden) return;
      this.close();
      this.input.blur();
      $("stage").focus();
    } else return;
    event.preventDefault();
  }
}
