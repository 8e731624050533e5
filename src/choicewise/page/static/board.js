// The board as a file: sorts by the heading that is clicked, shows the models and numbers that are asked for.
// The state stands in the fragment of the address.  Nothing is computed here.
const table = document.querySelector(".board table");
const form = document.querySelector("form.choose");
if (table && form) {
  const body = table.tBodies[0];
  const first = [...body.rows];
  const links = [...table.querySelectorAll("a[data-sort]")];
  const start = links.find((link) => link.closest("th").hasAttribute("aria-sort"));
  const column = (link) => link.closest("th").cellIndex;
  const best = (link) => (link.dataset.sort === "model" ? "up" : "down");
  const read = () => new URLSearchParams(location.hash.slice(1));

  const write = (changes) => {
    const state = read();
    for (const [name, value] of Object.entries(changes)) {
      if (value) state.set(name, value);
      else state.delete(name);
    }
    history.replaceState(null, "", `#${state}`);
    show();
  };

  const current = () => {
    const state = read();
    const link = links.find((each) => each.dataset.sort === state.get("sort")) ?? start ?? links[0];
    return { link, order: state.get("order") || best(link) };
  };

  const compare = (place, order) => {
    const sign = order === "down" ? -1 : 1;
    if (place === 0) return (a, b) => sign * (first.indexOf(a) - first.indexOf(b));
    const value = (row) => (row.cells[place].dataset.value === undefined ? NaN : Number(row.cells[place].dataset.value));
    return (a, b) => {
      const [one, other] = [value(a), value(b)];
      if (Number.isNaN(one) || Number.isNaN(other)) return Number(Number.isNaN(one)) - Number(Number.isNaN(other));
      return sign * (one - other);
    };
  };

  const fits = (cell, warning) => {
    if (!warning) return true;
    if (cell.dataset.warnings === undefined) return false;
    if (warning === "none") return cell.dataset.warnings === "";
    return warning === "any" ? cell.dataset.warnings !== "" : cell.dataset.warnings.split(" ").includes(warning);
  };

  const names = new Map(first.map((row) => [row, row.dataset.model]));
  first.sort((a, b) => names.get(a).toLowerCase().localeCompare(names.get(b).toLowerCase()));

  const show = () => {
    const state = read();
    const { link, order } = current();
    const [model, warning] = [(state.get("model") ?? "").toLowerCase(), state.get("warning") ?? ""];
    for (const each of links) {
      const chosen = each === link;
      each.classList.toggle("sorted", chosen);
      each.querySelector("[aria-hidden]").textContent = chosen ? (order === "down" ? " ↓" : " ↑") : "";
      if (chosen) each.closest("th").setAttribute("aria-sort", order === "down" ? "descending" : "ascending");
      else each.closest("th").removeAttribute("aria-sort");
    }
    for (const row of [...first].sort(compare(column(link), order))) {
      let any = false;
      for (const cell of row.cells) {
        const shown = cell.matches("th, .median") || fits(cell, warning);
        cell.classList.toggle("out", !shown);
        any ||= shown && !cell.matches("th, .median");
      }
      row.hidden = !any || !names.get(row).toLowerCase().includes(model);
      body.append(row);
    }
    form.elements.model.value = state.get("model") ?? "";
    form.elements.warning.value = warning;
  };

  for (const link of links) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      const now = current();
      const turned = now.link === link ? (now.order === "down" ? "up" : "down") : best(link);
      write({ sort: link.dataset.sort, order: turned === best(link) ? "" : turned });
    });
  }
  form.addEventListener("input", () => write({ model: form.elements.model.value, warning: form.elements.warning.value }));
  form.addEventListener("submit", (event) => event.preventDefault());
  window.addEventListener("hashchange", show);
  form.hidden = false;
  if (location.hash.length > 1) show();
}
