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
  const caption = one("[data-caption]", figure);
  if (caption && shown.caption) caption.textContent = shown.caption;
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
      hideBox(figure);
      // a chart that is only scaled down would be unreadable
      const isWide = Number(one("svg", holder).getAttribute("width")) > page.scrolls;
      if (holder.matches(".slim")) holder.classList.toggle("scrolls", isWide);
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

// The box at a mark: its name, and below it what is known of it.  Who does not see it hears the same from the mark.
const boxLines = (record) => {
  const [name, ...rest] = (record.description ?? "").split(": ");
  const group = record.subject && record.subject !== "all" ? `, ${record.subject}` : "";
  const whole = record.kind === "number" ? record.protocol + group : name;
  return [el("b", {}, whole), ...(record.lines ?? [rest.join(": ")]).map((line) => el("span", {}, line))];
};

const showBox = (figure, mark, event) => {
  const box = figure.box ??= figure.appendChild(el("div", { class: "box", "aria-hidden": "true", hidden: true }));
  box.replaceChildren(...boxLines(recordOf(figure, mark)));
  if (figure.pick && event.pointerType === "touch") box.append(el("i", {}, "tap again for more"));
  figure.boxed = mark;
  box.hidden = false;
  const [around, own] = [figure, mark].map((each) => each.getBoundingClientRect());
  // a line or a text is long: the box is where the pointer is on it
  const wide = own.width > 40 && event.clientX;
  const [x, top, bottom] = wide ? [event.clientX, event.clientY - 6, event.clientY + 6]
    : [own.left + own.width / 2, own.top, own.bottom];
  const left = Math.max(0, Math.min(x - around.left - box.offsetWidth / 2, around.width - box.offsetWidth));
  const above = top - box.offsetHeight - 6;
  box.style.left = `${left}px`;
  box.style.top = `${(above > 40 ? above : bottom + 6) - around.top}px`;
};

const hideBox = (figure) => {
  figure.boxed = null;
  if (figure.box) figure.box.hidden = true;
};

// Mark what `same` says of a record.
const pin = (figure, same) => {
  figure.pinned = same;
  for (const mark of all(".chart", figure).flatMap(marksOf)) {
    mark.classList.toggle("pinned", Boolean(same && same(recordOf(figure, mark))));
  }
};

const watch = (figure) => {
  const markAt = (event) => event.target.closest?.('[role="graphics-symbol"][aria-label]');
  const over = (event) => { const mark = markAt(event); if (mark) showBox(figure, mark, event); };
  const leave = (event) => { if (markAt(event)) hideBox(figure); };
  let before = null;
  const pick = (event) => {
    const mark = markAt(event);
    if (!mark) return;
    const first = event.pointerType === "touch" && before !== mark;
    showBox(figure, mark, event);
    if (!first) figure.pick?.(recordOf(figure, mark), mark);
  };
  figure.addEventListener("pointerdown", () => { before = figure.boxed; }, true);
  figure.addEventListener("mouseover", over);
  figure.addEventListener("focusin", over);
  figure.addEventListener("mouseout", leave);
  figure.addEventListener("focusout", leave);
  figure.addEventListener("scroll", () => hideBox(figure), true);
  figure.addEventListener("click", pick);
  figure.addEventListener("keydown", (event) => {
    const mark = markAt(event);
    const marks = event.target.closest?.(".chart")?.marks;
    if (event.key === "Escape") hideBox(figure);
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

// Charts that show the same whatever is chosen.
const startStill = () => {
  for (const figure of all("figure[data-still]")) {
    watch(figure);
    for (const holder of all(".chart", figure)) reach(figure, holder);
  }
};

const figures = () => all("[data-chart]");
matchMedia("(max-width: 48rem)").addEventListener("change", () => figures().forEach(redraw));
