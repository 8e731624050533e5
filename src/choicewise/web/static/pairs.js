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
  const compared = await load("pairs");
  const kept = compared[`${a}>${b}`];
  const [one_, other] = [page.runs[a], page.runs[b]];
  const absent = a === b ? "Both are the same run: choose another one."
    : `choicewise compare ${one_.folder} ${other.folder} compares these two.`;
  one('[data-pair="said"]').textContent = kept ? kept.said : absent;
  one('[data-pair="rows"]').hidden = !kept?.rows.length;
  fill(one('[data-pair="rows"] table'), kept?.rows ?? []);
  one('#pair select[name="a"]').value = one_.label;
  one('#pair select[name="b"]').value = other.label;
};

const startPair = () => {
  if (page.runs.length < 2) return null;
  for (const name of ["a", "b"]) {
    one(`#pair select[name="${name}"]`).addEventListener("change", (event) => state.set({ [name]: event.target.value }));
  }
  state.on(["a", "b"], () => showPair());
  return state.get("a") || state.get("b") ? showPair() : null;
};
