const PROTOCOLS = ["protocol", "from", "to", "p", "q"];

// A protocol of the run in view; a catalogue's name stands for its only variant there.
const namedProtocol = (name) => {
  const names = page?.runs[runInView()].protocols.map((place) => page.protocols[place]) ?? [];
  const variants = names.filter((other) => page.plain[page.protocols.indexOf(other)] === name);
  return names.includes(name) || variants.length !== 1 ? name : variants[0];
};

// What the reader chose, in the fragment of the address: #items&run=...&item=...  Its first part names a section.
const state = {
  values: new URLSearchParams(),
  section: "",
  listeners: [],

  get(name, fallback = "") {
    return this.values.get(name) ?? fallback;
  },

  // Take over the fragment.  A plain anchor leaves what was chosen as it is.
  read() {
    const [first, ...rest] = location.hash.slice(1).split("&");
    const named = first.includes("=") ? [first, ...rest] : rest;
    this.section = first.includes("=") ? "" : new URLSearchParams(`section=${first}`).get("section");
    if (named.length) {
      const before = this.values;
      this.values = new URLSearchParams(named.join("&"));
      for (const name of PROTOCOLS) {
        if (this.values.has(name)) this.values.set(name, namedProtocol(this.values.get(name)));
      }
      this.tell([...new Set([...before.keys(), ...this.values.keys()])]
        .filter((name) => before.get(name) !== this.values.get(name)));
    } else if (this.section && this.values.size) {
      this.write();
    }
  },

  // The fragment with these changes, null for what is no longer chosen.
  link(changes, section = this.section) {
    const values = new URLSearchParams(this.values);
    for (const [name, value] of Object.entries(changes)) {
      if (value === null || value === "") values.delete(name);
      else values.set(name, value);
    }
    const text = values.toString();
    return `#${[encodeURIComponent(section), text].filter(Boolean).join("&")}`;
  },

  set(changes, section = this.section) {
    const link = this.link(changes, section);
    this.values = new URLSearchParams(link.slice(1).split("&").filter((part) => part.includes("=")).join("&"));
    this.section = section;
    this.write();
    this.tell(Object.keys(changes));
  },

  write() {
    history.replaceState(null, "", this.link({}));
  },

  // Call `heard` when one of the names changes.
  on(names, heard) {
    this.listeners.push([names, heard]);
  },

  tell(changed) {
    for (const [names, heard] of this.listeners) if (names.some((name) => changed.includes(name))) heard();
  },
};
addEventListener("hashchange", () => state.read());
