// E: the list of items: search, filters, and which one is open.
const STEP = 25;
let shownRows = STEP;

const bitsOf = (packed) => {
  const bytes = bytesOf(packed);
  return (place) => (bytes[place >> 3] >> (7 - (place & 7))) & 1;
};

// The dataset whose items are shown: that of the run in view.
const listInView = () => Math.max(0, page.items.findIndex((each) => each.runs.includes(runInView())));

// Whether an item is right under one protocol and wrong under the other; `answered` is what the run answered.
const flipsBetween = (answered, p, q) => {
  const sides = [p, q].map((name) => {
    const place = answered.protocols.indexOf(page.protocols.indexOf(name));
    if (place < 0) return null;
    const right = bitsOf(answered.bits[place]);
    const asked = answered.asked[place] ? bitsOf(answered.asked[place]) : () => 1;
    return { right, asked };
  });
  if (sides.includes(null)) return () => false;
  const [one_, other] = sides;
  return (place) => one_.asked(place) && other.asked(place) && one_.right(place) !== other.right(place);
};

const chosenItems = (index, answered) => {
  const text = state.get("text").toLowerCase();
  const subject = index.subjects.indexOf(state.get("subject"));
  const [p, q] = [state.get("p"), state.get("q")];
  const differs = p && q && answered ? flipsBetween(answered, p, q) : null;
  const chosen = [];
  for (let place = 0; place < index.ids.length; place += 1) {
    if (state.get("subject") && index.subject[place] !== subject) continue;
    if (differs && !differs(place)) continue;
    if (text && !`${index.ids[place]}\n${index.questions[place]}`.toLowerCase().includes(text)) continue;
    chosen.push(place);
  }
  return chosen.sort((a, b) => index.flips[b] - index.flips[a] || a - b);
};

const columnsOf = (index) => {
  const shown = index.runs.slice(0, 4);
  const own = index.runs.find((each) => each.run === runInView());
  return own && !shown.includes(own) ? [...shown.slice(0, 3), own] : shown;
};

const showList = async () => {
  const number = listInView();
  for (const block of all("[data-items]")) block.hidden = Number(block.dataset.items) !== number;
  const block = one(`[data-items="${number}"]`);
  const index = await load(`items-${number}`);
  if (!block || !index) return;
  const run = page.runs[runInView()];
  const answered = index.runs.find((each) => each.run === runInView());
  const names = (answered ?? index.runs[0]).protocols.map((place) => page.protocols[place]);
  for (const name of ["p", "q"]) {
    const chosen = names.includes(state.get(name)) ? state.get(name) : "";
    options(one(`select[name="${name}"]`, block), [["", "any"], ...names.map((each) => [each, each])], chosen);
  }
  options(one('select[name="subject"]', block), [["", "all"], ...index.subjects.map((each) => [each, each || "(none)"])], state.get("subject"));
  const search = one('input[name="text"]', block);
  if (search.value !== state.get("text")) search.value = state.get("text");
  const chosen = chosenItems(index, answered);
  const columns = columnsOf(index);
  const heads = ["item", "question", "subject"].map((word) => el("th", { scope: "col" }, word));
  const models = columns.map((each) => el("th", { scope: "col", class: "number" }, page.runs[each.run].short));
  one("table thead", block).replaceChildren(el("tr", {}, ...heads, ...models));
  one("table tbody", block).replaceChildren(...chosen.slice(0, shownRows).map((place) => {
    const id = index.ids[place];
    const row = el("tr", {},
      el("th", { scope: "row" }, el("a", { href: state.link({ item: id }, "items") }, id)),
      el("td", { class: "question" }, index.questions[place]), el("td", {}, index.subjects[index.subject[place]]),
      ...columns.map((each) => el("td", { class: "number" }, `${each.right[place]} of ${each.of[place]}`)));
    row.classList.toggle("chosen", id === state.get("item"));
    return row;
  }));
  const between = state.get("p") && state.get("q") && answered ? ` of ${run.label}` : "";
  const words = chosen.length === 1 ? "item" : "items";
  one("[data-count]", block).textContent =
    `${chosen.length.toLocaleString("en")} of ${index.ids.length.toLocaleString("en")} ${words}${between}, those that flip most first.`;
  one('[data-do="more"]', block).hidden = chosen.length <= shownRows;
};

const showItem = async (move) => {
  const number = listInView();
  const article = one(`[data-items="${number}"] [data-item]`);
  const id = state.get("item");
  if (!article) return;
  const index = await load(`items-${number}`);
  const place = index.ids.indexOf(id);
  article.hidden = !id;
  if (!id) {
    article.replaceChildren();
    return;
  }
  const run = page.runs[runInView()];
  const known = place < 0 ? null : await itemAt(page.items[number], place, id);
  if (state.get("item") !== id) return;
  const missing = place < 0 ? `There is no item ${id} among those of ${run.label}.`
    : "This item is not in this page in full. It is shown by";
  article.replaceChildren(...(known ? itemShown(known, run, runInView())
    : [el("h3", {}, id), el("p", {}, missing, place < 0 ? "" : el("code", {}, ` choicewise explain ${run.command} --item ${id}`))]));
  if (move) {
    article.scrollIntoView({ block: "start" });
    article.focus({ preventScroll: true });
  }
};

const startItems = () => {
  for (const block of all("[data-items]")) {
    one("form", block).addEventListener("submit", (event) => event.preventDefault());
    for (const field of all("form input, form select", block)) {
      field.addEventListener(field.type === "search" ? "input" : "change", () => {
        shownRows = STEP;
        state.set({ [field.name]: field.value });
      });
    }
    one('[data-do="more"]', block).addEventListener("click", () => { shownRows += STEP; showList(); });
  }
  state.on(["run", "text", "subject", "p", "q", "item", "protocol"], () => showList());
  // links in the page say all that is chosen, also elsewhere on it
  state.on(["from", "to", "by", "order", "a", "b"], () => {
    for (const link of all("[data-items] tbody th a")) link.href = state.link({ item: link.textContent }, "items");
  });
  state.on(["item"], () => showItem(true));
  state.on(["run", "protocol"], () => showItem(false));
  return Promise.all([showList(), showItem(Boolean(state.get("item")))]);
};
