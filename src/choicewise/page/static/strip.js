// A: all numbers of the model in view.
const runInView = () => Math.max(0, page.runs.findIndex((run) => run.label === state.get("run")));

const showNumbers = async () => {
  const figure = one('[data-chart="strip"]');
  const place = runInView();
  const kept = await load(`run-${place}`);
  if (place !== runInView()) return;
  figure.pinned = (record) => record.kind === "number" && record.protocol === state.get("protocol");
  fill(one("table", figure), kept.numbers);
  await show(figure, kept.strip, String(place));
};

const startNumbers = () => {
  const figure = one('[data-chart="strip"]');
  const choose = (changes, words) =>
    el("button", { type: "button", class: "plain", onclick: () => state.set(changes) }, words);
  figure.actions = (record) => {
    const run = page.runs[runInView()];
    const known = run.detailed && page.protocols.includes(record.protocol);
    return known ? [
      choose({ from: record.protocol }, "start the ladder here"),
      choose({ to: record.protocol }, "end it here"),
      choose({ p: record.protocol }, "its items in E"),
    ] : [];
  };
  figure.pick = (record) => {
    if (record.kind !== "number" && record.kind !== "published") return;
    state.set({ protocol: record.protocol === state.get("protocol") ? null : record.protocol });
  };
  watch(figure);
  state.on(["run"], () => showNumbers());
  state.on(["protocol"], () => pin(figure, figure.pinned));
  return showNumbers();
};
