// The stepper in the browser. It requests one frame at a time from Python, the one it needs now,
// and keeps it, so that a frame that was shown before needs no new request.

const STATE = ["cached", "layer", "head", "step"];
const MOST_FRAMES = 240; // frames kept, about 30 kB each
const PACE = 1000, SLOW = 2500; // milliseconds per step while playing; SLOW for reduced motion

const PAGE = `
<div class="kv-controls">
  <button type="button" data-go="first">First</button>
  <button type="button" data-go="previous">Previous</button>
  <button type="button" data-go="play">Play</button>
  <button type="button" data-go="next">Next</button>
  <span class="kv-step"><label>Step <input type="range" min="0" step="1"></label>
    <output aria-hidden="true"></output></span>
  <label>Layer <select data-name="layer"></select></label>
  <label>Head <select data-name="head"></select></label>
  <button type="button" data-go="heads" aria-expanded="false">All heads</button>
  <label class="kv-switch"><input type="checkbox" role="switch"> With the cache</label>
</div>
<div class="kv-picture"><img alt="" decoding="sync"><p role="alert" hidden></p>
  <span class="kv-wait" hidden>waiting for the kernel</span>
  <div class="kv-mark" hidden></div></div>
<p class="kv-point" aria-live="polite"></p>
<div class="kv-words"><p aria-live="polite"></p><p class="kv-longest" aria-hidden="true"></p></div>
<div class="kv-heads" role="group" aria-label="All heads: choose one" hidden><img alt=""></div>
`;
const HINT = "Point at a cell to read it, or move between cells with Shift and the arrow keys.";

function render({ model, el }) {
  const about = model.get("_about"), heads = new Map(about.heads);
  const root = document.createElement("div");
  root.className = "kvviz-stepper";
  root.tabIndex = 0;
  root.setAttribute("role", "group");
  root.setAttribute("aria-label", "Stepper: the left and right arrow keys move between steps");
  root.innerHTML = PAGE;
  for (const each of [root, ...root.querySelectorAll("button, input, select")])
    each.dataset.lmSuppressShortcuts = "true"; // JupyterLab leaves these keys to the stepper
  const find = (css) => root.querySelector(css), button = (name) => find(`[data-go=${name}]`);
  const slider = find("[type=range]"), number = find("output"), image = find("img");
  const layer = find("[data-name=layer]"), head = find("[data-name=head]");
  const cached = find("[type=checkbox]"), alarm = find("[role=alert]"), wait = find(".kv-wait");
  const words = find(".kv-words [aria-live]"), longest = find(".kv-longest");
  const marker = find(".kv-mark"), reading = find(".kv-point"), panel = find(".kv-heads");
  Object.assign(image, { width: about.width, height: about.height });
  root.style.width = `${about.width + 26}px`;
  slider.max = about.steps - 1;
  longest.textContent = about.longest; // reserves space, so that nothing jumps
  if (!about.switch) find(".kv-switch").remove();
  if (!about.overview) button("heads").remove();
  reading.textContent = HINT;
  layer.append(...[...heads.keys()].map((n) => new Option(n, n)));

  const now = {}, frames = new Map(); // key -> {url, sentence} or {error}
  const key = (change) => JSON.stringify(STATE.map((name) => ({ ...now, ...change })[name]));
  const around = (step) => (step + about.steps) % about.steps;
  let pending = null; // key of the frame that was requested and isn't here yet
  let newest = 0, displayed = 0; // numbers of the latest `show`, and of the one on the screen
  let sending = false; // while the state is sent to Python, its echo is ignored
  let sendTimer, playTimer, requestTimer, waitTimer, overviewTimer;

  // -- state: `now` is what the browser shows; Python gets it, and can change it

  function go(change, fromPython = false) {
    Object.assign(now, change);
    now.step = around(now.step);
    const options = heads.get(now.layer);
    if (!options.includes(now.head))
      now.head = options.findLast((n) => n < now.head) ?? options[0];
    if (`${[...head.options].map((each) => each.value)}` !== `${options}`)
      head.replaceChildren(...options.map((n) => new Option(n, n)));
    [slider.value, layer.value, head.value] = [now.step, now.layer, now.head];
    cached.checked = now.cached;
    refreshHeads();
    number.textContent = `${now.step} / ${about.steps - 1}`;
    slider.setAttribute("aria-valuetext", `step ${now.step} of 0 to ${about.steps - 1}`);
    show();
    if (!fromPython) sendTimer ??= setTimeout(sendState, 120);
  }

  function sendState() {
    clearTimeout(sendTimer);
    sendTimer = undefined;
    sending = true;
    for (const name of STATE) model.set(name, now[name]);
    sending = false;
    model.save_changes();
  }

  function followPython() {
    if (sending) return;
    const state = Object.fromEntries(STATE.map((name) => [name, model.get(name)]));
    if (STATE.some((name) => state[name] !== now[name])) go(state, true);
  }

  // -- frames

  async function show() {
    const number = ++newest, frame = frames.get(key());
    clearTimeout(waitTimer);
    wait.hidden = true;
    if (!frame) {
      waitTimer = setTimeout(() => (wait.hidden = false), 500);
      return requestNext();
    }
    frames.delete(key()), frames.set(key(), frame); // moved to the end, so that it's dropped last
    await display(frame, number);
    requestSoon();
  }

  async function display(frame, number) {
    if (frame.url) {
      const decoded = new Image();
      decoded.src = frame.url;
      await decoded.decode().catch(() => {}); // before the swap, so that nothing flickers
    }
    if (number < displayed) return; // a later frame was faster
    displayed = number;
    const { url, sentence = "", error = "" } = frame;
    if (url) Object.assign(image, { src: url, alt: sentence });
    image.hidden = !url;
    alarm.hidden = Boolean(url);
    alarm.textContent = error;
    words.textContent = sentence;
    readCell();
    if (sentence.length > longest.textContent.length) longest.textContent = sentence;
  }

  function requestSoon() {
    clearTimeout(requestTimer);
    requestTimer = setTimeout(requestNext, 30);
  }

  // Requests the frame needed now, or else one that is likely to be needed next.
  function requestNext() {
    const steps = [1, -1, 2].map((by) => ({ step: around(now.step + by) }));
    const other = about.switch ? [{ cached: !now.cached }] : [];
    const next = [{}, ...steps, ...other].map(key).find((each) => !frames.has(each));
    if (pending || !next) return; // one request at a time, so there is never a backlog
    pending = next;
    model.send({ frame: JSON.parse(next) });
  }

  function receive(message, buffers) {
    const { sentence, error, cells, boxes } = message;
    if (!message.frame && !message.heads) return;
    const url = error ? undefined : URL.createObjectURL(new Blob(buffers, { type: "image/png" }));
    if (message.heads) return showHeads({ url, sentence, boxes, heads: message.heads });
    const id = JSON.stringify(message.frame);
    drop(id);
    frames.set(id, { url, sentence, error, cells });
    for (const oldest of frames.keys()) if (frames.size > MOST_FRAMES) drop(oldest);
    if (pending === id) pending = null;
    if (id === key()) show();
    else if (!frames.has(key())) display(frames.get(id), newest), requestNext();
    else requestSoon();
  }

  function drop(id) {
    const { url } = frames.get(id) ?? {};
    if (url && url !== image.src) URL.revokeObjectURL(url);
    frames.delete(id);
  }

  // -- one cell: which token attends to which, and how much

  let point; // {square, row, column}; row and column are positions in the text

  function readCell() {
    const square = point && frames.get(key())?.cells?.[point.square];
    const [column, row] = square ? [point.column, point.row].map((n) => n - square.start) : [];
    marker.hidden = !square || !(column in square.tokens) || !(row in square.tokens);
    if (marker.hidden) return (reading.textContent = HINT);
    const [left, top, cell] = square.at;
    const share = square.shares[square.rows.indexOf(point.row)]?.[column];
    const box = { left: left + column * cell, top: top + row * cell, width: cell, height: cell };
    for (const [side, pixels] of Object.entries(box)) {
      const whole = side === "top" || side === "height" ? about.height : about.width;
      marker.style[side] = `${(100 * pixels) / whole}%`;
    }
    const name = (n) => `'${square.tokens[n]}' (position ${n + square.start})`;
    reading.textContent =
      share === undefined ? `${name(row)}: this row was not computed in this step`
      : share === null ? `${name(row)} can't attend to ${name(column)}`
      : `${name(row)} attends to ${name(column)}: ${share}%`;
  }

  function pointAt(event) {
    const squares = frames.get(key())?.cells ?? [], box = image.getBoundingClientRect();
    const scale = about.width / box.width;
    const [x, y] = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
    point = undefined;
    for (const [square, { at, start, tokens }] of squares.entries()) {
      const [column, row] = [x - at[0], y - at[1]].map((n) => Math.floor(n / at[2]));
      if (column in tokens && row in tokens)
        point = { square, row: row + start, column: column + start };
    }
    readCell();
  }

  function movePoint(arrow) {
    const number = point?.square ?? 0, square = frames.get(key())?.cells?.[number];
    if (!square) return;
    const first = square.start, last = first + square.tokens.length - 1;
    const clamp = (n) => Math.min(last, Math.max(first, n));
    if (!point) {
      const shares = square.shares.at(-1), most = shares.indexOf(Math.max(...shares));
      point = { square: number, row: square.rows.at(-1), column: first + most };
      return readCell();
    }
    const by = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    const [down, right] = by[arrow];
    point = { square: number, row: clamp(point.row + down), column: clamp(point.column + right) };
    readCell();
  }

  // -- all heads of the layer, each a button

  function refreshHeads() {
    clearTimeout(overviewTimer);
    for (const each of panel.querySelectorAll("button"))
      each.setAttribute("aria-pressed", Number(each.value) === now.head);
    if (panel.hidden) return;
    const { cached, layer, step } = now;
    const request = () => model.send({ heads: [cached, layer, step] });
    if (panel.dataset.shown !== `${[cached, layer, step]}`) overviewTimer = setTimeout(request, 200);
  }

  function showHeads({ url, sentence, boxes = [], heads }) {
    if (`${heads}` !== `${[now.cached, now.layer, now.step]}`) return URL.revokeObjectURL(url);
    const picture = panel.querySelector("img");
    URL.revokeObjectURL(picture.src);
    Object.assign(picture, { src: url, alt: sentence });
    if (!panel.dataset.shown) picture.onload = () => panel.scrollIntoView({ block: "nearest" });
    panel.dataset.shown = `${heads}`;
    panel.replaceChildren(picture, ...boxes.map(([box, sentence], n) => {
      const each = Object.assign(document.createElement("button"), { type: "button", value: n });
      const sides = ["left", "top", "width", "height"].map((side, i) => [side, `${100 * box[i]}%`]);
      Object.assign(each.style, Object.fromEntries(sides));
      each.setAttribute("aria-label", sentence);
      each.onclick = () => move({ head: n });
      return each;
    }));
    refreshHeads();
  }

  // -- controls

  function play(on) {
    clearInterval(playTimer);
    const pace = matchMedia("(prefers-reduced-motion: reduce)").matches ? SLOW : PACE;
    playTimer = on ? setInterval(() => go({ step: now.step + 1 }), pace) : undefined;
    button("play").textContent = on ? "Pause" : "Play";
    words.ariaLive = on ? "off" : "polite";
  }

  const moves = {
    first: () => ({ step: 0 }),
    previous: () => ({ step: now.step - 1 }),
    next: () => ({ step: now.step + 1 }),
    last: () => ({ step: about.steps - 1 }),
  };
  const move = (change) => (play(false), go(change));
  for (const name of ["first", "previous", "next"])
    button(name).onclick = () => move(moves[name]());
  button("play").onclick = () => play(!playTimer);
  slider.oninput = () => move({ step: Number(slider.value) });
  layer.onchange = () => move({ layer: Number(layer.value) });
  head.onchange = () => move({ head: Number(head.value) });
  cached.onchange = () => go({ cached: cached.checked });
  image.onpointermove = pointAt;
  image.onpointerdown = pointAt;
  image.onpointerleave = (event) => {
    if (event.pointerType !== "mouse") return; // a finger that is lifted still points
    point = undefined;
    readCell();
  };
  if (about.overview) button("heads").onclick = () => {
    panel.hidden = !panel.hidden;
    button("heads").setAttribute("aria-expanded", !panel.hidden);
    refreshHeads();
  };
  root.onkeydown = (event) => {
    if (event.shiftKey && event.key.startsWith("Arrow") && !event.target.matches("select")) {
      event.preventDefault();
      event.stopPropagation();
      return movePoint(event.key);
    }
    const keys = { ArrowLeft: "previous", ArrowRight: "next", Home: "first", End: "last" };
    const name = keys[event.key], modified = event.ctrlKey || event.metaKey || event.altKey;
    if (!name || modified || event.shiftKey || event.target.matches("select")) return;
    event.preventDefault();
    event.stopPropagation();
    move(moves[name]());
  };

  model.on("msg:custom", receive);
  for (const name of STATE) model.on(`change:${name}`, followPython);
  followPython();
  el.append(root);
  return () => {
    play(false);
    for (const timer of [requestTimer, waitTimer, overviewTimer]) clearTimeout(timer);
    if (sendTimer) sendState();
    model.off("msg:custom", receive);
    for (const name of STATE) model.off(`change:${name}`, followPython);
    for (const { url } of frames.values()) if (url) URL.revokeObjectURL(url);
  };
}

export default { render };
