// The panel of one protocol, below the chart in which it was chosen: its numbers, what it asks, the items that flip.
// It sticks to the lower edge of the window, so that it is in view without a jump while its chart is.
const FLIPS = 6;
let panelAfter = null;

const openProtocol = async (figure, protocol, mark) => {
  const isOpen = protocol === state.get("protocol") && one(".panel")?.previousElementSibling === figure;
  panelAfter = figure;
  state.set({ protocol: isOpen ? null : protocol });
  // the panel is made of data that are read first
  await showing;
  const panel = one(".panel");
  if (!panel) return;
  panel.focus({ preventScroll: true });
  const covered = mark.getBoundingClientRect().bottom + 8 - panel.getBoundingClientRect().top;
  if (covered > 0) scrollBy(0, covered);
};

const panelNumbers = async (protocol) => {
  const dataset = page.runs[runInView()].dataset;
  const own = [...page.runs.entries()].filter(([place, run]) =>
    (place === runInView() || run.detailed) && run.dataset === dataset && run.protocols.includes(page.protocols.indexOf(protocol)));
  const rows = [];
  for (const [place, run] of own) {
    const kept = await load(`run-${place}`);
    for (const row of kept.numbers.filter(([name]) => name === protocol || name.startsWith(`${protocol}, `))) {
      const group = row[0] === protocol ? "" : row[0].slice(protocol.length);
      rows.push([run.label + group, ...row.slice(2)]);
    }
  }
  const heads = [["model", ""], ["%", "number"], ["95 % interval", "number"], ["items", "number"], ["rank", "number"],
    ["warnings", "breaks"], ["ids", "code"]];
  const table = el("table", {}, el("thead", {}, el("tr", {},
    ...heads.map(([head, name]) => el("th", { scope: "col", class: name || null }, head)))), el("tbody"));
  fill(table, rows);
  return el("div", { class: "scroll whole", tabindex: "0", role: "region", "aria-label": `Numbers under ${protocol}` }, table);
};

// Items on which this protocol and most of the others disagree, those with the most others first.
const panelFlips = async (protocol) => {
  const number = listInView();
  const index = await load(`items-${number}`);
  const answered = index?.runs.find((each) => each.run === runInView());
  const place = answered ? answered.protocols.indexOf(page.protocols.indexOf(protocol)) : -1;
  if (place < 0) return [];
  const right = bitsOf(answered.bits[place]);
  const asked = answered.asked[place] ? bitsOf(answered.asked[place]) : () => 1;
  const flipped = [];
  for (let item = 0; item < index.ids.length; item += 1) {
    const [others, hits] = [answered.of[item] - 1, answered.right[item] - right(item)];
    const against = right(item) ? others - hits : hits;
    if (asked(item) && others > 0 && 2 * against > others) flipped.push([item, against, others]);
  }
  flipped.sort(([a, one_, of], [b, other, ofOther]) => other / ofOther - one_ / of || a - b);
  const line = ([item, against, others]) => el("li", {},
    el("a", { href: state.link({ item: index.ids[item] }, "items") }, index.ids[item]), " ",
    index.questions[item], " ",
    el("span", { class: "quiet" }, `${right(item) ? "right" : "wrong"} here, ${right(item) ? "wrong" : "right"} under ${against} of ${others}`));
  const words = flipped.length === 1 ? "item flips" : "items flip";
  const more = flipped.length > FLIPS ? `; the first ${FLIPS}` : "";
  return [el("h4", {}, `${flipped.length.toLocaleString("en")} ${words}: most other protocols decide otherwise${more}`),
    ...(flipped.length ? [el("ul", {}, ...flipped.slice(0, FLIPS).map(line))] : [])];
};

const showProtocol = async () => {
  const protocol = state.get("protocol");
  const known = page.protocols.indexOf(protocol);
  const before = one(".panel");
  if (known < 0) {
    before?.remove();
    return;
  }
  const panel = before ?? el("aside", { class: "panel", tabindex: "-1" });
  panel.setAttribute("aria-label", `Protocol ${protocol}`);
  const run = page.runs[runInView()];
  const choose = (changes, words, id) =>
    el("button", { type: "button", class: "plain", onclick: () => {
      state.set(changes);
      document.getElementById(id)?.scrollIntoView();
    } }, words);
  const actions = run.detailed && run.protocols.includes(known) ? [
    one('[data-chart="ladder"]') && choose({ from: protocol }, "start the ladder here", "why"),
    one('[data-chart="ladder"]') && choose({ to: protocol }, "end it here", "why"),
    one("#items") && choose({ p: protocol }, "its items", "items"),
  ] : [];
  const sheet = one(`#sheet-${page.sheets[known]} > dl.facts`)?.cloneNode(true);
  // the prompt first, who published it last
  for (const each of sheet && one("dt", sheet).textContent === "citation" ? [...sheet.children].slice(0, 4) : []) sheet.append(each);
  const [inView_, numbers, flips] = [runInView(), await panelNumbers(protocol), await panelFlips(protocol)];
  if (state.get("protocol") !== protocol || inView_ !== runInView()) return;
  panel.replaceChildren(
    el("div", { class: "head" }, el("h3", {}, protocol),
      el("button", { type: "button", onclick: () => state.set({ protocol: null }) }, "Close")),
    numbers, el("p", { class: "small choose" }, ...actions), ...flips,
    ...(sheet ? [el("h4", {}, "What it asks"), sheet] : []),
  );
  (panelAfter ?? one('[data-chart="strip"]') ?? one("#metrics .head")).after(panel);
};

let showing = null;

const startProtocol = () => {
  const follow = () => { showing = showProtocol(); };
  state.on(["run", "protocol"], follow);
  follow();
  return showing;
};
