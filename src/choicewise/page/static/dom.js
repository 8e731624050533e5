// Elements, tables and data of the page.

// An element; texts among its children become text, never markup.
const el = (tag, attributes = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
};

// Functions that bring the sections of extensions to life.
const furtherSections = [];

const one = (selector, within = document) => within.querySelector(selector);
const all = (selector, within = document) => [...within.querySelectorAll(selector)];

const bytesOf = (base64) => Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));

// The content of a script element with data, by its id; read once.
const loaded = new Map();
const load = (name) => {
  if (!loaded.has(name)) loaded.set(name, read(document.getElementById(name)));
  return loaded.get(name);
};
const read = async (element) => {
  if (!element) return null;
  if (element.type === "application/json") return JSON.parse(element.textContent);
  const stream = new Blob([bytesOf(element.textContent)]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).json();
};

// Rows of texts in the body of a table; a cell has the class of its column's heading, its first cell names the row.
const fill = (table, rows) => {
  const classes = all("thead th", table).map((heading) => heading.className);
  const made = rows.map((row) =>
    el("tr", {}, ...row.map((cell, place) =>
      place ? el("td", { class: classes[place] || null }, cell) : el("th", { scope: "row" }, cell))));
  one("tbody", table).replaceChildren(...made);
};

const options = (select, pairs, chosen) => {
  select.replaceChildren(...pairs.map(([value, text]) => el("option", { value, selected: value === chosen }, text)));
  select.value = chosen;
};

// A button that copies a text, and says so.
const copyButton = (label, text) => {
  const button = el("button", { type: "button", class: "plain" }, label);
  button.addEventListener("click", async () => {
    const content = text();
    try {
      await navigator.clipboard.writeText(content);
      button.textContent = "Copied";
    } catch {
      const shown = el("textarea", { readonly: true, "aria-label": label, rows: 4 });
      shown.value = content;
      button.after(shown);
      shown.select();
    }
    setTimeout(() => { button.textContent = label; }, 2000);
  });
  return button;
};
