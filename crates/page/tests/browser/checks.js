// What a browser says of a page: a list of what is wrong.
(() => {
  const wrong = [];
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) wrong.push(`the page is ${root.scrollWidth} px wide in a window of ${root.clientWidth}`);
  const shown = (element) => element.getClientRects().length > 0;
  const name = (element) => (element.closest("figure")?.querySelector("h3")?.textContent ?? "") + ": ";
  for (const element of document.querySelectorAll("main *")) {
    if (element.closest("svg") || element.closest(".scroll") || !shown(element)) continue;
    const box = element.getBoundingClientRect();
    if (box.right > root.clientWidth + 1 || box.left < -1) wrong.push(`<${element.tagName}> reaches from ${box.left} to ${box.right}: ${element.textContent.slice(0, 40)}`);
  }
  // Nobody looks for an answer beyond the edge of a table, or behind dots.
  for (const part of document.querySelectorAll("main .scroll")) {
    if (shown(part) && part.scrollWidth > part.clientWidth + 1) wrong.push(`the table "${part.getAttribute("aria-label").slice(0, 60)}" is ${part.scrollWidth} px wide in ${part.clientWidth}`);
  }
  for (const cell of document.querySelectorAll("main td, main .plot text")) {
    if (shown(cell) && /…$/.test(cell.textContent)) wrong.push(`"${cell.textContent}" is cut off`);
  }
  const plots = [...document.querySelectorAll("svg.plot")].filter(shown);
  const figures = document.querySelectorAll("figure").length;
  if (plots.length !== figures) wrong.push(`${figures} figures, but ${plots.length} plots are shown`);
  for (const plot of plots) {
    const view = plot.viewBox.baseVal;
    for (const text of plot.querySelectorAll("text")) {
      if (text.getAttribute("visibility") === "hidden") continue;
      const box = text.getBBox();
      if (box.x < -1 || box.x + box.width > view.width + 1 || box.y < -1 || box.y + box.height > view.height + 1)
        wrong.push(`${name(plot)}"${text.textContent}" leaves the plot: ${box.x} to ${box.x + box.width} of ${view.width}`);
      const size = parseFloat(getComputedStyle(text).fontSize) * plot.getBoundingClientRect().width / view.width;
      if (size < 9) wrong.push(`${name(plot)}"${text.textContent}" is ${size} px high`);
    }
    for (const which of ["x", "y"]) {
      const axis = plot.querySelector(`[data-axis=${which}]`);
      if (!axis) { wrong.push(`${name(plot)}no axis ${which}`); continue; }
      if (!axis.querySelector("text")) wrong.push(`${name(plot)}axis ${which} has no text`);
      if (axis.dataset.unit === undefined) wrong.push(`${name(plot)}axis ${which} has no unit`);
      if (axis.dataset.unit !== "name" && !/[(]|operations in a second/.test(axis.querySelector(".title")?.textContent ?? "")) wrong.push(`${name(plot)}axis ${which} names no unit`);
      if (!/^(name|address)$/.test(axis.dataset.unit) && axis.querySelectorAll(".tick").length < 2) wrong.push(`${name(plot)}axis ${which} has fewer than two ticks`);
    }
    // A plot over time is drawn once, and shown in both widths.
    const shared = plot.querySelector("use")?.getAttribute("href");
    const marks = (shared ? document.querySelector(shared) : plot).querySelectorAll(".m, .bar, .datum, .area").length;
    if (marks === 0) wrong.push(`${name(plot)}no data`);
    for (const path of plot.querySelectorAll("path")) {
      if (/NaN|inf/.test(path.getAttribute("d"))) wrong.push(`${name(plot)}a path is not a number`);
    }
    const names = [...plot.querySelectorAll(".waker")].filter((name) => name.getAttribute("visibility") === "visible").map((name) => name.getBBox());
    names.forEach((box, place) => {
      if (names.some((other, before) => before < place && other.y === box.y && other.x < box.x + box.width && box.x < other.x + other.width)) wrong.push(`${name(plot)}names of wakers cover each other`);
    });
    // Glyphs do not fill their line: letters touch from some two pixels of common height on.
    const texts = [...plot.querySelectorAll("text")].filter((text) => text.getAttribute("visibility") !== "hidden").map((text) => ({ text: text.textContent, box: text.getBBox() }));
    texts.forEach(({ text, box }, place) => {
      for (const other of texts.slice(0, place)) {
        const wide = Math.min(box.x + box.width, other.box.x + other.box.width) - Math.max(box.x, other.box.x);
        const high = Math.min(box.y + box.height, other.box.y + other.box.height) - Math.max(box.y, other.box.y);
        if (wide > 0 && high > 3) wrong.push(`${name(plot)}"${text}" touches "${other.text}"`);
      }
    });
    if (!plot.getAttribute("aria-label")) wrong.push(`${name(plot)}no text for who does not see it`);
    if (!/SIMULATED|measured/.test(plot.querySelector(".mark")?.textContent ?? "")) wrong.push(`${name(plot)}not said where from`);
    const ticks = [...plot.querySelectorAll("[data-axis=x] .tick")].map((tick) => tick.getBBox()).sort((a, b) => a.x - b.x);
    ticks.forEach((box, place) => {
      if (place > 0 && ticks[place - 1].x + ticks[place - 1].width > box.x) wrong.push(`${name(plot)}ticks cover each other`);
    });
  }
  // Contrast of text against what lies behind it, as WCAG 2 computes it.
  const light = (colour) => {
    const [r, g, b] = colour.match(/[\d.]+/g).slice(0, 3).map((part) => part / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (colour && !/, 0\)$|transparent/.test(colour)) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const contrast = (one, other) => {
    const [a, b] = [light(one), light(other)].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05);
  };
  const seen = new Set();
  for (const element of document.querySelectorAll("main *")) {
    if (!shown(element)) continue;
    const style = getComputedStyle(element);
    if (element.getAttribute("visibility") === "hidden") continue;
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    const isMark = element.matches(".m:not(.hollow), .l, .bar:not(.hatched, .dotted, .barred), .whisker, .datum");
    if (!own && !isMark) continue;
    const inside = element.closest("svg");
    const colour = isMark ? (element.matches(".l, .whisker, .datum") ? style.stroke : style.fill) : inside ? style.fill : style.color;
    const back = ground(inside ? inside.parentElement : element);
    const key = `${colour} on ${back}, ${isMark ? "mark" : "text"}`;
    if (seen.has(key) || !/^rgb/.test(colour)) continue;
    seen.add(key);
    const least = isMark ? 3 : 4.5;
    if (contrast(colour, back) < least) wrong.push(`contrast of ${key}: ${contrast(colour, back).toFixed(2)}, class ${element.getAttribute("class")}`);
  }
  return wrong;
})()
