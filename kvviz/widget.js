// The stepper in the browser. It asks Python for one frame at a time, the newest it wants, and
// keeps what it got: a frame seen before is shown without asking.

const STATE = ["cached", "layer", "head", "step"];
const KEPT = 240; // frames, about 30 kB each
const PACE = 1000, SLOW = 2500; // milliseconds a step while playing; for those who want less motion

const STYLE = `
.kvviz-stepper { box-sizing: border-box; max-width: calc(100% - 4px); margin: 4px 2px;
  padding: 10px 12px; border: 1px solid #d0d0d3; border-radius: 8px; background: #fff;
  color: #1b1b1f; color-scheme: light; font: 13px/1.45 system-ui, sans-serif; }
.kvviz-stepper * { box-sizing: border-box; }
.kvviz-stepper :is(button, select, input):focus-visible, .kvviz-stepper:focus-visible {
  outline: 2px solid #2868b0; outline-offset: 2px; }
.kvviz-stepper .kv-controls { display: flex; flex-wrap: wrap; align-items: center; gap: 6px 8px;
  margin-bottom: 6px; }
.kvviz-stepper button, .kvviz-stepper select { height: 28px; margin: 0; padding: 0 10px;
  border: 1px solid #85858c; border-radius: 6px; background: #fff; color: inherit; font: inherit; }
.kvviz-stepper select { padding: 0 4px; }
.kvviz-stepper button:hover { background: #eeeef4; }
.kvviz-stepper button:active { background: #dfdfe8; }
.kvviz-stepper button[data-go=play] { min-width: 62px; }
.kvviz-stepper :is(label, .kv-step) { display: inline-flex; align-items: center; gap: 6px;
  min-height: 28px; margin: 0 4px 0 0; font: inherit; color: inherit; }
.kvviz-stepper .kv-step { flex: 1 1 190px; margin-right: 8px; }
.kvviz-stepper .kv-step label { flex: 1; margin: 0; }
.kvviz-stepper input { margin: 0; accent-color: #2868b0; }
.kvviz-stepper input[type=range] { flex: 1; min-width: 80px; height: 24px; }
.kvviz-stepper input[type=checkbox] { width: 18px; height: 18px; }
.kvviz-stepper output { min-width: 4em; text-align: right; white-space: nowrap;
  font-variant-numeric: tabular-nums; }
.kvviz-stepper .kv-picture, .kvviz-stepper .kv-words { display: grid; grid-template-columns: 100%; }
.kvviz-stepper .kv-picture > *, .kvviz-stepper .kv-words > * { grid-area: 1 / 1; margin: 0; }
.kvviz-stepper img { display: block; max-width: 100%; height: auto; }
.kvviz-stepper [role=alert] { place-self: center; max-width: 34em; color: #a3213b; }
.kvviz-stepper .kv-wait { place-self: start end; padding: 1px 8px; border-radius: 9px;
  background: #eeeef4; }
.kvviz-stepper .kv-words { margin-top: 4px; }
.kvviz-stepper [hidden], .kvviz-stepper .kv-longest { visibility: hidden; }
`;

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
  <label class="kv-switch"><input type="checkbox" role="switch"> With the cache</label>
</div>
<div class="kv-picture"><img alt="" decoding="sync"><p role="alert" hidden></p>
  <span class="kv-wait" hidden>waiting for the kernel</span></div>
<div class="kv-words"><p aria-live="polite"></p><p class="kv-longest" aria-hidden="true"></p></div>
`;

function render({ model, el }) {
  const about = model.get("_about"), heads = new Map(about.heads);
  const root = document.createElement("div");
  root.className = "kvviz-stepper";
  root.tabIndex = 0;
  root.setAttribute("role", "group");
  root.setAttribute("aria-label", "Stepper: left and right arrow keys walk the steps");
  root.innerHTML = `<style>${STYLE}</style>${PAGE}`;
  for (const each of [root, ...root.querySelectorAll("button, input, select")])
    each.dataset.lmSuppressShortcuts = "true"; // keys pressed here are not JupyterLab's shortcuts
  const [button, find] = [(name) => find(`[data-go=${name}]`), (css) => root.querySelector(css)];
  const slider = find("[type=range]"), number = find("output"), image = find("img");
  const layer = find("[data-name=layer]"), head = find("[data-name=head]");
  const cached = find("[type=checkbox]"), alarm = find("[role=alert]"), wait = find(".kv-wait");
  const words = find("[aria-live]"), longest = find(".kv-longest");
  Object.assign(image, { width: about.width, height: about.height });
  root.style.width = `${about.width + 26}px`;
  slider.max = about.steps - 1;
  longest.textContent = about.longest; // room for the longest sentence, so that nothing jumps
  if (!about.switch) find(".kv-switch").remove();
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
    if (!message.frame) return;
    const id = JSON.stringify(message.frame), { sentence, error } = message;
    const url = error ? undefined : URL.createObjectURL(new Blob(buffers, { type: "image/png" }));
    forget(id);
    frames.set(id, { url, sentence, error });
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
  root.onkeydown = (event) => {
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
    if (telling) tell();
    model.off("msg:custom", take);
    for (const name of STATE) model.off(`change:${name}`, follow);
    for (const { url } of frames.values()) if (url) URL.revokeObjectURL(url);
  };
}

export default { render };
