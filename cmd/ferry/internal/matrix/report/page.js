// Filters, and buttons that copy commands. Without this script all can be read.
"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const form = document.querySelector(".filter");
  const said = form.querySelector("[role=status]");
  const toggle = form.querySelector(".all");

  const plural = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;

  function filter() {
    const status = form.elements.status.value;
    const name = form.elements.stack.value.trim().toLowerCase();
    const named = (element) => element.dataset.stack.toLowerCase().includes(name);
    let cases = 0, stacks = 0;
    for (const line of all(".glance tbody tr")) {
      line.classList.toggle("off", !named(line) || status && !line.dataset.statuses.split(" ").includes(status));
    }
    for (const stack of all("section.stack")) {
      let shown = 0;
      for (const one of all(".case", stack)) {
        const on = named(stack) && (!status || one.dataset.status === status);
        one.classList.toggle("off", !on);
        shown += on;
      }
      for (const part of all(".part", stack)) {
        const some = part.querySelector(".case:not(.off)") !== null;
        part.classList.toggle("off", !some);
        if (some && status && status !== "pass") part.open = true;
      }
      stack.classList.toggle("off", shown === 0);
      cases += shown;
      stacks += shown > 0;
    }
    for (const folded of all(".absent")) folded.classList.toggle("off", !folded.querySelector("tbody tr:not(.off)"));
    for (const group of all(".group")) {
      for (const item of all("li", group)) item.classList.toggle("off", !named(item));
      group.classList.toggle("off", status && group.dataset.status !== status || !group.querySelector("li:not(.off)"));
    }
    for (const curve of all(".curve")) curve.classList.toggle("off", !named(curve));
    said.textContent = status || name ? `${plural(cases, "case")} of ${plural(stacks, "stack")}` : "";
  }
  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  toggle.addEventListener("click", () => {
    const open = toggle.textContent === "open all";
    for (const one of all("main details")) one.open = open;
    toggle.textContent = open ? "close all" : "open all";
  });
  form.hidden = false;

  // A link into something that is closed opens it.
  function follow() {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    if (!target) return;
    for (let e = target; e; e = e.parentElement) if (e instanceof HTMLDetailsElement) e.open = true;
    const only = target.querySelector(":scope > .case:only-child");
    if (only) only.open = true;
    target.scrollIntoView();
  }
  addEventListener("hashchange", follow);
  document.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#"]');
    if (link && link.hash === location.hash) follow();
  });
  follow();

  async function copy(text, code) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      getSelection().selectAllChildren(code); // then the user can, if this can't
      return document.execCommand("copy");
    }
  }
  for (const button of all("button.copy")) button.hidden = false;
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button.copy");
    if (!button) return;
    const code = button.parentElement.querySelector("code");
    button.textContent = await copy(code.textContent, code) ? "copied" : "press Ctrl-C";
    setTimeout(() => { button.textContent = "copy"; }, 2000);
  });

  // For browsers whose style sheets can't open details on paper.
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = all("main details:not([open])");
    for (const one of closed) one.open = true;
  });
  addEventListener("afterprint", () => {
    for (const one of closed) one.open = false;
  });
})();
