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
