// B: from one number to another, step by step.  All steps were computed; here they are put one after the other.
const ends = () => {
  const run = page.runs[runInView()];
  const names = run.protocols.map((place) => page.protocols[place]);
  const [low, high] = run.chosen ?? [names[0], names.at(-1)];
  const known = (name, fallback) => (names.includes(name) ? name : fallback);
  return { names, from: known(state.get("from"), low), to: known(state.get("to"), high) };
};

const climb = (kept, from, to) => {
  const [start, end] = [from, to].map((name) => page.protocols.indexOf(name));
  if (!kept.ends?.[start] || !kept.ends[end]) return null;
  const way = [start, ...(kept.ways[`${start}>${end}`] ?? []), end];
  const steps = way.slice(1).map((node, place) => {
    const step = kept.steps[`${way[place]}>${node}`];
    return step && { ...step, lane: place + 1, above: place };
  });
  if (steps.includes(undefined)) return null;
  return [kept.ends[start][0], ...steps, { ...kept.ends[end][1], lane: way.length, above: way.length - 1 }];
};

const showLadder = async () => {
  const figure = one('[data-chart="ladder"]');
  const section = one("#why");
  if (!section) return;
  const kept = await load(`run-${runInView()}`);
  const effects = one("[data-effects]", section);
  effects.hidden = !kept.effects;
  if (kept.effects) {
    fill(one("table", effects), kept.effect_rows);
    await show(one('[data-chart="effects"]'), kept.effects, String(runInView()));
  }
  if (!figure) return;
  const { names, from, to } = ends();
  for (const [name, chosen] of [["from", from], ["to", to]]) {
    options(one(`select[name="${name}"]`, section), names.map((each) => [each, each]), chosen);
  }
  const records = climb(kept, from, to);
  figure.hidden = !records;
  one("[data-ladder]", figure).textContent = `choicewise ladder ${from} ${to} ${page.runs[runInView()].command}`;
  const note = one("[data-no-ladder]", section);
  note.hidden = Boolean(records);
  const absent = `This page has no ladders of this model. choicewise ladder ${from} ${to} DIR shows this one.`;
  note.textContent = kept.ends ? "Both are the same protocol: there is nothing between them." : absent;
  if (!records) return;
  one("[data-together]", figure).hidden = !records.some((record) => record.axes?.length > 1);
  fill(one("table", figure), records.map((record) => (record.kind === "end"
    ? [record.detail, "", "", `${record.n.toLocaleString("en")}`, record.protocol, record.result.replace(" %", "")]
    : [record.changes, record.result, record.items, `${record.n.toLocaleString("en")}`, record.protocol, record.reached])));
  const about = `The way from ${from} to ${to}, one changed axis a step`;
  await show(figure, { spec: page.ladder, about, values: records }, `${runInView()} ${from} ${to}`);
};

const startLadder = () => {
  const section = one("#why");
  const figure = one('[data-chart="ladder"]');
  if (!section) return null;
  const effects = one('[data-chart="effects"]');
  watch(effects);
  // marks have places, by which arrows go, once they are seen
  one("[data-effects]").addEventListener("toggle", () => redraw(effects));
  const note = el("p", { "data-no-ladder": true, hidden: true });
  section.append(note);
  if (figure) {
    figure.before(note);
    watch(figure);
    // protocols between the run's are on this page in the ladder alone
    figure.pick = (record, mark) => { if (page.protocols.includes(record.protocol)) openProtocol(figure, record.protocol, mark); };
    figure.pinned = (record) => record.kind === "step" && record.protocol === state.get("protocol");
    for (const name of ["from", "to"]) {
      one(`select[name="${name}"]`, section).addEventListener("change", (event) => state.set({ [name]: event.target.value }));
    }
    one('[data-do="turn"]', section).addEventListener("click", () => {
      const { from, to } = ends();
      state.set({ from: to, to: from });
    });
  }
  state.on(["run", "from", "to"], () => showLadder());
  state.on(["protocol"], () => figure && pin(figure, figure.pinned));
  return showLadder();
};
