(() => {
  "use strict";
  const findings = [...document.querySelectorAll("details.finding")];
  const every = () => [...document.querySelectorAll("details")];
  const button = document.getElementById("expand");

  const label = () => {
    if (button) button.textContent = findings.every((item) => item.open) ? "Collapse all" : "Expand all";
  };
  const toggleAll = () => {
    const open = !findings.every((item) => item.open);
    for (const item of findings) item.open = open;
    label();
  };

  let at = -1;
  const move = (by) => {
    const focused = findings.findIndex((item) => item.contains(document.activeElement));
    if (focused >= 0) at = focused;
    at = Math.max(0, Math.min(findings.length - 1, at + by));
    const head = findings[at].querySelector("summary");
    head.focus({ preventScroll: true });
    findings[at].scrollIntoView({ block: "start" });
  };

  const openTarget = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const around = target && target.closest("details");
    if (around && !around.open) {
      around.open = true;
      target.scrollIntoView();
    }
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !findings.length) return;
    if (event.key === "j") move(1);
    else if (event.key === "k") move(-1);
    else if (event.key === "e") toggleAll();
  });
  for (const item of findings) item.addEventListener("toggle", label);
  addEventListener("hashchange", openTarget);
  openTarget();

  let closed = [];
  addEventListener("beforeprint", () => {
    closed = every().filter((item) => !item.open);
    for (const item of closed) item.open = true;
  });
  addEventListener("afterprint", () => {
    for (const item of closed) item.open = false;
  });

  if (findings.length) {
    if (button) {
      button.hidden = false;
      button.addEventListener("click", toggleAll);
      label();
    }
    document.getElementById("keys").hidden = false;
  }
})();

(() => {
  "use strict";
  const source = document.getElementById("timeline-data");
  const box = document.getElementById("tl");
  if (!source || !box || typeof DecompressionStream === "undefined") return;
  const data = JSON.parse(source.textContent);
  const canvas = box.querySelector("canvas");
  const tip = document.getElementById("tl-tip");
  const said = document.getElementById("tl-said");
  const search = document.getElementById("tl-search");
  const context = canvas.getContext("2d");
  const LABEL = 18, ROW = 14, GAP = 6, AXIS = 20, CURVE = 46;

  const time = (units) => {
    const ns = units * data.unit;
    for (const [name, size] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]]) {
      if (ns >= size) return `${Number((ns / size).toPrecision(3))} ${name}`;
    }
    return `${Math.round(ns)} ns`;
  };
  const bytes = (count) => {
    for (const [name, size] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
      if (count >= size) return `${Number((count / size).toPrecision(3))} ${name}`;
    }
    return `${count} B`;
  };
  const many = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;

  let start, length, name, place, lane, row, kind;
  let ranges = [], tops = [], height = 0, width = 0;
  let from = 0, to = data.length, chosen = -1, marked = null, matches = null, band = null, colours = [];

  const unpack = async () => {
    const packed = Uint8Array.from(atob(data.columns), (char) => char.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    const buffer = await new Response(stream).arrayBuffer();
    const count = data.events;
    [start, length, name, place] = [0, 1, 2, 3].map((column) => new Uint32Array(buffer, column * 4 * count, count));
    [lane, row, kind] = [0, 1, 2].map((column) => new Uint8Array(buffer, 16 * count + column * count, count));
    for (let at = 0; at < count; ) {
      let end = at;
      while (end < count && lane[end] === lane[at] && row[end] === row[at]) end++;
      ranges.push({ lane: lane[at], row: row[at], first: at, end });
      at = end;
    }
    to = data.length;
    let y = 2;
    for (const one of data.lanes) {
      tops.push(y);
      y += LABEL + one.rows * ROW + GAP;
    }
    height = y + (data.memory.length > 1 ? LABEL + CURVE + GAP : 0) + AXIS;
  };

  const paint = () => {
    const style = getComputedStyle(document.documentElement);
    const value = (name) => style.getPropertyValue(name).trim();
    colours = data.kinds.map((one) => value(`--c${one.colour}`));
    return { text: value("--fg"), dim: value("--dim"), line: value("--line"), mark: value("--hot-edge"), ground: value("--bg") };
  };

  // The first event of a row that ends behind a time: events of one row follow each other.
  const seek = (range, at) => {
    let low = range.first, high = range.end;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (start[middle] + length[middle] < at) low = middle + 1;
      else high = middle;
    }
    return low;
  };
  const shown = (event) => (!matches || matches[name[event]]) && (marked === null || place[event] === marked);

  let planned = false;
  const plan = () => {
    if (planned) return;
    planned = true;
    requestAnimationFrame(() => {
      planned = false;
      draw();
    });
  };

  const draw = () => {
    const ratio = window.devicePixelRatio || 1;
    width = box.clientWidth;
    canvas.width = Math.max(1, Math.round(width * ratio));
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const tone = paint();
    context.clearRect(0, 0, width, height);
    context.font = "11px " + getComputedStyle(document.body).fontFamily;
    context.textBaseline = "middle";
    const scale = width / (to - from);
    data.lanes.forEach((one, number) => {
      context.fillStyle = tone.dim;
      context.fillText(one.name, 2, tops[number] + LABEL / 2);
    });
    for (const range of ranges) rowOf(range, scale, tone);
    if (data.memory.length > 1) curve(scale, tone);
    axis(tone);
    if (band) {
      context.fillStyle = tone.mark;
      context.globalAlpha = 0.2;
      context.fillRect((band[0] - from) * scale, 0, (band[1] - band[0]) * scale, height - AXIS);
      context.globalAlpha = 1;
    }
  };

  const rowOf = (range, scale, tone) => {
    const y = tops[range.lane] + LABEL + range.row * ROW;
    let filled = -1;
    for (let at = seek(range, from); at < range.end && start[at] <= to; at++) {
      const x = (start[at] - from) * scale;
      const wide = length[at] * scale;
      if (wide < 1 && Math.floor(x) === filled && at !== chosen) continue;
      filled = Math.floor(x + wide);
      context.globalAlpha = shown(at) ? 1 : 0.15;
      context.fillStyle = colours[kind[at]];
      context.fillRect(x, y, Math.max(wide - (wide > 3 ? 0.5 : 0), 0.75), ROW - 1);
      if (wide > 46) {
        context.fillStyle = tone.ground;
        const left = Math.max(x, 0) + 3;
        const room = Math.floor((Math.min(x + wide, width) - left - 3) / 6);
        if (room > 4) context.fillText(data.names[name[at]].slice(0, room), left, y + ROW / 2);
      }
      if (at === chosen) {
        context.globalAlpha = 1;
        context.strokeStyle = tone.text;
        context.lineWidth = 2;
        context.strokeRect(x - 1, y - 1, Math.max(wide, 1) + 2, ROW + 1);
      }
    }
    context.globalAlpha = 1;
  };

  const curve = (scale, tone) => {
    const top = tops[tops.length - 1] + LABEL + data.lanes[data.lanes.length - 1].rows * ROW + GAP;
    const most = Math.max(...data.memory.map((one) => one[1])) || 1;
    context.fillStyle = tone.dim;
    context.fillText(`memory in use, at most ${bytes(most)}`, 2, top + LABEL / 2);
    context.beginPath();
    data.memory.forEach(([at, level], number) => {
      const x = (at - from) * scale;
      const y = top + LABEL + CURVE * (1 - level / most);
      if (number) context.lineTo(x, y);
      else context.moveTo(x, y);
    });
    context.strokeStyle = tone.text;
    context.lineWidth = 1.2;
    context.stroke();
  };

  const axis = (tone) => {
    const y = height - AXIS / 2;
    context.fillStyle = tone.line;
    context.fillRect(0, height - AXIS, width, 1);
    context.fillStyle = tone.dim;
    const parts = Math.max(1, Math.min(6, Math.floor(width / 140)));
    for (let part = 0; part <= parts; part++) {
      context.textAlign = part === 0 ? "left" : part === parts ? "right" : "center";
      context.fillText(time(from + ((to - from) * part) / parts), (width * part) / parts, y);
    }
    context.textAlign = "left";
  };

  const view = (low, high) => {
    const span = Math.min(Math.max(high - low, Math.max(50 / data.unit, 1)), data.length);
    from = Math.min(Math.max(low, 0), data.length - span);
    to = from + span;
    plan();
  };
  const zoom = (factor, x = width / 2) => {
    const fixed = from + ((to - from) * x) / width;
    view(fixed - (fixed - from) * factor, fixed + (to - fixed) * factor);
  };
  const pan = (share) => view(from + (to - from) * share, to + (to - from) * share);

  const under = (x, y) => {
    const at = from + ((to - from) * x) / width;
    const near = ((to - from) / width) * 2;
    for (const range of ranges) {
      const top = tops[range.lane] + LABEL + range.row * ROW;
      if (y < top || y >= top + ROW) continue;
      const event = seek(range, at - near);
      return event < range.end && start[event] <= at + near ? event : -1;
    }
    return -1;
  };

  const describe = (event) => {
    const words = [data.names[name[event]], time(length[event]), data.kinds[kind[event]].name];
    if (place[event]) words.push(data.places[place[event] - 1]);
    return words.join(" · ");
  };
  const tell = (...parts) => {
    said.replaceChildren();
    for (const part of parts) said.append(part);
  };
  const linked = (index) => {
    const anchors = index ? data.findings[data.places[index - 1]] || [] : [];
    return anchors.flatMap(([anchor, title]) => {
      const link = document.createElement("a");
      link.href = `#${anchor}`;
      link.textContent = title;
      return [" · finding: ", link];
    });
  };
  const choose = (event) => {
    chosen = event;
    if (event < 0) tell("");
    else tell(`${data.lanes[lane[event]].name}: ${describe(event)} · begins at ${time(start[event])}`, ...linked(place[event]));
    plan();
  };

  const find = () => {
    const wanted = search.value.trim().toLowerCase();
    marked = null;
    matches = wanted ? data.names.map((one) => one.toLowerCase().includes(wanted)) : null;
    if (!matches) return choose(-1);
    let count = 0, total = 0;
    for (let event = 0; event < data.events; event++) {
      if (!matches[name[event]]) continue;
      count++;
      total += length[event];
    }
    tell(count ? `${many(count, "event")} named like this, ${time(total)} in sum (nested ones count again)` : "no event is named like this");
    plan();
  };

  const toLine = (text) => {
    const index = data.places.indexOf(text) + 1;
    if (!index) return;
    search.value = "";
    matches = null;
    marked = index;
    let longest = -1, count = 0;
    for (let event = 0; event < data.events; event++) {
      if (place[event] !== index) continue;
      count++;
      if (longest < 0 || length[event] > length[longest]) longest = event;
    }
    if (longest >= 0) view(start[longest] - length[longest], start[longest] + 2 * length[longest]);
    choose(longest);
    tell(`${many(count, "event")} at ${text}; the longest: ${describe(longest)}`, ...linked(index));
    document.getElementById("timeline").scrollIntoView({ block: "start" });
    box.focus({ preventScroll: true });
  };

  const totals = () => {
    const [low, high] = band;
    const sums = new Map();
    for (const range of ranges) {
      if (range.row || data.lanes[range.lane].kind === "phases") continue;
      for (let at = seek(range, low); at < range.end && start[at] < high; at++) {
        const part = Math.min(high, start[at] + length[at]) - Math.max(low, start[at]);
        if (part <= 0) continue;
        const of = sums.get(range.lane) || new Map();
        sums.set(range.lane, of.set(kind[at], (of.get(kind[at]) || 0) + part));
      }
    }
    const lines = [...sums].map(([number, of]) => {
      const all = [...of.values()].reduce((a, b) => a + b, 0);
      const parts = [...of].sort((a, b) => b[1] - a[1]).slice(0, 4).map(([which, sum]) => `${data.kinds[which].name} ${time(sum)}`);
      return `${data.lanes[number].name} ${time(all)} (${parts.join(", ")})`;
    });
    tell(`${time(high - low)} selected. ${lines.join(" · ")}`);
  };

  let held = null;
  const spot = (event) => {
    const edge = canvas.getBoundingClientRect();
    return [event.clientX - edge.left, event.clientY - edge.top];
  };
  canvas.addEventListener("pointerdown", (event) => {
    const [x, y] = spot(event);
    held = { x, y, from, to, moved: false, select: event.shiftKey };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = spot(event);
    if (held) {
      if (Math.abs(x - held.x) > 3) held.moved = true;
      if (held.moved && held.select) {
        const ends = [held.x, x].map((one) => from + ((to - from) * one) / width);
        band = [Math.min(...ends), Math.max(...ends)];
        totals();
        plan();
      } else if (held.moved) {
        const by = ((held.x - x) / width) * (held.to - held.from);
        view(held.from + by, held.to + by);
      }
      return;
    }
    const event_ = under(x, y);
    tip.hidden = event_ < 0;
    if (event_ >= 0) {
      tip.textContent = describe(event_);
      tip.style.left = `${Math.min(x + 12, Math.max(0, width - tip.offsetWidth - 4))}px`;
      tip.style.top = `${y + 16}px`;
    }
  });
  canvas.addEventListener("pointerup", (event) => {
    const [x, y] = spot(event);
    if (held && !held.moved) {
      band = null;
      choose(under(x, y));
    }
    held = null;
  });
  canvas.addEventListener("pointerleave", () => {
    tip.hidden = true;
  });
  canvas.addEventListener("dblclick", (event) => zoom(0.25, spot(event)[0]));
  canvas.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey && !event.metaKey && !event.shiftKey) return;
      event.preventDefault();
      if (event.shiftKey) pan((event.deltaY || event.deltaX) / 800);
      else zoom(Math.exp(event.deltaY / 300), spot(event)[0]);
    },
    { passive: false },
  );

  const step = (by) => {
    const lanes = chosen < 0 ? null : ranges.find((range) => chosen >= range.first && chosen < range.end);
    if (!lanes) return choose(seek(ranges.find((range) => data.lanes[range.lane].kind === "thread") || ranges[0], from));
    const next = Math.min(Math.max(chosen + by, lanes.first), lanes.end - 1);
    if (start[next] < from || start[next] > to) view(start[next] - (to - from) / 2, start[next] + (to - from) / 2);
    choose(next);
  };
  const KEYS = {
    ArrowLeft: () => pan(-0.15),
    ArrowRight: () => pan(0.15),
    "+": () => zoom(0.6),
    "=": () => zoom(0.6),
    "-": () => zoom(1 / 0.6),
    0: () => view(0, data.length),
    ".": () => step(1),
    ",": () => step(-1),
    "/": () => search.focus(),
    Escape: () => {
      band = marked = matches = null;
      search.value = "";
      choose(-1);
    },
  };
  box.addEventListener("keydown", (event) => {
    const act = event.ctrlKey || event.metaKey || event.altKey ? undefined : KEYS[event.key];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  });
  search.addEventListener("input", find);
  search.addEventListener("keydown", (event) => event.stopPropagation());
  for (const [id, act] of [["tl-in", () => zoom(0.5)], ["tl-out", () => zoom(2)], ["tl-all", () => view(0, data.length)]]) {
    document.getElementById(id).addEventListener("click", act);
  }

  unpack().then(() => {
    document.getElementById("tl-tools").hidden = box.hidden = false;
    document.getElementById("tl-none").hidden = true;
    for (const button of document.querySelectorAll("button.on-timeline")) {
      button.hidden = !data.places.includes(button.dataset.place);
      button.addEventListener("click", () => toLine(button.dataset.place));
    }
    draw();
    addEventListener("resize", plan);
    addEventListener("beforeprint", draw);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", plan);
    box.dataset.ready = "yes";
  });
})();
