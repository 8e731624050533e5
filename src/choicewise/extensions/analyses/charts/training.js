// Over training: a number at each checkpoint, of the protocol that is chosen for each dataset.
const startTraining = () => Promise.all(all('[data-chart^="steps-"]').map(async (figure) => {
  const name = figure.dataset.chart;
  const kept = await load(name);
  const select = one(`select[name="${name}"]`);
  const first = select.options[0].value;
  const draw = async () => {
    const chosen = state.get(name) in kept.charts ? state.get(name) : first;
    select.value = chosen;
    fill(one("table", figure), kept.rows[chosen]);
    await show(figure, kept.charts[chosen], chosen);
  };
  watch(figure);
  figure.pick = (record) => { if (record.protocol) openProtocol(figure, record.protocol); };
  select.addEventListener("change", () => state.set({ [name]: select.value === first ? null : select.value }));
  state.on([name], draw);
  return draw();
}));
furtherSections.push(startTraining);
