// D: two models under every protocol.
const pairInView = () => {
  const place = (name, fallback) => {
    const known = page.runs.findIndex((run) => run.label === state.get(name));
    return known < 0 ? fallback : known;
  };
  return [place("a", 0), place("b", 1)];
};

const showPair = async () => {
  const [a, b] = pairInView();
  const compared = await load(`pairs-${a}`);
  const kept = compared?.[b];
  const [one_, other] = [page.runs[a], page.runs[b]];
  const absent = a === b ? "Both are the same run: choose another one."
    : `choicewise compare ${one_.folder} ${other.folder} compares these two.`;
  one('[data-pair="said"]').textContent = kept ? kept.said : absent;
  const figure = one('[data-chart="pair"]');
  figure.hidden = !kept?.chart;
  if (kept?.chart) {
    fill(one("table", figure), kept.rows);
    await show(figure, kept.chart, `${a}>${b}`);
  }
  one('#pair select[name="a"]').value = one_.label;
  one('#pair select[name="b"]').value = other.label;
};

const startPair = () => {
  if (page.runs.length < 2) return null;
  for (const name of ["a", "b"]) {
    one(`#pair select[name="${name}"]`).addEventListener("change", (event) => state.set({ [name]: event.target.value }));
  }
  const figure = one('[data-chart="pair"]');
  watch(figure);
  figure.pick = (record, mark) => { if (record.protocol) openProtocol(figure, record.protocol, mark); };
  figure.pinned = (record) => record.kind === "difference" && record.protocol === state.get("protocol");
  state.on(["a", "b"], () => showPair());
  state.on(["protocol"], () => pin(figure, figure.pinned));
  return showPair();
};
