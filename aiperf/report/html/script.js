"use strict";
(() => {
  const root = document.documentElement;
  const at = (id) => document.getElementById(id);
  const table = at("cases"), body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  const tags = JSON.parse(at("tags").textContent);
  const order = new Intl.Collator(undefined, { numeric: true });
  const rows = [...body.rows].map((element, place) => ({
    element, place,
    scenario: element.cells[0].textContent,
    words: element.className.split(" "),
    keys: element.dataset.k.split(" ").map((k) => (k === "-" ? null : Number(k))),
    text: "",
  }));
  const chosen = { column: -1, ascending: true };

  // A row without a value stands last, whichever way the others run.
  function sort(column, ascending) {
    Object.assign(chosen, { column, ascending });
    heads.forEach((head, i) => {
      if (i === column) head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    });
    const key = heads[column]?.dataset.k, way = ascending ? 1 : -1;
    const sorted = [...rows];
    if (key !== undefined) {
      sorted.sort((a, b) => {
        const x = a.keys[key], y = b.keys[key];
        if (x === null || y === null) return (x === null) - (y === null) || a.place - b.place;
        return way * (x - y) || a.place - b.place;
      });
    } else if (column >= 0) {
      const texts = new Map(rows.map((row) => [row, row.element.cells[column].textContent]));
      sorted.sort((a, b) => way * order.compare(texts.get(a), texts.get(b)) || a.place - b.place);
    }
    body.append(...sorted.map((row) => row.element));
    remember();
  }

  function filter() {
    const words = at("text").value.toLowerCase().split(/\s+/).filter(Boolean);
    const word = at("word").value, scenario = at("scenario").value, tag = at("tag").value;
    let shown = 0;
    for (const row of rows) {
      if (words.length && !row.text) row.text = `${row.element.textContent} ${(tags[row.scenario] || []).join(" ")}`.toLowerCase();
      const kept = (!word || row.words.includes(word)) && (!scenario || row.scenario === scenario)
        && (!tag || (tags[row.scenario] || []).includes(tag)) && words.every((w) => row.text.includes(w));
      row.element.hidden = !kept;
      shown += kept;
    }
    at("shown").value = `${shown} of ${rows.length} rows`;
    for (const button of document.querySelectorAll("#tiles button")) {
      button.setAttribute("aria-pressed", String(button.parentElement.dataset.word === word));
    }
    remember();
  }

  // The choice lives in the address, so that a reload or a link brings it back; anchors of cases have no "?".
  function remember() {
    const state = new URLSearchParams();
    for (const id of ["text", "word", "scenario", "tag"]) if (at(id).value) state.set(id, at(id).value);
    if (chosen.column >= 0) state.set("sort", `${chosen.column}${chosen.ascending ? "" : "-"}`);
    const text = state.toString();
    if (text || location.hash.startsWith("#?")) history.replaceState(null, "", text ? `#?${text}` : "#");
  }

  function recall() {
    if (!location.hash.startsWith("#?")) return;
    const state = new URLSearchParams(location.hash.slice(2));
    for (const id of ["text", "word", "scenario", "tag"]) at(id).value = state.get(id) || "";
    const found = /^(\d+)(-?)$/.exec(state.get("sort") || "");
    if (found && heads[found[1]]) sort(Number(found[1]), !found[2]);
  }

  function button(element, press) {
    const made = document.createElement("button");
    made.type = "button";
    made.append(...element.childNodes);
    made.addEventListener("click", press);
    element.append(made);
    return made;
  }

  function options(id, names) {
    at(id).append(...names.map((name) => new Option(name, name)));
    at(id).parentElement.hidden = names.length < 1;
  }

  function copy(code) {
    const made = button(document.createElement("span"), async () => {
      getSelection().selectAllChildren(code);
      try { await navigator.clipboard.writeText(code.textContent); } catch { document.execCommand("copy"); }
      made.textContent = "copied";
    });
    made.textContent = "copy";
    code.after(" ", made);
  }

  heads.forEach((head, i) => button(head, () => sort(i, chosen.column === i ? !chosen.ascending : true)));
  for (const tile of document.querySelectorAll("#tiles li")) {
    button(tile, () => {
      at("word").value = at("word").value === tile.dataset.word ? "" : tile.dataset.word;
      filter();
    });
  }
  options("scenario", [...new Set(rows.map((row) => row.scenario))]);
  options("tag", [...new Set(Object.values(tags).flat())].sort());
  at("filters").hidden = false;
  at("filters").addEventListener("input", filter);
  at("filters").addEventListener("submit", (event) => event.preventDefault());
  at("filters").addEventListener("reset", () => setTimeout(filter));
  at("theme").hidden = false;
  at("theme").addEventListener("click", () => {
    const dark = (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
    root.dataset.theme = dark ? "light" : "dark";
  });
  document.querySelectorAll("code.copy").forEach(copy);
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((d) => { d.open = true; }));
  recall();
  filter();
})();
