// The board as a file: sorts by the heading that is clicked, shows the models and numbers that are asked for.
// The state stands in the fragment of the address, and all tables follow it.  Nothing is computed here.
const form = document.querySelector("form.choose");
const read = () => new URLSearchParams(location.hash.slice(1));
const best = (link) => link.dataset.best ?? (link.dataset.sort === "model" ? "up" : "down");
const column = (link) => link.closest("th").cellIndex;

const fits = (cell, warning) => {
  if (!warning) return true;
  if (cell.dataset.warnings === undefined) return false;
  if (warning === "none") return cell.dataset.warnings === "";
  return warning === "any" ? cell.dataset.warnings !== "" : cell.dataset.warnings.split(" ").includes(warning);
};

const compare = (rows, place, order) => {
  const sign = order === "down" ? -1 : 1;
  if (place === 0) return (a, b) => sign * (rows.indexOf(a) - rows.indexOf(b));
  const value = (row) => (row.cells[place].dataset.value === undefined ? NaN : Number(row.cells[place].dataset.value));
  return (a, b) => {
    const [one, other] = [value(a), value(b)];
    if (Number.isNaN(one) || Number.isNaN(other)) return Number(Number.isNaN(one)) - Number(Number.isNaN(other));
    return sign * (one - other);
  };
};

const tables = [...document.querySelectorAll(".headlines table, .board table")].map((table) => {
  const links = [...table.querySelectorAll("a[data-sort]")];
  const rows = [...table.tBodies[0].rows];
  rows.sort((a, b) => a.dataset.model.toLowerCase().localeCompare(b.dataset.model.toLowerCase()));
  const start = links.find((link) => link.closest("th").hasAttribute("aria-sort")) ?? links[0];
  return { body: table.tBodies[0], links, rows, start };
});

// The heading that a table is sorted by, and how; the one that it began with where it has not what is asked for.
const current = ({ links, start }) => {
  const state = read();
  const link = links.find((each) => each.dataset.sort === state.get("sort"));
  const own = link ?? start;
  return { link: own, order: (link || !state.get("sort") ? state.get("order") : "") || best(own) };
};

const showTable = (table, warning, model) => {
  const { link, order } = current(table);
  for (const each of table.links) {
    const chosen = each === link;
    each.classList.toggle("sorted", chosen);
    each.querySelector("[aria-hidden]").textContent = chosen ? (order === "down" ? " ↓" : " ↑") : "";
    if (chosen) each.closest("th").setAttribute("aria-sort", order === "down" ? "descending" : "ascending");
    else each.closest("th").removeAttribute("aria-sort");
  }
  for (const row of [...table.rows].sort(compare(table.rows, column(link), order))) {
    const cells = [...row.cells].filter((cell) => !cell.matches("th, .median, .mean, .rank"));
    const shown = cells.filter((cell) => fits(cell, warning));
    for (const cell of cells) cell.classList.toggle("out", !shown.includes(cell));
    for (const cell of row.querySelectorAll(".mean, .rank")) cell.classList.toggle("out", shown.length < cells.length);
    row.hidden = !shown.length || !row.dataset.model.toLowerCase().includes(model);
    table.body.append(row);
  }
};

const show = () => {
  const state = read();
  const [model, warning] = [(state.get("model") ?? "").toLowerCase(), state.get("warning") ?? ""];
  for (const table of tables) showTable(table, warning, model);
  form.elements.model.value = state.get("model") ?? "";
  form.elements.warning.value = warning;
};

const write = (changes) => {
  const state = read();
  for (const [name, value] of Object.entries(changes)) {
    if (value) state.set(name, value);
    else state.delete(name);
  }
  history.replaceState(null, "", `#${state}`);
  show();
};

if (tables.length && form) {
  for (const table of tables) {
    for (const link of table.links) {
      link.addEventListener("click", (event) => {
        event.preventDefault();
        const now = current(table);
        const turned = now.link === link ? (now.order === "down" ? "up" : "down") : best(link);
        write({ sort: link.dataset.sort, order: turned === best(link) ? "" : turned });
      });
    }
  }
  form.addEventListener("input", () => write({ model: form.elements.model.value, warning: form.elements.warning.value }));
  form.addEventListener("submit", (event) => event.preventDefault());
  window.addEventListener("hashchange", show);
  form.hidden = false;
  if (location.hash.length > 1) show();
}
