"use strict";
(() => {
  const PAGE = 50;
  const byId = (id) => document.getElementById(id);
  const { episodes, texts } = JSON.parse(byId("data").textContent);
  const { runs, rules, pairs } = JSON.parse(byId("labels").textContent);
  const text = (number) => (number === undefined ? null : texts[number]);
  const outcome = (e) => (e.right < 0 ? "failed" : e.right ? "right" : "wrong");
  const MARKS = { right: "✓ right", wrong: "✗ wrong", failed: "! failed" };
  const GROUPS = { suspect: "suspected hack", best: "best", worst: "worst" };
  const CHANGES = { lost: ["✗ lost", "wrong"], won: ["✓ won", "right"], wrong: ["both wrong", ""], right: ["both right", ""] };
  const byPolicy = (e) => (runs.length > 1 ? `${runs[e.run]}, ${e.policy}` : e.policy);

  // Text only ever becomes text: nothing here parses markup.
  const make = (tag, content, name) => {
    const node = document.createElement(tag);
    if (name) node.className = name;
    if (content !== undefined && content !== null) node.textContent = content;
    return node;
  };

  const said = (e, tag) => make(tag, text(e.answer) ?? "none", "said");

  const option = (label, value) => {
    const node = make("option", label);
    node.value = value;
    return node;
  };
  const control = (id, label, options, parent) => {
    const select = make("select");
    select.id = id;
    select.append(...options);
    const wrap = make("label", label);
    wrap.append(select);
    parent.append(wrap);
    select.addEventListener("change", () => filter());
    return select;
  };

  // A case: what every policy of every run did with one question.
  const cases = [];
  const caseOf = new Map();
  const known = new Map();
  for (const e of episodes) {
    const key = JSON.stringify([e.id, e.q]);
    if (!known.has(key)) cases.push(known.set(key, []).get(key));
    known.get(key).push(e);
    caseOf.set(e, known.get(key));
  }
  const side = (c, [run, policy]) => c.find((e) => e.run === run && e.policy === policy);
  const sides = (c) => (pair.value ? offered[pair.value].map((one) => side(c, one)) : []);
  const change = (c) => {
    const [a, b] = sides(c);
    if (!a || !b || a.right < 0 || b.right < 0) return "";
    return a.right === b.right ? outcome(a) : b.right ? "won" : "lost";
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
    ["source", "Source", (e) => (e.source ? [e.source] : [])],
    ["stop", "Stop reason", (e) => [e.stop.replace("_", " ")]],
    ["broke", "Broke at", (e) => (e.broke ? [e.broke.replace("_", " ")] : [])],
  ];
  const selects = [];
  for (const [name, label, values] of FILTERS) {
    const counts = new Map();
    for (const e of episodes) for (const value of values(e)) counts.set(value, (counts.get(value) || 0) + 1);
    if (counts.size < (name === "group" || name === "rule" ? 1 : 2)) continue;
    const options = [...counts].map(([value, count]) => option(`${value} (${count})`, value));
    selects.push([control(`by-${name}`, label, [option("all", ""), ...options], byId("filters")), values]);
  }
  const offered = pairs.filter((ends) => cases.some((c) => ends.every((end) => side(c, end))));
  const named = ([run, policy]) => byPolicy({ run, policy });
  const pair = control("pair", "Compare", offered.map(([a, b], i) => option(`${named(a)} → ${named(b)}`, i)), byId("filters"));
  if (!offered.length) pair.parentNode.remove();
  const orders = [["lost first", ""], ["reward, high first", "high"], ["reward, low first", "low"], ["most tool calls", "calls"]];
  const order = control("order", "Order", orders.map(([label, value]) => option(label, value)), byId("filters"));

  let found = [];
  let wantedChange = "";
  let page = 0;
  let current = null;

  const ORDERS = {
    high: (a, b) => b.reward - a.reward,
    low: (a, b) => a.reward - b.reward,
    calls: (a, b) => (b.calls || 0) - (a.calls || 0),
  };
  const filter = () => {
    const asked = byId("find").value.trim().toLowerCase();
    const wanted = selects.filter(([select]) => select.value);
    const fits = (e) => wanted.every(([select, values]) => values(e).includes(select.value)) && (!asked || haystack(e).includes(asked));
    const all = [];
    for (const c of cases) {
      const [, after] = sides(c);
      const lead = after && fits(after) ? after : c.find(fits);
      if (lead) all.push({ c, lead, change: change(c) });
    }
    changes(all);
    found = all.filter((row) => !wantedChange || row.change === wantedChange);
    const rank = (row) => (row.change ? Object.keys(CHANGES).indexOf(row.change) : 9);
    found.sort((a, b) => (order.value ? ORDERS[order.value](a.lead, b.lead) : rank(a) - rank(b)));
    page = 0;
    list();
  };

  const changes = (all) => {
    const box = byId("changes");
    const focused = box.contains(document.activeElement) ? document.activeElement.value : null;
    const buttons = [["", ["all"]], ...Object.entries(CHANGES)].map(([value, [label]]) => {
      const button = make("button", `${label} (${all.filter((row) => !value || row.change === value).length.toLocaleString("en")})`);
      button.type = "button";
      button.value = value;
      button.setAttribute("aria-pressed", value === wantedChange);
      button.addEventListener("click", () => {
        wantedChange = value;
        filter();
      });
      return button;
    });
    box.replaceChildren(...(offered.length ? buttons : []));
    if (focused !== null) buttons.find((button) => button.value === focused).focus();
  };

  const list = () => {
    const first = page * PAGE;
    const shown = found.slice(first, first + PAGE);
    byId("count").textContent = found.length
      ? `${found.length.toLocaleString("en")} questions, ${first + 1} to ${first + shown.length} shown`
      : "No question fits: take a filter back.";
    byId("list").replaceChildren(
      ...shown.map(({ c, lead, change }) => {
        const button = make("button");
        button.type = "button";
        const top = make("span", null, "top");
        const [label, name] = CHANGES[change] || [MARKS[outcome(lead)], outcome(lead)];
        top.append(make("span", label, name), make("span", `reward ${(lead.reward ?? 0).toFixed(2)}`));
        const told = change ? sides(c) : [lead];
        for (const group of new Set(told.flatMap((e) => e.groups || []))) top.append(make("span", GROUPS[group], "badge"));
        const answers = told.map((e) => {
          const answer = make("span", null, "answer");
          answer.append(`${byPolicy(e)} `, make("span", MARKS[outcome(e)][0], outcome(e)), " ", said(e, "span"));
          return answer;
        });
        button.append(top, make("span", text(lead.q), "what"), ...answers);
        button.addEventListener("click", () => show(lead, true));
        if (c === caseOf.get(current)) button.setAttribute("aria-current", "true");
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

  const answersTable = (shown) => {
    const rows = caseOf.get(shown).map((e) => {
      const row = make("tr");
      const head = make("th");
      head.scope = "row";
      const button = make("button", byPolicy(e));
      button.type = "button";
      button.setAttribute("aria-pressed", e === shown);
      button.addEventListener("click", () => show(e, false));
      head.append(button);
      row.append(head, make("td", MARKS[outcome(e)], outcome(e)), said(e, "td"), make("td", `${e.calls || 0}`));
      return row;
    });
    const heads = ["episode", "verdict", "answer", "calls"].map((label) => {
      const head = make("th", label);
      head.scope = "col";
      return head;
    });
    const [table, thead, top, tbody] = ["table", "thead", "tr", "tbody"].map((tag) => make(tag));
    top.append(...heads);
    thead.append(top);
    tbody.append(...rows);
    table.append(make("caption", "What was answered; choose an episode to read it"), thead, tbody);
    return table;
  };

  const show = (e, jump) => {
    current = e;
    for (const button of byId("list").querySelectorAll("button")) button.removeAttribute("aria-current");
    const number = found.findIndex((row) => row.c === caseOf.get(e)) - page * PAGE;
    if (number >= 0 && number < PAGE) byId("list").children[number]?.firstChild.setAttribute("aria-current", "true");
    const parts = Object.entries(e.parts || {}).map(([name, value]) => `${name} ${value > 0 ? "+" : ""}${value}`);
    const box = byId("episode");
    const within = box.contains(document.activeElement);
    box.replaceChildren(
      make("h3", text(e.q)),
      facts([["gold answer", text(e.gold)]]),
      answersTable(e),
      facts([
        ["verdict", `${MARKS[outcome(e)]}; typed match ${e.typed ? "right" : "wrong"}, exact match ${e.exact ? "right" : "wrong"}, F1 ${e.f1 ?? 0}`],
        ["ROUGE-L", e.rouge],
        ["reward", `${e.reward ?? 0}${parts.length ? ` (${parts.join(", ")})` : ""}`],
        ["ended", `${e.stop.replace("_", " ")}, ${e.calls || 0} tool calls, ${e.tokens || 0} tokens written`],
        ["broke at", e.broke && e.broke.replace("_", " ")],
        ["failure", text(e.failure)],
        ["policy", byPolicy(e)],
        ["question", `${e.id}${e.kind ? `, ${e.kind.replace("_", " ")}` : ""}`],
        ...(e.rules || []).map((rule) => ["suspected", `${rule}: ${rules[rule]}`]),
      ]),
    );
    (e.turns || []).forEach((turn, i) => {
      box.append(make("h4", `Turn ${i + 1}${turn.tool ? `: ${turn.tool}` : turn.answer !== undefined ? ": answer" : ""}`));
      if (turn.text !== undefined) box.append(...block("the policy wrote", text(turn.text), "wrote"));
      else if (turn.argument !== undefined) box.append(...block("asked", text(turn.argument), "wrote"));
      else if (turn.answer !== undefined) box.append(...block("came out", text(turn.answer) || "nothing", "wrote"));
      if (turn.result !== undefined) box.append(...block(turn.unserved ? "not served, because" : "came back", text(turn.result), "result"));
    });
    if (!(e.turns || []).length) box.append(make("p", "No turn was played.", "note"));
    if (within) box.querySelector("[aria-pressed=true]").focus();
    else box.scrollTop = 0;
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
  filter();
  if (found.length) show(found[0].lead, false);
})();
