"use strict";
(() => {
  const PAGE = 50;
  const byId = (id) => document.getElementById(id);
  const { episodes, texts } = JSON.parse(byId("data").textContent);
  const { runs, rules } = JSON.parse(byId("labels").textContent);
  const text = (number) => (number === undefined ? null : texts[number]);
  const outcome = (e) => (e.right < 0 ? "failed" : e.right ? "right" : "wrong");
  const MARKS = { right: "✓ right", wrong: "✗ wrong", failed: "! failed" };
  const GROUPS = { suspect: "suspected hack", gained: "gained by training", lost: "lost by training", best: "best", worst: "worst" };

  // Text only ever becomes text: nothing here parses markup.
  const make = (tag, content, name) => {
    const node = document.createElement(tag);
    if (name) node.className = name;
    if (content !== undefined && content !== null) node.textContent = content;
    return node;
  };

  const words = new Map();
  const haystack = (e) => {
    if (!words.has(e)) {
      const numbers = [e.q, e.gold, e.answer, ...(e.turns || []).flatMap((t) => [t.text, t.argument, t.result])];
      words.set(e, [e.id, ...numbers.map((n) => text(n) || "")].join("\n").toLowerCase());
    }
    return words.get(e);
  };

  const FILTERS = [
    ["run", "Run", (e) => [runs[e.run]]],
    ["policy", "Policy", (e) => [e.policy]],
    ["group", "Group", (e) => (e.groups || []).map((name) => GROUPS[name])],
    ["rule", "Suspicion", (e) => e.rules || []],
    ["outcome", "Outcome", (e) => [outcome(e)]],
    ["kind", "Kind", (e) => [e.kind || "-"]],
    ["stop", "Stop reason", (e) => [e.stop.replace("_", " ")]],
    ["broke", "Broke at", (e) => (e.broke ? [e.broke.replace("_", " ")] : [])],
  ];
  const selects = [];
  for (const [name, label, values] of FILTERS) {
    const counts = new Map();
    for (const e of episodes) for (const value of values(e)) counts.set(value, (counts.get(value) || 0) + 1);
    if (counts.size < (name === "group" || name === "rule" ? 1 : 2)) continue;
    const select = make("select");
    select.id = `by-${name}`;
    const all = make("option", "all");
    all.value = "";
    select.append(all);
    for (const [value, count] of counts) {
      const option = make("option", `${value} (${count})`);
      option.value = value;
      select.append(option);
    }
    const wrap = make("label", label);
    wrap.append(select);
    byId("filters").append(wrap);
    selects.push([select, values]);
    select.addEventListener("change", () => filter());
  }
  const order = make("select");
  order.id = "order";
  for (const [value, label] of [["", "as chosen"], ["high", "reward, high first"], ["low", "reward, low first"], ["calls", "most tool calls"]]) {
    const option = make("option", label);
    option.value = value;
    order.append(option);
  }
  const wrapped = make("label", "Order");
  wrapped.append(order);
  byId("filters").append(wrapped);
  order.addEventListener("change", () => filter());

  let found = episodes;
  let page = 0;
  let current = null;

  const ORDERS = { high: (a, b) => b.reward - a.reward, low: (a, b) => a.reward - b.reward, calls: (a, b) => (b.calls || 0) - (a.calls || 0) };
  const filter = () => {
    const asked = byId("find").value.trim().toLowerCase();
    const wanted = selects.filter(([select]) => select.value);
    found = episodes.filter((e) => wanted.every(([select, values]) => values(e).includes(select.value)) && (!asked || haystack(e).includes(asked)));
    if (order.value) found = [...found].sort(ORDERS[order.value]);
    page = 0;
    list();
  };

  const list = () => {
    const first = page * PAGE;
    const shown = found.slice(first, first + PAGE);
    byId("count").textContent = found.length
      ? `${found.length.toLocaleString("en")} episodes, ${first + 1} to ${first + shown.length} shown`
      : "No episode fits: take a filter back.";
    byId("list").replaceChildren(
      ...shown.map((e) => {
        const button = make("button");
        button.type = "button";
        const top = make("span", null, "top");
        top.append(make("span", MARKS[outcome(e)], outcome(e)), make("span", `reward ${(e.reward ?? 0).toFixed(2)}`), make("span", e.policy));
        if (runs.length > 1) top.append(make("span", runs[e.run]));
        for (const group of e.groups || []) top.append(make("span", GROUPS[group], "badge"));
        button.append(top, make("span", text(e.q), "what"));
        button.addEventListener("click", () => show(e, true));
        if (e === current) button.setAttribute("aria-current", "true");
        const item = make("li");
        item.append(button);
        return item;
      }),
    );
    const pages = Math.max(1, Math.ceil(found.length / PAGE));
    const step = (label, by) => {
      const button = make("button", label);
      button.type = "button";
      button.disabled = page + by < 0 || page + by >= pages;
      button.addEventListener("click", () => {
        page += by;
        list();
        byId("list").scrollTop = 0;
      });
      return button;
    };
    byId("pages").replaceChildren(step("previous", -1), make("span", `page ${page + 1} of ${pages}`), step("next", 1));
  };

  const facts = (pairs) => {
    const dl = make("dl");
    for (const [name, value] of pairs) {
      if (value === null || value === undefined || value === "") continue;
      dl.append(make("dt", name), make("dd", String(value)));
    }
    return dl;
  };

  const block = (label, content, name) => {
    const pre = make("pre", content, name);
    pre.tabIndex = 0;
    return [make("div", label, "who"), pre];
  };

  const show = (e, jump) => {
    current = e;
    for (const button of byId("list").querySelectorAll("button")) button.removeAttribute("aria-current");
    const number = found.indexOf(e) - page * PAGE;
    if (number >= 0 && number < PAGE) byId("list").children[number]?.firstChild.setAttribute("aria-current", "true");
    const parts = Object.entries(e.parts || {}).map(([name, value]) => `${name} ${value > 0 ? "+" : ""}${value}`);
    const box = byId("episode");
    box.replaceChildren(
      make("h3", text(e.q)),
      facts([
        ["answer", text(e.answer) ?? "none"],
        ["gold answer", text(e.gold)],
        ["verdict", `${MARKS[outcome(e)]}; exact match ${e.exact ? "right" : "wrong"}, F1 ${e.f1 ?? 0}`],
        ["reward", `${e.reward ?? 0}${parts.length ? ` (${parts.join(", ")})` : ""}`],
        ["ended", `${e.stop.replace("_", " ")}, ${e.calls || 0} tool calls, ${e.tokens || 0} tokens written`],
        ["broke at", e.broke && e.broke.replace("_", " ")],
        ["failure", text(e.failure)],
        ["policy", runs.length > 1 ? `${e.policy}, run ${runs[e.run]}` : e.policy],
        ["question", `${e.id}${e.kind ? `, ${e.kind.replace("_", " ")}` : ""}`],
        ...(e.rules || []).map((rule) => ["suspected", `${rule}: ${rules[rule]}`]),
      ]),
    );
    const others = episodes.filter((o) => o !== e && o.id === e.id && o.q === e.q);
    if (others.length) {
      const row = make("p", "Same question:", "others");
      for (const other of others) {
        const button = make("button", `${other.policy}${other.run === e.run ? "" : `, ${runs[other.run]}`} ${MARKS[outcome(other)]}`);
        button.type = "button";
        button.addEventListener("click", () => show(other, true));
        row.append(button);
      }
      box.append(row);
    }
    (e.turns || []).forEach((turn, i) => {
      box.append(make("h4", `Turn ${i + 1}${turn.tool ? `: ${turn.tool}` : turn.answer !== undefined ? ": answer" : ""}`));
      if (turn.text !== undefined) box.append(...block("the policy wrote", text(turn.text), "wrote"));
      else if (turn.argument !== undefined) box.append(...block("asked", text(turn.argument), "wrote"));
      else if (turn.answer !== undefined) box.append(...block("came out", text(turn.answer) || "nothing", "wrote"));
      if (turn.result !== undefined) box.append(...block(turn.unserved ? "not served, because" : "came back", text(turn.result), "result"));
    });
    if (!(e.turns || []).length) box.append(make("p", "No turn was played.", "note"));
    box.scrollTop = 0;
    if (jump && matchMedia("(max-width: 56rem)").matches) {
      box.focus({ preventScroll: true });
      box.scrollIntoView({ block: "start" });
    }
  };

  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  let waiting = 0;
  byId("find").addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(filter, 120);
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (event.key === "/" && !typing) {
      event.preventDefault();
      byId("find").focus();
    }
    if (!byId("list").contains(event.target) || !["ArrowDown", "ArrowUp"].includes(event.key)) return;
    event.preventDefault();
    const buttons = [...byId("list").querySelectorAll("button")];
    const next = buttons[buttons.indexOf(event.target) + (event.key === "ArrowDown" ? 1 : -1)];
    if (next) {
      next.focus();
      next.click();
    }
  });
  list();
  if (found.length) show(found[0], false);
})();
