// The tables on top: sorted by a clicked column, with the model of the charts marked, and at most so many models.
const MOST_MODELS = 12;

const sortRows = (table, column, falls) => {
  const value = (row) => Number(row.cells[column].dataset.value ?? NaN);
  const rows = all("tbody tr", table);
  // what has no number is last, whichever way
  rows.sort((a, b) => {
    const [left, right] = [value(a), value(b)];
    if (Number.isNaN(left) || Number.isNaN(right)) return Number.isNaN(left) - Number.isNaN(right);
    return falls ? right - left : left - right;
  });
  one("tbody", table).append(...rows);
  for (const [place, head] of all("thead th", table).entries()) {
    if (place === column) head.setAttribute("aria-sort", falls ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  }
};

const fold = (table, whole) => {
  for (const [place, row] of all("tbody tr", table).entries()) row.hidden = !whole && place >= MOST_MODELS;
};

const startTable = (holder) => {
  const table = one("table", holder);
  let whole = false;
  for (const [column, head] of all("thead th", table).entries()) {
    if (!column) continue;
    const button = el("button", { type: "button", class: "plain" });
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const falls = head.getAttribute("aria-sort") !== "descending";
      // the best rank is the lowest
      sortRows(table, column, head.hasAttribute("aria-sort") ? falls : !button.textContent.startsWith("rank"));
      fold(table, whole);
    });
  }
  all("thead th", table)[1].setAttribute("aria-sort", "descending");
  const rows = all("tbody tr", table);
  if (rows.length > MOST_MODELS) {
    const more = el("button", { type: "button" }, `All ${rows.length} models`);
    more.addEventListener("click", () => {
      whole = true;
      more.remove();
      fold(table, whole);
    });
    holder.after(el("p", {}, more));
    fold(table, whole);
  }
  if (page.runs.length < 2) return;
  for (const row of rows) {
    const label = row.cells[0].textContent;
    const choose = el("button", { type: "button", class: "plain", onclick: () => state.set({ run: label }) }, label);
    row.cells[0].replaceChildren(choose);
  }
};

const markModel = () => {
  const { label } = page.runs[runInView()];
  for (const row of all("[data-overview] tbody tr")) {
    row.classList.toggle("chosen", page.runs.length > 1 && row.cells[0].textContent === label);
  }
};

const startOverview = () => {
  all("[data-overview]").forEach(startTable);
  state.on(["run"], markModel);
  markModel();
};
