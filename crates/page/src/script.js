"use strict";
// Tables sort by the heading that is pressed; figures by their value.
for (const heading of document.querySelectorAll("th button")) {
  heading.addEventListener("click", () => {
    const cell = heading.closest("th");
    const table = cell.closest("table");
    const place = cell.cellIndex;
    const way = cell.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    for (const other of table.tHead.rows[0].cells) other.setAttribute("aria-sort", "none");
    cell.setAttribute("aria-sort", way > 0 ? "ascending" : "descending");
    const body = table.tBodies[0];
    const key = (row) => row.cells[place];
    const compare = (one, other) => {
      const [a, b] = [key(one), key(other)];
      const [x, y] = [a.dataset.figure, b.dataset.figure];
      if (x !== undefined && y !== undefined) return way * (Number(x) - Number(y));
      if (x !== undefined || y !== undefined) return x === undefined ? 1 : -1;
      return way * a.textContent.localeCompare(b.textContent, "en", { numeric: true });
    };
    for (const row of [...body.rows].sort(compare)) body.append(row);
  });
}

// Plots over time: a closer look, by button; both widths of a plot follow.
const shortTime = (ns) => {
  const units = [[1e9, " s"], [1e6, " ms"], [1e3, " us"], [1, " ns"]];
  const [size, unit] = units.find(([size]) => ns >= size) ?? [1, " ns"];
  return Number((ns / size).toPrecision(4)) + unit;
};
for (const group of document.querySelectorAll(".zoom")) {
  const figure = group.closest("figure");
  const inners = [...figure.querySelectorAll("svg.inner")];
  if (inners.length === 0) continue;
  group.hidden = false;
  const duration = Number(inners[0].dataset.duration);
  let [from, share] = [0, 1];
  const axes = inners.map((inner) => {
    const axis = inner.parentElement.querySelector("[data-axis=x]");
    const base = axis.querySelector(".base");
    const wakers = [...inner.parentElement.querySelectorAll(".waker")];
    return { inner, axis, wakers, left: Number(base.getAttribute("x1")), right: Number(base.getAttribute("x2")), ticks: [...axis.querySelectorAll(".grid, .tick")] };
  });
  const redraw = () => {
    for (const { inner, axis, wakers, left, right, ticks } of axes) {
      const height = inner.viewBox.baseVal.height;
      // What stands inside waits: of the call with its waker, the waker, and the number the first that has room; a
      // number may stand over a shorter wait, if no other is there. The longest waits come first.
      const taken = new Map();
      for (const waker of wakers) {
        const place = (at) => left + (right - left) * Math.min(1, Math.max(0, (Number(at) - from) / share));
        const { whole, name, number } = waker.dataset;
        const [begin, end] = [place(waker.dataset.from), place(waker.dataset.to)];
        const isSeen = Number(waker.dataset.to) > from && Number(waker.dataset.from) < from + share;
        const lane = taken.get(waker.getAttribute("y")) ?? [];
        taken.set(waker.getAttribute("y"), lane);
        const show = (text, x, parts) => {
          waker.textContent = text;
          waker.setAttribute("x", x);
          waker.setAttribute("visibility", "visible");
          lane.push(parts);
        };
        waker.setAttribute("visibility", "hidden");
        if (!isSeen) continue;
        const fitting = [whole, name, number].find((text) => text && end - begin > text.length * 7.4 + 6);
        if (fitting) { show(fitting, begin + 4, [begin, end]); continue; }
        const across = number.length * 7.4;
        const x = Math.min(Math.max(left, (begin + end) / 2 - across / 2), Math.max(left, right - across));
        if (number && lane.every(([first, last]) => x + across + 7 < first || last + 7 < x)) show(number, x, [x, x + across]);
      }
      inner.setAttribute("viewBox", `${from * 1000} 0 ${share * 1000} ${height}`);
      for (const tick of axis.querySelectorAll(".grid, .tick")) tick.remove();
      if (share === 1) { axis.prepend(...ticks); continue; }
      const lines = ticks.filter((tick) => tick.matches(".grid"));
      const labels = ticks.filter((tick) => tick.matches(".tick"));
      const many = right - left > 400 ? 4 : 2;
      for (let place = 0; place <= many; place += 1) {
        const at = left + ((right - left) * place) / many;
        const line = lines[0].cloneNode();
        line.setAttribute("x1", at); line.setAttribute("x2", at);
        const label = labels[0].cloneNode();
        label.setAttribute("x", at);
        label.setAttribute("text-anchor", place === 0 ? "start" : place === many ? "end" : "middle");
        label.textContent = shortTime(duration * (from + (share * place) / many));
        axis.prepend(line, label);
      }
    }
    group.querySelector(".range").textContent = share === 1 ? "all of the time" : `${shortTime(duration * from)} to ${shortTime(duration * (from + share))}`;
  };
  const acts = {
    in: () => { from += share / 4; share /= 2; },
    out: () => { from -= share / 2; share *= 2; },
    left: () => { from -= share / 2; },
    right: () => { from += share / 2; },
    all: () => { from = 0; share = 1; },
  };
  for (const button of group.querySelectorAll("button")) {
    button.addEventListener("click", () => {
      acts[button.dataset.zoom]();
      share = Math.min(1, Math.max(share, 1 / 4096));
      from = Math.min(Math.max(0, from), 1 - share);
      redraw();
    });
  }
}
