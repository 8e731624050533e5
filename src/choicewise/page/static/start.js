// The page comes to life: what needs a script is shown, and everything follows what the address says.
let page = null;

const inView = () => {
  const run = page.runs[runInView()];
  one('[data-view="run"]').textContent = run.label;
  one('[data-view="dataset"]').textContent = run.dataset;
  const protocol = state.get("protocol");
  one('[data-view="protocol"]').textContent = protocol ? ` · ${protocol}` : "";
  for (const select of all('select[name="run"]')) select.value = run.label;
};

const start = async () => {
  page = await load("data");
  state.read();
  for (const each of all("[data-needs-script]")) each.hidden = false;
  for (const select of all('select[name="run"]')) {
    select.addEventListener("change", () => state.set({ run: select.value }));
  }
  state.on(["run", "protocol"], inView);
  inView();
  startStill();
  startOverview();
  const sections = [startNumbers(), startLadder(), startOrder(), startPair()];
  const further = furtherSections.map((begin) => begin());
  await Promise.all([...sections, ...further, startItems(), startProtocol()]);
  if (state.section && !state.get("item")) document.getElementById(state.section)?.scrollIntoView();
  document.documentElement.dataset.ready = "yes";
};
start();
