// Charts: drawn again from their specification when what they show changes; their marks can be reached by keyboard.
const embedding = {
  mode: "vega-lite", ast: true, renderer: "svg", actions: false, defaultStyle: false, hover: false, tooltip: false,
};

// Show `shown` (places of the specifications for wide and slim screens, and the data) in a figure.  `key` names it: what
// the page was made with has its name in the attribute data-drawn, and need not be drawn again.
const show = async (figure, shown, key) => {
  Object.assign(figure, { shown, key });
  await redraw(figure);
};

// One drawing after the other: an earlier one that takes long must not end up on top.
const redraw = (figure) => {
  figure.drawing = (figure.drawing ?? Promise.resolve()).then(() => drawNow(figure));
  return figure.drawing;
};

const drawNow = async (figure) => {
  const { shown, key } = figure;
  if (!shown) return;
  // the one that is seen first, then the other: paper and a turned screen show that
  const holders = [...all(".chart", figure).entries()];
  holders.sort(([, a], [, b]) => (getComputedStyle(a).display === "none") - (getComputedStyle(b).display === "none"));
  for (const [place, holder] of holders) {
    holder.key ??= figure.dataset.drawn;
    if (holder.key !== key) {
      holder.key = key;
      const spec = page.specs[shown.spec[place]];
      // vega-embed keeps what it is given, so it gets a copy
      const whole = structuredClone({ ...spec, description: shown.about, data: { values: shown.values } });
      await vegaEmbed(holder, whole, embedding);
      for (const group of all('g[aria-roledescription$="mark container"]:not([aria-label])', holder)) {
        group.removeAttribute("role");
        group.removeAttribute("aria-roledescription");
      }
    }
    reach(figure, holder);
  }
  pin(figure, figure.pinned);
};

const marksOf = (holder) => all('[role="graphics-symbol"][aria-label]', holder);

// One mark takes part in the order of tabs; arrows go from mark to mark as they stand, line by line.
const reach = (figure, holder) => {
  const placed = marksOf(holder).map((mark) => [mark, mark.getBoundingClientRect()]);
  placed.sort(([, a], [, b]) => Math.round(a.top / 4) - Math.round(b.top / 4) || a.left - b.left);
  holder.marks = placed.map(([mark]) => mark);
  for (const [place, mark] of holder.marks.entries()) mark.setAttribute("tabindex", place ? "-1" : "0");
  if (holder.marks.length) holder.removeAttribute("tabindex");
};

const recordOf = (figure, mark) => {
  const text = mark.getAttribute("aria-label");
  return (figure.shown?.values ?? []).find((record) => record.description === text) ?? { description: text };
};

const say = (figure, record, ...more) => {
  one(".said", figure).replaceChildren(...(record ? [record.description, ...more.flatMap((node) => [" · ", node])] : []));
};

// Keep what `same` says of a record in the line under the chart, and mark it.
const pin = (figure, same) => {
  figure.pinned = same;
  let kept = null;
  for (const mark of all(".chart", figure).flatMap(marksOf)) {
    const record = recordOf(figure, mark);
    const pinned = Boolean(same && same(record));
    mark.classList.toggle("pinned", pinned);
    if (pinned) kept = record;
  }
  say(figure, kept, ...(kept && figure.actions ? figure.actions(kept) : []));
};

const watch = (figure) => {
  const markAt = (event) => event.target.closest?.('[role="graphics-symbol"][aria-label]');
  const over = (event) => { const mark = markAt(event); if (mark) say(figure, recordOf(figure, mark)); };
  const leave = (event) => { if (markAt(event)) pin(figure, figure.pinned); };
  const pick = (event) => { const mark = markAt(event); if (mark) figure.pick?.(recordOf(figure, mark)); };
  figure.addEventListener("mouseover", over);
  figure.addEventListener("focusin", over);
  figure.addEventListener("mouseout", leave);
  figure.addEventListener("focusout", leave);
  figure.addEventListener("click", pick);
  figure.addEventListener("keydown", (event) => {
    const mark = markAt(event);
    const marks = event.target.closest?.(".chart")?.marks;
    if (!mark || !marks) return;
    const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -Infinity, End: Infinity };
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      pick(event);
    } else if (event.key in steps) {
      event.preventDefault();
      const next = Math.min(marks.length - 1, Math.max(0, marks.indexOf(mark) + steps[event.key]));
      mark.setAttribute("tabindex", "-1");
      marks[next].setAttribute("tabindex", "0");
      marks[next].focus();
    }
  });
};

const figures = () => all("[data-chart]");
matchMedia("(max-width: 48rem)").addEventListener("change", () => figures().forEach(redraw));
