// The stepper in the browser. It asks Python for one frame at a time, the newest it wants, and
// keeps what it got: a frame seen before is shown without asking.

const STATE = ["cached", "layer", "head", "step"];
const KEPT = 240; // frames, about 30 kB each
const PACE = 1000, SLOW = 2500; // milliseconds a step while playing; for those who want less motion

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
const HINT = "Point at a cell to read it, or walk the cells with Shift and the arrow keys.";

function render({ model, el }) {
  const about = model.get("_about"), heads = new Map(about.heads);
  const root = document.createElement("div");
  root.className = "kvviz-stepper";
  root.tabIndex = 0;
  root.setAttribute("role", "group");
  root.setAttribute("aria-label", "Stepper: left and right arrow keys walk the steps");
  root.innerHTML = PAGE;
  for (const each of [root, ...root.querySelectorAll("button, input, select")])
    each.dataset.lmSuppressShortcuts = "true"; // keys pressed here are not JupyterLab's shortcuts
  const [button, find] = [(name) => find(`[data-go=${name}]`), (css) => root.querySelector(css)];
  const slider = find("[type=range]"), number = find("output"), image = find("img");
  const layer = find("[data-name=layer]"), head = find("[data-name=head]");
  const cached = find("[type=checkbox]"), alarm = find("[role=alert]"), wait = find(".kv-wait");
  const words = find(".kv-words [aria-live]"), longest = find(".kv-longest");
  const mark = find(".kv-mark"), reading = find(".kv-point"), panel = find(".kv-heads");
  Object.assign(image, { width: about.width, height: about.height });
  root.style.width = `${about.width + 26}px`;
  slider.max = about.steps - 1;
  longest.textContent = about.longest; // room for the longest sentence, so that nothing jumps
  if (!about.switch) find(".kv-switch").remove();
  if (!about.overview) button("heads").remove();
  reading.textContent = HINT;
  layer.append(...[...heads.keys()].map((n) => new Option(n, n)));

  const now = {}, frames = new Map(); // key -> {url, sentence} or {error}
  const key = (change) => JSON.stringify(STATE.map((name) => ({ ...now, ...change })[name]));
  const around = (step) => (step + about.steps) % about.steps;
  let asked = null, started = 0, shown = 0, saying = false, telling, playing, idle, waiting;

  // -- state: `now` is what is wanted; Python is told, and tells

  function go(change, told = false) {
    Object.assign(now, change);
    now.step = around(now.step);
    const there = heads.get(now.layer);
    if (!there.includes(now.head)) now.head = there.findLast((n) => n < now.head) ?? there[0];
    if (`${[...head.options].map((each) => each.value)}` !== `${there}`)
      head.replaceChildren(...there.map((n) => new Option(n, n)));
    [slider.value, layer.value, head.value] = [now.step, now.layer, now.head];
    cached.checked = now.cached;
    overview();
    number.textContent = `${now.step} / ${about.steps - 1}`;
    slider.setAttribute("aria-valuetext", `step ${now.step} of 0 to ${about.steps - 1}`);
    show();
    if (!told) telling ??= setTimeout(tell, 120);
  }

  function tell() {
    clearTimeout(telling);
    telling = undefined;
    saying = true;
    for (const name of STATE) model.set(name, now[name]);
    saying = false;
    model.save_changes();
  }

  function follow() {
    if (saying) return;
    const said = Object.fromEntries(STATE.map((name) => [name, model.get(name)]));
    if (STATE.some((name) => said[name] !== now[name])) go(said, true);
  }

  // -- frames

  async function show() {
    const mine = ++started, frame = frames.get(key());
    clearTimeout(waiting);
    wait.hidden = true;
    if (!frame) {
      waiting = setTimeout(() => (wait.hidden = false), 500);
      return ask();
    }
    frames.delete(key()), frames.set(key(), frame); // the newest are kept longest
    await put(frame, mine);
    clearTimeout(idle);
    idle = setTimeout(ask, 30);
  }

  async function put(frame, mine) {
    if (frame.url) {
      const next = new Image();
      next.src = frame.url;
      await next.decode().catch(() => {}); // only then swapped: no flicker
    }
    if (mine < shown) return; // a later one was faster
    shown = mine;
    const { url, sentence = "", error = "" } = frame;
    if (url) Object.assign(image, { src: url, alt: sentence });
    image.hidden = !url;
    alarm.hidden = Boolean(url);
    alarm.textContent = error;
    words.textContent = sentence;
    read();
    if (sentence.length > longest.textContent.length) longest.textContent = sentence;
  }

  function ask() {
    const steps = [1, -1, 2].map((by) => ({ step: around(now.step + by) }));
    const other = about.switch ? [{ cached: !now.cached }] : [];
    const next = [{}, ...steps, ...other].map(key).find((each) => !frames.has(each));
    if (asked || !next) return; // one at a time: no backlog
    asked = next;
    model.send({ frame: JSON.parse(next) });
  }

  function take(message, buffers) {
    const { sentence, error, cells, boxes } = message;
    if (!message.frame && !message.heads) return;
    const url = error ? undefined : URL.createObjectURL(new Blob(buffers, { type: "image/png" }));
    if (message.heads) return showHeads({ url, sentence, boxes, heads: message.heads });
    const id = JSON.stringify(message.frame);
    forget(id);
    frames.set(id, { url, sentence, error, cells });
    for (const old of frames.keys()) if (frames.size > KEPT) forget(old);
    if (asked === id) asked = null;
    if (id === key()) show();
    else if (!frames.has(key())) put(frames.get(id), started), ask();
    else idle = setTimeout(ask, 30);
  }

  function forget(id) {
    const { url } = frames.get(id) ?? {};
    if (url && url !== image.src) URL.revokeObjectURL(url);
    frames.delete(id);
  }

  // -- one cell: who looks at whom, how much

  let point; // {square, row, column}: places in the text

  function read() {
    const cells = frames.get(key())?.cells, it = point && cells?.[point.square];
    const [column, row] = it ? [point.column - it.start, point.row - it.start] : [];
    mark.hidden = !it || !(column in it.tokens) || !(row in it.tokens);
    if (mark.hidden) return (reading.textContent = HINT);
    const [left, top, cell] = it.at, share = it.shares[it.rows.indexOf(point.row)]?.[column];
    const box = { left: left + column * cell, top: top + row * cell, width: cell, height: cell };
    for (const [side, pixels] of Object.entries(box)) {
      const whole = side === "top" || side === "height" ? about.height : about.width;
      mark.style[side] = `${(100 * pixels) / whole}%`;
    }
    const [asks, seen] = [row, column].map((n) => `'${it.tokens[n]}' (place ${n + it.start})`);
    reading.textContent =
      share === undefined ? `${asks}: this row was not computed in this step`
      : share === null ? `${asks} may not look at ${seen}`
      : `${asks} looks at ${seen}: ${share}%`;
  }

  function pointTo(event) {
    const cells = frames.get(key())?.cells ?? [], { left, top, width } = image.getBoundingClientRect();
    const [x, y] = [event.clientX - left, event.clientY - top].map((n) => (n * about.width) / width);
    point = undefined;
    for (const [square, { at, start, tokens }] of cells.entries()) {
      const [column, row] = [x - at[0], y - at[1]].map((n) => Math.floor(n / at[2]));
      if (column in tokens && row in tokens)
        point = { square, row: row + start, column: column + start };
    }
    read();
  }

  function walk(arrow) {
    const square = point?.square ?? 0, it = frames.get(key())?.cells?.[square];
    if (!it) return;
    const shares = it.shares.at(-1), last = it.start + it.tokens.length - 1;
    const within = (n) => Math.min(last, Math.max(it.start, n));
    const by = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[arrow];
    point = point
      ? { square, row: within(point.row + by[0]), column: within(point.column + by[1]) }
      : { square, row: it.rows.at(-1), column: it.start + shares.indexOf(Math.max(...shares)) };
    read();
  }

  // -- all heads of the layer, each a button

  let overviewing;

  function overview() {
    clearTimeout(overviewing);
    for (const each of panel.querySelectorAll("button"))
      each.setAttribute("aria-pressed", Number(each.value) === now.head);
    if (panel.hidden) return;
    const { cached, layer, step } = now;
    const asking = () => model.send({ heads: [cached, layer, step] });
    if (panel.dataset.shown !== `${[cached, layer, step]}`) overviewing = setTimeout(asking, 200);
  }

  function showHeads({ url, sentence, boxes = [], heads }) {
    if (`${heads}` !== `${[now.cached, now.layer, now.step]}`) return URL.revokeObjectURL(url);
    const picture = panel.querySelector("img");
    URL.revokeObjectURL(picture.src);
    Object.assign(picture, { src: url, alt: sentence });
    if (!panel.dataset.shown) picture.onload = () => panel.scrollIntoView({ block: "nearest" });
    panel.dataset.shown = `${heads}`;
    panel.replaceChildren(picture, ...boxes.map(([box, said], n) => {
      const each = Object.assign(document.createElement("button"), { type: "button", value: n });
      const sides = ["left", "top", "width", "height"].map((side, i) => [side, `${100 * box[i]}%`]);
      Object.assign(each.style, Object.fromEntries(sides));
      each.setAttribute("aria-label", said);
      each.onclick = () => move({ head: n });
      return each;
    }));
    overview();
  }

  // -- controls

  function play(on) {
    clearInterval(playing);
    const pace = matchMedia("(prefers-reduced-motion: reduce)").matches ? SLOW : PACE;
    playing = on ? setInterval(() => go({ step: now.step + 1 }), pace) : undefined;
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
  button("play").onclick = () => play(!playing);
  slider.oninput = () => move({ step: Number(slider.value) });
  layer.onchange = () => move({ layer: Number(layer.value) });
  head.onchange = () => move({ head: Number(head.value) });
  cached.onchange = () => go({ cached: cached.checked });
  image.onpointermove = pointTo;
  image.onpointerdown = pointTo;
  image.onpointerleave = (event) => event.pointerType === "mouse" && ((point = undefined), read());
  if (about.overview) button("heads").onclick = () => {
    panel.hidden = !panel.hidden;
    button("heads").setAttribute("aria-expanded", !panel.hidden);
    overview();
  };
  root.onkeydown = (event) => {
    if (event.shiftKey && event.key.startsWith("Arrow") && !event.target.matches("select")) {
      event.preventDefault();
      event.stopPropagation();
      return walk(event.key);
    }
    const keys = { ArrowLeft: "previous", ArrowRight: "next", Home: "first", End: "last" };
    const name = keys[event.key], held = event.ctrlKey || event.metaKey || event.altKey;
    if (!name || held || event.shiftKey || event.target.matches("select")) return;
    event.preventDefault();
    event.stopPropagation();
    move(moves[name]());
  };

  model.on("msg:custom", take);
  for (const name of STATE) model.on(`change:${name}`, follow);
  follow();
  el.append(root);
  return () => {
    play(false);
    clearTimeout(idle);
    clearTimeout(waiting);
    clearTimeout(overviewing);
    if (telling) tell();
    model.off("msg:custom", take);
    for (const name of STATE) model.off(`change:${name}`, follow);
    for (const { url } of frames.values()) if (url) URL.revokeObjectURL(url);
  };
}

export default { render };
