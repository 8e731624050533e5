// E: one item in full.
const letter = (place) => (place < 26 ? String.fromCharCode(65 + place) : String(place + 1));
const fixed = (value) => (value === null || value === undefined ? "–"
  : (Math.abs(value) < 0.0005 ? "0" : Math.abs(value) < 1000 ? value.toPrecision(3) : value.toFixed(0)).replace("-", "−"));
const nats = (value) => (value === null || value === undefined ? "–" : value.toFixed(2).replace("-", "−"));
const sent = (text) => text.replaceAll("⏎\n", "\n").replaceAll("⏎", "\n").replaceAll("␣", " ").replaceAll("⇥", "\t");

const hex = (buffer) => [...new Uint8Array(buffer)].map((byte) => byte.toString(16).padStart(2, "0")).join("");

// A file beside the page, if the page is served and the file is the one that was written with it.
const fetchPart = async (part) => {
  if (!location.protocol.startsWith("http")) return null;
  const answer = await fetch(`${page.folder}/${part.name}`);
  if (!answer.ok) return null;
  const bytes = await answer.arrayBuffer();
  const same = !crypto.subtle || hex(await crypto.subtle.digest("SHA-256", bytes)) === part.sha256;
  return same ? JSON.parse(new TextDecoder().decode(bytes)) : null;
};

// The item in full with the texts of its prompts, or null where the page has it not.
const itemAt = async (listed, place, id) => {
  const chunk = listed.chunks.find((each) => each.ids.includes(place));
  const part = listed.parts.find((each) => each.ids.includes(place));
  const kept = chunk ? await load(chunk.name) : part ? await fetchPart(part) : null;
  const item = kept?.items.find((each) => each.id === id);
  return item ? { item, shared: kept } : null;
};

// The rows that `columns` are made of; texts, answers and contexts are kept once for all items.
const continuationsOf = (columns, { texts, lines, warnings, answers }) => columns.choice.map((choice, place) => {
  const value = (name) => columns[name]?.[place] ?? undefined;
  const line = (name) => (value(name) === undefined ? undefined : lines[value(name)]);
  const [tokens, logprobs] = answers[value("answer")] ?? [[], []];
  return {
    choice, text: line("text"), total: value("total"), part: value("part"), null: line("null"),
    context: value("context")?.map((piece) => texts[piece]).join(""),
    tokens: tokens.map((token, at) => [lines[token], logprobs[at]]),
    value: value("value"), most: value("most"), before: value("before"), after: value("after"),
    warnings: value("warnings")?.map((warning) => warnings[warning]),
  };
});

// Requests with the continuations after each, which follow one another in the columns.
const requestsOf = (answered, shared) => {
  const continuations = continuationsOf(answered.scored, shared);
  let end = 0;
  return answered.asked.map((asked) => ({
    ...asked,
    context: asked.context?.map((piece) => shared.texts[piece]).join("") ?? null,
    scored: continuations.slice(end, end += asked.scored),
  }));
};

// A score as a bar from the lowest to the highest of its row, with its number; `most`: it is an upper bound.
const bar = (score, scores, chosen, most) => {
  const known = scores.filter((each) => each !== null);
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const filled = el("span", { class: chosen ? "bar chosen" : "bar" });
  filled.style.width = score === null ? "0" : `${high > low ? 4 + (96 * (score - low)) / (high - low) : 100}%`;
  return el("td", { class: chosen ? "score chosen" : "score" },
    el("span", { class: "track", "aria-hidden": "true" }, filled), bound(most) + fixed(score));
};

const bound = (most) => (most ? "≤ " : "");

const decisions = (item, decided) => {
  const right = (place) => (item.gold.includes(place) ? " (right)" : "");
  const heads = item.choices.map((_, place) => el("th", { scope: "col" }, letter(place) + right(place)));
  const rows = decided.map(([protocol, predicted, credit, tie, scores, most]) => {
    const verdict = credit === null ? "missing" : credit === 1 ? "right" : credit === 0 ? "wrong" : `credit ${fixed(credit)}`;
    const tied = tie === 2 ? ", tie" : tie === 1 ? ", nearly tied" : "";
    const cells = item.choices.map((_, place) => (scores
      ? bar(scores[place] ?? null, scores, place === predicted, most?.[place])
      : el("td", { class: "score" }, place === predicted ? "chosen" : "")));
    const name = page.protocols[protocol];
    const row = el("tr", {}, el("th", { scope: "row" }, name), ...cells,
      el("td", {}, predicted < 0 ? "none" : letter(predicted)), el("td", { class: `verdict ${verdict}` }, verdict + tied));
    row.classList.toggle("chosen", name === state.get("protocol"));
    return row;
  });
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Scores and choices" },
    el("table", { class: "decisions" }, el("thead", {}, el("tr", {},
      el("th", { scope: "col" }, "protocol"), ...heads, el("th", { scope: "col" }, "chose"), el("th", { scope: "col" }, "is"))),
    el("tbody", {}, ...rows)));
};

const tokensOf = (scored) => {
  const notes = [
    ...(scored.before === undefined ? [] : [`${nats(scored.before)} nats subtracted for what comes before`]),
    ...(scored.after === undefined ? [] : [`${nats(scored.after)} nats added for what follows`]),
    ...(scored.warnings ?? []),
  ];
  const remarks = notes.length ? el("div", { class: "quiet" }, notes.join("; ")) : null;
  const shown = scored.tokens.length
    ? el("code", {}, ...scored.tokens.map(([text, logprob]) => el("span", { class: "token" }, text, el("small", {}, bound(scored.most) + nats(logprob)))))
    : el("code", {}, scored.text);
  const after = scored.null === undefined ? [] : [" after ", el("code", {}, scored.null || "(nothing)")];
  return el("tr", {},
    el("th", { scope: "row" }, scored.choice < 0 ? "text" : letter(scored.choice) + (scored.part ? `, part ${scored.part + 1}` : ""), ...after),
    el("td", {}, shown, remarks),
    el("td", { class: "number" }, bound(scored.most) + fixed(scored.total ?? scored.value)));
};

const prompt = (asked, model) => {
  const names = asked.protocols.map((place) => page.protocols[place]);
  const context = asked.context;
  const inner = [asked.how, ...asked.notes].join(" · ");
  const own = asked.scored.filter((each) => each.null === undefined);
  const copy = () => {
    const choices = own.map((each) => JSON.stringify(sent(each.text)));
    return `import choicewise\n\nchoicewise.score(\n    ${JSON.stringify(model)},\n    ${JSON.stringify(sent(context))},\n    [${choices.join(", ")}],\n)`;
  };
  const contexts = own.map((each) => each.context).filter(Boolean);
  return el("details", {},
    el("summary", {}, names.length > 2 ? `${names[0]} and ${names.length - 1} other scores of it` : names.join(", ")),
    el("p", { class: "small quiet" }, inner),
    context === null ? null : el("pre", { tabindex: "0" }, context),
    ...[...new Set(contexts)].map((text) => el("pre", { tabindex: "0" }, text)),
    asked.scored.length ? el("div", { class: "scroll whole", tabindex: "0", role: "region", "aria-label": "Scored tokens" },
      el("table", { class: "tokens" }, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "option"),
        el("th", { scope: "col" }, "tokens, each with its log-probability in nats"), el("th", { scope: "col", class: "number" }, "sum"))),
      el("tbody", {}, ...asked.scored.map(tokensOf)))) : null,
    context !== null && own.length > 1 ? copyButton("Copy as Python", copy) : null);
};

// The item as elements; `run` is the one in view.
const itemShown = ({ item, shared }, run, place) => {
  const answered = item.runs[place];
  const command = `choicewise explain ${run.command} --item ${item.command ?? item.id}`;
  const choices = item.choices.map((text, at) => el("li", { class: item.gold.includes(at) ? "right" : null },
    el("span", { class: "quiet" }, `${letter(at)} `), text, item.gold.includes(at) ? el("b", {}, " right") : null));
  return [
    el("h3", {}, `${item.id}${item.subject ? ` · ${item.subject}` : ""}`),
    el("p", { class: "choose" },
      copyButton("Copy a link to this item", () => location.href.split("#")[0] + state.link({}, "items")),
      copyButton("Copy the command that shows it", () => command),
      el("button", { type: "button", class: "plain", onclick: () => state.set({ item: null }) }, "Close")),
    el("p", { class: "question", tabindex: item.question.length > 2000 ? "0" : null }, item.question),
    el("ul", { class: "choices" }, ...choices),
    ...(answered ? [
      el("h4", {}, `What ${run.label} chose under each protocol`),
      el("p", { class: "small quiet" }, "Scores in the protocol's own unit; a bar goes from the lowest to the highest of its row. The chosen one is filled."),
      decisions(item, answered.decided),
      el("h4", {}, "What was sent, and the tokens that were scored"),
      el("p", { class: "small quiet" }, "⏎ ends a line, ␣ is a space at an edge or beside another; a line | stands between tokens."),
      ...requestsOf(answered, shared).map((asked) => prompt(asked, run.model)),
    ] : [el("p", {}, `${run.label} was not asked this item.`)]),
  ];
};
