"use strict";
(() => {
  const form = document.getElementById("filters");
  const shown = form.querySelector(".shown");
  const items = [...document.querySelectorAll("[data-rule]")];
  const groups = [...document.querySelectorAll(".cause")];
  const texts = new Map();
  const text = (item) => {
    if (!texts.has(item)) texts.set(item, item.textContent.toLowerCase());
    return texts.get(item);
  };

  const apply = () => {
    const wanted = Object.fromEntries(["verdict", "level", "area"].map((name) => [name, form.elements[name].value]));
    const words = form.elements.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const count = { ARTICLE: 0, TR: 0 };
    for (const item of items) {
      const fits = Object.entries(wanted).every(([name, value]) => !value || item.dataset[name] === value);
      item.hidden = !(fits && words.every((word) => text(item).includes(word)));
      count[item.tagName] += item.hidden ? 0 : 1;
    }
    for (const group of groups) group.hidden = group.querySelector("article") && !group.querySelector("article:not([hidden])");
    const chosen = Object.entries({ ...wanted, search: words.join(" ") }).filter(([, value]) => value);
    const many = (name, what) => {
      const all = items.filter((item) => item.tagName === name).length;
      return `${count[name]} ${what}${count[name] === 1 ? "" : "s"}${chosen.length ? ` of ${all}` : ""}`;
    };
    shown.textContent = `${many("TR", "rule")}, ${many("ARTICLE", "finding")}`;
    // On paper, where the controls are not, the reader learns what was left out.
    shown.dataset.chosen = chosen.map(([name, value]) => `${name} ${value}`).join(", ");
    form.classList.toggle("chosen", chosen.length > 0);
  };

  // What a link leads to is never hidden.
  const reveal = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    if (target.closest("[hidden]")) {
      form.reset();
      apply();
    }
    for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
    target.scrollIntoView();
  };

  const say = (words) => {
    document.getElementById("said").textContent = words;
  };
  const copy = async (block, button) => {
    const range = document.createRange();
    range.selectNodeContents(block);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    let done = true;
    try {
      await navigator.clipboard.writeText(block.textContent);
    } catch {
      done = document.execCommand("copy");
    }
    button.textContent = done ? "Copied" : "Selected: press Ctrl+C";
    say(button.textContent);
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  };

  for (const block of document.querySelectorAll("[data-copy]")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.setAttribute("aria-label", `Copy: ${block.dataset.copy}`);
    button.addEventListener("click", () => copy(block, button));
    block.before(button);
  }
  form.hidden = false;
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(apply));
  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      form.elements.search.focus();
    }
    if (event.key === "Escape" && event.target === form.elements.search) form.reset();
  });
  addEventListener("beforeprint", () => {
    for (const part of document.querySelectorAll("details")) part.open = true;
  });
  addEventListener("hashchange", reveal);
  // The link that the address has already sends no hashchange.
  document.addEventListener("click", (event) => {
    if (event.target.closest("a[href]")?.hash === (location.hash || null)) reveal();
  });
  // A browser that goes back fills in the form as it was left, after this script has run.
  addEventListener("pageshow", () => {
    apply();
    if (document.querySelector("[hidden]:target, [hidden] :target")) reveal();
  });
  apply();
  if (location.hash) reveal();
})();
