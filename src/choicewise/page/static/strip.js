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

const startNumbers = async () => {
  const figure = one('[data-chart="strip"]');
  if (!figure) return; // no number is a share: the tables of the metrics hold them all
  figure.pick = (record, mark) => {
    if (record.kind === "number" || record.kind === "published") openProtocol(figure, record.protocol, mark);
  };
  watch(figure);
  state.on(["run"], () => showNumbers());
  state.on(["protocol"], () => pin(figure, figure.pinned));
  return showNumbers();
};
