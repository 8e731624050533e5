// C: the order of the models, by rank or by score.
const orderInView = () => Math.min(page.orders.length - 1, Math.max(0, Number(state.get("order", "0")) || 0));

const showOrder = async () => {
  const place = orderInView();
  const by = state.get("by") === "score" ? "score" : "rank";
  for (const block of all("[data-order]")) block.hidden = Number(block.dataset.order) !== place;
  for (const radio of all('#order input[name="by"]')) radio.checked = radio.value === by;
  const kept = await load(`order-${place}`);
  one("#order [data-by]").hidden = !kept["rank few"];
  if (!kept["rank few"]) return;
  const columns = state.get("columns") === "all" ? "all" : "few";
  const count = (which) => kept[`rank ${which}`].values.filter((record) => record.kind === "column").length;
  const button = one('#order [data-do="columns"]');
  button.hidden = count("all") === count("few");
  button.textContent = columns === "few" ? `All ${count("all")} protocols` : `${count("few")} protocols`;
  await show(one(`[data-chart="order-${place}"]`), kept[`${by} ${columns}`], `${by} ${columns}`);
};

const startOrder = () => {
  if (!page.orders.length) return null;
  for (const figure of all('[data-chart^="order-"]')) {
    watch(figure);
    figure.pinned = (record) =>
      record.kind === "place" && record.model === state.get("run") && record.protocol === state.get("protocol");
    figure.pick = (record, mark) => {
      if (page.runs.some((run) => run.label === record.model)) state.set({ run: record.model });
      if (record.protocol) openProtocol(figure, record.protocol, mark);
    };
  }
  for (const radio of all('#order input[name="by"]')) {
    radio.addEventListener("change", () => state.set({ by: radio.value === "rank" ? null : radio.value }));
  }
  one('#order [data-do="columns"]').addEventListener("click", () => {
    state.set({ columns: state.get("columns") === "all" ? null : "all" });
  });
  const datasets = one('#order select[name="order"]');
  if (datasets) {
    options(datasets, page.orders.map((each, place) => [String(place), each.dataset]), String(orderInView()));
    datasets.addEventListener("change", () => state.set({ order: datasets.value }));
  }
  state.on(["by", "columns", "order"], () => showOrder());
  state.on(["run", "protocol"], () => all('[data-chart^="order-"]').forEach((figure) => pin(figure, figure.pinned)));
  return showOrder();
};
