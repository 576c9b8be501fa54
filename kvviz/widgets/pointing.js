// Reads one cell of a frame: a share of attention or, beyond the square's border, a cell of an edge.

const BLANK = /^(padding|an empty slot)$/; // nothing to read
const ROLES = { keys: "key", values: "value", queries: "query", outputs: "output" };

// The cell at x, y, in pixels of the frame: {square, row, column}, or undefined. Row and column are
// positions in the text; a key's row is one above the first, a query's column one left of it.
function findCell(squares, x, y) {
  for (const [square, { at, edge, span, start, tokens }] of squares.entries()) {
    const [left, top, cell] = at, [gap, thick] = edge, far = span * cell + gap;
    const place = (n) => {
      if (n >= -gap - thick && n < -gap) return -1;
      if (n >= far && n < far + thick) return tokens.length;
      const index = Math.floor(n / cell);
      return index in tokens ? index : undefined;
    };
    const [column, row] = [place(x - left), place(y - top)];
    const point = { square, row: row + start, column: column + start };
    if (column !== undefined && row !== undefined && describeCell(squares, point)) return point;
  }
}

// What a cell says, and its box [left, top, width, height] in pixels of the frame.
function describeCell(squares, { square: number, row, column }, words = []) {
  const square = squares[number];
  if (!square) return;
  const { at: [left, top, cell], edge: [gap, thick], span, start, tokens, rows, shares } = square;
  const [c, r] = [column - start, row - start], far = span * cell + gap;
  const outside = (n) => !(n in tokens);
  const tooFar = (n) => n < -1 || n > tokens.length;
  if ((outside(c) && outside(r)) || tooFar(c) || tooFar(r)) return;
  const name = (n, of = tokens) => `'${of[n]}' (position ${n + start})`;
  if (!outside(c) && !outside(r)) {
    const box = [left + c * cell, top + r * cell, cell, cell];
    const share = shares[rows.indexOf(row)]?.[c];
    if (share === undefined) return [`${name(r)}: this row was not computed in this step`, box];
    const after = square.cropped?.includes(row) ? "; this row was cropped afterwards" : "";
    if (share === null) return [`${name(r)} can't attend to ${name(c)}${after}`, box];
    return [`${name(r)} attends to ${name(c)}: ${share}%${after}`, box];
  }
  const role = outside(r) ? (r < 0 ? "keys" : "values") : c < 0 ? "queries" : "outputs";
  const place = outside(r) ? c : rows.indexOf(row);
  const state = square.states[role][place];
  if (state === undefined) return;
  const first = role === "keys" || role === "queries" ? -gap - thick : far;
  const box = outside(r)
    ? [left + c * cell, top + first, cell, thick]
    : [left + first, top + r * cell, thick, cell];
  const token = role === "values" ? name(c, square.valueTokens) : name(outside(r) ? c : r);
  const first3 = square.numbers?.[role]?.[place], width = square.widths[role];
  const numbers = first3 ? ` (${first3.join(", ")}${width > first3.length ? ", …" : ""})` : "";
  const has = BLANK.test(words[state]) ? "" : `: ${width} numbers${numbers}`;
  return [`${ROLES[role]} of ${token}, ${words[state]}${has}`, box];
}

// The next cell in the direction of an arrow key; it stops at the edges.
function moveCell(squares, point, arrow) {
  const { start, tokens, shares, rows } = squares[point?.square ?? 0];
  if (!point) {
    const newest = shares.at(-1), most = newest.indexOf(Math.max(...newest));
    return { square: 0, row: rows.at(-1), column: start + Math.max(0, most) };
  }
  const by = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  const [down, right] = by[arrow];
  const next = { ...point, row: point.row + down, column: point.column + right };
  return describeCell(squares, next) ? next : point;
}
