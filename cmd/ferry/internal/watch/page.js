// Polls the state of the job once per second while the page is visible, and shows it.
"use strict";
(() => {
  const find = (id) => document.getElementById(id);
  const interval = 1000, mostChanges = 1000, mostOperations = 40;
  const svgNamespace = "http://www.w3.org/2000/svg";
  let changes = [], latest = 0, failures = 0, isPaused = false, timer = 0, isPolling = false, selected = "", drawn = "";

  const element = (name, attributes = {}, ...children) => {
    const e = document.createElement(name);
    for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
    e.append(...children);
    return e;
  };
  const shape = (name, attributes = {}, ...children) => {
    const e = document.createElementNS(svgNamespace, name);
    for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
    e.append(...children);
    return e;
  };
  const write = (e, text) => { if (e.textContent !== text) e.textContent = text; };
  const className = (text) => "is-" + text.replaceAll(" ", "-");
  const plural = (n, one, many) => n === 1 ? `1 ${one}` : `${n} ${many}`;

  // Three digits with a decimal prefix.
  function figure(x) {
    let i = 0;
    for (; x >= 999.5 && i < 4; i++) x /= 1000;
    const text = x >= 99.5 || x === 0 || i === 0 && x >= 9.95 ? x.toFixed(0) : x >= 9.95 ? x.toFixed(1) : x.toFixed(i === 0 ? 1 : 2);
    return i > 0 ? text + "\u202f" + ["", "k", "M", "G", "T"][i] : text;
  }
  function clock(ms) {
    const s = Math.floor(ms / 1000), m = Math.floor(s / 60), h = Math.floor(m / 60), two = (n) => String(n).padStart(2, "0");
    return h > 0 ? `${h}:${two(m % 60)}:${two(s % 60)}` : `${m}:${two(s % 60)}`;
  }

  // Shows rows of cells in a table. Rows keep their elements by key.
  function fill(id, rows) {
    const body = find(id).tBodies[0];
    const old = new Map([...body.rows].map((r) => [r.dataset.key, r]));
    let next = body.firstElementChild;
    for (const { key, cells } of rows) {
      let row = old.get(key);
      if (row === undefined) {
        row = element("tr", { "data-key": key }, ...cells.map((c, i) => element(i === 0 ? "th" : "td", i === 0 ? { scope: "row" } : { class: c.class })));
      }
      old.delete(key);
      cells.forEach((c, i) => {
        write(row.cells[i], c.text);
        if (i > 0 && row.cells[i].className !== c.class) row.cells[i].className = c.class;
      });
      if (row !== next) body.insertBefore(row, next);
      else next = next.nextElementSibling;
    }
    for (const row of old.values()) row.remove();
  }
  const number = (x, isKnown = true) => ({ text: isKnown ? figure(x) : "–", class: "number" });

  function showRanks(state) {
    fill("ranks", state.ranks.map((r) => {
      return { key: String(r.rank), cells: [
        { text: String(r.rank) },
        { text: r.state === "open" ? "running" : r.state === "closed" ? "session closed" : r.state, class: className(r.state) },
        number(r.sent, r.isRated), number(r.received, r.isRated), number(r.sentBytes, r.isRated), number(r.receivedBytes, r.isRated),
        { text: r.isKnown ? String(r.comms) : "–", class: "number" },
        { text: (r.pid ? String(r.pid) : "–") + (state.nodes > 1 ? `, node ${r.node}` : ""), class: "number" },
      ] };
    }));
    write(find("more-ranks"), state.moreRanks > 0 ? `${plural(state.moreRanks, "rank", "ranks")} more with less traffic.` : "");
    const running = state.ranks.filter((r) => !["ended", "failed"].includes(r.state)).length;
    write(find("count"), String(running + state.moreRanks));
    const sum = (name) => state.ranks.reduce((n, r) => n + r[name], 0);
    write(find("messages"), figure(sum("sent")));
    write(find("bytes"), figure(sum("sentBytes")));
  }

  function showPairs(state) {
    fill("pairs", state.pairs.map((p) => {
      const isSelf = p.a === p.b;
      return { key: `${p.a} ${p.b} ${p.via}`, cells: [
        { text: `${p.a} – ${p.b}` }, { text: p.via, class: "" },
        number(p.sent), number(p.received, !isSelf), number(p.sentBytes), number(p.receivedBytes, !isSelf),
      ] };
    }));
    write(find("more-pairs"), state.morePairs > 0 ? `${plural(state.morePairs, "pair", "pairs")} more with less traffic.` :
      state.pairs.length === 0 && state.ranks.some((r) => r.isKnown) ? "No messages so far." : "");
  }

  function showChanges(added) {
    const log = find("log");
    for (const c of added) {
      log.prepend(element("li", { "data-serial": c.serial }, element("time", {}, clock(c.at)), element("span", { class: className(c.step) }, c.text)));
    }
    while (log.childElementCount > mostChanges) log.lastElementChild.remove();
  }

  // Operations that have made sets, the oldest first. A change is one operation in its latest state.
  function operations() {
    const all = new Map();
    for (const c of changes) {
      if (!c.op) continue;
      const key = c.results.join("\n");
      if (c.step === "undone") all.delete(key);
      else all.set(key, c);
    }
    return [...all.values()].slice(-mostOperations);
  }

  // Places sets in columns by the number of operations that made them.
  function layOut(state) {
    const sets = new Map(state.sets.map((s) => [s.name, s])), edges = operations(), vertices = new Map();
    const add = (name) => {
      if (!vertices.has(name)) vertices.set(name, { name, column: 0, set: sets.get(name) });
      return vertices.get(name);
    };
    for (const s of state.sets) add(s.name);
    for (const e of edges) {
      const column = 1 + Math.max(...e.operands.map((o) => add(o).column));
      for (const r of e.results) add(r).column = Math.max(add(r).column, column);
    }
    const used = new Set(edges.flatMap((e) => [...e.operands, ...e.results]));
    for (const e of edges) {
      if (["begun", "opened"].includes(e.step)) for (const r of e.results) add(r).isPending = true;
    }
    const shown = [...vertices.values()].filter((v, i) => used.has(v.name) || i < 20);
    const rows = [];
    for (const v of shown) {
      rows[v.column] = (rows[v.column] ?? -1) + 1;
      v.x = 10 + v.column * 290;
      v.y = 20 + rows[v.column] * 64;
    }
    return { shown, edges: edges.filter((e) => e.operands.every((o) => shown.includes(vertices.get(o)))), vertices };
  }

  const absence = (v) => v.isPending ? "not made yet" : "deleted";
  const shorten = (name) => name.length > 22 ? name.slice(0, 10) + "…" + name.slice(-11) : name;

  function drawEdge(e, from, to) {
    const x1 = from.x + 170, y1 = from.y + 20, x2 = to.x - 6, y2 = to.y + 20, bend = Math.max(30, (x2 - x1) / 2);
    const isFinished = e.step === "made" || e.step === "finished";
    return shape("g", { class: isFinished ? "edge" : "edge is-unfinished" },
      shape("path", { d: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`, "marker-end": "url(#arrow)" }),
      shape("text", { x: (x1 + x2) / 2, y: (y1 + y2) / 2 - 5, "text-anchor": "middle" }, isFinished ? e.op : `${e.op} (${e.step})`));
  }

  function drawVertex(v) {
    const size = v.set ? plural(v.set.size, "rank", "ranks") : absence(v);
    return shape("g", { class: `vertex${v.set ? "" : " is-gone"}${v.name === selected ? " is-selected" : ""}`, tabindex: 0, role: "button",
      "data-name": v.name, "aria-label": `${v.name}, ${size}`, transform: `translate(${v.x} ${v.y})` },
      shape("rect", { width: 170, height: 42, rx: 6 }), shape("text", { x: 8, y: 18 }, shorten(v.name)), shape("text", { x: 8, y: 34, class: "size" }, size));
  }

  function showGraph(state) {
    const { shown, edges, vertices } = layOut(state);
    const signature = JSON.stringify([shown.map((v) => [v.name, v.x, v.y, v.set, v.isPending]), edges.map((e) => [e.op, e.step, e.operands, e.results])]);
    if (signature !== drawn) {
      drawn = signature;
      const focused = document.activeElement?.dataset?.name;
      const width = Math.max(...shown.map((v) => v.x), 0) + 190, height = Math.max(...shown.map((v) => v.y), 0) + 60;
      const arrow = shape("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 6, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, shape("path", { d: "M0 0L8 4L0 8z" }));
      const lines = edges.flatMap((e) => e.operands.flatMap((o) => e.results.map((r) => drawEdge(e, vertices.get(o), vertices.get(r)))));
      const svg = shape("svg", { width, height, viewBox: `0 0 ${width} ${height}` }, shape("defs", {}, arrow), ...lines, ...shown.map(drawVertex));
      find("graph").replaceChildren(svg);
      if (focused) [...svg.querySelectorAll(".vertex")].find((v) => v.dataset.name === focused)?.focus();
    }
    write(find("older"), state.olderSets > 0 ? `${plural(state.olderSets, "older set is", "older sets are")} not shown.` : "");
    showSelected(vertices);
  }

  function showSelected(vertices) {
    const v = vertices.get(selected);
    const made = v && changes.findLast((c) => c.op && c.results.includes(selected));
    write(find("set"), v === undefined ? "Select a set to see its members." :
      `${selected}: ${v.set ? `ranks ${v.set.members}` : absence(v)}${made ? `, ${made.op} of ${made.operands.join(", ")}` : ""}`);
  }

  let shownState;
  function show(state) {
    shownState = state;
    const added = state.changes.filter((c) => c.serial > latest);
    if (added.length > 0) latest = added.at(-1).serial;
    changes = changes.concat(added).slice(-mostChanges);
    write(find("program"), state.program);
    if (state.program) document.title = `ferry run ${state.program}`;
    write(find("time"), clock(state.at));
    showRanks(state);
    showPairs(state);
    showChanges(added);
    showGraph(state);
    write(find("status"), state.isEnding ? "The job is ending" : state.program ? "The job is running" : "The job is starting");
  }

  async function poll() {
    clearTimeout(timer);
    if (isPaused || document.hidden || isPolling) return;
    isPolling = true;
    try {
      const reply = await fetch(`state?after=${latest}`, { cache: "no-store", signal: AbortSignal.timeout(10000) });
      if (!reply.ok) throw new Error(String(reply.status));
      const state = await reply.json();
      if (!isPaused) show(state);
      failures = 0;
    } catch (e) {
      failures++;
      if (!isPaused) write(find("status"), e.message === "503" ? "Too many pages are open: close some" :
        failures < 3 ? "No answer from ferry run" : "The job has ended, or its page can't be reached");
    }
    isPolling = false;
    timer = setTimeout(poll, interval);
  }

  function select(name) {
    selected = selected === name ? "" : name;
    for (const v of document.querySelectorAll(".vertex")) v.classList.toggle("is-selected", v.dataset.name === selected);
    if (shownState) showSelected(layOut(shownState).vertices);
  }
  find("graph").addEventListener("click", (e) => {
    const v = e.target.closest(".vertex");
    if (v) select(v.dataset.name);
  });
  find("graph").addEventListener("keydown", (e) => {
    const v = e.target.closest(".vertex");
    if (v && (e.key === "Enter" || e.key === " ")) {
      e.preventDefault();
      select(v.dataset.name);
    }
  });
  find("pause").addEventListener("click", () => {
    isPaused = !isPaused;
    write(find("pause"), isPaused ? "Resume" : "Pause");
    if (isPaused) write(find("status"), "Paused");
    poll();
  });
  document.addEventListener("visibilitychange", poll);
  poll();
})();
